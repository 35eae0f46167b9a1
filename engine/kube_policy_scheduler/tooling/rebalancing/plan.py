"""Which pods to move, each move proved before it is planned. Pure.

An eviction does not move a pod: its controller creates a replacement, and the scheduler decides that. So the
replacement is decided in advance, twice: with the old pod gone, and with the old pod still counted, because a
ReplicaSet creates the replacement while the old pod terminates. A move is planned only if both decisions name the same
other node, by more than the margin. Then it is carried out in thought, and every earlier move is proved to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.victims import Budgets
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rulesets import Clause, Ruleset, leads, refusal
from kube_policy_scheduler.tooling.staying import Staying

WELL = "no other node is better by more than the margin"
NOWHERE = "its node would reject it, but no other node takes it"
RETURNS = "while the old pod terminates, its replacement would go elsewhere"
TIE = "several nodes are equally good, so it is not certain where it would go"
DRIFTS_BACK = "an earlier move of this plan would not stay"
WAS_THERE = "its workload left that node before"
RESTS = "a pod of its workload is younger than --rest"
IN_A_GANG = "it is in a gang"
HAS_CLAIMS = "it has resource claims"
HELD = "its replacement would be held back"
_EVERY = 64


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


@dataclass(frozen=True, slots=True)
class Move:
    """One pod to evict, and where its replacement goes."""

    pod: str
    uid: str
    workload: str
    """`namespace/KIND/name` of its controller."""
    source: str
    target: str
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


def plan(
    there: ClusterState,
    options: RebalanceOptions,
    *,
    stop: Stop = never,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> Plan:
    """Plan one pass; the cluster is as before in the end."""
    seats = Seats(there, options.ruleset, signals=options.signals, now=options.now, seed=options.seed)
    start = seats.mark()
    pending = in_turn(pod for pod in there.pending() if not pod.terminating)
    placed = seats.seat_all(pending, stop=stop)
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
    """Where a pod would go, and why."""

    target: str
    refused: bool
    margin: float
    decision: Decision
    clause: Clause

    @property
    def order(self) -> tuple[bool, float]:
        """Return the key by which moves are ranked, the most urgent first."""
        return not self.refused, -self.margin


class _Planner:
    """Looks at one pod after the other, and keeps the moves that are proved."""

    def __init__(self, seats: Seats, options: RebalanceOptions) -> None:
        self._seats, self._options = seats, options
        self._moved: list[PodInfo] = []
        """Replacements of this pass, on their nodes."""
        self._targets: dict[str, str] = {}
        self._known: dict[tuple[PodTemplate, int, str], _Gain | str] = {}
        self.checked, self.well = 0, 0
        self.stay: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.complete = True

    def plan(self, there: ClusterState, *, stop: Stop, progress: Callable[[int, int], None]) -> list[Move]:
        """Return the moves, in order."""
        ranked = sorted(self._sweep(there, stop, progress), key=lambda item: (item[0].order, item[1].key))
        self._known.clear()  # from the first move on, pods that are alike may be decided differently
        budgets = _Spent(self._options.budgets, Budgets(self._seats.cluster))
        moves: list[Move] = []
        for _, pod in ranked:
            if len(moves) >= self._options.budgets.total or stop():
                self.complete = self.complete and not stop()
                self._keep(pod, "the budget of the pass is spent")
                continue
            why = budgets.refusal(pod, self._seats.cluster.node_of(pod.uid) or "")
            move = why or self._try(pod)
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

    def _sweep(
        self, there: ClusterState, stop: Stop, progress: Callable[[int, int], None]
    ) -> list[tuple[_Gain, PodInfo]]:
        """Return the pods that would be better elsewhere as the cluster is, and may be evicted."""
        seats, options = self._seats, self._options
        staying = Staying(seats.cluster, now=options.now, local_storage=options.local_storage)
        asked: list[tuple[objects.Pod, PodInfo]] = []
        youngest: dict[str, float] = {}
        for _, manifest in sorted(there.pods.items()):
            info = seats.cluster.pods.get(manifest.metadata.uid)
            if info is None or not info.node_name or info.terminating or is_of_node(info):
                continue
            workload = workload_of(info)
            youngest[workload] = max(youngest.get(workload, 0.0), info.created)
            known = info.node_name in seats.cluster.nodes.rows
            if known and options.wanted(info) and options.ruleset.rules(info) is not None:
                asked.append((manifest, info))
        self.checked = len(asked)
        found: list[tuple[_Gain, PodInfo]] = []
        for number, (manifest, info) in enumerate(asked):
            if stop():
                self.complete = False
                break
            if number % _EVERY == 0:
                progress(number, len(asked))
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
            known = self._gain(self._replacement(pod), pod.node_name)
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

    def _gain(self, replacement: PodInfo, source: str) -> _Gain | str:
        """Return where a replacement goes and what that gains over a node; or why nothing is gained."""
        if replacement.template.spec.resource_claims:
            return HAS_CLAIMS
        inputs = self._seats.inputs(replacement)
        if inputs.hold_reason() is not None:
            return HELD
        if self._seats.gangs(replacement):
            return IN_A_GANG
        decision = self._seats.decide(replacement)
        rows, profile = self._seats.cluster.nodes.rows, inputs.profile
        if decision.host == source:
            return WELL
        evaluation = inputs.evaluate()
        feasible, totals = evaluation.feasible, evaluation.totals
        mine = np.flatnonzero(feasible == rows[source])
        if decision.host is None:
            return NOWHERE
        if not len(mine):
            why = refusal(inputs.frame(), profile, source) or Clause("")
            return _Gain(decision.host, True, 0.0, decision, why)
        best = np.flatnonzero(feasible == rows[decision.host])
        margin = float(totals[best[0]] - totals[mine[0]])
        if self._options.margin is None or margin <= self._options.margin:
            return WELL
        ahead = leads(inputs.frame(), profile, feasible, node=decision.host, over=source).values()
        _, clause = max(ahead, key=lambda item: item[0], default=(0.0, Clause("")))
        return _Gain(decision.host, False, margin, decision, clause)

    def _try(self, pod: PodInfo) -> Move | str:
        """Return the move of a pod, carried out, if it is proved; else why not, with everything as before."""
        seats, options = self._seats, self._options
        source, workload = seats.cluster.node_of(pod.uid) or "", workload_of(pod)
        replacement = self._replacement(pod)
        terminating = seats.decide(replacement)
        mark = seats.mark()
        seats.take_off(pod)
        gain = self._gain(replacement, source)
        why = gain if isinstance(gain, str) else ""
        if isinstance(gain, _Gain):
            if terminating.host != gain.target:
                why = RETURNS
            elif gain.decision.ties > 1 or terminating.ties > 1:
                why = TIE
            elif gain.target in options.left.get(workload, ()):
                why = WAS_THERE
        if not isinstance(gain, _Gain) or why:
            seats.undo_to(mark)
            return why
        seats.place(replacement, gain.decision)
        self._moved.append(replacement)
        self._targets[replacement.uid] = gain.target
        if not all(self._stays(one) for one in self._moved):
            self._moved.pop()
            seats.undo_to(mark)
            return DRIFTS_BACK
        policy = seats.rules(pod).profile.name
        return Move(
            pod.key, pod.uid, workload, source, gain.target, policy, gain.refused,
            None if gain.refused else gain.margin, gain.clause.text, gain.clause.place,
        )  # fmt: skip

    def _stays(self, replacement: PodInfo) -> bool:
        """Return whether a replacement on its node would not be moved on."""
        mark = self._seats.mark()
        self._seats.take_off(replacement)
        gain = self._gain(self._replacement(replacement), self._targets[replacement.uid])
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
