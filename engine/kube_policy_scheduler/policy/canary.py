"""Which pods a canary takes over: a share of the workloads, the same ones at every question. Knows no policies."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.compiled import CompiledGang
from kube_policy_scheduler.policy.pod_groups import COSCHEDULING_LABEL, native_group

_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: the end of their ReplicaSet's name, which changes with every rollout."""


def takes(frame: Frame, *, share: float, salt: str, gangs: Sequence[CompiledGang] = ()) -> bool:
    """Return whether a pod is among the share of its stable policy's pods that the canary decides.

    A larger share takes more workloads beside those that a smaller one took.

    Args:
        frame: of the pod.
        share: of workloads, 0 to 1.
        salt: the stable policy's name: the workloads that try one policy's next version are not always those that
            try another's.
        gangs: the `gang` clauses of both policies: pods that wait for each other are decided by one policy.
    """
    if share >= 1.0:
        return True
    digest = blake2b(f"{salt}/{_unit(frame, gangs)}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def _unit(frame: Frame, gangs: Sequence[CompiledGang]) -> str:
    """Return what is told apart: a group of pods that start together, else `workload`."""
    pod, template = frame.pod, frame.template
    for gang in gangs:
        if gang.condition is None or gang.condition(frame):
            return f"gang/{pod.namespace}/{gang.key(frame)}"
    group = native_group(template) or template.labels.get(COSCHEDULING_LABEL)
    return f"group/{pod.namespace}/{group}" if group else workload(pod)


def workload(pod: PodInfo) -> str:
    """Return the name of what made a pod: its controller, for a ReplicaSet the Deployment; without one the pod."""
    controller = pod.template.controller
    if controller is None:
        return f"Pod/{pod.namespace}/{pod.name}"
    kind, name = controller.kind, controller.name
    ending = f"-{pod.template.labels.get(_TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and name.endswith(ending) and len(name) > len(ending):
        kind, name = "Deployment", name.removesuffix(ending)
    return f"{kind}/{pod.namespace}/{name}"
