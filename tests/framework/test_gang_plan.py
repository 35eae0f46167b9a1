"""Plans of whole gangs: in turns of the event loop or in one go, listed or carried out, they come to the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, count, product
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import within
from kube_policy_scheduler.cluster.steps import Unfinished, in_turn
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.gang_domains import Shortfall
from kube_policy_scheduler.framework.evaluate.nominations import nominate
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.groups import attempt as attempts
from kube_policy_scheduler.framework.groups import members as in_gangs
from kube_policy_scheduler.framework.groups import seating as seats
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.plan import Plan, Planner
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import (
    Membership,
    QueuedPod,
    SchedulingQueue,
    priority_position,
)
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.times import Steady
from tests.policy.test_preempt import ANTI_AFFINITY
from tests.policy.worlds import node, pod, policy

NOW = 1e9
GANG = "gang by pod.label.job size number(pod.label.size) if pod.label.job\n"
RECLAIM = """
queue a for pods where pod.label.job min cpu 8
queue b for pods where not pod.label.job
reclaim
"""
Found = dict[str, tuple[str | None, tuple[str, ...]]] | None
"""By member: its node, and whom it evicts."""


Amounts = tuple[int, int]
"""Cores, and GiB of memory."""


class Member(NamedTuple):
    """A member of a gang."""

    asks: Amounts
    role: str
    avoids: str | None
    """A node on which it may not be."""

    @property
    def requests(self) -> dict[str, str]:
        return {"cpu": str(self.asks[0]), "memory": f"{self.asks[1]}Gi"}


@lru_cache
def policies(text: str) -> PolicySet:
    """Return a policy of a text."""
    return PolicySet.of([policy(text)])


class Algorithm(ScheduleAlgorithm):
    """Decides by one policy."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        super().__init__(cluster, Cycle(), lambda: NOW)
        self._policies = policies(text)

    def profile(self, pod: PodInfo) -> Profile | None:
        return self._policies.profile_of(pod)

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        return self._policies.gang_requirements(queued, self.frame)


class Stage:
    """A cluster, a gang that waits, and its planner."""

    def __init__(
        self,
        nodes: Mapping[str, int],
        placed: list[tuple[int, int, str]],
        *,
        text: str = GANG,
        rules: KubernetesRules = DEFAULT_RULES,
    ) -> None:
        """nodes: cores by name. placed: cores, priority and node of each running pod."""
        self.cluster = Cluster(rules)
        for name, cores in nodes.items():
            self.cluster.set_node(node(name, cpu=str(cores)))
        for number, (cores, priority, on) in enumerate(placed):
            self.run(f"low{number}", on, cores=cores, priority=priority)
        self.algorithm, self.queue = Algorithm(self.cluster, text), SchedulingQueue()
        self.queue.use(
            position=priority_position,
            hold=lambda _: None,
            membership=self._membership,
            placed=self.cluster.counters.group_size,
        )
        self.planner = Planner(self.cluster, self.queue, self.algorithm, clock=lambda: NOW, waiting={})

    def _membership(self, queued: QueuedPod) -> Membership:
        requirements = self.algorithm.gang_requirements(queued)
        return Membership(tuple(group for each in requirements for group in each.groups), requirements)

    def run(self, name: str, on: str, *, cores: int, priority: int, job: str = "", size: int = 0) -> None:
        labels = {"job": job, "size": str(size)} if job else {}
        self.cluster.place(pod(self.cluster, name, cpu=str(cores), priority=priority, labels=labels), on)

    def planned(
        self, first: QueuedPod, *, most: float = inf, between: Callable[[], None] = lambda: None
    ) -> Plan | Shortfall:
        """Plan the gang on free nodes; `between`: what happens after a turn."""
        requirements, turns = self.algorithm.gang_requirements(first), 0
        while isinstance(found := in_turn(self.planner.plan(first, requirements), most=most), Unfinished):
            between()
            turns += 1
            assert turns < 2_000, "a plan comes to its end"
        return found

    def gang(self, cores: list[int], *, size: int, **spec: Any) -> QueuedPod:
        labels = {"job": "g", "size": str(size)}
        for number, each in enumerate(cores):
            self.queue.add(pod(self.cluster, f"g{number}", cpu=str(each), priority=10, labels=labels, **spec), NOW)
        first = self.queue.pop(NOW)
        assert first is not None
        return first

    def members(self, members: Sequence[Member], *, size: int) -> QueuedPod:
        for number, each in enumerate(members):
            labels = {"job": "g", "size": str(size), "role": each.role}
            elsewhere = [{"key": "host", "operator": "NotIn", "values": [each.avoids]}] if each.avoids else []
            required = {"nodeSelectorTerms": [{"matchExpressions": elsewhere}]}
            node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
            spec: dict[str, Any] = {"affinity": {"nodeAffinity": node_affinity}} if elsewhere else {}
            spec["containers"] = [{"name": "c", "resources": {"requests": each.requests}}]
            self.queue.add(pod(self.cluster, f"g{number}", labels=labels, **spec), NOW)
        first = self.queue.pop(NOW)
        assert first is not None
        return first

    def tried(self, first: QueuedPod, *, most: float = inf, between: Callable[[int], None] = lambda _: None) -> Found:
        """Plan the gang, by evictions if need be; `between`: what happens after a turn, by its number."""
        turns = count()
        found = self.planned(first, most=most, between=lambda: between(next(turns)))
        if isinstance(found, Shortfall):
            return None
        return {uid: (decision.host, ()) for uid, decision in found.decisions.items()} | {
            uid: (each.nominated_node, tuple(victim.name for victim in each.victims))
            for uid, each in found.nominations.items()
        }

    def picture(self) -> object:
        """Return all that a trial must leave as it was."""
        cluster, nodes = self.cluster, self.cluster.nodes
        return (
            {name: sorted(there) for name, there in cluster.on_node.items()},
            nodes.requested("cpu").tolist(),
            nodes.pod_count.tolist(),
            cluster.priorities.below(10, "cpu", nodes.size).tolist(),
        )


