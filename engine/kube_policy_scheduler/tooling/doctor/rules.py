"""Filters that reject everything or nothing, and scores that can't matter, tried on pods of this cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.evaluate.evaluation import score
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledScore, CompiledTest
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.detail import called as called_by
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.cluster_state import waiting
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.policy_reads import fields_of_clause
from kube_policy_scheduler.tooling.why.filters import rejections
from kube_policy_scheduler.wording import plural

MOST_PODS = 40
"""Kinds of pods tried for each policy: more say little that is new."""
_EQUAL = 1e-9
_ASK_WHY = "run `policyctl why` for one of them: a value in the comparison may be missing or misspelled"


def rule_findings(inspection: Inspection) -> Iterator[Finding]:
    """Try filters and scores of each policy on the pods that it governs."""
    for policy in inspection.policy_set.policies:
        pods = kinds_of(inspection, inspection.governed[policy.name])
        if not any(isinstance(clause, CompiledTest | CompiledScore) for clause in policy.clauses):
            continue
        if not pods or not inspection.state.cluster.nodes.size:
            what = "it governs no pods to test them with" if not pods else "the cluster has no nodes"
            yield Finding("rules", policy.name, Status.UNCHECKED, f"filters and scores: {what}")
            continue
        tried = [_try(inspection, policy, pod) for pod in pods]
        yield from _holds(policy, tried)
        yield from _filters(policy, tried)
        yield from _scores(policy, tried)


@dataclass(frozen=True, slots=True)
class _Tried:
    """One pod, decided as if it waited."""

    pod: str
    """`namespace/name`"""
    nodes: int
    rejected: Mapping[str, int]
    """Nodes rejected, by filter."""
    scores: Mapping[str, FloatArray]
    """`float64[feasible]` by score."""
    held_by: frozenset[str]
    """The `hold` clauses that keep it out of the queue."""


def kinds_of(inspection: Inspection, pods: Sequence[objects.Pod]) -> list[objects.Pod]:
    """Return one pod of each template, those that wait first."""
    first: dict[int, objects.Pod] = {}
    for pod in pods:
        first.setdefault(id(inspection.state.cluster.templates.pod(pod).template), pod)
        if len(first) == MOST_PODS:
            break
    return list(first.values())


def _try(inspection: Inspection, policy: Policy, pod: objects.Pod) -> _Tried:
    cluster = inspection.state.cluster
    with waiting(pod, cluster) as (free, _):
        rules = Rules(policy.profile, policy)
        inputs = DecisionInputs.of(
            free, cluster, rules, signals=inspection.signals, now=inspection.now, seed=inspection.seed
        )
        asked = rejections(inputs)
        frame = inputs.frame()
        feasible = asked.evaluation.feasible
        if len(feasible) < 2:  # how scores would tell nodes apart is worth knowing all the same
            feasible = np.arange(cluster.nodes.size)
        made = score(frame, policy.profile, feasible)
        held_by = frozenset(clause.name for clause in policy.holds if clause.evaluate(frame))
    rejected: dict[str, int] = {}
    for one in asked.filters:
        rejected[one.name] = max(rejected.get(one.name, 0), int(one.rejected.sum()))
    scores = {name: np.asarray(values, np.float64) for name, values in made.items()}
    return _Tried(f"{pod.metadata.namespace}/{pod.metadata.name}", cluster.nodes.size, rejected, scores, held_by)


def _holds(policy: Policy, tried: Sequence[_Tried]) -> Iterator[Finding]:
    """Say which pods each `hold` keeps out of the queue now; a policy may hold all of them for a while."""
    for clause in policy.holds:
        held = [one.pod for one in tried if clause.name in one.held_by]
        place = str(clause.span)
        if not held:
            yield Finding("holds", clause.name, Status.OK, f"holds none of {_kinds_of(tried)} now", place)
        elif len(held) < len(tried):
            text = f"holds {len(held)} of {_kinds_of(tried)} now, such as {held[0]}"
            yield Finding("holds", clause.name, Status.OK, text, place)
        else:
            text = f"holds each of {_kinds_of(tried)} now: none of them is scheduled"
            yield Finding("holds", clause.name, Status.WARNING, text, place, _ASK_WHY)


def _filters(policy: Policy, tried: Sequence[_Tried]) -> Iterator[Finding]:
    for clause in policy.clauses:
        if not isinstance(clause, CompiledTest) or clause.name not in {p.name for p in policy.profile.filters}:
            continue
        asked = [(one.rejected[clause.name], one.nodes) for one in tried if clause.name in one.rejected]
        place = str(clause.span)
        if clause.kind is ClauseKind.REQUIRE:
            yield _require(clause.name, place, [one.pod for one in tried if clause.name in one.rejected], tried)
        elif all(rejected == nodes for rejected, nodes in asked):
            text = f"rejects every node for each of {_kinds_of(asked)} tried"
            yield Finding("filters", clause.name, Status.PROBLEM, text, place, _ASK_WHY)
        elif not any(rejected for rejected, _ in asked):
            yield Finding("filters", clause.name, Status.OK, "rejects no node now", place)
        else:
            least, most = min(rejected for rejected, _ in asked), max(rejected for rejected, _ in asked)
            share = f"{least}" if least == most else f"{least} to {most}"
            yield Finding("filters", clause.name, Status.OK, f"rejects {share} of {plural(asked[0][1], 'node')}", place)


def _require(name: str, place: str, rejected: Sequence[str], tried: Sequence[_Tried]) -> Finding:
    """Say which pods a `require` rejects: it is there to reject some, only not all."""
    if not rejected:
        return Finding("filters", name, Status.OK, f"rejects none of {_kinds_of(tried)}", place)
    if len(rejected) < len(tried):
        text = f"rejects {len(rejected)} of {_kinds_of(tried)}, such as {rejected[0]}"
        return Finding("filters", name, Status.OK, text, place)
    return Finding("filters", name, Status.PROBLEM, f"rejects each of {_kinds_of(tried)} tried", place, _ASK_WHY)


def _scores(policy: Policy, tried: Sequence[_Tried]) -> Iterator[Finding]:
    """Compare how far each score tells nodes apart with the smallest step of each other."""
    compared = [one for one in tried if any(len(values) > 1 for values in one.scores.values())]
    places = {clause.name: str(clause.span) for clause in policy.clauses}
    called = {weighted.plugin.name: called_by(weighted.plugin) for weighted in policy.profile.scores}
    names = list(called)
    if not compared:
        if names:
            text = "there are fewer than two nodes, so scores were not compared"
            yield Finding("scores", policy.name, Status.UNCHECKED, text)
        return
    spans = {name: [_span(one.scores.get(name)) for one in compared] for name in names}
    steps = {name: [_step(one.scores.get(name)) for one in compared] for name in names}
    for name in names:
        if name not in places:
            continue  # one of Kubernetes' own
        widest = max(spans[name])
        if widest <= _EQUAL and "pod.previous_node" in fields_of_clause(policy, name):
            text = "only the running scheduler knows on which node a pod ran before"
            yield Finding("scores", called[name], Status.UNCHECKED, text, places[name])
            continue
        if widest <= _EQUAL:
            text = f"is the same on every node, for each of {_kinds_of(compared)} tried"
            advice = "it has no effect on this cluster"
            yield Finding("scores", called[name], Status.WARNING, text, places[name], advice)
            continue
        greater = next((other for other in names if other != name and _always_less(spans[name], steps[other])), None)
        if greater is None:
            yield Finding(
                "scores", called[name], Status.OK, f"differs between nodes by up to {widest:.4g}", places[name]
            )
            continue
        smallest = min(step for step in steps[greater] if step is not None)
        text = f"tells nodes apart by {widest:.4g} at most, the smallest step of `{called[greater]}` is {smallest:.4g}"
        advice = "it only breaks ties of that score; to change this, set another weight"
        yield Finding("scores", called[name], Status.WARNING, text, places[name], advice)


def _kinds_of(tried: Sequence[object]) -> str:
    return "1 kind of pod" if len(tried) == 1 else f"{len(tried)} kinds of pods"


def _always_less(spans: Sequence[float], steps: Sequence[float | None]) -> bool:
    pairs = [(span, step) for span, step in zip(spans, steps, strict=True) if step is not None and span > _EQUAL]
    return bool(pairs) and all(span < step - _EQUAL for span, step in pairs)


def _span(values: FloatArray | None) -> float:
    return float(np.ptp(values)) if values is not None and len(values) else 0.0


def _step(values: FloatArray | None) -> float | None:
    """Return the smallest difference between two values that differ, None where all are the same."""
    if values is None:
        return None
    gaps = np.diff(np.unique(values))
    gaps = gaps[gaps > _EQUAL]
    return float(gaps.min()) if len(gaps) else None
