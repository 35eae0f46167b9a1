"""Which pods the policies govern, which of them none, and who asks for a scheduler that nobody is."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.cluster.defaulting import DEFAULT_SCHEDULER_NAME
from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.tooling.doctor.findings import Finding, Patient, Status
from kube_policy_scheduler.wording import plural, some


def pod_findings(patient: Patient) -> Iterator[Finding]:
    """Look at who governs what."""
    policy_set, templates = patient.policy_set, patient.world.cluster.templates
    for policy in policy_set.policies:
        pods = patient.governed[policy.name]
        place = policy.compiled.checked.source.name
        waiting = sum(not pod.spec.node_name for pod in pods)
        if pods:
            text = f"governs {plural(len(pods), 'pod')}, of which {waiting} wait{'s' if waiting == 1 else ''}"
            yield Finding("pods", f"policy {policy.name}", Status.OK, text, place)
        else:
            serves = policy.scheduler or ", ".join(sorted(policy_set.default_schedulers))
            advice = f"it is for pods with schedulerName {serves} that match its `for pods`, if it has one"
            yield Finding("pods", f"policy {policy.name}", Status.WARNING, "governs no pod", place, advice)
    lost = [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in patient.pods
        if pod.spec.scheduler_name in policy_set.schedulers and policy_set.governing(templates.pod(pod)) is None
    ]
    served = ", ".join(sorted(policy_set.schedulers))
    if lost:
        ask = "asks for it and is" if len(lost) == 1 else "ask for it and are"
        text = f"{plural(len(lost), 'pod')} {ask} governed by no policy: {some(lost)}"
        advice = "they wait for ever: a policy without `for pods` and with a low priority takes what is left"
        yield Finding("pods", f"scheduler {served}", Status.PROBLEM, text, advice=advice)
    yield from _misspelt(patient)


def _misspelt(patient: Patient) -> Iterator[Finding]:
    schedulers: dict[str, list[str]] = {}
    for pod in patient.pods:
        name = pod.spec.scheduler_name
        if not pod.spec.node_name and name not in patient.policy_set.schedulers and name != DEFAULT_SCHEDULER_NAME:
            schedulers.setdefault(name, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    for name, waiting in sorted(schedulers.items()):
        meant = closest(name, patient.policy_set.schedulers)
        if meant is not None:
            text = f"{plural(len(waiting), 'pod')} {'waits' if len(waiting) == 1 else 'wait'} for it: {some(waiting)}"
            yield Finding("pods", f"scheduler {name}", Status.WARNING, text, advice=f"did you mean `{meant}`?")