@st.composite
def stages(draw: st.DrawFn) -> tuple[Callable[[], Stage], list[int], int, dict[str, Any]]:
    """Draw how a stage is made, the cores of the members, the size of the gang, and what else its pods have."""
    nodes = {f"n{number}": draw(st.integers(1, 6)) for number in range(draw(st.integers(1, 8)))}
    free, placed = dict(nodes), list[tuple[int, int, str]]()
    for _ in range(draw(st.integers(0, 20))):
        cores, priority, on = (
            draw(st.integers(1, 3)),
            draw(st.integers(0, 2) | st.just(20)),
            draw(st.sampled_from([*nodes])),
        )
        if free[on] >= cores:
            free[on] -= cores
            placed.append((cores, priority, on))
    text = GANG + draw(st.sampled_from(["", "", "preempt if true evict where victim.priority < 2\n"]))
    members = (
        draw(st.lists(st.integers(1, 2), min_size=2, max_size=7))
        if draw(st.booleans())
        else [draw(st.integers(1, 3))] * 6
    )
    spec = draw(st.sampled_from([{}, {}, {"affinity": ANTI_AFFINITY["affinity"]}]))
    return (lambda: Stage(nodes, placed, text=text)), members, draw(st.integers(2, len(members))), spec


@given(stages(), st.sampled_from([1, 40, 200]))
def test_a_plan_in_turns_comes_to_the_same_as_in_one_go(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]], most: int
) -> None:
    make, members, size, spec = drawn
    plain, turns = make(), make()
    before = plain.picture()
    found = plain.tried(plain.gang(members, size=size, **spec))
    assert plain.picture() == before
    first = turns.gang(members, size=size, **spec)
    assert turns.tried(first, most=most, between=lambda _: check(turns.picture() == before)) == found
    assert turns.picture() == before


@given(stages())
def test_members_that_are_placed_before_room_is_looked_for_come_to_the_same(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]],
) -> None:
    make, members, size, spec = drawn
    found = list[object]()
    for nodes_a_decision in (0, 10**9):
        stage = make()
        before = stage.picture()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(seats, "NODES_A_DECISION", nodes_a_decision)
            planned = stage.planned(stage.gang(members, size=size, **spec))
        assert stage.picture() == before
        if isinstance(planned, Shortfall):
            message = planned.rejection.message if planned.rejection is not None else ""
            found.append((planned.message, planned.rejected_by, planned.cut, message))
        else:
            evicted = {uid: [victim.name for victim in each.victims] for uid, each in planned.nominations.items()}
            found.append((hosts_of(planned), evicted))
    assert found[0] == found[1]


def check(holds: bool) -> None:
    assert holds


class CarriedOut(Attempt):
    """Has the columns show each eviction at once, and asks them what fits."""

    def _is_alone(self, found: Preemption) -> bool:
        return False


@given(stages())
def test_evictions_that_are_listed_come_to_the_same_as_those_that_are_carried_out(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]],
) -> None:
    make, members, size, spec = drawn
    listed, plain = make(), make()

    def carried_out(members: int) -> Attempt:
        return CarriedOut(plain.cluster, plain.algorithm, waiting={}, members=members)

    plain.planner._new_attempt = carried_out  # type: ignore[method-assign]
    assert listed.tried(listed.gang(members, size=size, **spec)) == plain.tried(plain.gang(members, size=size, **spec))


@given(
    stages(),
    st.sampled_from([1, 100]),
    st.lists(st.tuples(st.sampled_from(["end", "come"]), st.integers(0, 19)), max_size=6),
)
def test_what_changes_between_turns_leaves_a_result_that_holds(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]], most: int, changes: list[tuple[str, int]]
) -> None:
    make, members, size, spec = drawn
    stage = make()
    first = stage.gang(members, size=size, **spec)

    def between(turn: int) -> None:
        if turn >= len(changes):
            return
        what, number = changes[turn]
        if what == "end":
            stage.cluster.displace(f"low{number}")
        else:
            info = stage.cluster.nodes.infos[number % stage.cluster.nodes.size]
            if stage.cluster.nodes.requested("cpu").item(info.row) + 1000 <= info.allocatable["cpu"]:
                stage.run(f"new{number}", info.name, cores=1, priority=0)

    found = stage.tried(first, most=most, between=between)
    if found is None:
        return
    by_uid = {queued.pod.uid: queued for queued in stage.queue}
    pods = {victim.name: victim for victim in stage.cluster.pods.values()}
    for _, victims in found.values():
        for victim in victims:
            assert victim in pods, "it is still there"
            assert stage.cluster.displace(pods.pop(victim).uid) is not None
    for uid, (host, _) in found.items():
        assert host is not None
        assert stage.algorithm.passes(by_uid[uid], host)
        stage.cluster.place(by_uid[uid].pod, host)
    (requirement,) = stage.algorithm.gang_requirements(first)
    left = [queued for uid, queued in by_uid.items() if uid not in found]
    assert not stage.planner.members.lacks(requirement) or isinstance(stage.planned(left[0]), Plan)


