"""Places for pods that are tried out on the columns and taken back: in one turn of the event loop, or in several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import Where
from kube_policy_scheduler.framework.decide.gang_room import are_independent
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
MOVE_WORK = 12
"""To place a pod on the columns, or to displace it, see `trials.NODE_WORK`: 10 to 17 µs, or 35 on a slow machine."""
MOVE_TOGETHER_WORK = 2
"""The same for each of very many: 1 to 3 µs, or up to 10 with an affinity."""
REPEATED_WORK = 2
"""That a turn does more for each change that it repeats: without it, all turns of a gang together would take as the
square of its members. A gang of 5,000 takes 14 turns, the longest 0.07 s."""
LIST_WORK = 16
"""To list evictions on a node without the columns, see `trials.NODE_WORK`."""
_FEW = 8
"""If placements are tried on more than 1/8 of the nodes, a search for victims ends in one turn: the next turn would
search all these nodes again."""
_MOST_BESIDE = 32
"""If others changed the nodes of more placed pods between two turns, the attempt starts over."""
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


class _Change(msgspec.Struct):
    """A pod is placed, or displaced."""

    pod: PodInfo
    node_name: str
    placed: QueuedPod | None = None
    """None: it is displaced."""
    decision: Decision | None = None
    """What was decided about a pod that is placed; None: only its node is known."""
    is_listed: bool = False
    """Whether the columns need not show it until somebody asks them: only resources matter on its node, and what is
    left of them is known."""
    reserved: ClaimReservation | None = None
    """The devices that it has on the columns."""


class Mark(NamedTuple):
    """How much was tried at a moment, see `Attempt.undo_to`."""

    changes: int
    rules: int


class Attempt:
    """Placements that are taken back at the end.

    They are a list of changes. The columns contain the first ones; `show` applies the others, and must be called before
    the columns are read. Evictions on a node where only resources matter can stay in the list: their result is computed
    from the requests. Between two turns of the event loop, the columns contain none of the list. To apply it takes
    0.1 s for a gang of 2,000 that evicts as many, so this is done only in turns that need it.
    """

    def __init__(
        self,
        cluster: Cluster,
        algorithm: ScheduleAlgorithm,
        *,
        waiting: Mapping[str, WaitingPod],
        members: int = 0,
    ) -> None:
        """Make one.

        Args:
            cluster: where it is tried.
            algorithm: decides.
            waiting: by uid, who waits at Permit: they hold devices that are not written yet.
            members: that are decided once in any case, which costs nothing of its work.
        """
        self._cluster, self._algorithm, self._waiting = cluster, algorithm, waiting
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
        """All that is tried, oldest first."""
        self._shown, self._seen = 0, 0
        """How many of them the columns show, and how many they showed at some time: to show those again is no work of
        this attempt, and no change for searches that are under way."""
        self._hidden: Counter[Group] = Counter()
        """How many members of each group are placed by changes that the columns do not show."""
        self._rules: list[Callable[[], None]] = []
        """What takes back where groups are placed, and in which order they get devices, oldest first."""
        self._opened: dict[str, dict[PodTemplate, int]] = {}
        """Nodes where somebody was evicted; by template, how many more pods have room, where arithmetic says that."""
        self._roomy: dict[PodTemplate, tuple[int, list[str]]] = {}
        """By template: how many of them were seen, and those of these where another pod may have room."""
        self._wanted: dict[PodTemplate, Wanted | None] = {}
        """What members request; None: their requests do not say where they fit."""
        self._elsewhere: dict[PodTemplate, bool] = {}
        """Whether pods on other nodes may have a say about where members fit."""
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
        self._hide(0)
        self._rows.take()
        self._algorithm.cycle.pass_over_changes()

    def resume(self) -> bool:
        """Go on with what was tried; return False if it starts over: nothing is tried then.

        A pod that has got a free node which others changed stays there if it still fits. If not, it gets another one.
        What others changed elsewhere is looked at as if nobody had looked there yet.
        """
        self._algorithm.cycle.take_in_changes(self._cluster)
        nodes, rows = self._cluster.nodes, self._rows.take()
        if nodes is not self._rows.nodes or nodes.size != self._size or rows is None or isinstance(rows, slice):
            return False
        changed = {nodes.infos[row].name for row in rows}
        if not all(change.node_name in nodes.rows for change in self._changes):
            return False
        beside = [place for place, change in enumerate(self._changes) if change.node_name in changed]
        if len(beside) > _MOST_BESIDE or (beside and not self._may_move()):
            return False
        if any(name in self._cluster.nominated for name in self._opened):
            return False
        node_of = self._cluster.node_of
        if any(each.placed is None and node_of(each.pod.uid) != each.node_name for each in self._changes):
            return False
        self._changed |= changed
        if changed:
            self._seen_since = set()
        self._rejected.clear()
        self._budgets = None
        needed = (number for number, change in enumerate(self._changes, 1) if not change.is_listed)
        self._show(max(needed, default=0))
        self._began = self._algorithm.work
        self._told = self._began + REPEATED_WORK * self._shown
        if all(map(self._seat_again, beside)):
            return True
        self._hide(0)
        return False

    def _may_move(self) -> bool:
        """Return whether each pod that is placed may get another node by itself.

        Then all have free nodes, none claims devices, which others may get then, and none looks at pods on other nodes.
        """
        if any(change.decision is None for change in self._changes):
            return False
        members = {change.pod.template: change.placed for change in self._changes}.values()
        return not any(
            member is None or self.looks_elsewhere(member) or has_claims(member.pod.template, self._cluster)
            for member in members
        )

    def _seat_again(self, place: int) -> bool:
        """Leave a pod on its free node if it still fits there, or give it another one; return whether it has one."""
        change = self._changes[place]
        member = change.placed
        assert member is not None
        if self.still_fits(member):
            return True
        self._take_back(change)
        decision = self.decide(member)
        if decision.host is not None:
            change = self._changes[place] = _Change(member.pod, decision.host, member, decision)
            self.placed[member.pod.uid], self.decisions[member.pod.uid] = decision.host, decision
            self._own.add(decision.host)
        self._do(change)
        return decision.host is not None

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
            self.show()
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
        """Have the columns show all that is tried; the first member of a template takes a look at all nodes."""
        self.show()
        if queued.pod.template not in self._decided:
            self._decided.add(queued.pod.template)
            self._algorithm.work += self._look

    def free_again(self, queued: QueuedPod) -> Decision | None:
        """Decide a member without victims, if others may have made room since it was rejected; None: they did not."""
        template = queued.pod.template
        if self._seen_since is None or template in self._seen_since:
            return None
        if any(each.placed is not None and each.pod.template is not template for each in self._changes[self._shown :]):
            self.show()  # else its own kind has no room where the columns show its victims
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
                self.show()
            there = self._cluster.pods_on(name)
            if name in self._cluster.nominated or not all(victim.uid in there for victim in victims.pods):
                continue
            if self._budgets.covers(victims.pods):
                break
            found = Preemption(name, victims.pods, only_resources=only_resources and not victims.has_gangs)
            self._algorithm.work += NODE_WORK
            if (self._is_alone(found) and name not in self._changed) or self._would_do(queued, found):
                return msgspec.structs.replace(decision, pod=queued.pod, preemption=found)
        del self._candidates[template]
        return None

    def _is_alone(self, found: Preemption) -> bool:
        """Return whether only resources matter on the node of evictions, and nothing else is tried there."""
        return found.only_resources and found.nominated_node not in self._own

    def _would_do(self, queued: QueuedPod, found: Preemption) -> bool:
        """Return whether a pod fits once victims are gone."""
        mark, name = self.mark(), found.nominated_node or ""
        own = name in self._own
        for victim in found.victims:
            self.displace(victim.uid)
        does = self._algorithm.passes(queued, name, beside_nominated=True)
        self.undo_to(mark)
        if not own:
            self._own.discard(name)
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

    def _fits_beside(self, queued: QueuedPod, name: str, room: int | None) -> bool:
        if room is not None:
            return room > 0
        self.show()
        return self._algorithm.passes(queued, name, beside_nominated=True)

    # --- placements ----------------------------------------------------------------------------------

    def number_of(self, group: Group) -> int:
        """Return how many members of a group are placed that the columns do not show."""
        return self._hidden[group]

    def seat(self, member: QueuedPod, decision: Decision) -> None:
        """Place a pod that had no place on the free node that was found for it."""
        assert decision.host is not None
        self._add(_Change(member.pod, decision.host, member, decision))
        self.decisions[member.pod.uid] = decision

    def place(self, member: QueuedPod, node_name: str) -> None:
        """Place a pod that had no place, with the devices that it claims."""
        self._add(_Change(member.pod, node_name, member))

    def place_if_it_fits(self, member: QueuedPod, node_name: str) -> bool:
        """Place a pod that had no place on a node if it fits there, as others are tried; return whether it does."""
        fits = self._fits_beside(member, node_name, None)
        if fits:
            self.place(member, node_name)
        return fits

    def displace(self, uid: str) -> None:
        """Displace a pod that had a place."""
        self.show()
        node_name = self._cluster.node_of(uid)
        if node_name is not None:
            self._add(_Change(self._cluster.pods[uid], node_name))

    def evict(self, member: QueuedPod, preemption: Preemption) -> None:
        """Place a pod where victims make room for it."""
        name, victims = preemption.nominated_node or "", preemption.victims
        there, room = self._cluster.pods_on(name), None
        if any(victim.uid not in there for victim in victims):
            self._frees_others = True  # a whole gang: the next member may find free nodes where its members were
            self._candidates.clear()
        elif self._is_alone(preemption):
            room = self._room(member, name, victims)
        if room is None:
            for victim in victims:
                self.displace(victim.uid)
            self.place(member, name)
            self._opened[name] = {}
            return
        for victim in victims:
            self._add(_Change(there[victim.uid], name, is_listed=True))
        self._add(_Change(member.pod, name, member, is_listed=True))
        self._algorithm.work += LIST_WORK
        self._opened[name] = {member.pod.template: room} if self._algorithm.is_alike(member) else {}

    def place_beside(self, member: QueuedPod, name: str) -> None:
        """Place a pod on a node of `opened_node`."""
        rooms, template = self._opened[name], member.pod.template
        if template not in rooms:
            self.place(member, name)
            return
        rooms[template] -= 1
        self._add(_Change(member.pod, name, member, is_listed=True))
        self._algorithm.work += LIST_WORK

    def _room(self, member: QueuedPod, name: str, victims: Iterable[PodInfo]) -> int | None:
        """Return how many more pods like a member fit beside it instead of victims; None: arithmetic can't say."""
        nodes, wanted = self._cluster.nodes, self._wanted_by(member)
        if wanted is None or wanted.unoffered or wanted.devices or name in self._cluster.nominated:
            return None  # who is nominated there may keep some of it
        row, gone = nodes.rows[name], [victim.demand.requests for victim in victims]
        places = nodes.allocatable("pods").item(row) - nodes.pod_count.item(row) + len(gone)
        for resource, amount in wanted.amounts:
            held = nodes.requested(resource).item(row)
            if held > _LARGE:
                return None
            free = nodes.allocatable(resource).item(row) - held + sum(each.get(resource, 0) for each in gone)
            places = min(places, free // amount)
        return places - 1

    def _wanted_by(self, member: QueuedPod) -> Wanted | None:
        """Return what all members of a template request."""
        template = member.pod.template
        if template not in self._wanted:
            prepared = NodeResourcesFit().pre_filter(self._algorithm.frame(member))
            wanted = prepared.state if isinstance(prepared, Ready) else None
            self._wanted[template] = wanted if isinstance(wanted, Wanted) else None
        return self._wanted[template]

    # --- the list and the columns --------------------------------------------------------------------

    def _add(self, change: _Change) -> None:
        """Try one more change; the columns show it at once unless it is listed only."""
        self._changes.append(change)
        self._own.add(change.node_name)
        if change.placed is not None:
            self.placed[change.pod.uid] = change.node_name
            if change.is_listed:
                self._hidden.update(change.placed.groups)
        if not change.is_listed:
            if change.node_name in self._opened:
                self._opened[change.node_name].clear()
            self.show()

    def show(self) -> None:
        """Have the columns show all that is tried."""
        if self._shown < len(self._changes):
            self._show(len(self._changes))

    def _show(self, number: int) -> None:
        """Have the columns show so many changes."""
        again = self._changes[self._shown : min(number, self._seen)]
        if again:
            self._do_all(again)
            self._algorithm.cycle.pass_over_changes()
        for change in self._changes[max(self._shown, self._seen) : number]:
            self._do(change)
            self._algorithm.work += MOVE_WORK
        self._rejected.clear()
        self._shown, self._seen = number, max(self._seen, number)
        self._count_hidden()

    def _hide(self, mark: int) -> None:
        """Have the columns show this many changes at most."""
        if self._shown > mark:
            self._take_all_back(self._changes[mark : self._shown])
            self._shown = mark
            self._rejected.clear()
            self._count_hidden()

    def _count_hidden(self) -> None:
        hidden = (change.placed for change in self._changes[self._shown :])
        self._hidden = Counter(group for member in hidden if member is not None for group in member.groups)

    def _do_all(self, changes: Sequence[_Change]) -> None:
        """Do changes in order: the same as `_do` for each, but faster."""
        for are_plain, some in groupby(changes, self._is_plain):
            if not are_plain:
                for change in some:
                    self._do(change)
                continue
            placed = list(some)
            self._algorithm.moves += len(placed)
            self._cluster.place_together([change.pod for change in placed], [change.node_name for change in placed])

    def _take_all_back(self, changes: Sequence[_Change]) -> None:
        """Take changes back, the last one first: the same as `_take_back` for each, but faster."""
        for are_plain, some in groupby(reversed(changes), self._is_plain):
            if not are_plain:
                for change in some:
                    self._take_back(change)
                continue
            placed = [change.pod.uid for change in some]
            self._algorithm.moves += len(placed)
            self._algorithm.work += MOVE_TOGETHER_WORK * len(placed)
            self._cluster.displace_together(placed)

    def _is_plain(self, change: _Change) -> bool:
        """Return whether a pod is placed without devices."""
        if change.placed is None or change.reserved is not None or has_claims(change.pod.template, self._cluster):
            return False
        return change.decision is None or not change.decision.devices

    def _do(self, change: _Change) -> None:
        pod, cluster = change.pod, self._cluster
        self._algorithm.moves += 1
        if change.placed is None:
            cluster.displace(pod.uid)
            assumed = self._waiting.get(pod.uid)
            if assumed is not None and assumed.has_devices:
                self._freed[pod.uid] = assumed.free_devices(cluster)
            return
        decision, row = change.decision, cluster.nodes.rows.get(change.node_name)
        if row is not None and has_claims(pod.template, cluster):
            order = decision.device_order if decision is not None else None
            found = reserve_on(self._algorithm.frame(change.placed).at(np.array([row])).ordered(order))
            change.reserved = found if isinstance(found, ClaimReservation) else None
        cluster.place(pod, change.node_name, devices=decision.devices if decision is not None else None)

    def _take_back(self, change: _Change) -> None:
        self._algorithm.moves += 1
        self._algorithm.work += MOVE_WORK
        if change.reserved is not None:
            undo(change.reserved, self._cluster)
            change.reserved = None
        if change.placed is not None:
            self._cluster.displace(change.pod.uid)
            return
        self._cluster.place(change.pod, change.node_name)
        if (reserve_again := self._freed.pop(change.pod.uid, None)) is not None:
            reserve_again()

    def is_displaced(self, pod: PodInfo) -> bool:
        """Return whether a pod is tried to be gone, or is."""
        self.show()
        return pod.uid not in self._cluster.pods

    def spares(self, victims: Sequence[PodInfo], members: Sequence[QueuedPod]) -> bool:
        """Have displaced pods stay if all of these members still fit beside them; return whether they do.

        Not with claims: devices went with them.
        """
        self.show()
        left = {change.pod.uid: change for change in self._changes if change.placed is None}
        back = [left[victim.uid] for victim in victims if victim.uid in left]
        if len(back) < len(victims) or any(victim.template.spec.resource_claims for victim in victims):
            return False
        for change in back:
            self._take_back(change)
        if all(map(self.still_fits, self._beside(back, members))):
            stays = {change.pod.uid for change in back}
            self._changes = [each for each in self._changes if each.placed is not None or each.pod.uid not in stays]
            self._shown = self._seen = len(self._changes)
            self._rejected.clear()
            return True
        for change in back:
            self._do(change)
        return False

    def that_may_need_victims(self, members: Sequence[QueuedPod]) -> Iterator[QueuedPod]:
        """Yield the placed members that may have fitted only because others were there, who are displaced by now."""
        return self._beside([each for each in self._changes if each.placed is None and not each.is_listed], members)

    def _beside(self, others: Sequence[_Change], members: Sequence[QueuedPod]) -> Iterator[QueuedPod]:
        """Yield the members to whom other pods may matter: those on their nodes, and any for whom others matter too."""
        nodes = {change.node_name for change in others}
        are_alone = all(are_independent(change.pod.template) for change in others)
        for member in members:
            if self.placed[member.pod.uid] in nodes or not are_alone or self.looks_elsewhere(member):
                yield member

    def looks_elsewhere(self, member: QueuedPod) -> bool:
        """Return whether pods on other nodes may have a say about where members of a template fit."""
        template = member.pod.template
        if template not in self._elsewhere:
            self._elsewhere[template] = self._algorithm.looks_elsewhere(member)
        return self._elsewhere[template]

    def still_fits(self, member: QueuedPod) -> bool:
        """Return whether a placed member fits where it is, with all that is tried."""
        self.show()
        return self._algorithm.still_fits(member, self.placed[member.pod.uid], beside_nominated=True)

    def hide(self) -> None:
        """Have the columns show nothing of what is tried."""
        self._hide(0)

    def mark(self) -> Mark:
        """Return what `undo_to` goes back to."""
        return Mark(len(self._changes), len(self._rules))

    def undo_to(self, mark: Mark) -> None:
        """Take back what was tried since: places, and rules of groups."""
        self._hide(mark.changes)
        for change in self._changes[mark.changes :]:
            if change.placed is not None:
                del self.placed[change.pod.uid]
                self.decisions.pop(change.pod.uid, None)
        del self._changes[mark.changes :]
        self._seen = min(self._seen, mark.changes)
        self._count_hidden()
        while len(self._rules) > mark.rules:
            self._rules.pop()()

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
        """Take everything back, rules of groups included."""
        self.undo_to(Mark(0, 0))

    def rows(self) -> set[int]:
        """Return the rows of the nodes where pods are placed."""
        rows = self._cluster.nodes.rows
        return {rows[name] for name in self.placed.values() if name in rows}
