"""Trials of preemption: on one node all pods of lower priority are removed, then as many as possible come back.

Most pods are rejected for lack of resources alone. For them a dry run is arithmetic (`_Room`); otherwise pods are
displaced and placed in a dry run, and the filters run each time. Quotas and limits, which reject a pod as a whole, are
asked once for all nodes whose victims count the same (`_Wholes`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from operator import sub
from typing import Self

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, Rows
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.requests import PodRequests
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis, DiagnosisBuilder
from kube_policy_scheduler.framework.evaluate.nominations import (
    REJECTED,
    Active,
    first_status,
    nominated_for,
    verdict,
    verdict_with_nominated,
)
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Scope
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted, shortages
from kube_policy_scheduler.framework.preempt.gang_units import EvictableGangs
from kube_policy_scheduler.framework.preempt.victims import (
    Budgets,
    Candidates,
    FoundVictims,
    KeptVictims,
    Search,
    Victims,
    by_importance,
)
from kube_policy_scheduler.framework.preempt.whole_groups import VictimKind, victim_kind
from kube_policy_scheduler.framework.status import Code, Rejection, Status
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.quantities.quantity import MAX_INT64

NODE_WORK, VERDICT_WORK = 4, 64
"""What a trial on a node costs besides its pods, and what it costs to ask the filters once: in pods that come back by
arithmetic, `WORK_SECONDS` each."""
NODES_A_UNIT = 256
"""How many nodes are looked at in the time of a unit, for a template that was not decided before."""
WORK_SECONDS = 2e-6
"""What a unit of work takes. Limits and pauses count work, not time: they are the same on every machine."""
MOST_DISPLACED_ELSEWHERE = 4096
"""Members of gangs on other nodes that one search takes away at most, about 0.1 s; then they count as still there."""
_LOOKED_AT_TOGETHER = 256
"""Nodes whose free resources are read at once."""
LEFT_OUT = ""
NO_VICTIMS = "No preemption victims found for incoming pod"


class Trial:
    """Finds the victims on one node after the other."""

    def __init__(
        self,
        frame: Frame,
        active: Active,
        budgets: Budgets,
        rows: IntArray,
        *,
        spares: Callable[[Frame, PodInfo], bool] | None = None,
        kept: KeptVictims | None = None,
        gangs: EvictableGangs | None = None,
        search: Search | None = None,
    ) -> None:
        """Prepare trials on `rows`, ascending.

        Args:
            frame: of the pod.
            active: the filters to run.
            budgets: of the cluster.
            rows: of the nodes; the trials are on some of them.
            spares: tells which pods must stay at any priority.
            kept: what earlier trials found.
            gangs: pods that are evicted together; None: there are none.
            search: what earlier turns of this search found; None: it has one turn.
        """
        self._gangs, self._displaced_elsewhere = gangs, 0
        self.is_cut = False
        """Whether members of gangs on other nodes counted as still there, though they would go."""
        self._spared = _Spared(frame, spares) if spares is not None else None
        self._frame = frame
        self._active = active
        self._budgets = budgets
        self._protected: set[int] = set()
        """Rows that were tried and have a pod of lower priority that a budget is about."""
        self._rows = rows
        self._moving = [(p, state) for p, state in active if p.scope is not Scope.TEMPLATE or state is REJECTED]
        """Filters whose result can change when pods leave."""
        self._nominated = self._nominated_pods()
        self._wholes = _Wholes(frame, active)
        """Filters that rejected the pod as a whole, whatever the node."""
        self._room = self._make_room()
        self._rejected_by: dict[int, int] = {}
        """By row: the place of the first filter that rejects the pod there, whichever pods are evicted."""
        self.work = self._told = 0
        """Of this turn, see `NODE_WORK`, and how much of it steps have told."""
        self._search = search if search is not None else Search(frame.cluster.nodes)
        self._search.begin_turn(self._nominated)
        self._now: set[int] = set()
        """Rows that were tried in this turn."""
        self._kept: FoundVictims | None = None
        """What holds for other pods too."""
        if kept is not None and spares is None and self._room is not None and not self._wholes:
            kind = (self._room.wanted, gangs.gangs_of if gangs is not None else None)
            self._kept = kept.of(frame.cluster, kind, frame.pod.priority)
        self._columns = self._kept
        if self._kept is None and search is not None:
            self._columns = search.columns()

    @property
    def only_resources(self) -> bool:
        """Return whether of the filters whose result can change when pods leave, NodeResourcesFit is the only one."""
        return self._room is not None and not self._wholes

    def name_at(self, row: int) -> str:
        """Return the name of a node."""
        return self._frame.cluster.nodes.infos[row].name

    def hopeless(self) -> tuple[BoolArray, Counter[str]]:
        """Return where no dry run is needed, `bool[rows]`, and how many nodes are rejected for each reason there."""
        diagnosis = without_victims(
            self._frame.at(self._rows),
            self._active,
            room=self._room,
            nominated=self._nominated if not self.only_resources else (),
        )
        return diagnosis.first >= 0, diagnosis.counts()

    def step(self) -> int:
        """Return the work since the last step, as each step tells it."""
        done, self._told = self.work - self._told, self.work
        return done

    def try_all(self, rows: IntArray) -> Generator[int, None, None]:
        """Find the victims on each of the nodes, or the rejection that remains there without all of them.

        Yields the work that was done, before each node. If the search ends there, what was found is kept. If only
        resources matter, call it only for rows that `hopeless` left open.
        """
        rows = rows[self.open(rows)]
        found: dict[int, Victims] = {}
        try:
            for count, row in enumerate(rows.tolist()):
                yield self.step()
                if self._room is not None and not count % _LOOKED_AT_TOGETHER:
                    self._look_at(rows[count : count + _LOOKED_AT_TOGETHER])
                before = self.work
                tried = self._try(row)
                self._now.add(row)
                is_kept = row not in self._nominated
                if not is_kept:
                    self.work = before  # each turn tries it again, so that others would never have theirs
                by_columns = self._columns is not None and is_kept
                if by_columns and isinstance(tried, Victims) and not (self._kept is not None and tried.has_gangs):
                    found[row] = tried
                else:
                    self._search.set(row, tried)
        finally:
            self._keep(found)

    def _keep(self, found: Mapping[int, Victims]) -> None:
        """Keep the victims on rows as columns."""
        if self._columns is not None and found:
            protected = [row in self._protected for row in found]
            self._columns.set_many(list(found), list(found.values()), protected=protected)

    def open(self, rows: IntArray) -> BoolArray:
        """Return `bool[rows]`: of which nothing is known yet."""
        known = self._search.has[rows]
        if self._columns is not None:
            in_columns = self._columns.known[rows]
            if self._nominated:
                in_columns &= ~np.isin(rows, list(self._nominated))
            known |= in_columns
        return ~known

    def with_victims(self, rows: IntArray) -> BoolArray:
        """Return `bool[rows]`, of rows that were tried: where there are victims."""
        return ~self._search.is_rejected[rows]

    def harmless(self, rows: IntArray) -> BoolArray:
        """Return `bool[rows]`, of rows with victims: where no budget is violated."""
        columns, search = self._columns, self._search
        found: BoolArray = np.zeros(len(rows), np.bool_) if columns is None else columns.violations[rows] == 0
        for place in (search.has[rows] & ~search.is_rejected[rows]).nonzero()[0].tolist():
            found[place] = not self._search.victims[rows.item(place)].violations
        return found

    def victims(self, row: int) -> Victims:
        """Return the victims on a row that has some."""
        known = self._search.victims.get(row)
        if known is None and self._columns is not None:
            known = self._columns.get(row)
        assert known is not None
        return known

    def reasons(self, rows: IntArray) -> Counter[str]:
        """Return how many of the rows that were tried are rejected for each reason."""
        found: Counter[str] = Counter()
        for row in rows[self._search.is_rejected[rows]].tolist():
            found.update(self._search.rejected[row].reasons)
        return found

    def candidates(self, rows: IntArray) -> Candidates | None:
        """Return nodes with victims as candidates; None if nothing is kept as columns."""
        if self._columns is None:
            return None
        places = self._search.has[rows].nonzero()[0].tolist()
        others = {place: self._search.victims[rows.item(place)] for place in places}
        return self._columns.candidates(self._frame.cluster.nodes, rows, self._frame.now, others)

    def confirms(self, name: str, victims: Victims) -> Generator[int, None, bool]:
        """Return whether the victims on a node are still the same; if not, what they are now is found.

        An earlier turn may have found them, and since then something changed elsewhere that a filter reads.
        """
        row = self._frame.cluster.nodes.rows[name]
        if row in self._now or (self._kept is not None and not victims.has_gangs):
            return True
        self.forget(np.array([row]))
        yield from self.try_all(np.array([row]))
        if self._search.is_rejected.item(row):
            return False
        now = self.victims(row)
        return now.violations == victims.violations and [p.uid for p in now.pods] == [p.uid for p in victims.pods]

    def forget_dated(self) -> bool:
        """Forget the rejections of earlier turns if nodes have changed since; return whether there were any."""
        is_dated, self._search.is_dated = self._search.is_dated, False
        rows: list[int] = self._search.is_rejected.nonzero()[0].tolist() if is_dated else []
        earlier = [row for row in rows if row not in self._now]
        self.forget(np.array(earlier, np.int64))
        return bool(earlier)

    def forget(self, rows: IntArray) -> None:
        """Forget what this search found on rows."""
        self._search.forget(rows)

    def _try(self, row: int) -> Victims | Status:
        name, cluster, pod = self.name_at(row), self._frame.cluster, self._frame.pod
        priority = pod.template.priority
        pool = [other for other in cluster.pods_on(name).values() if other.template.priority < priority]
        if self._spared is not None:
            stay = {other.uid for other in self._spared.on(row)}
            pool = [other for other in pool if other.uid not in stay]
        self.work += NODE_WORK + len(pool)
        if not pool:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "", (NO_VICTIMS,))
        if self._gangs is not None:
            in_gangs = {other.uid for other in pool if self._gangs.groups(other)}
            if in_gangs:
                return self._try_units(row, name, self._units(pool, in_gangs), self._gangs)
        ranked = by_importance(pool, self._frame.now)
        back = self._in_order_back(ranked)
        violating, others = list[PodInfo](), back
        if self._budgets.covers(ranked):
            self._protected.add(row)
            violating, others = self._budgets.split(back)
        if self._room is not None and not (self._wholes and row in self._nominated):
            with _Leaving(self._wholes, name, ranked) as leaving:
                rejected = self._rejection(row, leaving)
                chosen = self._room.spare(row, violating, others, leaving.try_back) if rejected is None else None
            self.work += VERDICT_WORK * leaving.asked
            if chosen is None:
                assert rejected is not None
                return rejected
        else:
            tried = self._rehearse(row, name, violating, others)
            if isinstance(tried, Status):
                return tried
            chosen = tried
        if not any(chosen):
            return Status(Code.ERROR, "", (f"expected at least one victim pod on node {name!r}",))
        going = (*chosen[0], *chosen[1])
        if all(chosen) or back is not ranked:
            going = tuple(by_importance(going, self._frame.now))
        return Victims(going, len(chosen[0]))

    def _in_order_back(self, ranked: list[PodInfo]) -> list[PodInfo]:
        """Return pods, the most important first, in the order in which they come back."""
        if not self._groups_come_first or all(pod.template.spec.scheduling_group is None for pod in ranked):
            return ranked
        return sorted(ranked, key=lambda pod: (-pod.template.priority, pod.template.spec.scheduling_group is None))

    @cached_property
    def _groups_come_first(self) -> bool:
        """Return whether pods of groups are more important than others of the same priority."""
        return Feature.POD_GROUPS_EVICTED_WHOLE in self._frame.cluster.rules

    def _look_at(self, rows: IntArray) -> None:
        """Remember of rows what each trial there looks at, in one go."""
        assert self._room is not None
        self._room.look_at(rows, self._spared)
        if not self._wholes:
            return
        left, rows = self._frame.at(np.sort(rows)), np.sort(rows)
        passing = np.ones(len(rows), np.bool_)
        for place, (plugin, state) in enumerate(self._active):
            if plugin.scope is Scope.TEMPLATE and state is not REJECTED:
                here = plugin.filter(left, state)
                self._rejected_by.update(dict.fromkeys(rows[passing & ~here].tolist(), place))
                passing &= here

    def _rejection(self, row: int, leaving: _Leaving) -> Status | None:
        """Return why the pod does not fit on a row without all its victims; None: it does."""
        assert self._room is not None
        if not self._wholes:
            return None if self._spared is None else self._room.rejection(row, self._spared)
        whole = leaving.rejection()
        first = self._rejected_by.get(row, len(self._active))
        for place, (plugin, state) in enumerate(self._active[: first + 1]):
            if whole is not None and place == whole[0]:
                return whole[1]
            if place == first:
                return first_status(plugin.name, plugin.rejections(self._frame.at(np.array([row])), state))
            if isinstance(plugin, NodeResourcesFit) and (short := self._room.rejection(row, self._spared)) is not None:
                return short
        return None

    def _units(self, pool: Sequence[PodInfo], in_gangs: Collection[str]) -> list[tuple[PodInfo, ...]]:
        """Return which pods of a node are evicted together, with those on other nodes."""
        assert self._gangs is not None
        units: list[tuple[PodInfo, ...]] = []
        seen: set[str] = set()
        for pod in pool:
            if pod.uid in seen:
                continue
            unit = self._gangs.unit(pod) if pod.uid in in_gangs else (pod,)
            seen.update(other.uid for other in unit)
            if unit:
                units.append(unit)
        return units

    def _try_units(
        self, row: int, name: str, units: Sequence[tuple[PodInfo, ...]], gangs: EvictableGangs
    ) -> Victims | Status:
        """Return the victims among pods that are evicted together; as `_try`."""
        frame, cluster = self._frame.at(np.array([row])), self._frame.cluster
        if not units:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "", (NO_VICTIMS,))
        whole = {unit: gangs.with_surplus(unit) for unit in units}
        ranked = by_importance({pod.uid: pod for unit in whole.values() for pod in unit}.values(), frame.now)
        place = {pod.uid: number for number, pod in enumerate(ranked)}
        gone: dict[str, PodInfo] = {}
        leaving = {unit: self._leaving(whole[unit], name) for unit in units}
        for unit, there in list(leaving.items()):
            for pod in whole[unit][len(unit) :]:  # its surplus elsewhere; that of this node is among the units
                if there.get(pod.uid, name) != name:
                    whole[pod,], leaving[pod,] = (pod,), {pod.uid: there[pod.uid]}

        def order(unit: tuple[PodInfo, ...]) -> tuple[int, int, int, int, bool]:
            pods = whole[unit]
            kind = victim_kind(cluster, pods) if self._groups_come_first else VictimKind.POD
            return (
                -max(pod.template.priority for pod in pods),
                -kind,
                -len(pods) if kind else 0,
                min(place[pod.uid] for pod in pods),
                len(pods) == len(unit),  # what a gang needs comes back before its surplus does
            )

        ordered = sorted(leaving, key=order)
        if self._groups_come_first:
            ranked = list({pod.uid: pod for unit in ordered for pod in whole[unit]}.values())
        # what a budget allows is taken first by surplus that may go alone here, then by other surplus of its gang, and
        # last by what the gang needs, which never goes without all of these
        with_all = {pod.uid for unit, pods in whole.items() if len(pods) > len(unit) for pod in unit}
        elsewhere = {pod.uid for pods in whole.values() for pod in pods} - {pod.uid for unit in units for pod in unit}
        going = sorted(ranked, key=lambda pod: (pod.uid in with_all, pod.uid in elsewhere))
        violating = {pod.uid for pod in self._budgets.split(going)[0]}
        ordered.sort(key=lambda unit: all(pod.uid not in violating for pod in whole[unit]))
        self.work += VERDICT_WORK * (1 + len(ordered)) + NODE_WORK * len(ranked)
        with cluster.dry_run():
            for there in leaving.values():
                for uid in there:
                    if cluster.node_of(uid) is not None:
                        cluster.displace(uid)
            status = verdict_with_nominated(frame, self._active)
            if status.code is not Code.SUCCESS:
                return status
            for unit in ordered:
                if any(pod.uid in gone for pod in unit):
                    continue
                there = leaving[unit]
                back = [pod for pod in unit if pod.uid in there and cluster.node_of(pod.uid) is None]
                for pod in back:
                    cluster.place(pod, there[pod.uid])
                if verdict_with_nominated(frame, self._moving).code is not Code.SUCCESS:
                    for pod in back:
                        cluster.displace(pod.uid)
                    gone |= {pod.uid: pod for pod in whole[unit]}
        if not gone:
            return Status(Code.ERROR, "", (f"expected at least one victim pod on node {name!r}",))
        return Victims(tuple(by_importance(gone.values(), frame.now)), len(gone.keys() & violating), has_gangs=True)

    def _leaving(self, unit: Sequence[PodInfo], name: str) -> dict[str, str]:
        """Return the nodes of the pods of a unit that a trial takes away, by uid."""
        cluster = self._frame.cluster
        there = cluster.pods_on(name)
        found = {pod.uid: name for pod in unit if pod.uid in there}
        elsewhere = len(unit) - len(found)
        if not elsewhere or not self._reads_others:
            return found
        if self._displaced_elsewhere + elsewhere > MOST_DISPLACED_ELSEWHERE:
            self.is_cut = True
        else:
            self._displaced_elsewhere += elsewhere
            found |= {pod.uid: node for pod in unit if (node := cluster.node_of(pod.uid)) is not None}
        return found

    @cached_property
    def _reads_others(self) -> bool:
        """Whether what happens on other nodes may change the result of a filter."""
        return any(plugin.scope is Scope.CLUSTER or state is REJECTED for plugin, state in self._moving)

    def _rehearse(
        self, row: int, name: str, violating: list[PodInfo], others: list[PodInfo]
    ) -> tuple[list[PodInfo], list[PodInfo]] | Status:
        """Return which pods of both groups cannot stay, or why the pod does not fit without all of them."""
        frame, cluster = self._frame.at(np.array([row])), self._frame.cluster
        self.work += VERDICT_WORK * (1 + len(violating) + len(others))
        leaving: tuple[list[PodInfo], list[PodInfo]] = ([], [])
        with cluster.dry_run():
            for pod in (*violating, *others):
                cluster.displace(pod.uid)
            status = verdict_with_nominated(frame, self._active)
            if status.code is not Code.SUCCESS:
                return status
            for group, gone in zip((violating, others), leaving, strict=True):
                for pod in group:
                    cluster.place(pod, name)
                    if verdict_with_nominated(frame, self._moving).code is not Code.SUCCESS:
                        cluster.displace(pod.uid)
                        gone.append(pod)
        return leaving

    def _nominated_pods(self) -> dict[int, list[PodInfo]]:
        """Return the nominated pods that count, by row."""
        cluster, found = self._frame.cluster, dict[int, list[PodInfo]]()
        for node_name in cluster.nominated:
            row = cluster.nodes.rows.get(node_name, -1)
            position = int(np.searchsorted(self._rows, row))
            if position < len(self._rows) and self._rows[position] == row:
                others = nominated_for(self._frame, node_name)
                if others:
                    found[row] = others
        return found

    def _make_room(self) -> _Room | None:
        moving = [each for each in self._moving if each[0] not in self._wholes.plugins]
        if len(moving) != 1 or not isinstance(moving[0][0], NodeResourcesFit):
            return None
        return _Room(self._frame, moving[0][1], self._nominated)


def without_victims(
    frame: Frame,
    active: Active,
    *,
    room: _Room | None = None,
    nominated: Collection[int] = (),
    left_out: BoolArray | None = None,
) -> Diagnosis:
    """Return why a frame's rows reject the pod even without all victims, or have none: there no dry run is needed.

    Only filters up to NodeResourcesFit that look at static facts run, on all rows at once.

    Args:
        frame: of the pod; its rows are ascending.
        active: the filters.
        room: what is free without victims; None: without regard to nominated pods.
        nominated: rows with nominated pods, about which no filter is asked.
        left_out: `bool[rows]`, rows that are not looked at.
    """
    cluster, rows = frame.cluster, frame.rows
    none = cluster.priorities.below(frame.pod.priority, "pods", cluster.nodes.size, rows) == 0
    builder = DiagnosisBuilder(frame.size)
    if left_out is not None:
        builder.add("", [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, LEFT_OUT, left_out)])
    builder.add("", [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, NO_VICTIMS, none)])
    asked = ~np.isin(frame.index(), list(nominated)) if nominated else None
    for plugin, state in active:
        if isinstance(plugin, NodeResourcesFit):
            free = room or _Room(frame, state, {})
            builder.add(plugin.name, _only(free.shortages(rows), asked))
        elif plugin.scope is Scope.TEMPLATE and state is not REJECTED:
            builder.add(plugin.name, _only(plugin.rejections(frame, state), asked))
        else:
            break
    return builder.build()


class _Wholes:
    """The filters that rejected a pod as a whole and look at which pods there are, never at where (`LeavingKey`)."""

    def __init__(self, frame: Frame, active: Active) -> None:
        self.frame = frame
        self.asked = [
            (place, (plugin, state))
            for place, (plugin, state) in enumerate(active)
            if state is REJECTED and plugin.leaving_key(frame.pod) is not None
        ]
        """With their places among all filters."""
        self.plugins = [plugin for _, (plugin, _) in self.asked]
        self.known: dict[tuple[int, ...], tuple[int, Status] | None] = {}
        """By the kinds of pods that are away, sorted: the place of the first that rejects the pod then, and why."""
        self._kinds: dict[tuple[Hashable, ...], int] = {}

    def __bool__(self) -> bool:
        return bool(self.asked)

    def kind(self, pod: PodInfo) -> int:
        """Return a number that pods share which count the same."""
        key = tuple([plugin.leaving_key(pod) for plugin in self.plugins])
        return self._kinds.setdefault(key, len(self._kinds))

    def ask(self) -> tuple[int, Status] | None:
        """Return the place of the first of them that rejects the pod in the cluster as it is now, and why."""
        for place, asked in self.asked:
            if (status := verdict(self.frame, (asked,))).code is not Code.SUCCESS:
                return place, status
        return None


class _Leaving:
    """The pods of one node that are away, and what filters say then that rejected the pod as a whole.

    The cluster is asked, in a dry run, only about what is not known from another node.
    """

    def __init__(self, wholes: _Wholes, node_name: str, pods: Sequence[PodInfo]) -> None:
        self._wholes, self._node_name = wholes, node_name
        self._away = {pod.uid: pod for pod in pods} if wholes else {}
        self._kinds = {uid: wholes.kind(pod) for uid, pod in self._away.items()}
        self._sorted = sorted(self._kinds.values())
        self._dry: ExitStack | None = None
        """Open while the pods are away in the cluster, too."""
        self.asked = 0
        """How often filters were asked, and pods moved for that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._dry is not None:
            self._dry.close()

    def rejection(self) -> tuple[int, Status] | None:
        """Return the place of the first filter that rejects the incoming pod now, and why; None: none does."""
        key, known = tuple(self._sorted), self._wholes.known
        if key not in known:
            cluster = self._wholes.frame.cluster
            if self._dry is None:
                self._dry = ExitStack()
                self._dry.enter_context(cluster.dry_run())
                self.asked += len(self._away)
                for uid in self._away:
                    cluster.displace(uid)
            self.asked += 1
            known[key] = self._wholes.ask()
        return known[key]

    def try_back(self, pod: PodInfo) -> bool:
        """Let a pod come back, unless the incoming pod is rejected then; return whether it is back."""
        if not self._wholes:
            return True
        place = bisect_left(self._sorted, self._kinds[pod.uid])
        kind = self._sorted.pop(place)
        del self._away[pod.uid]
        if self._dry is not None:
            self._wholes.frame.cluster.place(pod, self._node_name)
        if self.rejection() is None:
            return True
        self._sorted.insert(place, kind)
        self._away[pod.uid] = pod
        if self._dry is not None:
            self._wholes.frame.cluster.displace(pod.uid)
        return False