def test_members_use_the_room_that_victims_of_others_leave_first() -> None:
    stage = Stage({f"n{number}": 6 for number in range(4)}, [(6, 0, f"n{number}") for number in range(4)])
    found = stage.tried(stage.gang([2] * 6, size=6))
    assert found is not None
    assert sorted(victims for _, victims in found.values() if victims) == [("low0",), ("low1",)]
    assert len(found) == 6, "the others are nominated to the nodes that are being freed"


def test_a_victim_stays_if_a_later_one_makes_room_for_all() -> None:
    stage = Stage({"n0": 8, "n1": 2}, [(6, 0, "n0"), (2, 0, "n0"), (2, 20, "n1")])
    found = stage.tried(stage.gang([3] * 2, size=2))
    assert found is not None
    assert [name for _, victims in found.values() for name in victims] == ["low0"]
    assert {host for host, _ in found.values()} == {"n0"}


def test_no_victim_stays_in_the_room_that_is_kept_for_a_nominated_pod() -> None:
    stage = Stage({"n0": 8}, [(4, 0, "n0"), (4, 0, "n0")])
    stage.cluster.nominate(pod(stage.cluster, "kept", cpu="2", priority=20), "n0")
    found = stage.tried(stage.gang([2] * 2, size=2))
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["low0", "low1"]


@pytest.mark.parametrize("priority", [5, 10])
def test_a_gang_evicts_nobody_by_priority_while_those_end_that_it_evicted_by_reclaim(priority: int) -> None:
    """Whatever their priority, it waits for them: a node with others of a lower priority comes meanwhile."""
    stage = Stage({"n0": 8}, [(4, priority, "n0"), (4, priority, "n0")], text=f"{GANG}{RECLAIM}")
    plan = stage.planned(stage.gang([4, 4], size=2))
    assert isinstance(plan, Plan)
    by_uid = {queued.pod.uid: queued for queued in stage.queue}
    for uid, found in plan.nominations.items():
        together = stage.algorithm.frame_with_gang(by_uid[uid]).together
        nominate(stage.cluster, by_uid[uid], found.nominated_node or "", together=together)
        stage.cluster.note_evictions((victim.uid for victim in found.victims), Steady(NOW))
    stage.cluster.set_node(node("n1", cpu="8"))
    for number in range(2):
        stage.run(f"other{number}", "n1", cores=4, priority=0)
    short = stage.planned(by_uid["g0"])
    assert isinstance(short, Shortfall)
    assert short.awaits_victims


def test_a_gang_that_waits_for_its_victims_goes_on_waiting_though_an_attempt_found_no_others() -> None:
    """For a moment a pod of another scheduler stands in its way, and then the room that its victims leave is enough."""
    all_of_them = "queue all for pods where pod.priority < 20 max cpu 8\n"
    text = GANG + all_of_them + RECLAIM.replace("queue a", "queue a of all").replace("queue b", "queue b of all")
    stage = Stage({"n0": 8, "n1": 1}, [(3, 0, "n0"), (4, 0, "n0"), (1, 0, "n1")], text=text)
    plan = stage.planned(stage.gang([4, 3], size=2))
    assert isinstance(plan, Plan)
    by_uid = {queued.pod.uid: queued for queued in stage.queue}
    for uid, found in plan.nominations.items():
        together = stage.algorithm.frame_with_gang(by_uid[uid]).together
        nominate(stage.cluster, by_uid[uid], found.nominated_node or "", together=together)
        stage.cluster.note_evictions((victim.uid for victim in found.victims), Steady(NOW))
    stage.run("other", "n0", cores=2, priority=20)
    short = stage.planned(by_uid["g0"])
    assert isinstance(short, Shortfall)
    assert short.reclaim is not None
    assert short.reclaim.found_nobody
    stage.cluster.nominate(by_uid["g0"].pod, "")
    stage.queue.rejected(by_uid["g0"], short.rejected_by, Steady(NOW))
    stage.cluster.remove("other")
    other = stage.queue.take("g1")
    assert other is not None
    short = stage.planned(other)
    assert isinstance(short, Shortfall)
    assert short.reclaim is not None
    assert short.reclaim.waits


def test_a_gang_stays_whole_if_a_later_one_makes_room_for_all() -> None:
    stage = Stage({"n0": 10}, [])
    for job, cores in (("large", 3), ("small", 1)):
        for number in range(2):
            stage.run(f"{job}{number}", "n0", cores=cores, priority=0, job=job, size=2)
    found = stage.tried(stage.gang([2] * 3, size=3))
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["large0", "large1"]


def test_no_surplus_pod_stays_of_a_gang_that_goes() -> None:
    """One member evicts the surplus pod, the next one the others; then there is room for one pod, but not for both."""
    stage = Stage({"n0": 10}, [(2, 20, "n0")])
    for number in range(3):
        stage.run(f"a{number}", "n0", cores=2, priority=0, job="a", size=2)
    found = stage.tried(stage.gang([2] * 3, size=3))
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["a0", "a1", "a2"]


def test_a_surplus_pod_stays_though_another_one_of_its_gang_goes() -> None:
    low = [(2, 5, "n0"), (2, 5, "n0"), (2, 4, "n0"), (2, 0, "n1")]
    stage = Stage({"n0": 7, "n1": 3, "n2": 2}, low)
    for number, name, priority in ((0, "n2", 1), (1, "n2", 1), (2, "n0", 0), (3, "n1", 0)):
        stage.run(f"a{number}", name, cores=1, priority=priority, job="a", size=2)
    found = stage.tried(stage.gang([3] * 3, size=3))
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["a3", "low0", "low1", "low2", "low3"]


