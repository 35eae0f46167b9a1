"""The scheduler under test: a case as its policy and its objects, run as `policyctl simulate` runs it, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.simulation.node_events import NodeAction, NodeEvent, NodeEvents
from kube_policy_scheduler.tooling.simulation.run import SimulatedCluster, Waiting
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from tests.quotas.accounts import Node, Pod, Queue, State
from tests.quotas.model import Case
from tests.quotas.trace import Evicted, Rested, Started, Trace

OF_NO_QUEUE = "none"
"""The namespace of pods of no queue."""
MOST_EVICTIONS = 500
SETTLES_SECONDS = 45.0
"""Of virtual time after the last change from outside, in which nearly all that can happen has happened."""


class TooLongError(AssertionError):
    """The run does not end."""


# --- as text and objects ----------------------------------------------------------------------------------------


def quantity(resource: str, amount: int) -> str:
    """Return an amount as Kubernetes writes it."""
    return f"{amount}m" if resource == "cpu" else str(amount)


def policy_text(case: Case) -> str:
    """Return the policy of a case."""
    lines = ["filter node.ready", *(_queue_line(queue, case) for queue in case.queues)]
    if case.backfill:
        lines += ["order by pod.queued strict", "backfill lasts duration(pod.label.runtime)"]
    elif case.by_share:
        lines.append("order by queue.share, pod.priority desc, pod.queued")
    if case.reclaim:
        lines.append(case.reclaim.value)
    pods = [pod for arrival in case.arrivals for pod in arrival.pods]
    if any(pod.gang for pod in pods):
        with_roles = next((pod for pod in pods if pod.needs), None)
        needs = ", ".join(f"{number} of role={role}" for role, number in with_roles.needs) if with_roles else ""
        within = "one rack" if with_roles is not None and with_roles.rack else "5min"
        roles = f" with {needs}" if needs else ""
        size = f"number(pod.label.size) ?? {2 if needs else 1}"
        lines.append(f"gang by pod.label.job size {size}{roles} within {within} if pod label job")
    return "\n".join([*lines, ""])


def _queue_line(queue: Queue, case: Case) -> str:
    state = State(case.queues, (), {})
    below = [each.name for each in case.queues if queue.name in state.path(each.name)]
    parts = [f"queue {queue.name}"]
    if queue.parent:
        parts.append(f"of {queue.parent}")
    parts.append("for pods where " + " or ".join(f'pod.namespace == "{name}"' for name in below))
    for word, amounts in (("min", queue.minimum), ("max", queue.maximum), ("lend", queue.lend)):
        if amounts:
            parts.append(f"{word} " + ", ".join(f"{name} {quantity(name, amount)}" for name, amount in amounts.items()))
    if queue.weight != 1:
        parts.append(f"weight {queue.weight}")
    return " ".join(parts)


def node_object(node: Node) -> objects.Node:
    """Return a node as the API server has it."""
    offers = {name: quantity(name, amount) for name, amount in node.offers.items()}
    ready = [{"type": "Ready", "status": "True" if node.usable else "False"}]
    labels = {"kubernetes.io/hostname": node.name} | (
        {"topology.kubernetes.io/rack": node.rack, "rack": node.rack} if node.rack else {}
    )
    body: dict[str, Any] = {
        "metadata": {"name": node.name, "labels": labels},
        "status": {"conditions": ready, "allocatable": offers},
    }
    if not node.usable:
        body["spec"] = {"unschedulable": True}
    return msgspec.convert(body, objects.Node)


def pod_object(pod: Pod, more: Mapping[str, str] | None = None) -> objects.Pod:
    """Return a pod as the API server has it. more: labels that it has, too."""
    requests = {name: quantity(name, amount) for name, amount in pod.requests.items() if name != "pods" and amount}
    labels = {"job": pod.gang, "size": str(pod.size)} if pod.gang else {}
    if pod.role:
        labels["role"] = pod.role
    labels |= more or {}
    body = {
        "metadata": {"name": pod.name, "namespace": pod.queue or OF_NO_QUEUE, "uid": pod.name, "labels": labels},
        "spec": {
            "schedulerName": "policy-scheduler",
            "priority": pod.priority,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
        },
    }
    return msgspec.convert(body, objects.Pod)


def labels_of(case: Case, pod: Pod) -> dict[str, str]:
    """Return the labels that a case needs: by which budgets cover a pod, and how long it runs."""
    lasts = case.lasts[pod.name] if case.backfill else None
    found = {"runtime": f"{lasts:g}s"} if lasts is not None else {}
    return found | {f"budget{at}": "true" for at, budget in enumerate(case.budgets) if pod.name in budget.covers}


def budget_objects(case: Case) -> list[objects.PodDisruptionBudget]:
    """Return the budgets as the API server has them."""
    found = []
    for at, budget in enumerate(case.budgets):
        namespaces = {pod.queue or OF_NO_QUEUE for pod in case.kinds.values() if pod.name in budget.covers}
        body = {
            "metadata": {"name": f"budget{at}", "namespace": min(namespaces, default=OF_NO_QUEUE)},
            "spec": {"selector": {"matchLabels": {f"budget{at}": "true"}}},
            "status": {"disruptionsAllowed": budget.allows},
        }
        found.append(msgspec.convert(body, objects.PodDisruptionBudget))
    return found


def policies(text: str) -> PolicySet:
    """Return a policy, compiled.

    Raises:
        ValueError: it has mistakes.
    """
    loaded = load([Source("case.policy", text)])
    if loaded.policy_set is None:
        raise ValueError(f"{text}\n{loaded.diagnostics}")
    return loaded.policy_set


# --- step by step -----------------------------------------------------------------------------------------------


def _base(name: str) -> str:
    """Return the name of a pod as it came first: one that comes again has another."""
    return name.rstrip("~").partition(".")[0]


def state_of(case: Case, cluster: Cluster, waiting: Iterable[QueuedPod], *, now: Steady, began: float) -> State:
    """Return a cluster in the words of the model.

    waiting: the pods that are queued.
    """
    kinds = case.kinds
    pods: dict[str, Pod] = {}
    for info in cluster.pods.values():
        kind = kinds[_base(info.name)]
        started = info.started if info.started is not None else now
        leaving = cluster.is_going(info, now)
        name = f"{info.name} (ends)" if leaving else kind.name  # another of its kind may have come already
        node = cluster.node_of(info.uid) or ""
        is_back = info.name != kind.name
        pods[name] = replace(
            kind, name=name, node=node, started=started, leaving=leaving, uid=info.uid, is_back=is_back
        )
    promised = {uid: node for node, there in cluster.nominated.items() for uid in there}
    for queued in waiting:
        kind = kinds[_base(queued.pod.name)]
        if kind.name not in pods:
            uid, is_back = queued.pod.uid, queued.pod.name != kind.name
            node = promised.get(uid, "")
            pods[kind.name] = replace(kind, queued=queued.queued, promised=node, uid=uid, is_back=is_back)
    cordoned = {name for at, name in case.cordons if at <= now - began}
    nodes = (replace(node, usable=node.usable and node.name not in cordoned) for node in case.nodes)
    there = tuple(node for node in nodes if node.name in cluster.nodes.rows)
    return State(case.queues, there, pods, budgets=case.budgets)


class _Seen(SimulatedCluster):
    """A simulated cluster that says what happened."""

    def __init__(self, case: Case, scenario: Scenario, variant: PolicyVariant, *, seed: int) -> None:
        super().__init__(scenario, variant, seed=seed)
        self.case = case
        self.trace = Trace()
        self.changes = 0
        self.began: list[str] = []
        self.before: State | None = None

    def state(self) -> State:
        """Return the cluster in the words of the model."""
        return state_of(self.case, self.cluster, self.queue, now=self.now, began=self.scenario.starts_at)

    def arrive(self, arrival: Arrival) -> PodInfo:
        self.changes += 1
        return super().arrive(arrival)

    def bind(self, assumed: Any) -> PodInfo:
        pod = super().bind(assumed)
        self.began.append(_base(pod.name))
        return pod


class _SeenWaiting(Waiting):
    """Decides as `Waiting` does, and notes each step."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__(seen)
        self._seen = seen

    def _schedule_one(self, queued: QueuedPod) -> None:
        seen = self._seen
        if seen.tally.evicted > MOST_EVICTIONS:
            raise TooLongError(f"no rest after {MOST_EVICTIONS} evictions")
        before = seen.state()
        evicted = len(seen.tally.evictions)
        super()._schedule_one(queued)
        fresh = [each for each in seen.tally.evictions[evicted:] if each.by is not None]
        if fresh and fresh[0].by is not None:
            after = seen.state()
            by = _base(fresh[0].by.name)
            node = after.pods[by].promised or after.pods[by].node
            victims = tuple(_base(each.victim.name) for each in fresh)
            changes = seen.changes + seen.tally.left
            seen.trace.steps.append(Evicted(float(seen.now), by, victims, node, before, after, changes))
        elif seen.began:
            seen.trace.steps.append(Started(float(seen.now), tuple(seen.began), before, seen.state()))
        seen.began = []


