"""All examinations, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from kube_policy_scheduler.tooling.doctor.access import Access, access_findings
from kube_policy_scheduler.tooling.doctor.findings import Finding, Patient, Status
from kube_policy_scheduler.tooling.doctor.labels import label_findings
from kube_policy_scheduler.tooling.doctor.metrics import metric_findings
from kube_policy_scheduler.tooling.doctor.pods import pod_findings
from kube_policy_scheduler.tooling.doctor.rules import rule_findings


def examine(patient: Patient, *, access: Access | None) -> tuple[Finding, ...]:
    """Return everything that was found, and what could not be looked at."""
    return (
        *pod_findings(patient),
        *label_findings(patient),
        *metric_findings(patient),
        *rule_findings(patient),
        *access_findings(access),
    )


def is_found(findings: Sequence[Finding]) -> bool:
    """Return whether anything is not as it should be; what could not be checked is not known to be wrong."""
    return any(one.status in (Status.WARNING, Status.PROBLEM) for one in findings)