EVEN = {
    "maxSkew": 1,
    "topologyKey": "rack",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
}
QUIET = "filter count(p in cluster.pods where p.priority <= 0) < 1 if pod.priority > 0\n"


def test_a_gang_evicts_pods_on_several_nodes_where_no_node_alone_makes_room_for_a_member() -> None:
    """As long as one noisy pod is anywhere no member starts, and a search for one member looks at one node."""
    stage = Stage({"n0": 2, "n1": 2, "n2": 2}, [(1, 0, "n0"), (1, 0, "n1"), (1, 5, "n2")], text=GANG + QUIET)
    found = stage.tried(stage.gang([1] * 3, size=2))
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["low0", "low1"]
    assert len(found) == 2, "no room is made for a member that the gang can do without"


def test_a_victim_stays_if_one_that_is_asked_later_makes_that_possible() -> None:
    """Two in rack a are too many, by maxSkew, until the one in rack b has come back, which is less important."""
    stage = Stage({}, [], text=GANG + QUIET)
    for name, rack in (("n0", "a"), ("n1", "b")):
        stage.cluster.set_node(node(name, cpu="8", rack=rack, host=name))
        stage.run(f"noisy-{rack}", name, cores=1, priority=0)
    for name, host, priority, labels in (
        ("pair0", "n0", 5, {"job": "r", "size": "2"}),
        ("pair1", "n0", 5, {"job": "r", "size": "2"}),
        ("one", "n1", 3, {}),
    ):
        stage.cluster.place(pod(stage.cluster, name, priority=priority, labels=labels | {"app": "x"}), host)
    for number in range(2):
        labels = {"job": "g", "size": "2", "app": "g"}
        made = pod(stage.cluster, f"g{number}", priority=10, labels=labels, topologySpreadConstraints=[EVEN])
        stage.queue.add(made, NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    found = stage.tried(first)
    assert found is not None
    assert sorted(name for _, victims in found.values() for name in victims) == ["noisy-a", "noisy-b"]


def test_a_member_that_must_be_beside_another_one_does_not_keep_it_from_evicting() -> None:
    """The first one finds nobody whose eviction helps it: the pod that it must be beside waits, too."""
    stage = Stage({"n0": 2}, [(2, 0, "n0")])
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"role": "leader"}}}
    stage.cluster.set_node(node("n0", cpu="2", host="n0"))
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for name, spec in (("worker", {"affinity": near}), ("leader", {})):
        labels = {"job": "g", "size": "2", "role": name}
        stage.queue.add(pod(stage.cluster, name, priority=10, labels=labels, **spec), NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    assert first.pod.name == "worker"
    found = stage.tried(first)
    assert found is not None
    assert {uid: host for uid, (host, _) in found.items()} == {"worker": "n0", "leader": "n0"}
    assert [name for _, victims in found.values() for name in victims] == ["low0"]


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        ([2], 'filter any(p in node.pods where p.label.role == "cache") if pod.label.role == "near"\n'),
        ([1, 1], 'filter any(p in cluster.pods where p.label.role == "cache") if pod.label.role == "near"\n'),
    ],
)
def test_a_gang_evicts_nobody_whom_one_of_its_members_needs(nodes: list[int], rule: str) -> None:
    """One member is placed beside a pod, which is the only one that could make room for the other member."""
    stage = Stage({f"n{number}": cores for number, cores in enumerate(nodes)}, [], text=GANG + rule)
    stage.cluster.place(pod(stage.cluster, "low", labels={"role": "cache"}), f"n{len(nodes) - 1}")
    for name in ("near", "other"):
        labels = {"job": "g", "size": "2", "role": name}
        stage.queue.add(pod(stage.cluster, name, priority=10, labels=labels), NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    assert stage.tried(first) is None


def test_a_member_for_which_nobody_makes_room_keeps_no_gang_from_evicting_that_can_do_without_it() -> None:
    stage = Stage({"n0": 2, "n1": 2}, [(2, 0, "n0"), (2, 0, "n1")])
    found = stage.tried(stage.gang([9, 2, 2], size=2))
    assert found is not None
    assert found.keys() == {"g1", "g2"}
    assert sorted(name for _, victims in found.values() for name in victims) == ["low0", "low1"]


@pytest.mark.parametrize("first", [0, 10])
def test_members_of_other_priorities_evict_each_only_what_it_may(first: int) -> None:
    """The one that is decided may evict nobody, or somebody whom another member may not evict."""
    stage = Stage({"n0": 2, "n1": 2}, [(2, 5, "n0")])
    for name, priority in (("a", first), ("b", 10 - first)):
        labels = {"job": "g", "size": "2"}
        stage.queue.add(pod(stage.cluster, name, cpu="2", priority=priority, labels=labels), NOW)
    queued = stage.queue.take("a")
    assert queued is not None
    found = stage.tried(queued)
    assert found is not None
    important = "b" if first == 0 else "a"
    assert found[important] == ("n0", ("low0",))
    assert {host for host, _ in found.values()} == {"n0", "n1"}


@st.composite
def looking_elsewhere(draw: st.DrawFn) -> tuple[Stage, QueuedPod]:
    """Draw a gang of members that are alike, with rules that count pods on other nodes; without regard to budgets."""
    nodes = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from("ab")), min_size=1, max_size=4))
    clause = draw(st.sampled_from([GANG, GANG, GANG.replace(" if", " within one rack if")]))
    text = clause + draw(
        st.sampled_from(
            [
                "",
                QUIET,
                "limit count() to 2 over rack\n",
                "limit sum(pod.request.cpu) by pod.namespace to 4\n",
                'filter count(p in cluster.pods where p.label.app == "noisy" and p.priority < 5) < 2\n',
            ]
        )
    )
    stage = Stage({}, [], text=text)
    for at, (cores, rack) in enumerate(nodes):
        stage.cluster.set_node(node(f"n{at}", cpu=str(cores), rack=rack, host=f"n{at}"))
    required = "requiredDuringSchedulingIgnoredDuringExecution"

    def apart(key: str, app: str) -> dict[str, Any]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
        return {"affinity": {"podAntiAffinity": {required: [term]}}}

    left = [cores for cores, _ in nodes]
    for number in range(draw(st.integers(0, 6))):
        at, priority = draw(st.integers(0, len(nodes) - 1)), draw(st.sampled_from([0, 0, 3, 20]))
        spec = draw(st.sampled_from([{}, {}, apart("rack", "g"), apart("host", "g")]))
        labels = {"app": draw(st.sampled_from(["noisy", "other"]))}
        if job := draw(st.sampled_from(["", "", "r", "s"])):
            labels |= {"job": job, "size": "2"}
        if left[at]:
            left[at] -= 1
            low = pod(stage.cluster, f"low{number}", priority=priority, labels=labels, **spec)
            stage.cluster.place(low, f"n{at}")
    spec = draw(
        st.sampled_from([{}, {}, apart("rack", "noisy"), apart("host", "g"), {"topologySpreadConstraints": [EVEN]}])
    )
    size = draw(st.integers(2, 4))
    for number in range(size + draw(st.integers(0, 1))):
        labels = {"job": "g", "size": str(size), "app": "g"}
        stage.queue.add(pod(stage.cluster, f"g{number}", priority=10, labels=labels, **spec), NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    return stage, first


@given(looking_elsewhere())
def test_a_gang_evicts_if_it_fits_once_all_are_gone_that_may_go_and_no_victim_could_stay(
    drawn: tuple[Stage, QueuedPod],
) -> None:
    """By the rules that look at other nodes too: kube-scheduler's preemption for PodGroups asks just that."""
    stage, first = drawn
    (requirement,) = stage.algorithm.gang_requirements(first)
    before = stage.picture()
    found = stage.planned(first)
    assert stage.picture() == before
    profile = stage.algorithm.profile(first.pod)
    assert profile is not None
    rules = EvictionRules(stage.algorithm.frame(first), profile)
    lower = {
        each.uid: (each, stage.cluster.node_of(each.uid) or "")
        for each in stage.cluster.pods.values()
        if rules.allow(each)
    }
    units = rules.units(each for each, _ in lower.values())
    for uid in lower:
        stage.cluster.displace(uid)
    fits = stage.planner.places(first, (requirement,), settles=False) is not None
    assert isinstance(found, Plan) or not fits
    if not isinstance(found, Plan) or found.instead_of is None:
        return
    victims = {victim.uid for each in found.nominations.values() for victim in each.victims}
    assert victims
    members = {queued.pod.uid: queued for queued in stage.queue}
    hosts = {uid: each.nominated_node or "" for uid, each in found.nominations.items()}
    assert len(hosts) >= requirement.size
    for uid in lower.keys() - victims:
        stage.cluster.place(*lower[uid])
    for uid, host in hosts.items():
        stage.cluster.place(members[uid].pod, host)
    assert all(stage.algorithm.still_fits(members[uid], host) for uid, host in hosts.items())
    for unit in units:
        uids = {each.uid for each in unit.pods}
        assert uids <= victims or uids.isdisjoint(victims), "no gang loses a part of what it needs"
        are_alone = all(each.uid not in victims for each in unit.core)
        assert are_alone or uids <= victims, "no surplus stays without its gang"
        if uids <= victims and are_alone:
            for uid in uids:
                stage.cluster.place(*lower[uid])
            assert not all(stage.algorithm.still_fits(members[each], host) for each, host in hosts.items())
            for uid in uids:
                stage.cluster.displace(uid)


def test_what_turns_repeat_does_not_grow_as_the_square_of_the_members() -> None:
    members = 1_000
    stage = Stage({f"n{number}": 1 for number in range(members)}, [])
    found = stage.tried(stage.gang([1] * members, size=members), most=3_000)
    assert len(found or ()) == members
    assert stage.algorithm.moves < 12 * members


def test_the_limit_is_work_done_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried() -> Found:
        stage = Stage({f"n{number}": 2 for number in range(4)}, [(2, 0, f"n{number}") for number in range(4)])
        return stage.tried(stage.gang([2] * 4, size=4))

    assert len(tried() or ()) == 4
    monkeypatch.setattr(attempts, "MOST_PLAN_WORK", 100)
    assert tried() is None


def hosts_of(found: Plan | Shortfall) -> dict[str, str | None] | None:
    """Return the nodes by member; None if there is no plan."""
    return {uid: decision.host for uid, decision in found.decisions.items()} if isinstance(found, Plan) else None


def test_a_plan_that_changes_set_back_again_and_again_is_finished_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, turns = Stage(ROOMY, []), 0
    first = stage.gang([2] * 20, size=20)  # there is room for 16
    monkeypatch.setattr(seats.Seating, "has_room", lambda *_, **__: True)
    monkeypatch.setattr(attempts, "_MOST_BESIDE", 0)
    before = stage.picture()

    def between() -> None:
        nonlocal turns
        turns += 1
        for name in ROOMY:
            stage.run("comes", name, cores=1, priority=0)
            stage.cluster.displace("comes")

    assert isinstance(stage.planned(first, most=1, between=between), Shortfall)
    assert 1 < turns < 100
    assert stage.picture() == before


def test_a_plan_goes_on_though_pods_come_to_the_nodes_of_its_members() -> None:
    stage = Stage({f"n{number}": 3 for number in range(13)}, [])
    first, turns = stage.gang([1] * 12, size=12), count()

    def between() -> None:
        turn = next(turns)
        stage.run(f"comes{turn}", f"n{turn}", cores=1, priority=0)

    found = stage.planned(first, most=1, between=between)
    assert len(set((hosts_of(found) or {}).values()) & {f"n{turn}" for turn in range(next(turns))}) > 1
    assert stage.algorithm.decisions == 12


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("size", [4, 8, 12, 30])
def test_a_member_whose_node_is_taken_between_turns_gets_another_one(size: int, is_gone: bool) -> None:
    def planned(taken: str) -> tuple[list[str | None], int]:
        """Return the nodes of members, and how many decisions were made; of each node, one takes it whole."""
        stage = Stage({f"n{number}": 2 for number in range(size + 1)}, [])
        first, turns = stage.gang([2] * size, size=size), count()

        def between() -> None:
            if next(turns) == 0 and taken:  # the first member has got a node
                if is_gone:
                    stage.cluster.remove_node(taken)
                    stage.cluster.set_node(node("new", cpu="2"))
                else:
                    stage.run("takes", taken, cores=2, priority=20)

        hosts = hosts_of(stage.planned(first, most=1, between=between))
        assert hosts is not None
        assert set(hosts.values()) <= set(stage.cluster.nodes.rows)
        return [*hosts.values()], stage.algorithm.decisions

    before, decisions = planned("")
    assert decisions == size
    after, decisions = planned(str(before[0]))
    assert before[0] not in after
    assert len(set(after)) == size
    assert decisions == size + 1


def test_if_no_other_node_takes_a_member_the_plan_starts_over_and_leaves_nothing() -> None:
    stage = Stage({f"n{number}": 2 for number in range(8)}, [(2, 20, f"n{number}") for number in range(2, 8)])
    first, turns, before = stage.gang([2, 2], size=2), count(), stage.cluster.nodes.requested("cpu").tolist()

    def between() -> None:
        if next(turns) == 1:  # both have got a node
            stage.run("takes", "n0", cores=2, priority=20)

    assert isinstance(stage.planned(first, most=1, between=between), Shortfall)
    assert next(turns) > 1
    assert not stage.cluster.pods_on("n1")
    assert stage.cluster.nodes.requested("cpu").tolist() == [2000, *before[1:]]


def test_members_that_need_each_other_stay_together_though_the_node_of_one_is_taken() -> None:
    zone = "topology.kubernetes.io/zone"
    term = {"labelSelector": {"matchLabels": {"app": "g0"}}, "topologyKey": zone}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def planned(taken: str) -> list[int]:
        """Return the nodes of three members; the first one's is taken once all have got one. Two zones have four."""
        stage, turns = Stage({}, []), count()
        for number in range(8):
            stage.cluster.set_node(node(f"n{number}", cpu="2", **{zone: f"z{number // 4}"}))
        for number, spec in enumerate(({}, near, near)):
            labels = {"job": "g", "size": "3", "app": f"g{number}"}
            stage.queue.add(pod(stage.cluster, f"g{number}", cpu="2", priority=10, labels=labels, **spec), NOW)
        first = stage.queue.pop(NOW)
        assert first is not None

        def between() -> None:
            if next(turns) == 2 and taken:
                zone_of_first = int(taken[1:]) // 4
                for number in range(8):  # the others of its zone have the members
                    if number // 4 == zone_of_first and number not in hosts:
                        stage.run(f"fills{number}", f"n{number}", cores=2, priority=0)
                stage.run("takes", taken, cores=2, priority=0)

        found = hosts_of(stage.planned(first, most=1, between=between))
        assert found is not None
        return [int(str(found[f"g{number}"])[1:]) for number in range(3)]

    hosts: list[int] = []
    hosts = planned("")
    assert len({host // 4 for host in planned(f"n{hosts[0]}")}) == 1


NOWHERE = {"nodeSelector": {"no": "node"}}
ROOMY = {f"n{number}": 8 for number in range(4)}


def work_of(stage: Stage, cores: list[int], **spec: Any) -> tuple[Plan | Shortfall, int]:
    """Return what a plan for all members comes to, and how much work it took."""
    first = stage.gang(cores, size=len(cores), **spec)
    before = stage.algorithm.work
    return stage.planned(first), stage.algorithm.work - before


def test_the_requests_are_looked_at_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found, work = work_of(Stage(ROOMY, []), [1, 9, 3])
    assert isinstance(found, Shortfall)
    assert (found.message, work, found.rejected_by) == (seats.NO_ROOM, 0, {"NodeResourcesFit"})
    found, work = work_of(Stage(ROOMY, []), [1, 2, 3], **NOWHERE)
    assert isinstance(found, Shortfall)
    assert found.rejection is not None
    assert work > 0
    assert found.rejection.message.startswith("0/4 nodes are available: 4 node(s) didn't match")
    monkeypatch.setattr(seats, "MOST_NODES", 2 * len(ROOMY) - 1)
    found, work = work_of(Stage(ROOMY, []), [1, 9, 9, 9])
    assert (isinstance(found, Shortfall), work) == (True, 0), "of very many kinds, the largest are looked at"


def seats_by_hand(free: Mapping[str, Amounts], members: Sequence[Member]) -> bool:
    """Return whether pods fit on nodes, by trying everything."""
    if not members:
        return True
    first, *rest = members
    for name, (cores, memory) in free.items():
        left = cores - first.asks[0], memory - first.asks[1]
        if min(left) >= 0 and name != first.avoids and seats_by_hand({**free, name: left}, rest):
            return True
    return False


def are_enough(members: Sequence[Member], size: int) -> bool:
    """Return whether members are as many as a gang needs, with a leader among them."""
    return len(members) == size and any(member.role == "leader" for member in members)


WITH_LEADER = "gang by pod.label.job size number(pod.label.size) with 1 of role=leader{} if pod.label.job\n"
ANYWHERE, ONE_RACK = WITH_LEADER.format(""), WITH_LEADER.format(" within one rack")
MEMBERS = st.builds(
    Member,
    asks=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    role=st.sampled_from(["worker", "worker", "leader"]),
    avoids=st.none() | st.sampled_from(["r0-0", "r1-0"]),
)


@given(
    racks=st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 8)), min_size=1, max_size=5), min_size=1, max_size=3
    ),
    members=st.lists(MEMBERS, min_size=2, max_size=6).filter(lambda each: any(m.role == "leader" for m in each)),
    spare=st.integers(0, 2),
    text=st.sampled_from(
        [ANYWHERE, ONE_RACK, ONE_RACK + "score most_allocated()\n", ONE_RACK + "domains by roomiest\n"]
    ),
    most=st.sampled_from([inf, 1, 300]),
)
def test_if_members_can_be_seated_they_are(
    racks: list[list[Amounts]], members: list[Member], spare: int, text: str, most: float
) -> None:
    """Leaders and workers of all sizes, in one rack or anywhere: a plan is found exactly if there is one."""
    stage, size = Stage({}, [], text=text), max(2, len(members) - spare)
    nodes = [{f"r{at}-{number}": each for number, each in enumerate(rack)} for at, rack in enumerate(racks)]
    for rack, offers in enumerate(nodes):
        for name, (cores, memory) in offers.items():
            made = node(name, cpu=str(cores), rack=f"r{rack}", host=name)
            made.status.allocatable["memory"] = f"{memory}Gi"
            stage.cluster.set_node(made)
    found = stage.planned(stage.members(members, size=size), most=most)
    together = nodes if "rack" in text else [{name: each for rack in nodes for name, each in rack.items()}]
    needed = [each for each in combinations(members, size) if are_enough(each, size)]
    seatable = any(seats_by_hand(offers, each) for offers in together for each in needed)
    assert isinstance(found, Plan) is seatable, found
    if isinstance(found, Plan):
        hosts = [decision.host or "" for decision in found.decisions.values()]
        assert len(hosts) == size
        assert "rack" not in text or len({host.partition("-")[0] for host in hosts}) == 1
    elif "rack" in text:
        check_true(found.message, nodes, members, size)


