"""The same case with something beside it that must not matter, or told otherwise: what must stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from tests.quotas.accounts import Pod
from tests.quotas.invariants import Finding
from tests.quotas.model import Arrival, Case
from tests.quotas.trace import Trace

MANY_PODS = 100
"""With room for so many pods on each node, no case is short of it."""
Runs = Callable[[Case], Trace]


def differences(case: Case, runs: Runs, *, chance: Random) -> Iterator[Finding]:
    """Yield what changes with the variations of a case that must change nothing.

    runs: decides a case: the scheduler, or the model.
    """
    plain = runs(case)
    beside = irrelevant(case, chance)
    every_pod_matters = any(node.offers["pods"] < MANY_PODS for node in case.nodes)
    has_ties = len(case.nodes) > 1  # the law does not say how ties are broken, and other pods may change that
    if not every_pod_matters and not has_ties and decisions(plain) != decisions(runs(beside), without="idle"):
        yield Finding("14 irrelevance", "pods that request nothing that is short change evictions")
    if _ends_with_burst(case) and _uses(plain) != _uses(runs(apart(case))):
        yield Finding("18 burst", "equal pods at one moment have another outcome than one after another")
    hopeless = with_unfit_gang(case, chance)
    if decisions(plain) != decisions(runs(hopeless), without="huge"):
        yield Finding("16 nothing held", "a gang that fits nowhere changes what becomes of others")


def decisions(trace: Trace, *, without: str = "-") -> list[tuple[object, ...]]:
    """Return who was evicted for whom, and when each pod started; nothing of pods whose names begin so."""
    evicted = [(step.at, step.by, tuple(sorted(step.victims))) for step in trace.evictions]
    starts = [(at, name) for name, at in sorted(trace.starts.items()) if not name.startswith(without)]
    return [*evicted, *starts]


def irrelevant(case: Case, chance: Random) -> Case:
    """Return the case with pods that request a little of what nobody counts, and is never short."""
    queues = [queue.name for queue in case.queues] + [""]
    kind = Pod("", {"memory": 1 << 20, "pods": 1}, chance.choice(queues), chance.choice((0, 10)))
    return _with(case, [replace(kind, name=f"idle-{number}") for number in range(3)], chance)


def with_unfit_gang(case: Case, chance: Random) -> Case:
    """Return the case with a gang of which no member fits on any node."""
    queues = [queue.name for queue in case.queues] + [""]
    most = max(node.offers["memory"] for node in case.nodes)
    kind = Pod("", {"memory": most + 1, "pods": 1}, chance.choice(queues), chance.choice((0, 20)), "huge", 2)
    return _with(case, [replace(kind, name=f"huge-{number}") for number in range(2)], chance)


def _with(case: Case, pods: list[Pod], chance: Random) -> Case:
    moment = chance.choice([arrival.at for arrival in case.arrivals])
    return replace(case, arrivals=(*case.arrivals, Arrival(moment, tuple(pods))))


def _ends_with_burst(case: Case) -> bool:
    """Return whether the last thing that happens is that single equal pods come, and stay."""
    last = max(case.arrivals, key=lambda arrival: arrival.at)
    ends = [arrival.at + arrival.lasts for arrival in case.arrivals if arrival.lasts is not None]
    others = [arrival.at for arrival in case.arrivals if arrival is not last]
    is_last = all(at < last.at for at in [*ends, *others, *(at for at, _ in case.cordons)])
    return is_last and not last.pods[0].gang and last.lasts is None and len(case.nodes) == 1


def _uses(trace: Trace) -> dict[str, list[int]]:
    state = trace.last
    return {queue.name: [state.used(queue.name, r) for r in state.counted] for queue in state.queues}


def apart(case: Case) -> Case:
    """Return the case in which the pods of its last arrival come one second after the other."""
    last = max(case.arrivals, key=lambda arrival: arrival.at)
    others = tuple(arrival for arrival in case.arrivals if arrival is not last)
    singly = tuple(Arrival(last.at + at, (pod,), last.lasts) for at, pod in enumerate(last.pods))
    return replace(case, arrivals=others + singly)
