"""Results of plugins: codes, rejections of nodes, and the message for the pod."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray


class Code(Enum):
    """The code determines what the scheduler does next; the names are those of kube-scheduler."""

    SUCCESS = "Success"
    """Continue."""
    ERROR = "Error"
    """An error occurred: end this attempt and retry the pod after backoff."""
    UNSCHEDULABLE = "Unschedulable"
    """The pod does not fit now; preemption may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """The pod does not fit now, and preemption cannot help."""
    SKIP = "Skip"
    """Skip: the plugin does not apply to this pod; do not call it again in this cycle."""


class Status(msgspec.Struct, frozen=True):
    """The result of a plugin for a pod, or for one node."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()


class Rejection(Measured, msgspec.Struct, frozen=True):
    """One reason why a plugin rejects nodes."""

    code: Code
    """UNSCHEDULABLE, UNSCHEDULABLE_AND_UNRESOLVABLE, or ERROR, which ends the attempt for all nodes."""
    reason: str
    where: BoolArray
    """`bool[rows]`: the nodes rejected for this reason; a node may be rejected for several."""


def fit_message(total: int, reasons: Mapping[str, int], *, rejection: Status | None = None, after: str = "") -> str:
    """Return kube-scheduler's message for an unschedulable pod (`FitError.Error`).

    Args:
        total: nodes in the cluster.
        reasons: the number of nodes rejected for each reason.
        rejection: the PreFilter status that rejected the pod; then no node is counted.
        after: the message of PostFilter (preemption).
    """
    why = ", ".join(rejection.reasons) if rejection is not None else reason_histogram(reasons)
    text = f"0/{total} nodes are available:"
    if why:
        text += f" {why}."
    return f"{text} {after}" if after else text


def reason_histogram(counts: Mapping[str, int]) -> str:
    """Return `<count> <reason>` for each reason, sorted as strings (so "10 x" comes before "2 x")."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