def run(case: Case, *, seed: int = 0, settles: float = SETTLES_SECONDS) -> Trace:
    """Return what the scheduler does with a case.

    settles: seconds of virtual time after the last change from outside.

    Raises:
        TooLongError: it does not end.
    """
    arrivals = [
        Arrival(each.at, pod.name, pod_object(pod, labels_of(case, pod)), each.lasts)
        for each in sorted(case.arrivals, key=lambda each: each.at)
        for pod in each.pods
    ]
    events = tuple(NodeEvent(at, NodeAction.CORDON, name) for at, name in sorted(case.cordons))
    ends = max([each.at + (each.lasts or 0.0) for each in case.arrivals] + [at for at, _ in case.cordons])
    scenario = Scenario(
        [*(node_object(n) for n in case.nodes), *budget_objects(case)],
        arrivals,
        node_events=NodeEvents(events),
        stops_after=ends + settles,
    )
    variant = PolicyVariant("case", policies(policy_text(case)))
    seen = _Seen(case, scenario, variant, seed=seed)
    waiting = _SeenWaiting(seen)

    def rested(at: float, cluster: Any) -> None:
        usage = cluster.quota_usage
        wrong, used = (), dict[str, Mapping[str, int]]()
        if usage is not None:
            wrong = tuple(usage.miscounted(cluster.pods.values()))
            used = {q.name: dict(zip(usage.tree.resources, q.used, strict=True)) for q in usage.queues()}
        seen.trace.steps.append(Rested(at, seen.state(), wrong, used))

    waiting.run(progress=lambda done: None, watch=rested)
    return seen.trace
