"""The modules that Atheris instruments, by target; known before any of them is imported."""

from __future__ import annotations

FOLLOWED: dict[str, list[str]] = {
    "policies": [
        "kube_policy_scheduler.lang",
        "kube_policy_scheduler.lint",
        "kube_policy_scheduler.policy",
        "kube_policy_scheduler.builtins",
    ],
    "watch-lines": [
        "kube_policy_scheduler.adapters.kube.decoding",
        "kube_policy_scheduler.daemon.scheduling",
        "kube_policy_scheduler.cluster",
        "kube_policy_scheduler.framework",
    ],
    "selectors": ["kube_policy_scheduler.cel"],
    "quantities": ["kube_policy_scheduler.quantities.quantity"],
    "yaml": ["kube_policy_scheduler.documents", "kube_policy_scheduler.daemon.configuration", "yaml"],
    "extender": [
        "kube_policy_scheduler.adapters.http.extender_protocol",
        "kube_policy_scheduler.daemon.modes",
        "kube_policy_scheduler.policy",
    ],
    "reviews": [
        "kube_policy_scheduler.adapters.http.admission_review",
        "kube_policy_scheduler.adapters.files.policy_sources",
        "kube_policy_scheduler.daemon.webhook",
    ],
    "files": [
        "kube_policy_scheduler.cli",
        "kube_policy_scheduler.cluster",
        "kube_policy_scheduler.documents",
        "kube_policy_scheduler.tooling",
    ],
    "kubeconfigs": [
        "kube_policy_scheduler.adapters.kube.kubeconfig",
        "kube_policy_scheduler.adapters.kube.identity",
        "yaml",
    ],
    "prometheus": [
        "kube_policy_scheduler.adapters.prometheus.answers",
        "kube_policy_scheduler.cluster.signals",
        "kube_policy_scheduler.cluster.signal_join",
    ],
    "headers": [
        "kube_policy_scheduler.adapters.http.access",
        "kube_policy_scheduler.adapters.kube.throttle",
        "prometheus_client",
    ],
}
