"""Which rules decide about a pod, and what they say about one node, or about one against another. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.decide.gang_domains import GangTopology
from kube_policy_scheduler.framework.evaluate.evaluation import score
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Plugin
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.answer import Answer
from kube_policy_scheduler.policy.clauses import PolicyClause
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, Rules
from kube_policy_scheduler.policy.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class Ruleset:
    """Policies, or Kubernetes' own rules where there are none. No pod is evicted: the question is where pods fit."""

    name: str
    """What the reader calls it: the path it comes from."""
    policy_set: PolicySet | None = None
    sources: tuple[Source, ...] = ()
    _rules: dict[str, Rules] = field(default_factory=dict, repr=False, compare=False)

    def rules(self, pod: PodInfo) -> Rules | None:
        """Return what decides about a pod; None where no policy governs it."""
        policy = self.policy_set.governing(pod) if self.policy_set is not None else None
        if policy is None and self.policy_set is not None:
            return None
        name = policy.name if policy is not None else ""
        if name not in self._rules:
            profile = msgspec.structs.replace(
                policy.profile if policy is not None else KUBERNETES.profile, preempts=False
            )
            self._rules[name] = Rules(profile, policy, self.sources, policies=self.policy_set)
        return self._rules[name]


def governed(pod: PodInfo, rulesets: Sequence[Ruleset]) -> bool:
    """Return whether some policy governs a pod; Kubernetes' own rules govern what the others do, or all alone."""
    having = [one for one in rulesets if one.policy_set is not None]
    return not having or any(one.rules(pod) is not None for one in having)


@dataclass(frozen=True, slots=True)
class Clause:
    """A rule as the reader knows it."""

    text: str
    """As written in the policy, or Kubernetes' name of the rule."""
    place: str = ""
    """`FILE:LINE:COLUMN`; "" for a rule of Kubernetes."""


def clause_of(plugin: Plugin) -> Clause:
    """Return the rule that a filter or score stands for."""
    if not isinstance(plugin, PolicyClause):
        return Clause(plugin.name)
    return Clause(plugin.clause.text, str(plugin.clause.span))


def rejection(frame: Frame, profile: Profile, node: str) -> Clause | None:
    """Return a filter that rejects a node, None where none does; those of the policy are asked first."""
    row = frame.cluster.nodes.rows.get(node)
    if row is None:
        return None
    ordered = sorted(profile.filters, key=lambda plugin: not isinstance(plugin, PolicyClause))
    return next((clause_of(plugin) for plugin in ordered if not probe(frame, plugin).passes()[row]), None)


def rejection_by(answer: Answer, node: str) -> Clause | None:
    """Return what keeps a pod off a node: a filter as `rejection`, at last the gang whose domain it is not in."""
    inputs = answer.inputs
    profile, frame = inputs.profile, inputs.frame()
    domains = tuple(plugin for plugin in profile.filters if isinstance(plugin, GangTopology))
    others = msgspec.structs.replace(
        profile, filters=tuple(plugin for plugin in profile.filters if plugin not in domains)
    )
    found = rejection(frame, others, node)
    return gang_of(answer) if found is None and domains and rejection(frame, profile, node) is not None else found


def gang_of(answer: Answer) -> Clause:
    """Return the gang for which a pod is in a domain."""
    text = next((each.text for each in answer.requirements if each.levels), "a gang")
    policy = answer.inputs.rules.policy
    clauses = policy.gangs if policy is not None else ()
    return Clause(text, next((str(clause.span) for clause in clauses if clause.text == text), ""))


def leads(
    frame: Frame, profile: Profile, feasible: IntArray, *, node: str, over: str
) -> dict[str, tuple[float, Clause]]:
    """Return by how many points a node leads another, score by score; scores written alike are added up.

    Args:
        frame: the inputs of the decision, looking at all nodes.
        profile: whose scores.
        feasible: the rows that pass every filter, ascending; both nodes are among them.
        node: the one that leads.
        over: the other.
    """
    rows = frame.cluster.nodes.rows
    first, second = (int(np.searchsorted(feasible, rows[name])) for name in (node, over))
    found: dict[str, tuple[float, Clause]] = {}
    for weighted in profile.scores:
        clause = clause_of(weighted.plugin)
        # one at a time, as clauses may have one name
        for scores in score(frame, Profile("", scores=(weighted,)), feasible).values():
            values = np.asarray(scores, np.float64)
            points = found.get(clause.text, (0.0, clause))[0] + float(values[first] - values[second])
            found[clause.text] = (points, clause)
    return found