@given(
    members=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["leader", "keeper", "worker", "worker"])), min_size=2, max_size=6
    ),
    size=st.integers(2, 4),
    most=st.integers(2, 12),
    roles=st.sampled_from(["", " with 1 of role=leader", " with 1 of role=leader, 1 of role=keeper"]),
)
@example([(2, "keeper"), (1, "keeper"), (2, "leader")], 2, 3, " with 1 of role=leader")
def test_if_a_queue_has_quota_for_members_that_complete_a_gang_they_are_seated(
    members: list[tuple[int, str]], size: int, most: int, roles: str
) -> None:
    """Whoever is decided first, and whatever the members ask for that the gang can do without."""
    gang = f"gang by pod.label.job size {size}{roles} if pod.label.job\n"
    stage = Stage({"n0": 64}, [], text=f"{gang}queue q for pods where pod.label.job max cpu {most}\n")
    for number, (cores, role) in enumerate(members):
        labels = {"job": "g", "role": role}
        stage.queue.add(pod(stage.cluster, f"g{number}", cpu=str(cores), labels=labels), NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    needed = [
        some
        for some in combinations(members, size)
        if all(role not in roles or any(each[1] == role for each in some) for role in ("leader", "keeper"))
    ]
    fits = any(sum(cores for cores, _ in some) <= most for some in needed)
    found = stage.planned(first)
    assert isinstance(found, Plan) is fits, found
    if isinstance(found, Plan):
        cores = {f"g{number}": each for number, (each, _) in enumerate(members)}
        assert sum(cores[uid] for uid in found.decisions) <= most


class Choosy(NamedTuple):
    """A member that goes beside some others, or not where they are."""

    app: str
    apart: tuple[tuple[str, str], ...]
    """Not in the same domain as pods of an app: topology and app."""
    near: str | None
    """Only in a rack with pods of this app."""

    @property
    def affinity(self) -> dict[str, Any]:
        def term(key: str, app: str) -> dict[str, Any]:
            return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}

        required = "requiredDuringSchedulingIgnoredDuringExecution"
        found: dict[str, Any] = {"podAntiAffinity": {required: [term(key, app) for key, app in self.apart]}}
        return found | ({"podAffinity": {required: [term("rack", self.near)]}} if self.near else {})


