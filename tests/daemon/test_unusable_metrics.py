"""A metric of which no value can be used is degraded, and logged with the reason once; whatever makes it so."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pytest

from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.prometheus.queries import PrometheusClient
from kube_policy_scheduler.cluster.signals import Query, Reading, Series, Signals
from kube_policy_scheduler.daemon.configuration.settings import PrometheusSettings
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.observing.signal_feed import SignalFeed
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from tests.daemon.deciding_stage import NOW, Stage, policies

NODES = 'metric load = promql("load") every 1s stale after 2min\nscore load ?? 0\nscore least_allocated()\n'
CLUSTER = 'metric load = promql("load") for cluster every 1s stale after 2min default 30\nfilter load < 50\n'
BY_ZONE = 'metric load = promql("load") by zone as node.label.zone every 1s stale after 2min\nscore load ?? 0\n'


def series(
    *values: float, age: float = 0.0, label: str = "node", names: Sequence[str] = ("n0", "n1", "n2", "n3")
) -> list[Series]:
    return [Series({label: name}, value, NOW - age) for name, value in zip(names, values, strict=False)]


GOOD = series(1, 2, 3, 4)
FAULTS: dict[str, tuple[list[Series] | float, str]] = {
    "all samples too old": (
        series(1, 2, 3, 4, age=200), "the newest sample is 200 s old, and at most 120 s are allowed",
    ),
    "all samples a little too old": (series(1, 2, 3, 4, age=120.6), "the newest sample is 121 s old"),
    "samples of different ages, all too old": (
        series(1, age=130) + series(2, age=500, names=["n1"]), "the newest sample is 130 s old",
    ),
    "not a number": (series(*[math.nan] * 4), "the value is not a finite number"),
    "infinite": (series(*[math.inf] * 4), "the value is not a finite number"),
    "beyond all measure": (series(*[1e300] * 4), "the value is not a number that can be used"),
    "a label that names no node": (
        series(1, 2, label="pod", names=["a", "b"]), "no node of that name, hostname or address",
    ),
    "another cluster's nodes": (series(1, 2, names=["x0", "x1"]), "no node of that name, hostname or address"),
    "several series for each node": (series(1, 2) + series(5, 6), "several series with different values"),
    "no labels": ([Series({}, 1.0, NOW)], "the answer has no labels"),
    "a scalar that is no number": (math.nan, "the value is not a finite number"),
}  # fmt: skip
STILL_USABLE: dict[str, tuple[list[Series] | float, int]] = {
    "one node is fresh": (series(1) + series(2, 3, 4, age=300, names=["n1", "n2", "n3"]), 3),
    "one node is a number": (series(1, math.nan, math.nan, math.nan), 3),
    "one node is known": (series(1, 2, 3, names=["n0", "x1", "x2"]), 3),
    "all": (GOOD, 0),
    "the clock of an exporter is ahead": (series(1, 2, 3, 4, age=-3000), 0),
    "a scalar": (0.5, 0),
}


OTHERS: list[tuple[str, list[Series] | float, str]] = [
    (CLUSTER, [Series({}, 1.0, NOW - 300)], "the newest sample is 300 s old"),
    (CLUSTER, [Series({}, math.nan, NOW)], "the value is not a finite number"),
    (CLUSTER, [Series({}, 1e300, NOW)], "the value is not a number that can be used"),
    (CLUSTER, [Series({}, 1.0, NOW)], ""),
    (CLUSTER, 3.0, ""),
    (BY_ZONE, series(1, 2, label="zone", names=["z0", "z1"], age=300), "the newest sample is 300 s old"),
    (BY_ZONE, series(1, 2, label="region", names=["z0", "z1"]), "2 series without the label `zone`"),
    (BY_ZONE, series(math.nan, math.nan, label="zone", names=["z0", "z1"]), "the value is not a finite number"),
    (BY_ZONE, series(1, label="zone", names=["z0"]), ""),
    (BY_ZONE, 3.0, "the answer is one number, expected series with the label `zone`"),
]


async def follow(
    rules: str,
    answers: Sequence[list[Series] | float],
    monkeypatch: pytest.MonkeyPatch,
) -> list[SignalRow]:
    """Return the row of the query after each of these answers."""
    stage = Stage(policies(rules))
    live = LivePolicies(stage.policy_set, scheduler_names=frozenset({"policy-scheduler"}))
    found: list[SignalRow] = []
    signals = Signals.EMPTY

    def fetch(_: object, query: Query) -> Reading:
        answer = answers[min(len(found), len(answers) - 1)]
        scalar = answer if isinstance(answer, float) else None
        return Reading("load", () if isinstance(answer, float) else answer, NOW, NOW, scalar=scalar)

    def publish(new: Signals) -> None:
        nonlocal signals
        signals = new

    monkeypatch.setattr(PrometheusClient, "fetch", fetch)
    feed = SignalFeed(
        PrometheusSettings(url="http://127.0.0.1:1"),
        publish=publish,
        joining=lambda queries, new: iter(()),
        missing=lambda: live.lay_out(signals, stage.cluster.nodes, now=NOW),
        unusable=lambda: live.unusable(signals, stage.cluster.nodes, now=NOW),
        clock=SettableClock(wall=lambda: NOW, steady=lambda: 0.0),
        loops=Loops(),
    )
    async with feed:
        feed.use(live.queries)
        for _ in answers:
            assert feed._source is not None
            for tracked in feed._source._tracked.values():  # no test waits for the next turn
                tracked.due = 0.0
                tracked.attempted.clear()
            await feed.prime(live.queries)
            found += feed.rows()
    return found


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_metric_without_a_usable_value_is_degraded_and_logged_once(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer, why = FAULTS[fault]
    with caplog.at_level(logging.INFO):
        before, then, still, after = await follow(NODES, [GOOD, answer, answer, GOOD], monkeypatch)
    assert [row.degraded for row in (before, then, still, after)] == [False, True, True, False]
    assert [row.missing_nodes for row in (before, then, still, after)] == [0, 4, 4, 0]
    told = [vars(record) for record in caplog.records if record.message.startswith("metric query gives")]
    assert [each["message"] for each in told] == [
        "metric query gives no value that can be used",
        "metric query gives values again",
    ]
    assert why in told[0]["why"]
    assert told[0]["query"] == told[1]["query"] == "load"


@pytest.mark.parametrize("case", STILL_USABLE)
async def test_a_metric_with_a_usable_value_is_not_degraded_and_its_missing_nodes_are_counted(
    case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer, missing = STILL_USABLE[case]
    (row,) = await follow(NODES, [answer], monkeypatch)
    assert (row.degraded, row.missing_nodes) == (False, missing)
    assert not [record for record in caplog.records if record.message.startswith("metric query gives")]


@pytest.mark.parametrize(("rules", "answer", "why"), OTHERS)
async def test_a_metric_of_the_cluster_or_of_a_label_is_degraded_alike(
    rules: str,
    answer: list[Series] | float,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (row,) = await follow(rules, [answer], monkeypatch)
    assert row.degraded == bool(why), caplog.text
    told = [vars(record)["why"] for record in caplog.records if record.message.startswith("metric query gives")]
    assert len(told) == bool(why)
    assert why in "".join(told)
