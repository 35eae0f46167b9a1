"""Which pods to move, each move proved before it is planned. Pure.

An eviction does not move a pod: its controller creates a replacement, and the scheduler decides that. So the
replacement is decided in advance, twice: with the old pod gone, and with the old pod as one that terminates, because a
ReplicaSet creates the replacement while the old pod does. A move is planned only if both decisions name the same
other node, by more than the margin; or the same other nodes, each of which is better by that much. Then it is carried
out in thought, and every earlier move is proved to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.choice import Ties, best, smallest_name
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.victims import Budgets
from kube_policy_scheduler.policy.answer import Held
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop, in_turn, never
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rebalancing.moves import Move, MoveBudgets, MoveRule, replacement_of, workload_of
from kube_policy_scheduler.tooling.rulesets import Clause, Ruleset, leads, rejection
from kube_policy_scheduler.tooling.staying import Staying

_EVERY = 64
MOST_PROOFS = 50_000
"""Decisions of one pass about whether earlier moves stay: each move needs one for each kind of pod and node before it.
Ten to twenty seconds with 5,000 nodes."""
_LAST_TRIES = 200
"""Candidates that are still proved after the search for them was stopped: a second at most."""


class Stays(StrEnum):
    """Why a pod is not moved."""

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
    MANY_MOVES = "so many moves are proved that one more takes too long: plan again after these"


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
    budgets: MoveBudgets = field(default_factory=MoveBudgets)
    rest_seconds: float = 0.0
    """A workload is left alone while one of its pods is younger."""
    local_storage: bool = True
    """Whether pods with local storage stay."""
    wanted: Callable[[PodInfo], bool] = field(default=lambda pod: True, repr=False)
    """Which pods may move."""
    stated: Callable[[PodInfo], MoveRule | None] | None = field(default=None, repr=False)
    """What the policy of a pod says with `rebalance`, in place of `margin` and `rest_seconds`; None: it does not move.
    """
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By workload: nodes that earlier passes moved its pods off. They are not moved back there."""
    reserves: bool = False
    """Whether room on the target is reserved for the replacement, so that it goes there and not to one as good."""

    def rule(self, pod: PodInfo) -> MoveRule | None:
        """Return when a pod moves; None: never."""
        if not self.wanted(pod) or self.ruleset.rules(pod) is None:
            return None
        return self.stated(pod) if self.stated is not None else MoveRule(self.margin, self.rest_seconds)


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


def stated_in(
    ruleset: Ruleset, cluster: Cluster, *, signals: Signals, now: float, default: MoveRule | None = None
) -> Callable[[PodInfo], MoveRule | None]:
    """Return what gives the `rebalance` of a pod's policy.

    Args:
        ruleset: the policies.
        cluster: what conditions look at.
        signals: metrics.
        now: Unix seconds.
        default: for pods of policies without a `rebalance`; None: they do not move.
    """
    made: dict[int, MoveRule] = {}

    def rule(pod: PodInfo) -> MoveRule | None:
        rules = ruleset.rules(pod)
        if rules is None or rules.policy is None or not rules.policy.compiled.rebalances:
            return default
        found = rules.policy.rebalance_of(Frame(pod, cluster, now, signals=signals))
        if found is None:
            return None
        known = made.get(id(found))  # the policy keeps it, so the number is no other's
        if known is None:
            text = f"{rules.policy.name}: {found.text}"
            known = made[id(found)] = MoveRule(found.margin, found.rest_seconds, found.most, text)
        return known

    return rule


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
    planner = Planner(seats, options)
    pods = sorted(seats.cluster.pods.values(), key=lambda pod: pod.key)
    for number, _ in enumerate(planner.sweep(pods)):
        if stop():
            planner.complete = False
            break
        if number % _EVERY == 0:
            progress("pods decided", max(0, number - len(pods)), planner.checked or len(pods))
    found = _prove(planner, stop=stop, progress=progress)
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


