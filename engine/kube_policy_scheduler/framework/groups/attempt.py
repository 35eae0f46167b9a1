"""Places for pods that are tried out on the columns and taken back: in one turn of the event loop, or in several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import add, ge, sub
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import Where
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from kube_policy_scheduler.framework.preempt.trials import NODE_WORK, NODES_A_UNIT, VERDICT_WORK
from kube_policy_scheduler.framework.preempt.victims import Budgets, Victims
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation, has_claims, reserve_on, undo

MOST_PLAN_WORK = 500_000
"""Limit of an attempt, 1 s of work, beyond one decision for each member: for other orders, domains and victims. It is
enough for a few hundred members that each must search for victims on 5,000 nodes, or for many thousands that are alike.
"""
MOVE_WORK = 32
"""To place a pod on the columns, or to displace it, see `trial.NODE_WORK`."""
NOTE_WORK = 16
"""To note evictions on a node, see `trial.NODE_WORK`."""
_FEW = 8
"""If placements are tried on more than 1/8 of the nodes, a search for victims ends in one turn: the next turn would
search all these nodes again."""
_LARGE = 2**61
"""From such sums on, columns may show less than what is requested."""


class WaitingPod(Protocol):
    """A pod that counts on its node and waits there for the rest of its gang."""

    @property
    def queued(self) -> QueuedPod:
        """Return the pod."""
        ...

    @property
    def host(self) -> str:
        """Return the name of its node."""
        ...

    @property
    def requirements(self) -> tuple[GangRequirement, ...]:
        """Return what its groups require."""
        ...

    @property
    def has_devices(self) -> bool:
        """Return whether devices are reserved for its claims."""
        ...

    def unreserve(self, cluster: Cluster) -> None:
        """Undo the reservations in memory; nothing was written yet."""
        ...

    def free_devices(self, cluster: Cluster) -> Callable[[], None]:
        """Free the devices of its claims, to try something; return what reserves them again."""
        ...


class _Change(msgspec.Struct, frozen=True):
    """A pod was placed, or displaced."""

    pod: PodInfo
    node_name: str
    placed: QueuedPod | None = None
    """None: it was displaced."""
    decision: Decision | None = None
    """What was decided about a pod that was placed; None: only its node is known."""
    reserved: ClaimReservation | None = None
    """The devices that it got."""


class Mark(NamedTuple):
    """How much was tried at a moment, see `Attempt.undo_to`."""

    changes: int
    rules: int


class _Kind(msgspec.Struct, frozen=True):
    """What members of a template have in common."""

    wanted: Wanted | None
    groups: Collection[Group]


class _Room(msgspec.Struct):
    """What evictions that are only noted leave free on a node, `amounts` of the resources that a pod requests."""

    amounts: tuple[int, ...]
    free: list[int]


class Attempt:
    """Placements that are taken back at the end.

    Evictions on a node where only resources matter are just noted, because arithmetic gives their result.
    They are carried out on the columns as soon as somebody must look at these.
    What is only noted need not be tried again in the next turn: that took half of the time of a gang of 2,000 that
    evicts as many, and 0.1 s in one turn.
    """

    def __init__(
        self,
        cluster: Cluster,
        algorithm: ScheduleAlgorithm,
        *,
        waiting: Mapping[str, WaitingPod],
        members: int = 0,
        notes_only: bool = True,
    ) -> None:
        """Make one.

        Args:
            cluster: where it is tried.
            algorithm: decides.
            waiting: by uid, who waits at Permit: they hold devices that are not written yet.
            members: that are decided once in any case, which costs nothing of its work.
            notes_only: whether evictions may be noted only.
        """
        self._cluster, self._algorithm, self._waiting = cluster, algorithm, waiting
        self._notes_only = notes_only
        self._look = cluster.nodes.size // NODES_A_UNIT
        """The work to look at all nodes."""
        self._most_work = MOST_PLAN_WORK + 2 * (VERDICT_WORK + self._look) * members
        self._spent, self._began, self._told = 0, algorithm.work, algorithm.work
        """The work of earlier turns, what had been done when this one began, and of what steps have told so far."""
        self._search: Generator[int, None, Decision] | None = None
        """For victims of a member, in this turn."""
        self._decided: set[PodTemplate] = set()
        """The templates of members that were decided; each takes a look at all nodes the first time."""
        self._rejected = RejectionMemo()
        """Since the last placement: of pods alike one is looked at."""
        self._candidates: dict[PodTemplate, tuple[Decision, Iterator[tuple[str, Victims]]]] = {}
        """Other nodes with victims that a search found for a pod of a template, the best first."""
        self._frees_others = False
        """Whether evictions made room on other nodes than those they were for."""
        self._budgets: Budgets | None = None
        self.placed: dict[str, str] = {}
        """By uid, the nodes of the pods that are placed."""
        self.decisions: dict[str, Decision] = {}
        """By uid, what was decided about those of them that got free nodes, the first placed first."""
        self._changes: list[_Change] = []
        """On the columns, oldest first."""
        self._paused: list[_Change] = []
        """What is tried again when it goes on."""
        self._rules: list[Callable[[], None]] = []
        """What takes back where groups are placed, and in which order they get devices, oldest first."""
        self._noted: list[tuple[QueuedPod, str, tuple[PodInfo, ...]]] = []
        """Who is placed where and which victims go, in words only."""
        self._noted_members: Counter[Group] = Counter()
        self._opened: dict[str, dict[PodTemplate, _Room]] = {}
        """Nodes where somebody was evicted; by template, what is left there, where that is known by arithmetic."""
        self._roomy: dict[PodTemplate, tuple[int, list[str]]] = {}
        """By template: how many of them were seen, and those of these where another pod may have room."""
        self._kinds: dict[PodTemplate, _Kind] = {}
        self._own: set[str] = set()
        """Nodes where something is tried."""
        self._changed: set[str] = set()
        """Nodes that others changed since this began: what a search found there may no longer hold."""
        self._seen_since: set[PodTemplate] | None = None
        """Templates that were rejected again since others changed nodes; None: they did not."""
        self._freed: dict[str, Callable[[], None]] = {}
        """By uid of those displaced: what reserves their devices again."""
        self._rows = ChangedRows(cluster.nodes, cluster.nodes.static_changes, cluster.nodes.dynamic_changes)
        self._size = cluster.nodes.size

    # --- work ----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the attempt took all the work that it may take."""
        return self._spent + self._algorithm.work - self._began >= self._most_work

    def step(self) -> int:
        """Return the work since the last step, as each step tells it."""
        done = self._algorithm.work - self._told
        self._told += max(0, done)
        return max(0, done)

    def pause(self) -> None:
        """Take back what was tried until `resume`, and end a search, which keeps what it found."""
        if self._search is not None:
            self._search.close()
            self._search = None
        self._spent += self._algorithm.work - self._began
        self._paused = list(self._changes)
        self._undo(0)
        self._rows.take()
        self._algorithm.cycle.pass_over_changes()

    def resume(self) -> bool:
        """Try the same again on the columns; return False if something changed that it rests on: nothing is tried then.

        What others changed elsewhere is looked at as if nobody had looked there yet.
        """
        self._algorithm.cycle.take_in_changes(self._cluster)
        nodes, rows = self._cluster.nodes, self._rows.take()
        if nodes is not self._rows.nodes or nodes.size != self._size or rows is None or isinstance(rows, slice):
            return False
        changed = {nodes.infos[row].name for row in rows}
        on = {change.node_name for change in self._paused} | {name for _, name, _ in self._noted}
        if not changed.isdisjoint(on) or not on <= nodes.rows.keys():
            return False
        if any(name in self._cluster.nominated for name in self._opened):
            return False
        self._changed |= changed
        if changed:
            self._seen_since = set()
        self._rejected.clear()
        self._budgets = None
        for change in self._paused:
            if change.placed is not None:
                self._place(change.placed, change.node_name, change.decision)
            elif self._cluster.node_of(change.pod.uid) == change.node_name:
                self.displace(change.pod.uid)
            else:
                self.undo()
                return False
        self._algorithm.cycle.pass_over_changes()
        self._began = self._told = self._algorithm.work
        return True

    # --- decisions -----------------------------------------------------------------------------------

    def decide(self, queued: QueuedPod) -> Decision:
        """Decide a member on the changed cluster, without victims."""
        self._look_at_all(queued)
        return self._algorithm.decide(queued, preempts=False, memo=self._rejected, in_run=True)

    def deciding(self, queued: QueuedPod) -> Generator[int, None, Decision | None]:
        """Decide a member on the changed cluster, with victims; None: the attempt is over before that is known."""
        self._look_at_all(queued)
        if len(self._own) * _FEW > self._cluster.nodes.size:
            return self._algorithm.decide(queued, memo=self._rejected)
        while True:
            # each turn, the member is decided again, and nodes where something is tried are searched again
            again = VERDICT_WORK + sum(NODE_WORK + len(self._cluster.pods_on(name)) for name in self._own)
            self._told += again
            search = self._search = self._algorithm.deciding(queued, memo=self._rejected)
            while self._search is search:
                try:
                    next(search)
                except StopIteration as end:
                    self._search = None
                    self._told = min(self._told, self._algorithm.work)
                    found: Decision = end.value
                    return found
                yield self.step()
            if self.is_over:
                return None

    def _look_at_all(self, queued: QueuedPod) -> None:
        """Have all that is tried on the columns; the first member of a template takes a look at all nodes."""
        self._carry_out()
        if queued.pod.template not in self._decided:
            self._decided.add(queued.pod.template)
            self._algorithm.work += self._look

    def free_again(self, queued: QueuedPod) -> Decision | None:
        """Decide a member without victims, if others may have made room since it was rejected; None: they did not."""
        template = queued.pod.template
        if self._seen_since is None or template in self._seen_since:
            return None
        if any(member.pod.template is not template for member, _, _ in self._noted):
            self._carry_out()  # else its own kind has no room where it was noted only, with victims or without
        decision = self._algorithm.decide(queued, preempts=False, memo=self._rejected)
        if decision.host is None and self._algorithm.is_alike(queued):
            self._seen_since.add(template)
        return decision

    def keep_candidates(self, queued: QueuedPod, decision: Decision) -> None:
        """Keep what a search for victims found beside the node that was taken, for the next member that is alike."""
        found, template = decision.preemption, queued.pod.template
        if (
            found is None
            or not len(found.candidates)
            or self._frees_others
            or template in self._candidates
            or not self._algorithm.is_alike(queued)
        ):
            return
        others = found.in_order(self._algorithm.frame(queued).now)
        kept = msgspec.structs.replace(decision, preemption=Preemption(only_resources=found.only_resources))
        self._candidates[template] = kept, others

    def next_candidate(self, queued: QueuedPod) -> Decision | None:
        """Return the next of these that would still do; None where a search is needed.

        A search looks at every node, and a gang has many members that are alike. What it found for one of them holds
        for another one, unless budgets, or others who wait for the same node, have a say: then it is searched again.
        """
        template = queued.pod.template
        decision, others = self._candidates.get(template, (None, iter(())))
        if decision is None or decision.preemption is None or not self._algorithm.is_alike(queued):
            return None
        self._budgets = self._budgets or Budgets(self._cluster)
        only_resources = decision.preemption.only_resources
        for name, victims in others:
            if name in self._opened:
                self._carry_out()
            there = self._cluster.pods_on(name)
            if name in self._cluster.nominated or not all(victim.uid in there for victim in victims.pods):
                continue
            if self._budgets.covers(victims.pods):
                break
            found = Preemption(name, victims.pods, only_resources=only_resources and not victims.has_gangs)
            self._algorithm.work += NODE_WORK
            may_be_noted = self._may_be_noted(found)
            if (may_be_noted and name not in self._changed) or self._would_do(queued, found, alone=may_be_noted):
                return msgspec.structs.replace(decision, pod=queued.pod, preemption=found)
        del self._candidates[template]
        return None

    def _may_be_noted(self, found: Preemption) -> bool:
        """Return whether evictions on a node need not be tried on the columns: nothing else is tried there, and nothing
        that is tried elsewhere has a say.
        """
        return self._notes_only and found.only_resources and found.nominated_node not in self._own

    def _would_do(self, queued: QueuedPod, found: Preemption, *, alone: bool) -> bool:
        """Return whether a pod fits once victims are gone. alone: whether what was only noted has no say."""
        if not alone:
            self._carry_out()
        mark, own = len(self._changes), found.nominated_node in self._own
        for victim in found.victims:
            self.displace(victim.uid)
        does = self._algorithm.passes(queued, found.nominated_node or "", beside_nominated=True)
        self._undo(mark)
        if not own:
            self._own.discard(found.nominated_node or "")
        return does

    def opened_node(self, queued: QueuedPod) -> str | None:
        """Return a node on which evictions for others left room for a pod too; None: there is none."""
        template = queued.pod.template
        if not self._algorithm.is_alike(queued):
            name = next(reversed(self._opened), None)
            return name if name is not None and self._fits_beside(queued, name, None) else None
        seen, names = self._roomy.get(template, (0, []))
        names.extend(islice(self._opened, seen, None))
        self._roomy[template] = len(self._opened), names
        while names:
            if self._fits_beside(queued, names[-1], self._opened[names[-1]].get(template)):
                return names[-1]
            names.pop()
        return None

    def _fits_beside(self, queued: QueuedPod, name: str, room: _Room | None) -> bool:
        if room is not None:
            return all(map(ge, room.free, room.amounts))
        self._carry_out()
        return self._algorithm.passes(queued, name, beside_nominated=True)

    # --- placements ----------------------------------------------------------------------------------

    def number_of(self, group: Group) -> int:
        """Return how many members of a group are placed in words only."""
        return self._noted_members[group]

    def evict(self, member: QueuedPod, preemption: Preemption) -> None:
        """Place a pod where victims make room for it."""
        name = preemption.nominated_node or ""
        there = self._cluster.pods_on(name)
        if any(victim.uid not in there for victim in preemption.victims):
            self._frees_others = True  # a whole gang: the next member may find free nodes where its members were
            self._candidates.clear()
        elif self._may_be_noted(preemption) and (room := self._room(member, name, preemption.victims)) is not None:
            self._opened[name] = {member.pod.template: room} if self._algorithm.is_alike(member) else {}
            self._own.add(name)
            self._note(member, name, preemption.victims)
            return
        self._carry_out()
        for victim in preemption.victims:
            self.displace(victim.uid)
        self._opened[name] = {}
        self.place(member, name)

    def place_beside(self, member: QueuedPod, name: str) -> None:
        """Place a pod on a node of `opened_node`."""
        room = self._opened[name].get(member.pod.template)
        if room is None:
            self.place(member, name)
            return
        room.free = list(map(sub, room.free, room.amounts))
        self._note(member, name, ())

    def _room(self, member: QueuedPod, name: str, victims: Iterable[PodInfo]) -> _Room | None:
        """Return what is left on a node with a member instead of victims; None where arithmetic can't say that."""
        nodes, wanted = self._cluster.nodes, self._kind(member).wanted
        if wanted is None or wanted.unoffered or wanted.devices or name in self._cluster.nominated:
            return None  # who is nominated there may keep some of it
        row = nodes.rows[name]
        names = [resource for resource, _ in wanted.amounts]
        held = [nodes.requested(resource).item(row) for resource in names]
        if max(held, default=0) > _LARGE:
            return None
        amounts = (*(amount for _, amount in wanted.amounts), 1)
        free = [nodes.allocatable(resource).item(row) - of for resource, of in zip(names, held, strict=True)]
        free.append(nodes.allocatable("pods").item(row) - nodes.pod_count.item(row))
        for victim in victims:
            requests = victim.demand.requests
            free = list(map(add, free, (*(requests.get(resource, 0) for resource in names), 1)))
        return _Room(amounts, list(map(sub, free, amounts)))

    def _note(self, member: QueuedPod, name: str, victims: tuple[PodInfo, ...]) -> None:
        self._noted.append((member, name, victims))
        self.placed[member.pod.uid] = name
        self._noted_members.update(self._kind(member).groups)
        self._algorithm.work += NOTE_WORK

    def _kind(self, member: QueuedPod) -> _Kind:
        """Return what all members of a template have in common."""
        found = self._kinds.get(member.pod.template)
        if found is None:
            prepared = NodeResourcesFit().pre_filter(self._algorithm.frame(member))
            wanted = prepared.state if isinstance(prepared, Ready) else None
            groups = {group for each in self._algorithm.gang_requirements(member) for group in each.groups}
            found = self._kinds[member.pod.template] = _Kind(wanted if isinstance(wanted, Wanted) else None, groups)
        return found

    def _carry_out(self) -> None:
        """Do on the columns what was only noted."""
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        self._noted_members.clear()
        for member, name, victims in noted:
            for victim in victims:
                self.displace(victim.uid)
            self.place(member, name)
            if name in self._opened:
                self._opened[name].clear()

    def seat(self, member: QueuedPod, decision: Decision) -> None:
        """Place a pod that had no place on the free node that was found for it."""
        assert decision.host is not None
        self._place(member, decision.host, decision)
        self.decisions[member.pod.uid] = decision

    def place(self, member: QueuedPod, node_name: str) -> None:
        """Place a pod that had no place, with the devices that it claims."""
        self._place(member, node_name, None)

    def _place(self, member: QueuedPod, node_name: str, decision: Decision | None) -> None:
        pod, row, reserved = member.pod, self._cluster.nodes.rows.get(node_name), None
        if row is not None and has_claims(pod.template, self._cluster):
            order = decision.device_order if decision is not None else None
            found = reserve_on(self._algorithm.frame(member).at(np.array([row])).ordered(order))
            reserved = found if isinstance(found, ClaimReservation) else None
        self._cluster.place(pod, node_name, devices=decision.devices if decision is not None else None)
        self._moved()
        self.placed[pod.uid] = node_name
        self._changes.append(_Change(pod, node_name, member, decision, reserved))
        self._own.add(node_name)
        self._rejected.clear()

    def _moved(self, pods: int = 1) -> None:
        """Count pods that were placed or displaced."""
        self._algorithm.work += MOVE_WORK * pods
        self._algorithm.moves += pods

    def displace(self, uid: str) -> None:
        """Displace a pod that had one."""
        node_name = self._cluster.node_of(uid)
        pod = self._cluster.displace(uid)
        if pod is not None and node_name is not None:
            self._moved()
            self._changes.append(_Change(pod, node_name))
            self._own.add(node_name)
            assumed = self._waiting.get(uid)
            if assumed is not None and assumed.has_devices:
                self._freed[uid] = assumed.free_devices(self._cluster)
            self._rejected.clear()

    def goes_with(self, victim: PodInfo) -> frozenset[Group] | None:
        """Return the groups that go together with a pod that was displaced; None where they are not known.

        A group that is complete without it lost surplus members, each of which goes alone.
        """
        self._carry_out()
        size_of, requirements = self._cluster.counters.group_size, self._algorithm.gangs_that_run(victim)
        if requirements is None:
            return None
        return frozenset(group for each in requirements if each.filled(size_of) < each.size for group in each.groups)

    def spares(self, victims: Sequence[PodInfo], members: Sequence[QueuedPod]) -> bool:
        """Have displaced pods stay if all of these members still fit beside them; return whether they do.

        Not with claims: devices went with them.
        """
        self._carry_out()
        left = {change.pod.uid: change for change in self._changes if change.placed is None}
        changes = [left.get(victim.uid) for victim in victims]
        if None in changes or any(victim.template.spec.resource_claims for victim in victims):
            return False
        back = [change for change in changes if change is not None]
        for change in back:
            self._cluster.place(change.pod, change.node_name)
        self._moved(len(back))
        hosts = ((member, self.placed[member.pod.uid]) for member in members)
        if all(self._algorithm.still_fits(member, host, beside_nominated=True) for member, host in hosts):
            stays = {change.pod.uid for change in back}
            self._changes = [each for each in self._changes if each.placed is not None or each.pod.uid not in stays]
            self._rejected.clear()
            return True
        for change in back:
            self._cluster.displace(change.pod.uid)
        self._moved(len(back))
        return False

    def undo(self) -> None:
        """Take all places back."""
        self._undo(0)

    def mark(self) -> Mark:
        """Return what `undo_to` goes back to."""
        self._carry_out()
        return Mark(len(self._changes), len(self._rules))

    def undo_to(self, mark: Mark) -> None:
        """Take back what was tried since: places, and rules of groups."""
        self._carry_out()
        for change in self._changes[mark.changes :]:
            if change.placed is not None:
                del self.placed[change.pod.uid]
                self.decisions.pop(change.pod.uid, None)
        if len(self._changes) > mark.changes:
            self._undo(mark.changes)
            self._rejected.clear()
        self._undo_rules(mark.rules)

    # --- rules of groups -----------------------------------------------------------------------------

    def settle(self, group: Group, where: Where) -> None:
        """Place members of a group there from now on."""
        gangs = self._algorithm.gangs
        self._rules.append(partial(gangs.settle, group, gangs.where(group)))
        gangs.settle(group, where)

    def order_devices(self, group: Group, order: DeviceOrder) -> None:
        """Give members of a group devices in an order from now on."""
        gangs = self._algorithm.gangs
        before = gangs.get(group)
        self._rules.append(partial(gangs.order_devices, group, before.device_order if before is not None else None))
        gangs.order_devices(group, order)

    def give_up(self) -> None:
        """Take everything back, rules of groups included; `undo` leaves these to a plan that is carried out."""
        self.undo()
        self._undo_rules(0)
        self._noted.clear()
        self._noted_members.clear()
        self.placed.clear()
        self.decisions.clear()

    def _undo_rules(self, mark: int) -> None:
        while len(self._rules) > mark:
            self._rules.pop()()

    def rows(self) -> set[int]:
        """Return the rows of the nodes where pods are placed."""
        rows = self._cluster.nodes.rows
        return {rows[name] for name in self.placed.values() if name in rows}

    def _undo(self, mark: int) -> None:
        """Take back what was changed since there were so many changes."""
        for change in reversed(self._changes[mark:]):
            if change.reserved is not None:
                undo(change.reserved, self._cluster)
            if change.placed is not None:
                self._cluster.displace(change.pod.uid)
            else:
                self._cluster.place(change.pod, change.node_name)
                if (reserve_again := self._freed.pop(change.pod.uid, None)) is not None:
                    reserve_again()
        self._moved(len(self._changes) - mark)
        del self._changes[mark:]
