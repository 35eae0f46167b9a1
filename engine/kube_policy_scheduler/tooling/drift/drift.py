"""Each pod on a node, taken off it and decided again: does it still fit there, and is another node better? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.tooling.cluster_state import World, is_of_node, waiting
from kube_policy_scheduler.tooling.governing import Ruleset
from kube_policy_scheduler.tooling.node_verdicts import Clause, leads, refusal

FINISHED = "finished"
ENDING = "being deleted"
OF_NODE = "of daemon sets, or of the node itself"
NO_NODE = "on a node that the cluster does not have"
UNGOVERNED = "governed by no policy"
_ROUNDING = 1e-9
"""Points that are none."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A score in which the two nodes differ."""

    clause: str
    place: str
    """`FILE:LINE:COLUMN`; "" for Kubernetes' own."""
    points: float
    """By which the better node leads."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """A pod that would not be put where it is."""

    pod: str
    node: str
    policy: str
    refused: bool
    """Whether its node would refuse it; else another is better by the margin."""
    better: str
    """Where it would go; "" for nowhere."""
    margin: float | None
    """Points by which that node leads; None where its own refuses it."""
    clause: str
    """What refuses it, or the score by which the other leads most."""
    place: str
    leads: tuple[Lead, ...] = ()
    """All scores in which the two nodes differ."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What came of looking at all pods."""

    checked: int
    drifted: tuple[Drifted, ...]
    could_be_better: int
    """Pods for which another node leads, but not by more than the margin; 0 where none was asked for."""
    skipped: Mapping[str, int]
    """Pods that were not looked at, by why."""
    margin: float | None

    @property
    def refused(self) -> list[Drifted]:
        """Return the pods that their nodes would refuse."""
        return [one for one in self.drifted if one.refused]

    @property
    def better(self) -> list[Drifted]:
        """Return the pods that would be better elsewhere by the margin."""
        return [one for one in self.drifted if not one.refused]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about which pods."""

    ruleset: Ruleset
    margin: float | None
    """Points by which another node must lead; None: only what nodes refuse is asked."""
    now: float
    """Unix seconds."""
    signals: Signals = Signals.EMPTY
    seed: int = 0
    wanted: Callable[[PodInfo], bool] = field(default=lambda pod: True, repr=False)
    """Which pods to look at."""


def drift(
    there: World, question: Question, *, progress: Callable[[int, int], None] = lambda done, whole: None
) -> Drift:
    """Look at every pod on a node; the cluster is as before in the end."""
    skipped: Counter[str] = Counter()
    asked: list[tuple[objects.Pod, PodInfo, Rules]] = []
    for _, pod in sorted(there.pods.items()):
        info = there.cluster.templates.pod(pod)
        if not question.wanted(info) or not (info.node_name or info.terminal):
            continue
        why, rules = _skipped(there, info), question.ruleset.rules(info)
        if why or rules is None:
            skipped[why or UNGOVERNED] += 1
        else:
            asked.append((pod, info, rules))
    look = _Look(there, question)
    found: list[Drifted] = []
    small = 0
    for number, (pod, info, rules) in enumerate(asked):
        verdict = look.at(pod, info, rules)
        if isinstance(verdict, Drifted):
            found.append(verdict)
        else:
            small += verdict is _Verdict.SLIGHTLY
        progress(number + 1, len(asked))
    found.sort(key=lambda one: (not one.refused, -(one.margin or 0.0), one.pod))
    return Drift(len(asked), tuple(found), small, dict(sorted(skipped.items())), question.margin)


def _skipped(there: World, pod: PodInfo) -> str:
    if pod.terminal:
        return FINISHED
    if pod.terminating:
        return ENDING
    if is_of_node(pod):
        return OF_NODE
    return "" if pod.node_name in there.cluster.nodes.rows else NO_NODE


class _Verdict(Enum):
    WELL = "no node is better"
    SLIGHTLY = "another node is better by less than the margin"


class _Look:
    """Looks at one pod after the other; pods that are answered alike are decided once."""

    def __init__(self, there: World, question: Question) -> None:
        self._there, self._question = there, question
        self._cycle = Cycle(seed=question.seed)
        self._known: dict[tuple[PodTemplate, int, str], Drifted | _Verdict] = {}

    def at(self, pod: objects.Pod, info: PodInfo, rules: Rules) -> Drifted | _Verdict:
        """Return what is to be said about a pod."""
        key = (info.template, id(info.demand), info.node_name)
        alike = rules.profile.by_template and not info.volumes
        known = self._known.get(key) if alike else None
        if known is None:
            with waiting(pod, self._there.cluster) as (free, host):
                known = self._decide(self._there.cluster.templates.pod(free), host or info.node_name, rules)
            if alike:
                self._known[key] = known
        return replace(known, pod=info.key) if isinstance(known, Drifted) else known

    def _decide(self, pod: PodInfo, host: str, rules: Rules) -> Drifted | _Verdict:
        question, cluster, profile = self._question, self._there.cluster, rules.profile
        inputs = DecisionInputs(pod, cluster, rules, question.signals, question.now, queued=pod.created)
        if inputs.decide(self._cycle).host == host:
            return _Verdict.WELL
        frame, evaluation = inputs.frame(), inputs.evaluate()
        feasible, totals, names = evaluation.feasible, evaluation.totals, cluster.nodes.names
        better = min((names[row] for row in feasible[totals == totals.max()]), default="") if len(feasible) else ""
        mine = np.flatnonzero(feasible == cluster.nodes.rows[host])
        if not len(mine):
            why = refusal(frame, profile, host) or Clause("")
            return Drifted(pod.key, host, profile.name, True, better, None, why.text, why.place)
        if question.margin is None:
            return _Verdict.WELL
        lead = float(totals.max() - totals[mine[0]])
        if lead <= question.margin:
            return _Verdict.SLIGHTLY if lead > _ROUNDING else _Verdict.WELL
        ahead = leads(frame, profile, feasible, node=better, over=host).values()
        ranked = sorted(ahead, key=lambda item: -item[0])
        scores = tuple(Lead(clause.text, clause.place, points) for points, clause in ranked if points)
        return Drifted(pod.key, host, profile.name, False, better, lead, scores[0].clause, scores[0].place, scores)
