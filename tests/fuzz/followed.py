"""Where Atheris follows what a text makes the code do, by target: known before any of it is imported."""

from __future__ import annotations

FOLLOWED: dict[str, list[str]] = {
    "policies": ["engine.lang", "engine.lint", "engine.policy", "engine.builtins"],
    "watch-lines": ["engine.adapters.kube.decoding", "engine.daemon.watching", "engine.cluster", "engine.framework"],
    "quantities": ["engine.cluster.quantity"],
    "yaml": ["engine.documents", "engine.daemon.configuration", "yaml"],
    "extender": ["engine.adapters.extender_protocol", "engine.daemon.modes", "engine.policy"],
    "reviews": ["engine.adapters.admission_review", "engine.adapters.policy_sources", "engine.daemon.webhook"],
    "kubeconfigs": ["engine.adapters.kube.kubeconfig", "engine.adapters.kube.identity", "yaml"],
    "prometheus": ["engine.adapters.prometheus_answers", "engine.cluster.signals", "engine.cluster.signal_join"],
    "headers": ["engine.adapters.http_access", "engine.adapters.kube.throttle", "prometheus_client"],
}
