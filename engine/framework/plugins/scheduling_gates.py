"""SchedulingGates: a gated pod does not enter the queue."""

from __future__ import annotations

from engine.cluster.pods import PodInfo
from engine.framework.status import Code, Status


class SchedulingGates:
    """Holds pods at PreEnqueue until their last scheduling gate is gone."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Return why the pod may not be queued yet, None where it may."""
        gates = pod.template.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (f"waiting for scheduling gates: [{names}]",)
        )
