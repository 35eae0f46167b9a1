"""By which Kubernetes decisions are made, and whether its rules are known."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status


def kubernetes_findings(inspection: Inspection) -> Iterator[Finding]:
    """Name the version, and say whether other rules stand in for it."""
    rules = inspection.state.cluster.rules
    if rules.is_known:
        yield Finding("kubernetes", "rules", Status.OK, f"those of Kubernetes {rules}")
        return
    advice = "a newer version of policyctl may know the rules; see deploy/KUBERNETES-VERSIONS.md"
    yield Finding("kubernetes", "rules", Status.WARNING, f"those of Kubernetes {rules}", advice=advice)
