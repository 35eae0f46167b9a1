"""Carries out a preemption: keeps the room for the pod, and has the victims evicted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import QueuedPod

logger = logging.getLogger(__name__)


def nominate(context: SchedulerContext, queued: QueuedPod, preemption: Preemption) -> None:
    """Keep the node for the pod in our own books, before anything is sent.

    Pods of lower priority that waited for the same node lose their nomination: they would count on room that
    is gone.
    """
    cluster, node_name, pod = context.cluster, preemption.nominated_node or "", queued.pod
    for other in list(cluster.nominated.get(node_name, {}).values()) if node_name else ():
        if other.priority < pod.priority:
            cluster.nominate(other, "")
            context.reporter.nominated(other, "")
    cluster.nominate(pod, node_name)
    queued.pod = replace(pod, nominated_node=node_name)


async def evict_all(context: SchedulerContext, queued: QueuedPod, preemption: Preemption) -> bool:
    """Evict the victims; return whether all are on their way out."""
    victims = [victim for victim in preemption.victims if not victim.terminating]
    results = await asyncio.gather(*(_evict(context, queued.pod, victim) for victim in victims))
    for victim, gone in zip(victims, results, strict=True):
        if gone:
            context.reporter.preempted(victim, by=queued.pod, node_name=preemption.nominated_node or "")
    return all(results)


async def _evict(context: SchedulerContext, pod: PodInfo, victim: PodInfo) -> bool:
    try:
        await context.evictor.evict(victim)
    except KubeError as error:
        logger.warning("a victim could not be evicted", extra={"pod": pod.key, "victim": victim.key, "why": str(error)})
        return False
    except Exception:
        logger.exception("unexpected error in an eviction", extra={"pod": pod.key, "victim": victim.key})
        return False
    logger.info("Preempted pod", extra={"pod": pod.key, "victim": victim.key})
    return True
