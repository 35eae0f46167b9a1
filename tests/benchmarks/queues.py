"""`python -m tests.benchmarks.queues`: what quotas with borrowing add to a decision, as a ratio in one run.

5,000 nodes, 100 queues, 10,000 pending pods. A turn is: pop, decide, assume. The same pods once without queues, in
Kubernetes' order, and once with queues, in the fair order. CPU time is measured, and both take turns, so that a busy
machine slows both.
"""

from __future__ import annotations

import argparse
import gc
import time
from statistics import median

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.policy.policy_set import PolicySet, load

NODES, QUEUES, PODS, BATCH = 5_000, 100, 10_000, 200
PLAIN = "filter node.ready and fits()\nscore node.free.cpu\n"


def with_queues(queues: int) -> str:
    """Return the policy with so many queues, a tenth of them below each of ten departments."""
    lines = [f"queue d{number} of all min cpu 1000" for number in range(10)]
    lines = [f'{line} for pods where pod.label.department == "d{n}"' for n, line in enumerate(lines)]
    lines = [f"{head} for pods{tail}" for head, _, tail in (_moved(line) for line in lines)]
    leaves = [
        f'queue q{n} of d{n % 10} for pods where pod.label.q == "q{n}" min cpu 50 max cpu 2000' for n in range(queues)
    ]
    order = "order by queue.share, pod.priority desc, pod.queued\nreclaim after 30s\n"
    return "\n".join(["queue all max cpu 40000", *lines, *leaves, order]) + PLAIN


def _moved(line: str) -> tuple[str, str, str]:
    """Put the condition before the amounts."""
    before, _, condition = line.partition(" for pods")
    name, _, amounts = before.partition(" min ")
    return name, "", f"{condition} min {amounts}"


class Side:
    """One of both, with its cluster and queue."""

    def __init__(self, text: str) -> None:
        loaded = load([Source("bench.policy", text)])
        assert loaded.policy_set is not None, loaded.diagnostics
        self.rules: PolicySet = loaded.policy_set
        self.cluster, self.cycle, self.now = Cluster(), Cycle(), 1_800_000_000.0
        for number in range(NODES):
            body = {
                "metadata": {"name": f"n{number}"},
                "status": {
                    "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            self.cluster.set_node(msgspec.convert(body, objects.Node))
        self.queue = SchedulingQueue()
        self.queue.use(position=lambda queued: self.rules.position(queued, self.frame), hold=lambda queued: None)
        for number in range(PODS):
            self.queue.add(self.pod(number), self.now)

    def pod(self, number: int) -> PodInfo:
        """Return a pod of one of the queues."""
        q = number * 7919 % QUEUES
        body = {
            "metadata": {
                "name": f"p{number}",
                "namespace": "default",
                "uid": f"p{number}",
                "labels": {"q": f"q{q}", "department": f"d{q % 10}"},
            },
            "spec": {
                "schedulerName": "policy-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            },
        }
        return self.cluster.templates.pod(msgspec.convert(body, objects.Pod))

    def frame(self, queued: QueuedPod) -> Frame:
        """Return what decides about a pod."""
        return Frame(queued.pod, self.cluster, self.now, queued=queued.queued)

    def batch(self) -> float:
        """Decide some pods; return the seconds of CPU time of each."""
        began = time.process_time()
        for _ in range(BATCH):
            queued = self.queue.pop(self.now)
            assert queued is not None
            profile = self.rules.profile_of(queued.pod)
            assert profile is not None
            decision = self.cycle.decide(self.frame(queued), profile)
            assert decision.host is not None, decision.message
            self.cluster.assume(queued.pod, decision.host, now=self.now)
            self.queue.done(queued.pod.uid)
        return (time.process_time() - began) / BATCH


def main() -> None:
    """Measure, and print a line."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    plain, fair = Side(PLAIN), Side(with_queues(QUEUES))
    gc.freeze()  # a collection would fall to one of both
    pairs = [(plain.batch(), fair.batch()) for _ in range(PODS // BATCH)]
    ratio = median(with_ / without for without, with_ in pairs)
    without, with_queues_ = (median(each) * 1e6 for each in zip(*pairs, strict=True))
    print(f"{NODES:,} nodes, {QUEUES} queues, {PODS:,} pods, µs of CPU time a pod:")
    print(f"{without:.0f} without queues, {with_queues_:.0f} with queues; the median ratio is {ratio:.2f}")


if __name__ == "__main__":
    main()
