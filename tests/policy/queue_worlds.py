"""Clusters with queues that settle: pods come and go, are decided one after the other, and victims come back."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import PolicySet
from tests.lang.clusters import NOW, policy_set
from tests.simulation.quota_view import reclaim_of, why_not

GPU = "example.com/gpu"
MOST_ROUNDS = 200


def gpu_node(name: str, gpus: float) -> objects.Node:
    """Return a node with GPUs, in thousandths, and nothing else that matters."""
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "1000", "memory": "1000Gi", "pods": "1000", GPU: str(round(gpus * 1000))}},
    }
    return msgspec.convert(body, objects.Node)


@dataclass
class World:
    """A cluster of one node, or of several, with pods of queues."""

    rules: PolicySet
    cluster: Cluster
    now: float = NOW
    pending: list[PodInfo] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    """The names of victims, in order."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """The last decision about each pending pod."""
    cycle: Cycle = field(default_factory=Cycle)
    returns: bool = True
    """Whether victims are submitted again."""
    _number: int = 0
    queued: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, *gpus: float, returns: bool = True) -> World:
        """Return a world of some nodes."""
        cluster = Cluster()
        for number, each in enumerate(gpus):
            cluster.set_node(gpu_node(f"n{number}", each))
        return cls(policy_set(text), cluster, returns=returns)

    @property
    def usage(self) -> QuotaUsage:
        assert self.rules.queues is not None
        return self.cluster.track_usage(self.rules.queues.tree)

    def queue(self, name: str) -> Quota:
        found = self.usage.named(name)
        assert found is not None
        return found

    def used(self, *names: str) -> list[float]:
        """Return the GPUs that queues use."""
        place = self.usage.tree.resources.index(GPU)
        return [self.queue(name).used[place] / 1000 for name in names]

    def pod(self, queue: str, gpus: float = 1, *, priority: int = 0, name: str = "") -> PodInfo:
        """Return a pod of a queue, by its label `q`."""
        self._number += 1
        uid = name or f"{queue}-{self._number}"
        body = {
            "metadata": {"name": uid, "namespace": "default", "uid": uid, "labels": {"q": queue}},
            "spec": {
                "schedulerName": "policy-scheduler",
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": {GPU: str(round(gpus * 1000))}}}],
            },
        }
        return self.cluster.templates.pod(msgspec.convert(body, objects.Pod))

    def runs(self, queue: str, *gpus: float, priority: int = 0, name: str = "") -> None:
        """Place pods that run already."""
        for each in gpus or (1,):
            self.cluster.place(self.pod(queue, each, priority=priority, name=name), "n0")

    def asks(self, queue: str, *gpus: float, priority: int = 0) -> None:
        """Submit pods, and let the world settle."""
        for each in gpus or (1,):
            self.submit(self.pod(queue, each, priority=priority))
        self.settle()

    def submit(self, pod: PodInfo) -> None:
        self.pending.append(pod)
        self.queued[pod.uid] = self.now

    def ends(self, uid: str) -> None:
        self.cluster.remove(uid)

    def frame(self, pod: PodInfo) -> Frame:
        return Frame(pod, self.cluster, self.now, queued=self.queued[pod.uid])

    def settle(self) -> int:
        """Decide pending pods until nothing changes any more; return in how many rounds."""
        for number in range(MOST_ROUNDS):
            self.now += 10.0
            changed = False
            for pod in sorted(self.pending, key=lambda pod: (-pod.priority, self.queued[pod.uid], pod.uid)):
                changed |= self._decide(pod)
            if not changed:
                return number
        raise AssertionError(f"no rest after {MOST_ROUNDS} rounds; evicted: {self.evicted[-20:]}")

    def _decide(self, pod: PodInfo) -> bool:
        policy = self.rules.governing(pod)
        assert policy is not None
        decision = self.cycle.decide(self.frame(pod), policy.profile)
        self.decisions[pod.uid] = decision
        if decision.host is not None:
            self.cluster.nominate(pod, "")
            self.cluster.place(pod, decision.host)
            self.pending.remove(pod)
            return True
        found = decision.preemption
        if found is None or not found.victims:
            if found is not None and not found.keeps_nomination:
                self.cluster.nominate(pod, "")
            return False
        self.cluster.nominate(pod, found.nominated_node or "")
        self.check_victims(pod, found.victims, found.nominated_node or "")
        for victim in found.victims:
            self.cluster.remove(victim.uid)
            self.evicted.append(victim.name)
            if self.returns:
                self.submit(victim)
        return True

    def check_victims(self, pod: PodInfo, victims: tuple[PodInfo, ...], node: str) -> None:
        """Check that the model of quotas allows each eviction, and that each is needed."""
        policy = self.rules.governing(pod)
        assert policy is not None
        assert self.rules.queues is not None
        frame = self.frame(pod)
        reclaim = reclaim_of(self.rules.queues, frame)
        assert why_not(self.cluster, pod, victims, node, frame.steady, reclaim=reclaim) == ""
        gone: list[tuple[PodInfo, str]] = []
        try:
            for victim in victims:
                node_name = self.cluster.node_of(victim.uid)
                assert node_name is not None
                gone.append((victim, node_name))
                self.cluster.displace(victim.uid)
            assert len(self.cycle.feasible(self.frame(pod), policy.profile)), "it does not fit with all victims gone"
            for victim, node_name in gone:
                self.cluster.place(victim, node_name)
                rows = self.cycle.feasible(self.frame(pod), policy.profile)
                assert not len(rows), f"{victim.name} could have stayed"
                self.cluster.displace(victim.uid)
        finally:
            for victim, node_name in gone:
                self.cluster.place(victim, node_name)

    def check(self) -> None:
        """Check invariants 1 and 2: numbers are those of a recount, and nothing is above its maximum."""
        assert self.usage.miscounted(self.cluster.pods.values()) == []
        for queue in self.usage.queues():
            assert all(used <= most for used, most in zip(queue.used, queue.maximum, strict=True)), queue
