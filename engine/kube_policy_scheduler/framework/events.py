"""Which events may help a rejected pod.

Each filter names the events that may make a rejected pod schedulable (`FilterPlugin.events`), as kube-scheduler's
queueing hints do, but by kind of event and not by content.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_policy_scheduler.cluster.events import ClusterEvent

__all__ = ["ALWAYS", "BACKFILL", "BACKFILL_EVENTS", "NARROWED", "NARROWED_EVENTS", "ClusterEvent", "wake_events"]

ALWAYS = frozenset({ClusterEvent.TIMEOUT, ClusterEvent.POLICY, ClusterEvent.OWN_UPDATE})
"""Events that may help any pod."""

NARROWED = ""
"""The rejector of nodes that PreFilter left out, because the pod can use other nodes only."""
NARROWED_EVENTS = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.STORAGE})

BACKFILL = "Backfill"
"""The rejector of nodes where a pod would delay another one, that comes first in a strict order and waits."""
BACKFILL_EVENTS = frozenset(
    {
        ClusterEvent.RESERVATION,
        ClusterEvent.POD_DELETE,
        ClusterEvent.POD_UPDATE,
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_ALLOCATABLE,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.NODE_TAINT,
        ClusterEvent.NODE_CONDITION,
    }
)


def wake_events(
    rejectors: frozenset[str], wakes: Mapping[str, frozenset[ClusterEvent]]
) -> frozenset[ClusterEvent] | None:
    """Return the events that may help a pod that these filters rejected; None: any event may.

    Args:
        rejectors: names of filters.
        wakes: by the name of a filter, the events that may help against it; one that is not there, any may.
    """
    found: frozenset[ClusterEvent] = frozenset()
    for name in rejectors:
        events = wakes.get(name)
        if events is None:
            return None
        found |= events
    return found if rejectors else None
