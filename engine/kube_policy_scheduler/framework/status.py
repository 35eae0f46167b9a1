"""What a plugin answers: codes, refusals of nodes, and the message made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kube_policy_scheduler.cluster.nodes import BoolArray


class Code(Enum):
    """What the scheduler does next depends on the code; the names are kube-scheduler's."""

    SUCCESS = "Success"
    """Go on."""
    ERROR = "Error"
    """Something broke: end this attempt, try the pod again with back-off."""
    UNSCHEDULABLE = "Unschedulable"
    """Not as things stand; preempting other pods might help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not as things stand, and preemption cannot help."""
    SKIP = "Skip"
    """The plugin has nothing to say about this pod; do not ask it again in this cycle."""


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of a plugin about a pod as a whole, or about one node."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason for which a plugin refuses nodes."""

    code: Code
    """UNSCHEDULABLE, UNSCHEDULABLE_AND_UNRESOLVABLE, or ERROR, which ends the attempt for all nodes."""
    reason: str
    where: BoolArray
    """`bool[rows]`: the nodes refused for this reason; a node may be refused for several."""


def fit_message(total: int, reasons: Mapping[str, int], *, rejection: Status | None = None, after: str = "") -> str:
    """Return kube-scheduler's sentence for a pod that fits nowhere (`FitError.Error`).

    Args:
        total: nodes in the cluster.
        reasons: how many nodes were refused for each reason.
        rejection: the PreFilter status that refused the pod as a whole; then no node is counted.
        after: what PostFilter (preemption) had to say.
    """
    why = ", ".join(rejection.reasons) if rejection is not None else reason_histogram(reasons)
    text = f"0/{total} nodes are available:"
    if why:
        text += f" {why}."
    return f"{text} {after}" if after else text


def reason_histogram(counts: Mapping[str, int]) -> str:
    """Return `<count> <reason>` for each reason, sorted as strings (so "10 x" stands before "2 x")."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
