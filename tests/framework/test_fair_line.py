"""The fair order: the pod that is taken next is the first one by the shares as they are, whatever happened before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.fair_line import FairLine
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, QueuePosition
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.policy.policy_set import load

ORDERS = ["queue.share, pod.priority desc, pod.queued", "pod.priority desc, queue.share, pod.queued", "queue.share"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "pop", "pop", "end", "delete", "resize", "nominate"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.integers(1, 3),
        st.booleans(),
    ),
    min_size=30,
    max_size=80,
)


def tree(*, below: str, departments: int, teams: int, by_key: bool) -> str:
    """Return queues on up to four levels."""
    lines = [f"queue {below} max cpu 400"] if below else []
    for one in range(departments):
        of = f" of {below}" if below else ""
        lines.append(f'queue d{one}{of} for pods where pod.label.d == "{one}" min cpu {one}')
        for team in range(teams):
            lines.append(f'queue d{one}t{team} of d{one} for pods where pod.label.t == "{team}" weight {team + 1}')
            lines += [f"queue d{one}t{team}k of d{one}t{team} by pod.label.k"] if by_key else []
    return "\n".join(lines)


def node(cpu: int) -> objects.Node:
    offered = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": offered}}, objects.Node)


def pod_of(cluster: Cluster, name: str, *, cpu: int, priority: int = 0, **labels: str) -> PodInfo:
    body = {
        "metadata": {"name": name, "namespace": "x", "uid": name, "labels": labels},
        "spec": {
            "schedulerName": "policy-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
        },
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


@pytest.mark.parametrize("leaves", ["deleted", "taken", "changed"])
def test_a_queue_whose_first_pod_leaves_is_served_by_what_the_next_one_requests(leaves: str) -> None:
    loaded = load(
        [Source("test.policy", f"{tree(below='', departments=2, teams=0, by_key=False)}\norder by queue.share\n")]
    )
    assert loaded.policy_set is not None, loaded.diagnostics
    policies, cluster = loaded.policy_set, Cluster()
    cluster.set_node(node(100))
    queue = SchedulingQueue(
        position=lambda queued: policies.position(
            queued, lambda queued: Frame(queued.pod, cluster, 2000.0, queued=queued.queued)
        )
    )
    for at, (name, department, cpu) in enumerate([("big", "0", 8), ("small", "0", 1), ("middle", "1", 4)]):
        queue.add(pod_of(cluster, name, cpu=cpu, d=department), 1000.0 + at)
    match leaves:
        case "deleted":
            queue.remove("big")
        case "taken":
            queue.take("big")
        case _:
            queue.add(pod_of(cluster, "big", cpu=8, d="none"), 1000.0)
    found = [
        queued.pod.name for _ in range(2) if (queued := queue.pop(2000.0)) is not None and queued.pod.name != "big"
    ]
    assert found[0] == "small"


def test_the_memory_of_past_usage_begins_when_a_pod_is_taken_not_when_somebody_asks_whether_there_is_one() -> None:
    """A standby asks and takes none: its memory began at time 0, so what it read of the past had faded at once."""
    text = 'queue a for pods where pod.label.d == "0" remember 10min\norder by queue.share\n'
    policies = load([Source("test.policy", text)]).policy_set
    assert policies is not None
    assert policies.queues is not None
    cluster = Cluster()
    cluster.set_node(node(100))
    queue = SchedulingQueue(
        position=lambda queued: policies.position(queued, lambda queued: Frame(queued.pod, cluster, 2000.0))
    )
    queue.add(pod_of(cluster, "p", cpu=1, d="0"), 1000.0)
    usage = cluster.track_usage(policies.queues.tree)
    usage.recall(PastUsage(1900.0, ("pods", "cpu"), {"a": (1.0, 4000.0)}))
    assert queue.has_active()
    assert usage.past_usage() is None
    assert queue.pop(2000.0) is not None
    (past,) = usage.pasts()
    assert past.at == 2000.0
    cpu = past.queues["a"][past.resources.index("cpu")]
    assert cpu == pytest.approx(4000 * 0.5 ** (100 / 600)), "of 100 s, with a half-life of ten minutes"


@given(
    STEPS,
    st.builds(
        tree,
        below=st.sampled_from(["", "all"]),
        departments=st.integers(1, 3),
        teams=st.integers(0, 3),
        by_key=st.booleans(),
    ),
    st.sampled_from(ORDERS),
)
def test_the_next_pod_is_the_first_one_by_the_present_shares(
    steps: list[tuple[str, int, int, str, int, bool]], queues: str, order: str
) -> None:
    loaded = load([Source("test.policy", f"{queues}\norder by {order}\n")])
    assert loaded.policy_set is not None, loaded.diagnostics
    policies, cluster, running = loaded.policy_set, Cluster(), []
    cluster.set_node(node(100))
    waiting: dict[int, tuple[QueuedPod, QueuePosition]] = {}
    line: FairLine | None = None

    def place(ticket: int) -> Any:
        """Return what orders the first pods of all queues."""
        queued, position = waiting[ticket]
        assert position.fair is not None
        usage, queue, parts = position.fair.usage, position.fair.queue, list(position.key[0])
        share = usage.order(queue, usage.asks(queued.pod))[usage.common_levels :] if queue is not None else ()
        parts[position.fair.place] = share
        return tuple(parts), *position.key[1:], ticket

    def plain() -> int | None:
        """Return the pod that is next: the first one of its queue, and of these the first by the present shares."""
        firsts: dict[str, int] = {}
        for ticket in sorted(waiting, key=lambda ticket: (waiting[ticket][1].key, ticket)):
            fair = waiting[ticket][1].fair
            firsts.setdefault(fair.queue.name if fair is not None and fair.queue is not None else "", ticket)
        return min(firsts.values(), key=place, default=None)

    for number, (step, department, team, key, cpu, important) in enumerate(steps, 1):
        match step:
            case "add":
                labels = {"d": str(department), "t": str(team), "k": key}
                pod = pod_of(cluster, f"p{number}", cpu=cpu, priority=int(important), **labels)
                queued = QueuedPod(pod, queued=1000.0 + department, timestamp=1000.0)
                queued.ticket = number
                position = policies.position(
                    queued, lambda queued: Frame(queued.pod, cluster, 2000.0, queued=queued.queued)
                )
                assert position.fair is not None
                line = line or FairLine(position.fair, lambda number, queued: number != queued.ticket)
                waiting[number] = queued, position
                line.push(queued, position)
            case "pop" if line is not None:
                first = plain()
                line.catch_up(2000.0)
                found = line.pop() if line.head() is not None else None
                assert (found.ticket if found is not None else None) == first
                if found is not None:
                    del waiting[found.ticket]
                    cluster.end_nomination(found.pod.uid)
                    cluster.place(found.pod, "n")
                    running.append(found.pod)
            case "end" if running:
                cluster.displace(running.pop(department % len(running)).uid)
            case "delete" if waiting:
                ticket = list(waiting)[department % len(waiting)]
                assert line is not None
                line.leave(ticket)
                gone = waiting.pop(ticket)[0]
                gone.ticket = 0
                cluster.end_nomination(gone.pod.uid)
            case "nominate" if waiting:
                chosen = waiting[list(waiting)[department % len(waiting)]][0].pod
                cluster.nominate(chosen, "" if important else "n")
            case "resize":
                cluster.set_node(node(90 + cpu))
