"""kube-scheduler's own plugins as clauses: one function for each score, and for each filter that takes arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kube_policy_scheduler.tooling.importing import trimaran
from kube_policy_scheduler.tooling.importing.draft import Arguments, Draft, Translate

RESOURCES = {"cpu": "cpu", "memory": "mem", "pods": "pods", "ephemeral-storage": '"ephemeral-storage"'}
DEFAULT_RESOURCES = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
MAX_SHAPE_SCORE = 10
"""Scores of a shape go from 0 to 10 (MaxCustomPriorityScore), those of nodes to 100."""


def _plain(expression: str) -> Translate:
    def translate(_: Arguments, weight: int, draft: Draft) -> None:
        draft.score(expression, weight)
        draft.is_as_by_default = True

    return translate


def _resources_fit(arguments: Arguments, weight: int, draft: Draft) -> None:
    strategy = arguments.get("scoringStrategy") or {}
    kind = strategy.get("type") or "LeastAllocated"
    resources = _weights(strategy.get("resources") or DEFAULT_RESOURCES)
    if kind == "RequestedToCapacityRatio":
        _ratio((strategy.get("requestedToCapacityRatio") or {}).get("shape") or (), resources, weight, draft)
        return
    name = {"LeastAllocated": "least_allocated", "MostAllocated": "most_allocated"}.get(kind)
    if name is None:
        draft.notes.append(f"the scoring strategy {kind} is not known")
        return
    draft.score(_mean(name, resources), weight)
    draft.is_as_by_default = kind == "LeastAllocated" and resources == _weights(DEFAULT_RESOURCES)


def _mean(function: str, resources: Mapping[str, int]) -> str:
    if len(set(resources.values())) == 1:
        return f"{function}({', '.join(resources)})"
    terms = [f"{weight} * {function}({name})" for name, weight in resources.items()]
    return f"({' + '.join(terms)}) / {sum(resources.values())}"


def _ratio(shape: Sequence[Mapping[str, Any]], resources: Mapping[str, int], weight: int, draft: Draft) -> None:
    """Add a score that follows a line through points: utilisation in percent, score from 0 to 10.

    Source: RequestedToCapacityRatio of kube-scheduler's NodeResourcesFit.
    """
    points = [(each.get("utilization", 0), each.get("score", 0)) for each in shape]
    if not points:
        draft.notes.append("requestedToCapacityRatio has no shape")
        return
    scale = 100 // MAX_SHAPE_SCORE
    text = f"{points[-1][1] * scale}"
    for (low, low_score), (high, high_score) in reversed(list(pairwise(points))):
        line = f"scale(used, {low}, {high})"
        start, rise = low_score * scale, (high_score - low_score) * scale / 100
        text = f"if used <= {high} then {start} + {rise:g} * {line} else {text}"
    draft.lines.append(f"def along_shape(used) = if used <= {points[0][0]} then {points[0][1] * scale} else {text}")
    terms = [
        ("" if share == 1 else f"{share} * ") + f"along_shape(most_allocated({name}))"
        for name, share in resources.items()
    ]
    total = sum(resources.values())
    draft.score(f"({' + '.join(terms)}) / {total}" if total != 1 else terms[0], weight)


def _balanced(arguments: Arguments, weight: int, draft: Draft) -> None:
    resources = _weights(arguments.get("resources") or DEFAULT_RESOURCES)
    draft.score(f"balanced({', '.join(resources)})", weight)
    draft.is_as_by_default = resources == _weights(DEFAULT_RESOURCES)


def _pod_affinity(arguments: Arguments, weight: int, draft: Draft) -> None:
    if arguments.get("hardPodAffinityWeight", 1) != 1:
        draft.notes.append(f"hardPodAffinityWeight: {arguments['hardPodAffinityWeight']} is taken for 1")
    if arguments.get("ignorePreferredTermsOfExistingPods"):
        draft.notes.append("ignorePreferredTermsOfExistingPods: the terms of pods that run count here")
    _plain("pod_preference()")(arguments, weight, draft)


def _even_spread(arguments: Arguments, weight: int, draft: Draft) -> None:
    constraints = arguments.get("defaultConstraints") or ()
    if arguments.get("defaultingType") == "List" or constraints:
        for constraint in constraints:
            topology = constraint.get("topologyKey", "")
            hard = constraint.get("whenUnsatisfiable") == "DoNotSchedule"
            skew = f" max skew {constraint.get('maxSkew', 1)}" if hard else ""
            draft.lines.append(f'spread by pod.owner.name over "{topology}"{skew}')
        if constraints:
            draft.notes.append("defaultConstraints hold for all pods here, also those with constraints of their own")
        _plain("even_spread()")(arguments, weight, draft)
        draft.is_as_by_default = not constraints
        return
    _plain("even_spread()")(arguments, weight, draft)


def _node_affinity_score(arguments: Arguments, weight: int, draft: Draft) -> None:
    _plain("node_preference()")(arguments, weight, draft)
    added = (arguments.get("addedAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution")
    if added:
        draft.notes.append("the preferred terms of addedAffinity are not translated; `score 100 if label …` says them")


def _node_affinity_filter(arguments: Arguments, _: int, draft: Draft) -> None:
    required = (arguments.get("addedAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = []
    for term in required.get("nodeSelectorTerms") or ():
        if term.get("matchFields"):
            draft.notes.append("matchFields of addedAffinity are not translated")
            return
        parts = [_label_test(each) for each in term.get("matchExpressions") or ()]
        if parts:
            terms.append(" and ".join(parts))
    if terms:
        whole = " or ".join(f"({term})" if len(terms) > 1 and " and " in term else term for term in terms)
        draft.lines.append(f"filter {whole} as added_affinity")


def _label_test(expression: Mapping[str, Any]) -> str:
    key, values = expression.get("key", ""), [str(value) for value in expression.get("values") or ()]
    listed = ", ".join(f'"{value}"' for value in values)
    match expression.get("operator"):
        case "In":
            return f'label "{key}" in ({listed})'
        case "NotIn":
            return f'label "{key}" notin ({listed})'
        case "Exists":
            return f'label "{key}"'
        case "DoesNotExist":
            return f'not label "{key}"'
        case operator:
            sign = ">" if operator == "Gt" else "<"
            return f'(number(node.label["{key}"]) {sign} {values[0] if values else 0}) ?? false'


def _dynamic_resources(_: Arguments, weight: int, draft: Draft) -> None:
    """Nothing: pods with claims stay pending, so that this score has no say."""
    draft.is_as_by_default = True


def _weights(resources: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {_resource(each.get("name", "")): each.get("weight") or 1 for each in resources}


def _resource(name: str) -> str:
    return RESOURCES.get(name, f'"{name}"')


SCORES: Mapping[str, Translate] = {
    "TaintToleration": _plain("taint_preference()"),
    "NodeAffinity": _node_affinity_score,
    "NodeResourcesFit": _resources_fit,
    "PodTopologySpread": _even_spread,
    "InterPodAffinity": _pod_affinity,
    "DynamicResources": _dynamic_resources,
    "NodeResourcesBalancedAllocation": _balanced,
    "ImageLocality": _plain("image_locality()"),
    "TargetLoadPacking": trimaran.target_load_packing,
    "LoadVariationRiskBalancing": trimaran.load_variation_risk_balancing,
}
FILTERS: Mapping[str, Translate] = {"NodeAffinity": _node_affinity_filter}
