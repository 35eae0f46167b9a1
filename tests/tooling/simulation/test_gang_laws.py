"""Laws of gangs in virtual time: no part of one holds room, and one that cannot fit changes nothing for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.tooling.simulation.node_events import NodeAction, NodeEvent, NodeEvents
from kube_policy_scheduler.tooling.simulation.run import run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from tests.tooling.simulation.scenarios import node, pod, variant

WITHIN = 60.0
GANG = f"gang by pod.label.job size number(pod.label.size) {{}}within {WITHIN:g}s{{}} if pod label job\n"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
RULES = st.sampled_from(["", "with 1 of role=leader ", "within one rack ", "with 1 of role=leader within one rack "])


class Unit(NamedTuple):
    """A pod, or a gang with more pods than it needs, or fewer."""

    at: int
    size: int
    """0: a pod alone."""
    members: int
    cores: int
    lasts: int | None
    """Seconds; None: for ever."""
    priority: int = 0


UNITS = st.builds(
    Unit,
    at=st.integers(0, 100),
    size=st.integers(0, 4),
    members=st.integers(1, 6),
    cores=st.integers(1, 3),
    lasts=st.integers(10, 200),
    priority=st.just(0),
)
NODES = st.lists(st.tuples(st.integers(1, 6), st.sampled_from("ab")), min_size=1, max_size=4)


def arrivals_of(units: Sequence[Unit], *, name: str = "u") -> list[Arrival]:
    """Return the pods of some units, in the order in which they come."""
    found = []
    for number, unit in enumerate(units):
        for member in range(unit.members if unit.size else 1):
            made = pod(cpu=str(unit.cores), priority=unit.priority)
            if unit.size:
                role = "leader" if member == unit.members - 1 else "worker"
                made.metadata.labels = {"job": f"{name}{number}", "size": str(unit.size), "role": role}
            made.metadata.owner_references = [msgspec.convert(OWNER, objects.OwnerReference)]
            found.append(Arrival(unit.at, f"{name}{number}-{member}", made, unit.lasts))
    return sorted(found, key=lambda each: each.at)


def policy_of(rule: str) -> str:
    roles, _, levels = rule.partition("within")
    return GANG.format(roles, f" within{levels.rstrip()}" if levels else "")


class Watched:
    """What was seen in a run."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._sizes = {f"u{number}": unit.size for number, unit in enumerate(units)}
        self.started: dict[str, float] = {}
        """When each pod was first seen on a node, by name; those that start again have another one."""
        self.short: dict[str, float] = {}
        """Since when gangs run with fewer pods than they need, as no pod of theirs ends."""

    def look(self, at: float, cluster: Cluster) -> None:
        running: dict[str, int] = {}
        for each in cluster.pods.values():
            self.started.setdefault(each.name, at)
            job = each.labels.get("job")
            if job is not None:
                running[job] = running.get(job, 0) + 1
        for job, size in self._sizes.items():
            if 0 < running.get(job, 0) < size:
                since = self.short.setdefault(job, at)
                assert at - since <= WITHIN + 1e-6, "the rest of a gang that lost pods holds its nodes for `within`"
            else:
                self.short.pop(job, None)


@given(
    nodes=NODES,
    others=UNITS,
    times=st.lists(st.integers(0, 150), max_size=8),
    giant=UNITS.map(lambda unit: unit._replace(size=max(2, unit.size))),
    rule=RULES,
)
def test_a_gang_that_cannot_fit_changes_no_start_of_others(
    nodes: list[tuple[int, str]], others: Unit, times: list[int], giant: Unit, rule: str
) -> None:
    """As many of its pods come as it needs, or fewer or more; all nodes together are too small for its size.

    The others are alike: in which order pods that differ are tried depends on when others were refused.
    """
    cores = sum(cpus for cpus, _ in nodes)
    giant = giant._replace(size=max(giant.size, cores // giant.cores + 1))
    things = [node(f"n{at}", cpu=str(cpus), labels={"rack": rack}) for at, (cpus, rack) in enumerate(nodes)]

    def started(arrivals: list[Arrival]) -> dict[str, float]:
        watched = Watched(())
        scenario = Scenario(things, sorted(arrivals, key=lambda each: each.at))
        run(scenario, variant(policy_of(rule)), seed=0, stopwatch=lambda: 0.0, watch=watched.look)
        return watched.started

    theirs = arrivals_of([others._replace(at=at, size=0) for at in times])
    mine = arrivals_of([giant._replace(members=giant.size + giant.members - 3)], name="giant")
    found = started([*theirs, *mine])
    assert not any(name.startswith("giant") for name in found)
    assert sorted(found.values()) == sorted(started(theirs).values())


@given(
    nodes=NODES,
    units=st.lists(UNITS.map(lambda unit: unit._replace(lasts=None)), min_size=1, max_size=4),
    lost=st.lists(st.tuples(st.integers(10, 400), st.integers(0, 3), st.booleans()), max_size=3),
    rule=RULES,
)
def test_fewer_pods_than_a_gang_needs_run_only_after_a_loss_and_for_a_while(
    nodes: list[tuple[int, str]], units: list[Unit], lost: list[tuple[int, int, bool]], rule: str
) -> None:
    """Nodes go, and some of them come back; pods of lower priority are evicted for others."""
    units = [unit._replace(priority=number % 2) for number, unit in enumerate(units)]
    things = {f"n{at}": node(f"n{at}", cpu=str(cpus), labels={"rack": rack}) for at, (cpus, rack) in enumerate(nodes)}
    events = []
    for at, which, returns in sorted(lost):
        name = f"n{which % len(nodes)}"
        events.append(NodeEvent(float(at), NodeAction.REMOVE, name))
        if returns:
            events.append(NodeEvent(at + 90.0, NodeAction.ADD, name, things[name]))
    events.sort(key=lambda each: each.at)
    watched = Watched(units)
    scenario = Scenario(list(things.values()), arrivals_of(units), node_events=NodeEvents(tuple(events)))
    run(scenario, variant(policy_of(rule)), seed=0, stopwatch=lambda: 0.0, watch=watched.look)
    if not lost:
        assert watched.short == {}
