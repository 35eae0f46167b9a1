"""The plugins of a scheduler configuration, one by one, to clauses of a policy draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from kube_policy_scheduler.framework.default_profile import kubernetes_scores
from kube_policy_scheduler.framework.plugins.storage_scores import shape_of
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.tooling.importing import plugins as trimaran

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Draft:
    """What a plugin adds to a policy."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_as_by_default: bool = False
    """Its score is that of `use kubernetes scores`."""

    def score(self, expression: str, weight: int) -> None:
        """Add a score clause."""
        self.lines.append(f"score {expression}" + (f" weight {weight}" if weight != 1 else ""))


Translate: TypeAlias = Callable[[Arguments, int, Draft], None]
"""Arguments of a plugin and its weight; what they come to is added to the draft."""


CPU = "instance:node_cpu:ratio"
MEMORY = "instance:node_memory_utilisation:ratio"
NO_FALL_BACK = "a node without a fresh metric gets 0 from this score; Trimaran goes on with the last value it saw"
LABEL = "metrics are joined to nodes by their label `instance`; change `by` where another one names the node"


def target_load_packing(arguments: Arguments, weight: int, draft: Draft) -> None:
    """Fill nodes up to a target of real CPU, then avoid them.

    Below the target the score rises from it to 100, above it falls from it to 0.
    """
    target = float(arguments.get("targetUtilization") or 40)
    multiplier = float(arguments.get("defaultRequestsMultiplier") or 1.5)
    default = (arguments.get("defaultRequests") or {}).get("cpu", "1000m")
    draft.lines += [
        f'metric cpu_ratio = promql("100 * {CPU}") every 30s by instance',
        f"let wanted_cpu = if pod.limit.cpu > 0 then pod.limit.cpu else if pod.request.cpu > 0 then "
        f"{multiplier:g} * pod.request.cpu else {default}",
        "let load = predicted(cpu_ratio, 100 * wanted_cpu / node.allocatable.cpu)"
        " + 100 * wanted_cpu / node.allocatable.cpu",
    ]
    rising = f"{target:g} + {(100 - target) / target:g} * load"
    falling = f"{target / (100 - target):g} * (100 - load)" if target < 100 else "0"
    draft.score(f"(if load <= {target:g} then {rising} else if load <= 100 then {falling} else 0) ?? 0", weight)
    draft.notes += [NO_FALL_BACK, LABEL]


def load_variation_risk_balancing(arguments: Arguments, weight: int, draft: Draft) -> None:
    """Prefer nodes whose load is low and steady: risk is the mean plus the deviation of use, halved."""
    margin = float(arguments.get("safeVarianceMargin") or 1)
    sensitivity = float(arguments.get("safeVarianceSensitivity") or 1)
    for name, query, resource in (("cpu", CPU, "cpu"), ("memory", MEMORY, "mem")):
        draft.lines += [
            f'metric {name}_mean = promql("avg_over_time({query}[5m])") every 30s by instance',
            f'metric {name}_deviation = promql("stddev_over_time({query}[5m])") every 30s by instance',
            f"let {name}_load = clamp({name}_mean + pod.request.{resource} / node.allocatable.{resource}, 0, 1)",
            f"let {name}_swing = {_swing(f'clamp({name}_deviation, 0, 1)', margin, sensitivity)}",
        ]
    draft.score("(100 * (1 - max(cpu_load + cpu_swing, memory_load + memory_swing) / 2)) ?? 0", weight)
    draft.notes += [NO_FALL_BACK, LABEL]


def _swing(deviation: str, margin: float, sensitivity: float) -> str:
    known = {1.0: deviation, 2.0: f"sqrt({deviation})"}
    root = known.get(sensitivity) or f"exp(log({deviation}) / {sensitivity:g})"
    return root if margin == 1 else f"clamp({margin:g} * {root}, 0, 1)"


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
        draft.notes.append(f"the scoring strategy {kind} is unknown")
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
            # there, a node's taints do not take its domain out of the count unless the constraint says so
            counting = "" if constraint.get("nodeTaintsPolicy") == "Honor" else " counting tainted nodes"
            skew = f" max skew {constraint.get('maxSkew', 1)}{counting}" if hard else ""
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
        draft.notes.append("the preferred terms of addedAffinity are not converted; write `score 100 if label …`")


def _node_affinity_filter(arguments: Arguments, _: int, draft: Draft) -> None:
    required = (arguments.get("addedAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = []
    for term in required.get("nodeSelectorTerms") or ():
        if term.get("matchFields"):
            draft.notes.append("matchFields of addedAffinity are not converted")
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


def _storage(arguments: Arguments, weight: int, draft: Draft) -> None:
    """Add the score by storage: with a shape in every version, without one where Kubernetes has it."""
    if "bindTimeoutSeconds" in arguments:
        draft.notes.append("bindTimeoutSeconds is not converted")
    if points := arguments.get("shape"):
        shape = shape_of([(each.get("utilization", 0), each.get("score", 0)) for each in points])
        text = " ".join(f"{point.utilization}:{point.score}" for point in shape)
        draft.score(f'storage_preference("{text}")', weight)
        return
    others = ", ".join(each.plugin.name for each in kubernetes_scores() if each.plugin.name != VolumeBinding.name)
    heavier = f" with {VolumeBinding.name} weight {weight}" if weight != 1 else ""
    draft.lines.append(f"use kubernetes scores without {others}{heavier}")
    draft.is_as_by_default = True


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
    "VolumeBinding": _storage,
    "NodeResourcesBalancedAllocation": _balanced,
    "ImageLocality": _plain("image_locality()"),
    "TargetLoadPacking": trimaran.target_load_packing,
    "LoadVariationRiskBalancing": trimaran.load_variation_risk_balancing,
}
FILTERS: Mapping[str, Translate] = {"NodeAffinity": _node_affinity_filter}
