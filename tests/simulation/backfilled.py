"""The same chaos under strict orders, in which pods may start before the first one that waits: `backfill`."""

from __future__ import annotations

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.backfill.beside import BesideReservation
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from tests.simulation.chaos import BASE, QUEUED, Action
from tests.simulation.simulation import QUEUES, Simulation

SHORT_SECONDS, LONG_SECONDS = 120.0, 1800.0
LATE_PART = 0.1
"""A pod that runs for longer than it says is expected to run for another tenth of that."""
MOST_SECONDS = 3600.0
STRICT = "order by pod.priority desc, pod.queued strict\n"
LASTS = 'backfill lasts if pod.label.app == "web" then 2min else 30min at most 1h\n'


class BackfillSimulation(Simulation):
    """A run of one replica at a time, under policies that all have `backfill`."""

    options = "--backfill "
    texts = (
        BASE + STRICT + LASTS,
        BASE + STRICT + LASTS + "preempt never\n",
        QUEUED + STRICT + LASTS.replace("lasts", "if pod.priority > 0 lasts"),
        QUEUED + QUEUES + STRICT + LASTS + "reclaim after 5s\n",
        QUEUED + QUEUES + STRICT + LASTS + "reclaim fair after 2s\n",
    )

    def _own_actions(self) -> list[Action]:
        return [*super()._own_actions(), (6, self._delete_nodes), (8, self._add_nodes)]

    def _lost(self) -> list[str]:
        """Return those that could run, and that wait for no reservation that they would delay."""
        could = super()._lost()
        names = {each.partition(" ")[0] for each in could}
        return [each for each in could if not self._waits_rightly(each.partition(" ")[0], names)]

    def _waits_rightly(self, name: str, could: set[str]) -> bool:
        for replica in self.replicas:
            queue = replica.scheduler.queue
            queued = next((each for each in queue if each.pod.name == name), None)
            if queued is not None and replica.fence.allows():
                beside = replica.scheduler.waiting_pods.backfill.beside(queued)
                return beside is not None and self._is_real(beside, queued, could)
        return False

    def _is_real(self, beside: BesideReservation, queued: QueuedPod, could: set[str]) -> bool:
        """Return whether a reservation is what it says: for pods that wait, and fit by then; and a pod ends later.

        Its moment is one of the scheduler's clock, by which also the pods end.
        """
        now, (cluster, pods) = self.server.scheduler_clock(), self._truth()
        by_uid = {pod.uid: pod for pod in pods}
        reservation = beside.reservation
        holders = [by_uid[seat.pod.uid] for seat in reservation.seats if seat.pod.uid in by_uid]
        if len(holders) < len(reservation.seats) or any(pod.node_name or pod.name in could for pod in holders):
            return False
        if now + lasts(queued.pod) <= reservation.at or reservation.at > now + MOST_SECONDS:
            return False
        for pod in list(cluster.pods.values()):
            if ends(pod, now) <= reservation.at + LONG_SECONDS * LATE_PART:  # of those that are late, by when it looked
                cluster.displace(pod.uid)
        self._met("pod waits for a reservation")
        cycle = Cycle()
        for pod in holders:
            host = self._fits(pod, cluster, cycle)
            if host is None:
                return False
            cluster.place(pod, host)
        return True


def lasts(pod: PodInfo) -> float:
    """Return for how many seconds a pod runs, as `LASTS` says."""
    return SHORT_SECONDS if pod.labels.get("app") == "web" else LONG_SECONDS


def ends(pod: PodInfo, now: float) -> float:
    """Return when a pod is expected to end, Unix seconds."""
    end = (pod.started if pod.started is not None else now) + lasts(pod)
    return end if end > now else now + LATE_PART * lasts(pod)
