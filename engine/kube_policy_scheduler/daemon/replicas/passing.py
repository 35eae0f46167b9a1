"""Pods that change hands between replicas: passed on to the owner of a node, given back, or left to a newcomer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from kube_policy_scheduler.adapters.kube.pod_status import NotPassedOn, PassedOn
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.binding import Bindings
from kube_policy_scheduler.daemon.scheduling.collaborators import Reporter
from kube_policy_scheduler.daemon.scheduling.deciding import Deciding
from kube_policy_scheduler.daemon.scheduling.permitting import Permitting
from kube_policy_scheduler.daemon.scheduling.preempting import nominate
from kube_policy_scheduler.daemon.watching.informer import Informer
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import QueuedPod, SchedulingQueue

logger = logging.getLogger(__name__)


class Nominator(Protocol):
    """Passes pods on by their status."""

    async def pass_on(self, pod: PodInfo, *, node: str) -> PassedOn | NotPassedOn:
        """Pass the pod on to the owner of a node; settles doubts before it returns. Never raises."""
        ...


class Passing:
    """This replica's dealings with the others."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        deciding: Deciding,
        bindings: Bindings,
        permitting: Permitting,
        nominator: Nominator,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._deciding = deciding
        self._bindings = bindings
        self._permitting = permitting
        self._nominator = nominator
        self._reporter = reporter
        self._clock = clock
        self._leaving: frozenset[str] = frozenset()
        """What was under way when the members changed last, by uid: part of it may not be ours any more."""
        self.passed_on = 0
        """Pods passed on so far."""
        self.given_back = 0
        """Pods given back to those who passed them on, so far: the conflicts between replicas."""
        self.failed = 0
        """Pods that could not be passed on, so far."""

    def share_with(self, members: Iterable[str]) -> None:
        """Begin nothing from now on that is not ours any more; begin what is ours now."""
        assert self._deciding.sharding is not None
        self._permitting.withdraw_all()
        self._deciding.sharding.use(members)
        self._deciding.forget_refusals()
        self._leaving = frozenset(self._informer.assumed)
        self._informer.policies_changed()

    def has_handed_over(self) -> bool:
        """Return whether what was under way at the last change of members is confirmed, or has failed."""
        informer = self._informer
        self._leaving = frozenset(
            uid for uid in self._leaving if uid in informer.assumed and not informer.passes.is_shown(uid)
        )
        return not self._leaving

    def has_settled(self) -> bool:
        """Return whether the watch has shown everything that we did."""
        return all(map(self._informer.passes.is_shown, self._informer.assumed))

    def is_for_another(self, host: str) -> bool:
        """Return whether a node is another replica's."""
        sharding = self._deciding.sharding
        return sharding is not None and not sharding.owns_node(host)

    def pass_on(self, queued: QueuedPod, host: str, *, began: float) -> None:
        """Have the owner of a node bind the pod; until it has, the pod counts there."""
        pod = queued.pod
        self._cluster.nominate(pod, "")
        self._cluster.place(pod, host)
        self._informer.assumed[pod.uid] = host
        self._informer.passes.begin(pod.uid)
        self._deciding.forget_refusals()
        self._bindings.start(queued, self._pass_on(queued, host, began))

    async def _pass_on(self, queued: QueuedPod, host: str, began: float) -> None:
        pod, informer = queued.pod, self._informer
        match await self._nominator.pass_on(pod, node=host):
            case PassedOn(version=version):
                informer.was_passed(pod.uid, version=version)
                if self._queue.get(pod.uid) is not queued:
                    return  # bound, gone or given back by now
                if pod.uid not in informer.passes:
                    self._queue.failed(queued, self._clock())
                    return
                self.passed_on += 1
                logger.info("Passed a pod on", extra={"pod": pod.key, "node": host})
                self._queue.done(pod.uid)
            case NotPassedOn(why=why):
                if self._queue.get(pod.uid) is not queued:
                    return
                self.failed += 1
                informer.take_back(pod.uid)
                if self._queue.get(pod.uid) is queued:
                    why = f"could not be passed on to the owner of {host}: {why}"
                    self._bindings.broken(queued, why, began=began)
            case outcome:
                assert_never(outcome)

    def give_back(self, queued: QueuedPod) -> None:
        """Return a pod that does not fit to the replica that passed it on, if one did."""
        sharding, pod = self._deciding.sharding, queued.pod
        if sharding is None or not sharding.was_passed_here(pod):
            return
        self.given_back += 1
        logger.info("Gave a pod back", extra={"pod": pod.key, "node": pod.nominated_node})
        nominate(self._cluster, queued, Preemption(), self._reporter)
        self._reporter.nominated(pod, "")
