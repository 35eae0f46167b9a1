"""What is counted is all there when it is read, whoever counted and whenever it is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram

from kube_policy_scheduler.daemon.observing.quick_metrics import MOST_PENDING, QuickCounter, QuickHistogram

BOUNDS = (0.1, 1.0, 10.0)


def values(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.one_of(st.floats(0, 100), st.none()), max_size=60))
def test_they_say_what_those_of_the_library_say_whenever_they_are_read(seen: list[float | None]) -> None:
    """None: somebody reads."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    pairs = (
        (QuickCounter("c", "c", registry=ours), Counter("c", "c", registry=theirs)),
        (
            QuickHistogram("h", "h", buckets=BOUNDS, registry=ours),
            Histogram("h", "h", buckets=BOUNDS, registry=theirs),
        ),
    )
    for amount in seen:
        if amount is None:
            assert values(ours) == pytest.approx(values(theirs))
            continue
        for quick, plain in pairs:
            for metric in (quick, plain):
                metric.inc(amount) if isinstance(metric, Counter) else metric.observe(amount)
    assert values(ours) == pytest.approx(values(theirs))


def test_nothing_is_lost_between_threads() -> None:
    registry = CollectorRegistry()
    counter = QuickCounter("c", "c", registry=registry)
    histogram = QuickHistogram("h", "h", buckets=BOUNDS, registry=registry)

    def count(_: int) -> None:
        for _ in range(5 * MOST_PENDING):
            counter.inc()
            histogram.observe(0.5)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert values(registry)["c_total", ""] == 20 * MOST_PENDING
    assert values(registry)["h_bucket", "1.0"] == values(registry)["h_count", ""] == 20 * MOST_PENDING
    assert values(registry)["h_sum", ""] == 10 * MOST_PENDING


def test_errors_are_those_of_the_library() -> None:
    counter = QuickCounter("c", "c", ["of"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="label"):
        counter.inc()
    with pytest.raises(ValueError, match="non-negative"):
        counter.labels("x").inc(-1)
    histogram = QuickHistogram("h", "h", ["of"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="label"):
        histogram.observe(1.0)


def test_what_is_not_a_number_is_in_no_bucket() -> None:
    registry = CollectorRegistry()
    QuickHistogram("h", "h", buckets=BOUNDS, registry=registry).observe(float("nan"))
    assert values(registry)["h_count", ""] == 0