def is_right(seats: Sequence[tuple[Choosy, Mapping[str, str]]]) -> bool:
    """Return whether pods may be where they are, each with the labels of its node, by their own terms."""
    for at, (member, labels) in enumerate(seats):
        others = [each for number, each in enumerate(seats) if number != at]
        if any(labels[key] == there[key] and other.app == app for key, app in member.apart for other, there in others):
            return False
        near = [there for other, there in others if other.app == member.near]
        if member.near not in (None, member.app) and all(labels["rack"] != there["rack"] for there in near):
            return False
    return True


@given(
    nodes=st.lists(st.tuples(st.integers(1, 2), st.sampled_from("ab")), min_size=1, max_size=4),
    members=st.lists(
        st.builds(
            Choosy,
            app=st.sampled_from("xy"),
            apart=st.sampled_from(
                [(), (("host", "x"),), (("host", "y"),), (("rack", "x"),), (("host", "x"), ("rack", "y"))]
            ),
            near=st.sampled_from([None, None, "x"]),
        ),
        min_size=2,
        max_size=4,
    ),
)
def test_members_that_exclude_or_need_each_other_are_seated_if_they_can_be(
    nodes: list[tuple[int, str]], members: list[Choosy]
) -> None:
    stage = Stage({}, [])
    labels = [{"host": f"n{at}", "rack": rack} for at, (_, rack) in enumerate(nodes)]
    for (cores, _), each in zip(nodes, labels, strict=True):
        stage.cluster.set_node(node(each["host"], cpu=str(cores), **each))
    for number, member in enumerate(members):
        own = {"job": "g", "size": str(len(members)), "app": member.app}
        stage.queue.add(pod(stage.cluster, f"g{number}", labels=own, affinity=member.affinity), NOW)
    first = stage.queue.pop(NOW)
    assert first is not None
    found = stage.planned(first)
    ways = product(range(len(nodes)), repeat=len(members))
    seatable = any(
        all(way.count(at) <= cores for at, (cores, _) in enumerate(nodes))
        and is_right([(member, labels[at]) for member, at in zip(members, way, strict=True)])
        for way in ways
    )
    if isinstance(found, Plan):
        assert seatable
        hosts = {uid: decision.host or "" for uid, decision in found.decisions.items()}
        seats = [(member, labels[int(hosts[f"g{at}"][1:])]) for at, member in enumerate(members)]
        assert is_right(seats)
    elif not any(member.near for member in members):  # who needs others may need them first
        assert not seatable


