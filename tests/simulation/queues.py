"""The same chaos with nothing but queues, and with nodes that come and go: what queues may use changes all the time."""

from __future__ import annotations

from tests.simulation.chaos import QUEUED, Action
from tests.simulation.simulation import QUEUES, Simulation


class QueueSimulation(Simulation):
    """A run of one replica at a time, under policies that all have queues."""

    options = "--queues "
    texts = (
        QUEUED + QUEUES + "reclaim after 5s\n",
        QUEUED
        + QUEUES
        + "order by queue.share, pod.priority desc\nreclaim fair after 2s evict where victim.priority < 10\n",
        QUEUED + "queue rest by pod.namespace min cpu 1\norder by queue.share\nreclaim fair after 5s\n",
        QUEUED
        + "queue shared max cpu 20\nqueue rest of shared by pod.namespace min cpu 3 lend cpu 2 weight 2\n"
        + "preempt never\nreclaim after 20s\n",
    )

    def _own_actions(self) -> list[Action]:
        return [*super()._own_actions(), (6, self._delete_nodes), (8, self._add_nodes)]
