"""Which pods to move, each move proved before it is planned. Pure.

An eviction does not move a pod: its controller creates a replacement, and the scheduler decides that. So the
replacement is decided in advance, twice: with the old pod gone, and with the old pod still counted, because a
ReplicaSet creates the replacement while the old pod terminates. A move is planned only if both decisions name the same
other node, by more than the margin; or the same other nodes, each of which is better by that much. Then it is carried
out in thought, and every earlier move is proved to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.choice import Ties, best, smallest_name
from kube_policy_scheduler.framework.victims import Budgets
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rulesets import Clause, Ruleset, leads, refusal
from kube_policy_scheduler.tooling.staying import Staying

WELL = "no other node is better by more than the margin"
NOWHERE = "its node would reject it, but no other node takes it"
RETURNS = "while the old pod terminates, its replacement would go elsewhere"
DRIFTS_BACK = "an earlier move of this plan would not stay"
WAS_THERE = "its workload left that node before"
RESTS = "a pod of its workload is younger than --rest"
IN_A_GANG = "it is in a gang"
HAS_CLAIMS = "it has resource claims"
HELD = "its replacement would be held back"
PASS_SPENT = "the budget of the pass is spent"
_EVERY = 64
_LAST_TRIES = 200
"""Candidates that are still proved after the search for them was stopped: a second at most."""


@dataclass(frozen=True, slots=True)
class MoveBudgets:
    """How many pods one pass may move."""

    total: int = 10
    node: int = 2
    """Off one node."""
    workload: int = 1
    namespace: int = 5


@dataclass(frozen=True, slots=True)
class RebalanceOptions:
    """What is asked for."""

    ruleset: Ruleset
    margin: float | None
    """Points by which another node must lead, more than this; None: only pods that their nodes would reject move."""
    now: float
    """Unix seconds."""
    signals: Signals = Signals.EMPTY
    seed: int = 0
    budgets: MoveBudgets = MoveBudgets()
    rest_seconds: float = 0.0
    """A workload is left alone while one of its pods is younger."""
    local_storage: bool = True
    """Whether pods with local storage stay."""
    wanted: Callable[[PodInfo], bool] = field(default=lambda pod: True, repr=False)
    """Which pods may move."""
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By workload: nodes that earlier passes moved its pods off. They are not moved back there."""
    reserves: bool = False
    """Whether room on the target is reserved for the replacement, so that it goes there and not to one as good."""


@dataclass(frozen=True, slots=True)
class Move:
    """One pod to evict, and where its replacement goes."""

    pod: str
    uid: str
    workload: str
    """`namespace/KIND/name` of its controller."""
    source: str
    target: str
    equally_good: int
    """How many nodes are as good as the target, with itself: the replacement goes to one of them."""
    policy: str
    refused: bool
    """Whether its node would reject it; else the target is better by `margin`."""
    margin: float | None
    clause: str
    """What rejects it, or the score by which the target leads most."""
    place: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass."""

    moves: tuple[Move, ...]
    """In the order in which they are to be made."""
    checked: int
    """Pods on nodes that a policy governs."""
    well: int
    """Pods that are where they belong."""
    stay: Mapping[str, int]
    """Pods that would be better elsewhere and are not moved, by why."""
    examples: Mapping[str, str]
    """One of them, by why."""
    pending: int
    """Pending pods; they were placed first."""
    pending_placed: int
    margin: float | None
    """Points by which another node must lead; None: only pods that their nodes would reject move."""
    complete: bool


def workload_of(pod: PodInfo) -> str:
    """Return what creates a pod again."""
    controller = pod.template.controller
    return f"{pod.namespace}/{controller.kind}/{controller.name}" if controller is not None else pod.key


Progress: TypeAlias = Callable[[str, int, int], None]
"""Called now and then: what is done, of how much, and what of it is ready."""


def plan(
    there: ClusterState,
    options: RebalanceOptions,
    *,
    stop: Stop = never,
    progress: Progress = lambda what, done, whole: None,
) -> Plan:
    """Plan one pass; the cluster is as before in the end."""
    seats = Seats(there, options.ruleset, signals=options.signals, now=options.now, seed=options.seed)
    start = seats.mark()
    pending = in_turn(pod for pod in there.pending() if not pod.terminating)
    placed = seats.seat_all(
        pending, stop=stop, progress=lambda done: progress("pending pods placed", done, len(pending))
    )
    planner = _Planner(seats, options)
    found = planner.plan(there, stop=stop, progress=progress)
    seats.undo_to(start)
    return Plan(
        tuple(found),
        planner.checked,
        planner.well,
        dict(sorted(planner.stay.items(), key=lambda item: (-item[1], item[0]))),
        planner.examples,
        len(pending),
        len(placed.placed),
        options.margin,
        planner.complete and placed.complete,
    )


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a pod gains if its replacement goes to one of the best nodes."""

    refused: bool
    """Whether its node would reject it; else the best nodes lead by `margin`."""
    margin: float

    @property
    def order(self) -> tuple[bool, float]:
        """Return the key by which moves are ranked, the most urgent first."""
        return not self.refused, -self.margin


