"""Caches of what tenants write: bounded in entries and in bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.bounded_cache import BoundedCache
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.pods import PASSED_ON, Templates


def cache(most: int, most_bytes: int) -> BoundedCache[int, str]:
    return BoundedCache(most=most, most_bytes=most_bytes, size_of=lambda key, value: len(value))


@given(st.lists(st.tuples(st.sampled_from(["get", "set", "pop"]), st.integers(0, 9), st.integers(0, 12))))
def test_it_keeps_what_was_used_last_as_far_as_both_bounds_let_it(steps: list[tuple[str, int, int]]) -> None:
    kept = cache(4, 20)
    model: dict[int, str] = {}
    """In order of use."""
    for what, key, size in steps:
        if what == "get":
            assert kept.get(key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        elif what == "pop":
            assert kept.pop(key) == model.pop(key, None)
        else:
            kept.set(key, "x" * size)
            model.pop(key, None)
            model[key] = "x" * size
            while len(model) > 1 and (len(model) > 4 or sum(map(len, model.values())) > 20):
                del model[next(iter(model))]
        assert len(kept) == len(model)
        assert kept.bytes == sum(map(len, model.values()))


def test_one_that_is_too_large_alone_stays_until_the_next_comes() -> None:
    kept = cache(4, 20)
    kept.set(1, "x")
    kept.set(2, "x" * 30)
    assert (kept.get(1), kept.get(2)) == (None, "x" * 30)
    kept.set(3, "x")
    assert (kept.get(2), kept.get(3)) == (None, "x")


def pod(name: str, *, image: str, **status: object) -> Pod:
    made = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [{"name": "c", "image": image}]},
        "status": status,
    }
    return msgspec.convert(made, Pod)


@pytest.mark.parametrize("length", [10, 10_000])
def test_templates_of_pods_that_are_gone_are_kept_up_to_a_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.cluster.pods._RECENT_BYTES", 100_000)
    templates = Templates()
    first = templates.pod(pod("p", image="x" * length)).template
    assert templates.pod(pod("q", image="x" * length)).template is first
    for number in range(40):
        templates.pod(pod(f"p{number}", image=f"{number:04}" + "x" * length))
    assert len(templates) == (41 if length == 10 else 1 + 100_000 // (first.size + 4))
    assert templates.pod(pod("r", image="x" * length)).template is first, "it is in use"


def test_only_conditions_of_pods_that_are_read_are_kept() -> None:
    kinds = ("PodScheduled", "Ready", "DisruptionTarget", "tenants.example/Story", PASSED_ON)
    info = Templates().pod(pod("p", image="i", conditions=[{"type": kind, "message": "m" * 9} for kind in kinds]))
    assert {condition.type for condition in info.conditions} == {"PodScheduled", "DisruptionTarget", PASSED_ON}