class _Spared:
    """Pods of lower priority that a policy protects from preemption."""

    def __init__(self, frame: Frame, spares: Callable[[Frame, PodInfo], bool]) -> None:
        self._frame, self._spares = frame, spares
        self._by_row: dict[int, list[PodInfo]] = {}

    def on(self, row: int) -> list[PodInfo]:
        """Return those on a row."""
        found = self._by_row.get(row)
        if found is None:
            frame, spares = self._frame, self._spares
            cluster, priority = frame.cluster, frame.pod.priority
            there = cluster.pods_on(cluster.nodes.infos[row].name).values()
            found = self._by_row[row] = [pod for pod in there if pod.priority < priority and spares(frame, pod)]
        return found


class _Room:
    """What is free on nodes without their pods of lower priority, for pods that only need resources.

    With nominated pods the first pass, with them, is the stricter one, so it alone is computed.
    """

    def __init__(self, frame: Frame, wanted: Wanted, nominated: Mapping[int, list[PodInfo]]) -> None:
        self.wanted = wanted
        self._cluster, self._priority = frame.cluster, frame.pod.priority
        self._names = (*(name for name, _ in wanted.amounts), "pods")
        self._staying = list(nominated.items())
        """Pods that count as if they were on a row at this priority."""
        self._free: dict[int, Sequence[int]] = {}
        """By row: what is free of what is requested with the pod on the node, last for how many pods."""
        self._requested: dict[int, tuple[PodRequests, tuple[int, ...]]] = {}
        """By identity of what pods request: itself, and how much of the same, last one pod."""

    def shortages(self, rows: Rows, spared: _Spared | None = None) -> list[Rejection]:
        """Return what is insufficient for the pod even so, `[rows]`; spared: who stays besides."""
        held = self._held(rows, spared)
        return shortages(
            self.wanted,
            allocatable=lambda name: self._cluster.nodes.allocatable(name)[rows],
            requested=held.__getitem__,
            pod_count=held["pods"],
        )

    def rejection(self, row: int, spared: _Spared | None) -> Status | None:
        """Return why the pod does not fit on a row beside those that are spared, if any; None: it does."""
        if min(self._free[row]) >= 0:
            return None
        return first_status(NodeResourcesFit.name, self.shortages(np.array([row]), spared))

    def look_at(self, rows: IntArray, spared: _Spared | None) -> None:
        """Remember what is free on rows; spared: who stays."""
        rows = np.sort(rows)
        nodes, held = self._cluster.nodes, self._held(rows, spared)
        amounts = [*(amount for _, amount in self.wanted.amounts), 1]
        columns = [
            (nodes.allocatable(name)[rows] - held[name] - amount).tolist()
            for name, amount in zip(self._names, amounts, strict=True)
        ]
        self._free.update(zip(rows.tolist(), zip(*columns, strict=True), strict=True))

    def _held(self, rows: Rows, spared: _Spared | None) -> dict[str, IntArray]:
        """Return `int64[rows]` by resource: what pods hold that stay. The rows are ascending."""
        cluster = self._cluster
        found = {name: cluster.held_from(self._priority, name, rows) for name in self._names}
        staying = self._staying
        if spared is not None and not isinstance(rows, slice):
            staying = [*staying, *((row, others) for row in rows.tolist() if (others := spared.on(row)))]
        for row, others in staying:
            position = row if isinstance(rows, slice) else int(np.searchsorted(rows, row))
            if not isinstance(rows, slice) and (position == len(rows) or rows[position] != row):
                continue
            for other in others:
                found["pods"][position] += 1
                for name, _ in self.wanted.amounts:
                    held = found[name]
                    held[position] = min(held.item(position) + other.demand.requests.get(name, 0), MAX_INT64)
        return found

    def spare(
        self,
        row: int,
        violating: Iterable[PodInfo],
        others: Iterable[PodInfo],
        try_back: Callable[[PodInfo], bool],
    ) -> tuple[list[PodInfo], list[PodInfo]]:
        """Add pods back, in order, where the incoming pod still fits; return those of both groups that cannot.

        try_back: lets a pod for which there is room come back, and returns whether it is back.
        """
        free, known = self._free[row], self._requested
        leaving: tuple[list[PodInfo], list[PodInfo]] = ([], [])
        for group, gone in zip((violating, others), leaving, strict=True):
            for pod in group:
                demand = pod.demand
                of = known.get(id(demand))
                if of is None:
                    amounts = [demand.requests.get(name, 0) for name in self._names[:-1]]
                    of = known[id(demand)] = (demand, (*amounts, 1))
                for there, needed in zip(free, of[1], strict=True):
                    if there < needed:
                        gone.append(pod)
                        break
                else:
                    if try_back(pod):
                        free = list(map(sub, free, of[1]))
                    else:
                        gone.append(pod)
        return leaving


def _only(rejections: Iterable[Rejection], where: BoolArray | None) -> list[Rejection]:
    return list(rejections) if where is None else [Rejection(r.code, r.reason, r.where & where) for r in rejections]