@dataclass(frozen=True, slots=True)
class _Standing:
    """How a replacement ranks the nodes, as the cluster is."""

    feasible: IntArray
    """Rows, ascending."""
    totals: FloatArray
    """`float64[feasible]`."""

    def best(self) -> IntArray:
        """Return the rows that have the highest total, ascending; none where no node takes it."""
        return self.feasible[best(self.totals)] if len(self.feasible) else self.feasible

    def gain(self, source: int, margin: float | None) -> _Gain | str:
        """Return what is gained over a row; or why nothing is gained."""
        if not len(self.feasible):
            return NOWHERE
        at = int(np.searchsorted(self.feasible, source))
        if at == len(self.feasible) or self.feasible[at] != source:
            return _Gain(True, 0.0)
        lead = float(self.totals.max() - self.totals[at])
        return WELL if margin is None or lead <= margin else _Gain(False, lead)


class _Planner:
    """Looks at one pod after the other, and keeps the moves that are proved."""

    def __init__(self, seats: Seats, options: RebalanceOptions) -> None:
        self._seats, self._options = seats, options
        self._rows = seats.cluster.nodes.rows
        self._moved: list[PodInfo] = []
        """Replacements of this pass, on their nodes."""
        self._known: dict[Hashable, _Gain | str] = {}
        """What pods that are alike gain, as the cluster is."""
        self._failed: dict[Hashable, str] = {}
        """Why pods that are alike do not move, since the last move."""
        self.checked, self.well = 0, 0
        self.stay: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.complete = True

    def plan(self, there: ClusterState, *, stop: Stop, progress: Progress) -> list[Move]:
        """Return the moves, in order."""
        ranked = sorted(self._sweep(there, stop, progress), key=lambda item: (item[0].order, item[1].key))
        budgets = _Spent(self._options.budgets, Budgets(self._seats.cluster))
        moves: list[Move] = []
        tries = len(ranked) if self.complete else _LAST_TRIES
        for number, (_, pod) in enumerate(ranked):
            if number % _EVERY == 0:
                progress(f"candidates proved, {len(moves):,} to move", number, len(ranked))
            if len(moves) >= self._options.budgets.total:
                self._keep(pod, PASS_SPENT)
                continue
            if number >= tries or (self.complete and stop()):
                self.complete = False
                break
            why = budgets.refusal(pod, self._seats.cluster.node_of(pod.uid) or "")
            move = why or self._try_alike(pod)
            if isinstance(move, Move):
                moves.append(move)
                budgets.spend(pod, move.source)
            elif move == WELL:
                self.well += 1
            else:
                self._keep(pod, move)
        return moves

    def _keep(self, pod: PodInfo, why: str) -> None:
        self.stay[why] += 1
        self.examples.setdefault(why, pod.key)

    def _sweep(self, there: ClusterState, stop: Stop, progress: Progress) -> list[tuple[_Gain, PodInfo]]:
        """Return the pods that would be better elsewhere as the cluster is, and may be evicted.

        Pods of one template follow each other: its columns are kept, and one row of them changes from pod to pod.
        """
        seats, options = self._seats, self._options
        staying = Staying(seats.cluster, now=options.now, local_storage=options.local_storage)
        asked: dict[PodTemplate, list[tuple[objects.Pod, PodInfo]]] = {}
        youngest: dict[str, float] = {}
        for _, manifest in sorted(there.pods.items()):
            info = seats.cluster.pods.get(manifest.metadata.uid)
            if info is None or not info.node_name or info.terminating or is_of_node(info):
                continue
            workload = workload_of(info)
            youngest[workload] = max(youngest.get(workload, 0.0), info.created)
            if info.node_name in self._rows and options.wanted(info) and options.ruleset.rules(info) is not None:
                asked.setdefault(info.template, []).append((manifest, info))
        self.checked = sum(map(len, asked.values()))
        found: list[tuple[_Gain, PodInfo]] = []
        for number, (manifest, info) in enumerate(chain.from_iterable(asked.values())):
            if stop():
                self.complete = False
                break
            if number % _EVERY == 0:
                progress("pods decided", number, self.checked)
            gain = self._gain_of_alike(info)
            if gain == WELL:
                self.well += 1
                continue
            rests = options.now - youngest[workload_of(info)] < options.rest_seconds
            why = gain if isinstance(gain, str) else RESTS if rests else staying.reason(manifest, info)
            if why:
                self._keep(info, why)
            elif isinstance(gain, _Gain):
                found.append((gain, info))
        return found

    def _gain_of_alike(self, pod: PodInfo) -> _Gain | str:
        key = pod.template, id(pod.demand), pod.node_name
        alike = self._seats.is_alike(pod)
        known = self._known.get(key) if alike else None
        if known is None:
            mark = self._seats.mark()
            self._seats.take_off(pod)
            replacement = self._replacement(pod)
            known = self._standing(replacement).gain(self._rows[pod.node_name], self._options.margin)
            if known != WELL:
                known = self._obstacle(replacement) or known
            self._seats.undo_to(mark)
            if alike:
                self._known[key] = known
        return known

    def _replacement(self, pod: PodInfo) -> PodInfo:
        """Return the pod that the controller creates in the place of one: a new name, the same template."""
        uid, now = f"{pod.uid}-replacement", self._options.now
        return msgspec.structs.replace(
            pod, uid=uid, name=uid, node_name="", nominated_node="", created=now, demand=pod.template.demand
        )  # fmt: skip

    def _obstacle(self, replacement: PodInfo) -> str:
        """Return why it is not known where a replacement goes, whatever its nodes are; "" if nothing speaks of that."""
        if replacement.template.spec.resource_claims:
            return HAS_CLAIMS
        if self._seats.inputs(replacement).hold_reason() is not None:
            return HELD
        return IN_A_GANG if self._seats.gangs(replacement) else ""

    def _standing(self, replacement: PodInfo) -> _Standing:
        return _Standing(*self._seats.ranked(replacement))

    def _certain(self, replacement: PodInfo, standing: _Standing) -> IntArray:
        """Return the rows that the replacement may get: all best ones, or the first if ties are decided by name."""
        rows = standing.best()
        if len(rows) > 1 and self._seats.rules(replacement).profile.ties is Ties.NAME:
            return np.array([smallest_name(rows, self._seats.cluster.nodes)])
        return rows

    def _try_alike(self, pod: PodInfo) -> Move | str:
        key = pod.template, id(pod.demand), pod.node_name, workload_of(pod)
        alike = self._seats.is_alike(pod)
        known = self._failed.get(key) if alike else None
        if known is not None:
            return known
        tried = self._try(pod)
        if isinstance(tried, Move):
            self._failed.clear()
        elif alike:
            self._failed[key] = tried
        return tried

    def _try(self, pod: PodInfo) -> Move | str:
        """Return the move of a pod, carried out, if it is proved; else why not, with everything as before.

        Several nodes may be best: each of them is better than the pod's node by more than the margin. Both decisions
        must name the same ones.
        """
        seats, options, workload = self._seats, self._options, workload_of(pod)
        source, names = seats.cluster.node_of(pod.uid) or "", seats.cluster.nodes.infos
        replacement = self._replacement(pod)
        terminating = self._certain(replacement, self._standing(replacement))
        mark = seats.mark()
        seats.take_off(pod)
        standing = self._standing(replacement)
        targets = self._certain(replacement, standing)
        gain = standing.gain(self._rows[source], options.margin)
        left = options.left.get(workload, frozenset())
        why = gain if isinstance(gain, str) else ""
        if not why and not np.array_equal(terminating, targets):
            why = RETURNS
        elif not why and left and any(names[row].name in left for row in targets.tolist()):
            if options.reserves:
                targets = np.array([row for row in targets.tolist() if names[row].name not in left], np.int64)
            why = "" if options.reserves and len(targets) else WAS_THERE
        if why or isinstance(gain, str):
            seats.undo_to(mark)
            return why
        clause = self._clause(replacement, standing, source, int(targets[0]), gain)
        host = seats.decide(replacement).host
        row = self._rows[host] if host is not None and self._rows[host] in targets else int(targets[0])
        seats.place(replacement, seats.decision_on(replacement, row))
        self._moved.append(replacement)
        if not all(self._stays(one) for one in self._moved):
            self._moved.pop()
            seats.undo_to(mark)
            return DRIFTS_BACK
        policy = seats.rules(pod).profile.name
        return Move(
            pod.key, pod.uid, workload, source, names[row].name, len(targets), policy, gain.refused,
            None if gain.refused else gain.margin, clause.text, clause.place,
        )  # fmt: skip

    def _clause(self, pod: PodInfo, standing: _Standing, source: str, target: int, gain: _Gain) -> Clause:
        """Return what rejects a pod on a node, or the score by which another leads most."""
        inputs = self._seats.inputs(pod)
        if gain.refused:
            return refusal(inputs.frame(), inputs.profile, source) or Clause("")
        name = self._seats.cluster.nodes.infos[target].name
        ahead = leads(inputs.frame(), inputs.profile, standing.feasible, node=name, over=source).values()
        return max(ahead, key=lambda item: item[0], default=(0.0, Clause("")))[1]

    def _stays(self, replacement: PodInfo) -> bool:
        """Return whether a replacement on its node would not be moved on."""
        row = self._rows[self._seats.cluster.node_of(replacement.uid) or ""]
        mark = self._seats.mark()
        self._seats.take_off(replacement)
        gain = self._standing(self._replacement(replacement)).gain(row, self._options.margin)
        self._seats.undo_to(mark)
        return gain == WELL


class _Spent:
    """What a pass has moved so far."""

    def __init__(self, budgets: MoveBudgets, disruptions: Budgets) -> None:
        self._budgets, self._disruptions = budgets, disruptions
        self._by: Counter[tuple[str, str]] = Counter()

    def refusal(self, pod: PodInfo, node: str) -> str:
        """Return the budget that keeps a pod where it is; "" where none does."""
        limits = self._budgets
        for kind, name, most in (
            ("node", node, limits.node),
            ("workload", workload_of(pod), limits.workload),
            ("namespace", pod.namespace, limits.namespace),
        ):
            if self._by[kind, name] >= most:
                return f"the budget of its {kind} is spent"
        for budget in self._disruptions.protecting(pod):
            if self._by["budget", f"{pod.namespace}/{budget.metadata.name}"] >= budget.status.disruptions_allowed:
                return f"PodDisruptionBudget {budget.metadata.name} allows no more disruptions"
        return ""

    def spend(self, pod: PodInfo, node: str) -> None:
        """Count a move."""
        names = [("node", node), ("workload", workload_of(pod)), ("namespace", pod.namespace)]
        names += [("budget", f"{pod.namespace}/{one.metadata.name}") for one in self._disruptions.protecting(pod)]
        self._by.update(names)
