"""How much memory kept results and counts of pods may take, where that is more than usual."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.cluster.kept_views import MIN_KEPT_BYTES, most_kept_bytes
from kube_policy_scheduler.cluster.pod_counters import MIN_COUNTER_BYTES, most_counter_bytes
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.wording import plural


def kept_results_findings(inspection: Inspection) -> Iterator[Finding]:
    """Say how much memory the scheduler may keep results in, if the cluster is so large that this follows from it."""
    nodes = inspection.state.cluster.nodes.size
    most = most_kept_bytes(nodes)
    if most > MIN_KEPT_BYTES:
        text = f"with {plural(nodes, 'node')}, they may take {most >> 20:,} MiB, if no setting says otherwise"
        advice = "leave room for it in the memory limit of the container, or set `scheduling.cacheMebibytes`"
        yield Finding("memory", "kept results", Status.OK, text, advice=advice)
    most = most_counter_bytes(nodes)
    if most > MIN_COUNTER_BYTES:
        text = f"with {plural(nodes, 'node')}, counts and sums of pods may take {most >> 20:,} MiB"
        advice = "leave room for it in the memory limit of the container"
        yield Finding("memory", "counts of pods", Status.OK, text, advice=advice)
