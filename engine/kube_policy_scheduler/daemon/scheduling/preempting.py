"""Carries out a preemption: keeps the room for the pod, and has the victims evicted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import QueuedPod

logger = logging.getLogger(__name__)


class Evictor(Protocol):
    """Evicts one pod through the API."""

    async def evict(self, victim: PodInfo) -> None:
        """Mark and delete the pod; raises KubeError."""
        ...


class PreemptionReporter(Protocol):
    """Tells people about evictions; returns at once."""

    def preempted(self, victim: PodInfo, *, by: PodInfo, node_name: str) -> None:
        """Report that a pod had to go."""
        ...

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Report which node is kept for a pod; "" for none any more."""
        ...


def nominate(cluster: Cluster, queued: QueuedPod, preemption: Preemption, reporter: PreemptionReporter) -> None:
    """Keep the node for the pod in our own books, before anything is sent.

    Pods of lower priority that waited for the same node lose their nomination: they would count on room that
    is gone.
    """
    node_name = preemption.nominated_node or ""
    pod = queued.pod
    for other in list(cluster.nominated.get(node_name, {}).values()) if node_name else ():
        if other.priority < pod.priority:
            cluster.nominate(other, "")
            reporter.nominated(other, "")
    cluster.nominate(pod, node_name)
    queued.pod = replace(pod, nominated_node=node_name)


async def evict_all(evictor: Evictor, queued: QueuedPod, preemption: Preemption, reporter: PreemptionReporter) -> bool:
    """Evict the victims; return whether all are on their way out."""
    victims = [victim for victim in preemption.victims if not victim.terminating]
    results = await asyncio.gather(*(_evict(evictor, queued.pod, victim) for victim in victims))
    for victim, gone in zip(victims, results, strict=True):
        if gone:
            reporter.preempted(victim, by=queued.pod, node_name=preemption.nominated_node or "")
    return all(results)


async def _evict(evictor: Evictor, pod: PodInfo, victim: PodInfo) -> bool:
    try:
        await evictor.evict(victim)
    except KubeError as error:
        logger.warning("a victim could not be evicted", extra={"pod": pod.key, "victim": victim.key, "why": str(error)})
        return False
    except Exception:
        logger.exception("unexpected error in an eviction", extra={"pod": pod.key, "victim": victim.key})
        return False
    logger.info("Preempted pod", extra={"pod": pod.key, "victim": victim.key})
    return True
