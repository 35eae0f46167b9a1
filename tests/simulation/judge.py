"""Judges each decision against the view that the scheduler had: it may be wrong about the truth, never about that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.quota import QuotaRules
from tests.simulation.quota_view import reclaim_of, why_not


class Judge(Observer):
    """Looks at decisions of one replica; what is wrong goes to `found`."""

    def __init__(
        self, met: Counter[str], *, queues: Callable[[], QuotaRules | None], reserves: Callable[[], bool]
    ) -> None:
        """Make one.

        Args:
            met: counts what has happened.
            queues: of the policies in force; the cluster goes on counting those of earlier policies.
            reserves: whether room is reserved by `backfill`.
        """
        self.met, self._queues, self._reserves = met, queues, reserves
        self.found: list[str] = []

    def on_decided(self, decided: Decided) -> None:
        """Judge one decision."""
        decision, cluster = decided.decision, decided.frame.cluster
        if decision.host is not None:
            self._judge_host(decision, cluster)
        together = [
            (each.pod, each.preemption, each.preemption.nominated_node)
            for each in (decision, *decided.others)
            if each.preemption is not None and each.preemption.nominated_node is not None
        ]
        for pod, found, node in together:
            if found.victims:
                members = [(other, there) for other, _, there in together if other is not pod]
                beside = [victim for other, its, _ in together if other is not pod for victim in its.victims]
                self._judge_victims(pod, found.victims, node, decided.frame, members, beside)

    def _say(self, pod: PodInfo, what: str) -> None:
        self.found.append(f"{pod.name}: {what}")

    # --- evictions ------------------------------------------------------------------------------------

    def _judge_victims(
        self,
        pod: PodInfo,
        found: tuple[PodInfo, ...],
        node: str,
        frame: Frame,
        members: Sequence[tuple[PodInfo, str]],
        beside: Sequence[PodInfo],
    ) -> None:
        """beside: the victims of these members; the pods of a gang may go for several of them."""
        cluster, now, rules = frame.cluster, frame.steady, self._queues()
        victims = tuple(each for each in found if not cluster.is_going(each, now))  # others end already
        going = {victim.uid for victim in victims}
        leaving = {victim.uid for victim in (*found, *beside)}
        if len(going) < len(victims):
            self._say(pod, f"evicts a pod twice: {[victim.name for victim in victims]}")
        jobs = {  # a single pod is no gang, and may go without the others of its job
            (victim.namespace, victim.labels["job"])
            for victim in victims
            if "job" in victim.labels and victim.labels.get("size") != "1"
        }
        for namespace, job in jobs:
            there = [p for p in cluster.pods.values() if (p.namespace, p.labels.get("job")) == (namespace, job)]
            stay = [p.name for p in there if p.uid not in leaving and not cluster.is_going(p, now)]
            needs = max(int(p.labels["size"]) for p in there)
            self.met["surplus of a gang evicted" if stay else "gang evicted"] += 1
            if 0 < len(stay) < needs:
                self._say(pod, f"evicts a part of gang {job} of {needs}: {stay} stay")
        if cluster.quota_usage is None or rules is None:
            return
        self.met["eviction judged by the rules of queues"] += 1
        why = why_not(
            cluster,
            pod,
            victims,
            node,
            now,
            reclaim=reclaim_of(rules, frame),
            members=members,
            beside=beside,
            reserves=self._reserves(),
        )
        if why:
            self._say(pod, why)

    # --- nodes ----------------------------------------------------------------------------------------

    def _judge_host(self, decision: Decision, cluster: Cluster) -> None:
        pod, name = decision.pod, decision.host or ""
        row = cluster.nodes.rows.get(name)
        if row is None:
            self._say(pod, f"gets {name}, which is unknown")
            return
        others = [other for other in cluster.pods_on(name).values() if other.uid != pod.uid]
        used = sum(other.demand.requests.get("cpu", 0) for other in (*others, pod))
        offered = int(cluster.nodes.allocatable("cpu")[row])
        if used > offered or len(others) + 1 > int(cluster.nodes.allocatable("pods")[row]):
            self._say(pod, f"gets {name}, which then has {len(others) + 1} pods and {used} of {offered} cpu")
        if (known := cluster.quota_usage) is None or self._queues() is None:
            return
        placed = [other for other in cluster.pods.values() if other.uid != pod.uid]
        usage = QuotaUsage(known.tree, cluster.nodes, placed)  # counted again from all pods
        queue = usage.quota_of(pod.template)
        for above in queue.path() if queue is not None else ():
            for resource, amount in usage.amounts(pod):
                if above.used[resource] + amount > above.maximum[resource]:
                    self._say(pod, f"makes {above.used[resource]} + {amount} of {above.maximum[resource]} in {above}")
                self.met["pod of a queue placed"] += 1
