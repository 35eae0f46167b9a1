"""The workloads of the table: which pods, by which rules, and the decisions a second to reach at 130,000 nodes."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.manifests import Json, pod
from tests.benchmarks.policies import FOUR_LINES, policy_text
from tests.benchmarks.scale import recorded
from tests.benchmarks.scale.site import Load
from tests.benchmarks.workloads import named

TEMPLATES = 50


def _in_turn(number: int, **more: Any) -> Json:
    """Return a pod of one of fifty workloads, each with labels and requests of its own."""
    kind = number % TEMPLATES
    return pod(
        f"pod-{number}",
        labels={"app": f"app-{kind}", "tenant": f"tenant-{kind % 10}"},
        cpu=f"{100 + 10 * kind}m",
        memory=f"{200 + 16 * kind}Mi",
        **more,
    )


def _preempting(number: int) -> Json:
    """Return a pod that fits beside no other one."""
    return pod(f"pod-{number}", labels={"app": "urgent"}, cpu=f"{1000 * recorded.CPUS - 250}m", priority=1000)


SUMS = """\
filter node.ready and fits(cpu, mem)
filter sum(p.request.cpu for p in node.pods where p.label.tenant == pod.label.tenant) < 12
score 100 - 10 * sum(p.request.cpu for p in node.pods)
"""
LOADS = (
    Load("rules", "Kubernetes' default rules, 50 templates in turn", 4_000, 150, _in_turn, templates=TEMPLATES),
    Load(
        "card",
        "four lines with a metric of every node",
        3_000,
        150,
        _in_turn,
        FOUR_LINES,
        metrics=True,
        templates=TEMPLATES,
    ),
    Load(
        "clauses", "20 clauses, five metrics", 1_500, 250, _in_turn, policy_text(20), metrics=True, templates=TEMPLATES
    ),
    Load("own", "every pod with requests of its own", 700, 175, named("OwnRequests").make_pod),
    Load("different", "every pod with a template of its own", 400, 110, named("OwnEverything").make_pod),
    Load("preemption", "every pod evicts others", 200, 8, _preempting, preempts=True),
    Load("sums", "sum(p.request.cpu for p in node.pods …)", 2_000, 35, _in_turn, SUMS, templates=TEMPLATES),
)
AT_5000 = (
    ("SchedulingBasic", 15_000),
    ("OwnRequests", 6_000),
    ("OwnEverything", 4_000),
)
"""Workloads of `tests.benchmarks.workloads` at 5,000 nodes, and the decisions a second to reach."""
THRESHOLDS = (
    ("SchedulingBasic", "10,000 pods", 680, "SchedulingBasic", 5_000),
    ("SchedulingBasic", "50,000 pods", 810, "SchedulingBasic", 5_000),
    ("SchedulingDaemonset", "15,000 nodes", 1_100, "SchedulingDaemonset", 15_000),
    ("PreemptionAsync", "", 570, "PreemptionBasic", 5_000),
    ("Unschedulable", "", 590, "Unschedulable", 5_000),
    ("MixedChurn", "", 710, "rules", 0),
    ("SchedulingWhileGated", "10,000 gated pods", 910, "SchedulingWhileGated", 1),
    ("TopologySpreading", "", 460, "TopologySpreading", 5_000),
    ("PreferredTopologySpreading", "", 340, "PreferredTopologySpreading", 5_000),
    ("SchedulingWithNodeInclusionPolicy", "", 270, "SchedulingWithNodeInclusionPolicy", 5_000),
    ("SchedulingInTreePVs", "", 290, "SchedulingInTreePVs", 5_000),
    ("SchedulingCSIPVs", "", 100, "SchedulingCSIPVs", 5_000),
    ("SchedulingWithExtendedResource", "", 180, "SchedulingWithExtendedResource", 5_000),
    ("SchedulingWithResourceClaimTemplate", "500 nodes", 56, "SchedulingWithResourceClaimTemplate", 500),
    ("TopologyAwareGangs", "750 gangs of 4", 562, "gang 750x4", 0),
    ("TopologyAwareGangs", "3 gangs of 1,000", 953, "gang 3x1000", 0),
)
"""scheduler_perf's thresholds of 2026: name, what it is about, pods a second, and the workload of ours with its nodes.

With 0 nodes it is a row of the table itself, at full size and with changes of the cluster meanwhile.
"""
