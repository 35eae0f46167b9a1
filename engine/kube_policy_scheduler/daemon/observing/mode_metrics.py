"""What is exported about the two modes in which another scheduler places the pods. Counts only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

MARGINS = (0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Shares of the range between the best and the worst node."""
EXTENDER_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class ShadowMetrics:
    """What became of the pods that another scheduler places, against what we decided."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pods = Counter(
            "policy_scheduler_shadow_pods",
            "Pods that another scheduler placed or gave up, by policy and by what we would have done.",
            ("policy", "verdict"),
            registry=registry,
        )
        self.refusals = Counter(
            "policy_scheduler_shadow_refusals",
            "Pods on a node that this clause refuses, or that it keeps from every node, by policy and clause.",
            ("policy", "clause"),
            registry=registry,
        )
        self.margin = Histogram(
            "policy_scheduler_shadow_margin",
            "How much worse their node is than ours by the policy's scores, as a share of best to worst feasible node.",
            ("policy",),
            buckets=MARGINS,
            registry=registry,
        )
        self.late = Counter(
            "policy_scheduler_shadow_late",
            "Pods that were bound before we had decided them; compared by a decision made right before that moment.",
            registry=registry,
        )


class ExtenderMetrics:
    """What kube-scheduler asks of us."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "policy_scheduler_extender_requests",
            "Requests of kube-scheduler, by verb and result.",
            ("verb", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "policy_scheduler_extender_request_duration_seconds",
            "From a request's last byte to its answer's first.",
            ("verb",),
            buckets=EXTENDER_SECONDS,
            registry=registry,
        )
        self.refusals = Counter(
            "policy_scheduler_extender_refusals",
            "Pods for which a clause refused at least one of the nodes asked about, by policy and clause.",
            ("policy", "clause"),
            registry=registry,
        )
