"""A move of a pod, its rule and its budgets. Imports little: the scheduler has it from its start."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo


class MoveBudgets(msgspec.Struct, frozen=True):
    """How many pods one pass may move."""

    total: int = 10
    node: int = 2
    """Off one node."""
    workload: int = 1
    namespace: int = 5


class MoveRule(msgspec.Struct, frozen=True):
    """When the pods of a policy move: by its `rebalance` statement, or by the options of the command."""

    margin: float | None
    """Points by which another node must lead, more than this; None: only pods that their nodes would reject move."""
    rest_seconds: float = 0.0
    """A workload is left alone while one of its pods is younger."""
    most: int | None = None
    """Moves of one pass under this rule; None: as many as the budgets allow."""
    text: str = ""
    """As written in the policy."""


class Move(msgspec.Struct, frozen=True):
    """One pod to evict, and where its replacement goes."""

    pod: str
    uid: str
    workload: str
    """`namespace/KIND/name` of its controller."""
    source: str
    target: str
    equally_good: int
    """How many nodes are as good as the target, with itself: the replacement goes to one of them."""
    policy: str
    rejected: bool
    """Whether its node would reject it; else the target is better by `margin`."""
    margin: float | None
    clause: str
    """What rejects it, or the score by which the target leads most."""
    place: str


def replacement_of(pod: PodInfo, now: float) -> PodInfo:
    """Return the pod that the controller creates in the place of one: a new name, the same template."""
    uid = f"{pod.uid}-replacement"
    return msgspec.structs.replace(
        pod, uid=uid, name=uid, node_name="", nominated_node="", created=now, resource_version="",
        terminating=False, demand=pod.template.demand,
    )  # fmt: skip


def workload_of(pod: PodInfo) -> str:
    """Return what creates a pod again."""
    controller = pod.template.controller
    return f"{pod.namespace}/{controller.kind}/{controller.name}" if controller is not None else pod.key
