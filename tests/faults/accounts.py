"""Counts the results of pods by the API server's state: lost, bound twice, bound wrongly; with latencies."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.integration.cluster import Cluster
from tests.integration.conditions import POLL_SECONDS, eventually
from tests.integration.front import Front
from tests.integration.process import SchedulerProcess
from tests.patience import PATIENCE_SECONDS


def bindings(*fronts: Front) -> Counter[str]:
    """Return how often each pod was bound, over all schedulers, by what the API server answered."""
    return Counter(exchange.name for front in fronts for exchange in front.asked("create", "pods/binding", code=201))


def sound(cluster: Cluster, *fronts: Front) -> None:
    """See that no pod was bound twice, no node is overfull, and no kubelet refused one."""
    twice = {name: times for name, times in bindings(*fronts).items() if times > 1}
    assert twice == {}
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []


def settled(
    cluster: Cluster, front: Front, names: Sequence[str], *, after: str, answers_may_be_lost: bool = False
) -> None:
    """See all these pods bound in time, each once, and nothing overfull; print how long it took.

    answers_may_be_lost: the API server died, perhaps between a binding and its answer to the front.
    """
    with recovery(after):
        wait_all_bound(cluster, names)
    eventually(lambda: answers_may_be_lost or bindings(front).keys() >= set(names))
    sound(cluster, front)


def books_right(process: SchedulerProcess) -> None:
    """See that the scheduler's own recount found nothing wrong, and that nothing broke in it."""
    found = {name: n for name, n in process.metrics().items() if "invariant_violations_total" in name}
    assert found
    assert set(found.values()) == {0.0}
    assert "Traceback" not in process.log()


@contextmanager
def recovery(what: str, *, most_seconds: float = PATIENCE_SECONDS + 1.0) -> Iterator[Callable[[], float]]:
    """Time what happens within, and print it; `most_seconds` is a guard against never, not a goal."""
    began = time.monotonic()
    yield lambda: time.monotonic() - began
    took = time.monotonic() - began
    print(f"recovery: {what}: {took:.2f} s")
    assert took < most_seconds


def wait_all_bound(cluster: Cluster, names: Sequence[str], *, within: float = PATIENCE_SECONDS) -> None:
    """Wait until every one of these pods has a node; otherwise name those without one."""
    wanted = set(names)

    def waiting() -> list[str]:
        placed = cluster.placements()
        return sorted(name for name in wanted if not placed.get(name))

    # each look has the API server list them all, which it must not be too busy with to renew a lease
    pause = max(POLL_SECONDS, len(wanted) / 2000)
    eventually(lambda: not waiting(), within=within, every=pause, else_=lambda: (len(waiting()), waiting()[:20]))