def check_true(message: str, racks: Sequence[Mapping[str, Amounts]], members: Sequence[Member], size: int) -> None:
    """Check what is said of a gang that no rack has room for."""
    if lack := re.fullmatch(
        r"rack r(\d) lacks \S+ (cpu|memory): (\d+)(?:Gi)? requested .*, (\d+)(?:Gi)? free", message
    ):
        at = ("cpu", "memory").index(lack[2])
        free = sum(each[at] for each in racks[int(lack[1])].values())
        least = min(sum(each.asks[at] for each in some) for some in combinations(members, size))
        assert (int(lack[3]), int(lack[4])) == (least, free)
        assert least > free
    elif (room := re.match(r"rack r(\d) has room for (at most )?(\d+) of", message)) is not None:
        most = most_seated(racks[int(room[1])], members)
        assert int(room[3]) >= min(most, size) if room[2] else int(room[3]) == most
    elif (
        apart := re.search(r"rack r(\d) has room for .* not for (?:both|all) \((best:|at most) (\d) of", message)
    ) is not None:
        most = most_seated(racks[int(apart[1])], members)
        assert most == int(apart[3]) if apart[2] == "best:" else most <= int(apart[3])
        for kind in set(members):
            assert seats_by_hand(racks[int(apart[1])], [each for each in members if each == kind])
    elif message.startswith("no rack has a node for"):
        alone = [seats_by_hand(offers, [each]) for offers in racks for each in members]
        assert not all(alone)


