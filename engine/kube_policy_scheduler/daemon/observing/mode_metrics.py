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
            "Number of pods that another scheduler placed or could not place, by policy and by verdict.",
            ("policy", "verdict"),
            registry=registry,
        )
        self.refusals = Counter(
            "policy_scheduler_shadow_refusals",
            "Number of pods whose node this clause rejects, or for which it rejects every node, by policy and clause.",
            ("policy", "clause"),
            registry=registry,
        )
        self.margin = Histogram(
            "policy_scheduler_shadow_margin",
            "Score difference between the chosen node of this scheduler and the node of the pod, as a share of"
            " the range from the best to the worst feasible node.",
            ("policy",),
            buckets=MARGINS,
            registry=registry,
        )
        self.late = Counter(
            "policy_scheduler_shadow_late",
            "Number of pods that were bound before this scheduler had decided. They are compared with a decision"
            " on the cluster as it was just before.",
            registry=registry,
        )


class ExtenderMetrics:
    """What kube-scheduler asks of us."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "policy_scheduler_extender_requests",
            "Number of requests from kube-scheduler, by verb and result.",
            ("verb", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "policy_scheduler_extender_request_duration_seconds",
            "Seconds from the last byte of a request to the first byte of its answer.",
            ("verb",),
            buckets=EXTENDER_SECONDS,
            registry=registry,
        )
        self.refusals = Counter(
            "policy_scheduler_extender_refusals",
            "Number of pods for which a clause rejected at least one node of the request, by policy and clause.",
            ("policy", "clause"),
            registry=registry,
        )