def _prove(planner: Planner, *, stop: Stop, progress: Progress) -> list[Move]:
    """Return the moves that are proved within the budgets, in order."""
    options, cluster = planner.options, planner.seats.cluster
    spent = SpentBudgets(options.budgets, Budgets(cluster))
    moves: list[Move] = []
    ranked = planner.ranked()
    tries = len(ranked) if planner.complete else _LAST_TRIES
    for number, pod in enumerate(ranked):
        if number % _EVERY == 0:
            progress(f"candidates proved, {len(moves):,} to move", number, len(ranked))
        if len(moves) >= options.budgets.total:
            planner.keep(pod, Stays.PASS_SPENT)
            continue
        if number >= tries or (planner.complete and stop()):
            planner.complete = False
            break
        rule = options.rule(pod)
        assert rule is not None
        move = spent.rejection(pod, cluster.node_of(pod.uid) or "", rule) or planner.prove(pod)
        if isinstance(move, Move):
            moves.append(move)
            spent.spend(pod, move.source, rule)
        elif move is Stays.WELL:
            planner.well += 1
        else:
            planner.keep(pod, move)
    return moves


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a pod gains if its replacement goes to one of the best nodes."""

    rejected: bool
    """Whether its node would reject it; else the best nodes lead by `margin`."""
    margin: float

    @property
    def order(self) -> tuple[bool, float]:
        """Return the key by which moves are ranked, the most urgent first."""
        return not self.rejected, -self.margin


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
            return Stays.NOWHERE
        at = int(np.searchsorted(self.feasible, source))
        if at == len(self.feasible) or self.feasible[at] != source:
            return _Gain(True, 0.0)
        lead = float(self.totals.max() - self.totals[at])
        return Stays.WELL if margin is None or lead <= margin else _Gain(False, lead)


class Planner:
    """Looks at one pod after the other, and proves moves. Between two steps of `sweep` the cluster is as before."""

    def __init__(self, seats: Seats, options: RebalanceOptions) -> None:
        self.seats, self.options = seats, options
        self._rows = seats.cluster.nodes.rows
        self._moved: dict[Hashable, PodInfo] = {}
        """Replacements of this pass, on their nodes; of those that are alike on one node, one."""
        self._proofs = 0
        self._candidates: list[tuple[_Gain, PodInfo]] = []
        self._known: dict[Hashable, _Gain | str] = {}
        """What pods that are alike gain, as the cluster is."""
        self._failed: dict[Hashable, str] = {}
        """Why pods that are alike do not move, since the last move."""
        self.checked, self.well = 0, 0
        self.stay: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.complete = True

    def keep(self, pod: PodInfo, why: str) -> None:
        """Count a pod that would be better elsewhere and stays."""
        self.stay[why] += 1
        self.examples.setdefault(why, pod.key)

    def ranked(self) -> list[PodInfo]:
        """Return the pods that may be evicted and would be better elsewhere, the most urgent first."""
        return [pod for _, pod in sorted(self._candidates, key=lambda item: (item[0].order, item[1].key))]

    def sweep(self, pods: Sequence[PodInfo]) -> Iterator[None]:
        """Look for pods that would be better elsewhere as the cluster is, and may be evicted; yields after each step.

        Pods of one template follow each other: its columns are kept, and one row of them changes from pod to pod.
        """
        seats, options = self.seats, self.options
        staying = Staying(seats.cluster, now=options.now, local_storage=options.local_storage)
        asked: dict[PodTemplate, list[tuple[PodInfo, MoveRule]]] = {}
        youngest: dict[str, float] = {}
        for info in pods:
            yield
            if info.uid not in seats.cluster.pods or not info.node_name or info.terminating or is_of_node(info):
                continue
            workload = workload_of(info)
            youngest[workload] = max(youngest.get(workload, 0.0), info.created)
            rule = options.rule(info) if info.node_name in self._rows else None
            if rule is not None:
                asked.setdefault(info.template, []).append((info, rule))
        self.checked = sum(map(len, asked.values()))
        for info, rule in chain.from_iterable(asked.values()):
            yield
            if seats.cluster.node_of(info.uid) != info.node_name or info.node_name not in self._rows:
                continue  # gone since the sweep began
            gain = self._gain_of_alike(info, rule)
            if gain is Stays.WELL:
                self.well += 1
                continue
            rests = options.now - youngest[workload_of(info)] < rule.rest_seconds
            why = gain if isinstance(gain, str) else Stays.RESTS if rests else staying.reason(info)
            if why:
                self.keep(info, why)
            elif isinstance(gain, _Gain):
                self._candidates.append((gain, info))

    def assume(self, replacement: PodInfo, node: str) -> None:
        """Carry out a move that was proved before, for the proofs of others; it must stay."""
        self.seats.put(replacement, node)
        self._moved.setdefault(self._key(replacement), replacement)

    def _key(self, replacement: PodInfo) -> Hashable:
        """Return what pods that are alike, on one node, have in common."""
        if not self.seats.is_alike(replacement):
            return replacement.uid
        return replacement.template, id(replacement.demand), self.seats.cluster.node_of(replacement.uid)

    def _gain_of_alike(self, pod: PodInfo, rule: MoveRule) -> _Gain | str:
        key = pod.template, id(pod.demand), pod.node_name
        alike = self.seats.is_alike(pod)
        known = self._known.get(key) if alike else None
        if known is None:
            mark = self.seats.mark()
            self.seats.take_off(pod)
            replacement = self._replacement(pod)
            known = self._standing(replacement).gain(self._rows[pod.node_name], rule.margin)
            if known is not Stays.WELL:
                known = self._obstacle(replacement) or known
            self.seats.undo_to(mark)
            if alike:
                self._known[key] = known
        return known

    def _replacement(self, pod: PodInfo) -> PodInfo:
        return replacement_of(pod, self.options.now)

    def _obstacle(self, replacement: PodInfo) -> str:
        """Return why it is not known where a replacement goes, whatever its nodes are; "" if nothing speaks of that."""
        if replacement.template.spec.resource_claims:
            return Stays.HAS_CLAIMS
        if isinstance(self.seats.answer(replacement), Held):
            return Stays.HELD
        return Stays.IN_A_GANG if self.seats.goes_with_others(replacement) else ""

    def _standing(self, replacement: PodInfo) -> _Standing:
        return _Standing(*self.seats.ranked(replacement))

    def _certain(self, replacement: PodInfo, standing: _Standing) -> IntArray:
        """Return the rows that the replacement may get: all best ones, or the first if ties are decided by name."""
        rows = standing.best()
        if len(rows) > 1 and self.seats.rules(replacement).profile.ties is Ties.NAME:
            return np.array([smallest_name(rows, self.seats.cluster.nodes)])
        return rows

    def prove(self, pod: PodInfo) -> Move | str:
        """Return the move of a pod, carried out, if it is proved; else why not, with everything as before."""
        key = pod.template, id(pod.demand), pod.node_name, workload_of(pod)
        alike = self.seats.is_alike(pod)
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
        """Prove one move.

        Several nodes may be best: each of them is better than the pod's node by more than the margin. Both decisions
        must name the same ones.
        """
        if self._proofs + len(self._moved) >= MOST_PROOFS:
            return Stays.MANY_MOVES
        seats, options, workload = self.seats, self.options, workload_of(pod)
        source, names = seats.cluster.node_of(pod.uid) or "", seats.cluster.nodes.infos
        replacement = self._replacement(pod)
        mark = seats.mark()
        seats.terminate(pod)
        terminating = self._certain(replacement, self._standing(replacement))
        seats.undo_to(mark)
        seats.take_off(pod)
        standing = self._standing(replacement)
        targets = self._certain(replacement, standing)
        rule = options.rule(pod)
        assert rule is not None
        gain = standing.gain(self._rows[source], rule.margin)
        left = options.left.get(workload, frozenset())
        why = gain if isinstance(gain, str) else ""
        if not why and not np.array_equal(terminating, targets):
            why = Stays.RETURNS
        elif not why and left and any(names[row].name in left for row in targets.tolist()):
            if options.reserves:
                targets = np.array([row for row in targets.tolist() if names[row].name not in left], np.int64)
            why = "" if options.reserves and len(targets) else Stays.WAS_THERE
        if why or isinstance(gain, str):
            seats.undo_to(mark)
            return why
        clause = self._clause(replacement, standing, source, int(targets[0]), gain)
        host = seats.answer(replacement).host
        row = self._rows[host] if host is not None and self._rows[host] in targets else int(targets[0])
        seats.count(replacement, seats.on(replacement, row))
        key = self._key(replacement)
        moved = self._moved if key in self._moved else {**self._moved, key: replacement}
        gone = next((each for each, one in moved.items() if not self._stays(one)), None)
        if gone is not None:
            if gone in self._moved:  # it is asked first the next time
                self._moved = {gone: self._moved[gone], **self._moved}
            seats.undo_to(mark)
            return Stays.DRIFTS_BACK
        self._moved = moved
        policy = seats.rules(pod).profile.name
        return Move(
            pod.key, pod.uid, workload, source, names[row].name, len(targets), policy, gain.rejected,
            None if gain.rejected else gain.margin, clause.text, clause.place,
        )  # fmt: skip

    def _clause(self, pod: PodInfo, standing: _Standing, source: str, target: int, gain: _Gain) -> Clause:
        """Return what rejects a pod on a node, or the score by which another leads most."""
        inputs = self.seats.inputs(pod)
        if gain.rejected:
            return rejection(inputs.frame(), inputs.profile, source) or Clause("")
        name = self.seats.cluster.nodes.infos[target].name
        ahead = leads(inputs.frame(), inputs.profile, standing.feasible, node=name, over=source).values()
        return max(ahead, key=lambda item: item[0], default=(0.0, Clause("")))[1]

    def _stays(self, replacement: PodInfo) -> bool:
        """Return whether a replacement on its node would not be moved on."""
        self._proofs += 1
        row = self._rows[self.seats.cluster.node_of(replacement.uid) or ""]
        mark = self.seats.mark()
        self.seats.take_off(replacement)
        rule = self.options.rule(replacement)
        gain = self._standing(self._replacement(replacement)).gain(row, rule.margin) if rule is not None else Stays.WELL
        self.seats.undo_to(mark)
        return gain is Stays.WELL


class SpentBudgets:
    """What a pass has moved so far."""

    def __init__(self, budgets: MoveBudgets, disruptions: Budgets) -> None:
        self._budgets, self._disruptions = budgets, disruptions
        self._by: Counter[tuple[str, str]] = Counter()

    def copy(self) -> SpentBudgets:
        """Return the same, to go on with and to drop."""
        made = SpentBudgets(self._budgets, self._disruptions)
        made._by = self._by.copy()
        return made

    def rejection(self, pod: PodInfo, node: str, rule: MoveRule) -> str:
        """Return the budget that keeps a pod where it is; "" where none does."""
        limits = self._budgets
        for kind, name, most in (
            ("node", node, limits.node),
            ("workload", workload_of(pod), limits.workload),
            ("namespace", pod.namespace, limits.namespace),
            ("`rebalance`", rule.text, rule.most),
        ):
            if most is not None and self._by[kind, name] >= most:
                return f"the budget of its {kind} is spent"
        for budget in self._disruptions.protecting(pod):
            if self._by["budget", f"{pod.namespace}/{budget.metadata.name}"] >= budget.status.disruptions_allowed:
                return f"PodDisruptionBudget {budget.metadata.name} allows no more disruptions"
        return ""

    def spend(self, pod: PodInfo, node: str, rule: MoveRule) -> None:
        """Count a move."""
        names = [("node", node), ("workload", workload_of(pod)), ("namespace", pod.namespace)]
        names += [("budget", f"{pod.namespace}/{one.metadata.name}") for one in self._disruptions.protecting(pod)]
        self._by.update([*names, ("`rebalance`", rule.text)])