def most_seated(free: Mapping[str, Amounts], members: Sequence[Member]) -> int:
    """Return how many of some pods fit on nodes at once."""
    numbers = range(len(members), 0, -1)
    return next((n for n in numbers if any(seats_by_hand(free, some) for some in combinations(members, n))), 0)


def test_a_turn_ends_after_few_members_if_all_of_them_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(cores: list[int]) -> int:
        stage, number = Stage(ROOMY, []), 0

        def between(turn: int) -> None:
            nonlocal number
            number = turn + 1

        stage.tried(stage.gang(cores, size=len(cores)), most=1_000, between=between)
        return number

    differ, alike = [1, 2, 3, 4, 5], [3] * 5
    assert turns(differ) == turns(alike) == 0
    monkeypatch.setattr("kube_policy_scheduler.framework.groups.attempt.NODES_A_UNIT", 1 / 250)  # 1,000 units a kind
    assert (turns(differ), turns(alike)) == (5, 1)


@pytest.mark.parametrize(("most", "cores"), [(3, 5), (2, 3)])
def test_members_that_differ_need_what_all_of_them_request_unless_very_many_wait(
    monkeypatch: pytest.MonkeyPatch, most: int, cores: int
) -> None:
    """Each decision looks at all of them, so beyond a limit each counts the others as pods like itself."""
    monkeypatch.setattr(in_gangs, "MOST_DIFFERING", most)
    stage = Stage({"n0": 4, "n1": 4}, [], text=GANG + RECLAIM)
    first = stage.gang([1, 1, 3], size=3)
    profile = stage.algorithm.profile(first.pod)
    assert profile is not None
    assert profile.queues is not None
    usage = stage.cluster.track_usage(profile.queues.tree)
    stage.cluster.nominate(pod(stage.cluster, "other", cpu="1"), "n0")
    cpu, queue = usage.tree.resources.index("cpu"), usage.named("a")
    assert queue is not None
    assert dict(within(stage.algorithm.frame_with_gang(first).together, queue))[cpu] == cores * 1000
