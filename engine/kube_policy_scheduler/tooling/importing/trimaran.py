"""Trimaran's scores, kube-scheduler plugins that look at real load, as clauses over Prometheus.

Formulas: KEP-61 of kubernetes-sigs/scheduler-plugins. Queries: the recording rules of node-exporter's mixin, which
Trimaran's Prometheus client reads as well.
"""

from __future__ import annotations

from kube_policy_scheduler.tooling.importing.draft import Arguments, Draft

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
