"""Trials of whole gangs: in turns of the event loop or in one go, noted or carried out, they come to the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.groups import trial as gang_trial
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.trial import UNFINISHED, GangTrial, Unfinished
from kube_policy_scheduler.framework.permit import GangRequirement, Permit
from kube_policy_scheduler.framework.preempt.trials import VERDICT_WORK
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import Membership, QueuedPod, SchedulingQueue, priority_turn
from kube_policy_scheduler.policy.policy_set import PolicySet
from tests.policy.test_preempt import ANTI_AFFINITY
from tests.policy.worlds import node, pod, policy

NOW = 1e9
GANG = "gang by pod.label.job size number(pod.label.size) if pod.label.job\n"
Found = dict[str, tuple[str | None, tuple[str, ...]]] | None
"""By member: its node, and whom it evicts."""


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
    """A cluster, a gang that waits, and its trial."""

    def __init__(self, nodes: Mapping[str, int], placed: list[tuple[int, int, str]], *, text: str = GANG) -> None:
        """nodes: cores by name. placed: cores, priority and node of each running pod."""
        self.cluster = Cluster()
        for name, cores in nodes.items():
            self.cluster.set_node(node(name, cpu=str(cores)))
        for number, (cores, priority, on) in enumerate(placed):
            self.run(f"low{number}", on, cores=cores, priority=priority)
        self.algorithm, self.queue = Algorithm(self.cluster, text), SchedulingQueue()
        self.queue.use(
            turn=priority_turn,
            hold=lambda _: None,
            membership=self._membership,
            placed=self.cluster.counters.group_size,
        )
        self.trial = GangTrial(self.cluster, self.queue, self.algorithm, permit=Permit(), waiting={})

    def _membership(self, queued: QueuedPod) -> Membership:
        requirements = self.algorithm.gang_requirements(queued)
        return Membership(tuple(group for each in requirements for group in each.groups), requirements)

    def run(self, name: str, on: str, *, cores: int, priority: int) -> None:
        self.cluster.place(pod(self.cluster, name, cpu=str(cores), priority=priority), on)

    def gang(self, cores: list[int], *, size: int, **spec: Any) -> QueuedPod:
        labels = {"job": "g", "size": str(size)}
        for number, each in enumerate(cores):
            self.queue.add(pod(self.cluster, f"g{number}", cpu=str(each), priority=10, labels=labels, **spec), NOW)
        first = self.queue.pop(NOW)
        assert first is not None
        return first

    def tried(
        self, first: QueuedPod, *, most_work: int | None = None, between: Callable[[int], None] = lambda _: None
    ) -> Found:
        """Try the gang; `between`: what happens after a turn, by its number."""
        (requirement,) = self.algorithm.gang_requirements(first)
        turns = 0
        while isinstance(found := self.trial.preempt(first, requirement, most_work=most_work), Unfinished):
            between(turns)
            turns += 1
            assert turns < 2_000, "a trial comes to its end"
        if found is None:
            return None
        return {
            uid: (decision.preemption.nominated_node, tuple(victim.name for victim in decision.preemption.victims))
            for uid, decision in found.items()
            if decision.preemption is not None
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
def test_a_trial_in_turns_comes_to_the_same_as_in_one_go(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]], most_work: int
) -> None:
    make, members, size, spec = drawn
    plain, turns = make(), make()
    before = plain.picture()
    found = plain.tried(plain.gang(members, size=size, **spec))
    assert plain.picture() == before
    first = turns.gang(members, size=size, **spec)
    assert turns.tried(first, most_work=most_work, between=lambda _: check(turns.picture() == before)) == found
    assert turns.picture() == before


def check(holds: bool) -> None:
    assert holds


@given(stages())
def test_evictions_that_are_noted_come_to_the_same_as_those_that_are_carried_out(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]],
) -> None:
    make, members, size, spec = drawn
    noted, plain = make(), make()

    def carried_out(most_work: int) -> Attempt:
        return Attempt(plain.cluster, plain.algorithm, waiting={}, most_work=most_work, notes_only=False)

    plain.trial._new_attempt = carried_out  # type: ignore[method-assign]
    assert noted.tried(noted.gang(members, size=size, **spec)) == plain.tried(plain.gang(members, size=size, **spec))


@given(
    stages(),
    st.sampled_from([1, 100]),
    st.lists(st.tuples(st.sampled_from(["end", "come"]), st.integers(0, 19)), max_size=6),
)
def test_what_changes_between_turns_leaves_a_result_that_holds(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]], most_work: int, changes: list[tuple[str, int]]
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

    found = stage.tried(first, most_work=most_work, between=between)
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
    assert stage.trial.placed(requirement) >= requirement.size or stage.trial.fits(left[0], requirement)


def test_members_use_the_room_that_victims_of_others_leave_first() -> None:
    stage = Stage({f"n{number}": 6 for number in range(4)}, [(6, 0, f"n{number}") for number in range(4)])
    found = stage.tried(stage.gang([2] * 6, size=6))
    assert found is not None
    assert sorted(victims for _, victims in found.values()) == [("low0",), ("low1",)]


def test_the_limit_is_work_done_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried() -> Found:
        stage = Stage({f"n{number}": 2 for number in range(4)}, [(2, 0, f"n{number}") for number in range(4)])
        return stage.tried(stage.gang([2] * 4, size=4))

    assert len(tried() or ()) == 4
    monkeypatch.setattr(gang_trial, "MOST_EVICTING_WORK", 100)
    assert tried() is None


def requests_free_nodes(stage: Stage, cores: list[int], **spec: Any) -> tuple[bool, int]:
    """Return whether a gang fits as far as that is known, and how much work it took to say so."""
    first = stage.gang(cores, size=len(cores), **spec)
    (requirement,) = stage.algorithm.gang_requirements(first)
    before = stage.algorithm.work
    return stage.trial.fits(first, requirement) is True, stage.algorithm.work - before


@given(stages(), st.sampled_from([1, 40, 200]))
def test_whether_a_gang_fits_comes_to_the_same_in_turns_as_in_one_go(
    drawn: tuple[Callable[[], Stage], list[int], int, dict[str, Any]], most_work: int
) -> None:
    make, members, size, spec = drawn
    stage = make()
    first = stage.gang(members, size=size, **spec)
    (requirement,) = stage.algorithm.gang_requirements(first)
    before, turns = stage.picture(), 0
    expected = stage.trial.fits(first, requirement)
    while (found := stage.trial.fits(first, requirement, most_work=most_work)) is UNFINISHED:
        assert stage.picture() == before
        assert not stage.trial.is_under_way(first, requirement)
        turns += 1
        assert turns < 2_000
    assert found == expected
    assert stage.picture() == before


def test_whether_a_gang_fits_is_left_open_where_changes_set_the_trial_back_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, turns = Stage(ROOMY, []), 0
    first = stage.gang([2] * 20, size=20)  # there is room for 16
    (requirement,) = stage.algorithm.gang_requirements(first)
    monkeypatch.setattr(GangTrial, "_has_room", lambda *_, **__: True)
    assert stage.trial.fits(first, requirement) is False
    before = stage.picture()
    while (found := stage.trial.fits(first, requirement, most_work=1)) is UNFINISHED:
        for name in ROOMY:
            stage.run("comes", name, cores=1, priority=0)
            stage.cluster.displace("comes")
        turns += 1
        assert turns < 100
    assert found is True
    assert stage.picture() == before


NOWHERE = {"nodeSelector": {"no": "node"}}
ROOMY = {f"n{number}": 8 for number in range(4)}


def test_a_gang_of_very_many_kinds_is_not_tried_on_free_nodes_but_its_requests_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert requests_free_nodes(Stage(ROOMY, []), [1, 2, 3], **NOWHERE)[0] is False
    monkeypatch.setattr(gang_trial, "_MOST_NEW_WORK", 2 * VERDICT_WORK)
    assert requests_free_nodes(Stage(ROOMY, []), [1, 2, 3], **NOWHERE) == (True, 0)
    assert requests_free_nodes(Stage(ROOMY, []), [1, 9, 3]) == (False, 0)
    fits, work = requests_free_nodes(Stage(ROOMY, []), [1, 2, 1, 2], **NOWHERE)
    assert (fits, work > 0) == (False, True), "of few kinds, it is tried"


def test_of_very_many_kinds_the_largest_are_looked_at_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_trial, "_MOST_NEW_WORK", 0)
    assert requests_free_nodes(Stage(ROOMY, []), [9, 1, 1, 1])[0] is False
    monkeypatch.setattr(gang_trial, "_MOST_NODES", 2 * len(ROOMY) - 1)
    assert requests_free_nodes(Stage(ROOMY, []), [9, 1, 1, 1])[0] is True
    assert requests_free_nodes(Stage(ROOMY, []), [1, 9, 9, 9])[0] is False


def test_a_turn_ends_after_few_members_if_all_of_them_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(cores: list[int]) -> int:
        stage, number = Stage(ROOMY, []), 0

        def between(turn: int) -> None:
            nonlocal number
            number = turn + 1

        stage.tried(stage.gang(cores, size=len(cores)), most_work=1_000, between=between)
        return number

    differ, alike = [1, 2, 3, 4, 5, 6, 7, 8], [3] * 8
    assert turns(differ) == turns(alike) == 0
    monkeypatch.setattr("kube_policy_scheduler.framework.groups.attempt.NODES_A_UNIT", 1 / 250)  # 1,000 units a kind
    assert (turns(differ), turns(alike)) == (8, 1)
