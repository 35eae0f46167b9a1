"""A scheduler as the daemon puts it together, without an API server: objects come and go, and each step is counted."""

from __future__ import annotations

import gc
import itertools
import sys
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import FrameType
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Bound
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.context import Reporter
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.daemon.scheduling.schedule_one import FORGET_EVERY_SECONDS, Scheduler
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.policy.policy_set import load
from tests.fakes.scheduler_context import context_of

Json = dict[str, Any]
NOW = 1_800_000_000.0
NODES = 12
POLICY = """
limit count() by pod.namespace to 1000000
limit sum(request.cpu) by pod.namespace to 1000000
spread by pod.label.app
hold if pod.label.held == "yes"
gang by pod.label.job size 3 if pod.label.job
"""
_MERGED = ("metadata", "spec", "status")


class _Quiet(Reporter, Observer):
    """Binder, evictor, volumes, reporter and observer in one: everything succeeds, and nothing is reported."""

    def begin(self, **_: Any) -> bool:
        return False

    async def bind(self, *_: Any, **named: Any) -> Any:
        return Bound(named["node"]) if "node" in named else ""

    async def try_evict(self, victim: Any) -> None:
        pass

    async def evict(self, victim: Any) -> None:
        pass

    def failed(self, pod: Any, why: str) -> None:
        raise AssertionError(why)


@cache
def _compiled(policy: str) -> LivePolicies:
    loaded = load([Source("p.policy", policy)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return LivePolicies(loaded.policy_set, scheduler_names=frozenset({"policy-scheduler"}))


class Recorded:
    """The event handlers, with what came through them and did not go yet."""

    def __init__(self, event_handlers: EventHandlers) -> None:
        self._handlers = event_handlers
        self._there: dict[Any, Callable[[], None]] = {}
        """By kind and key, what lets it go."""

    def pod_changed(self, pod: Any) -> None:
        self._there["pod", pod.metadata.uid] = lambda: self._handlers.pod_deleted(pod)
        self._handlers.pod_changed(pod)

    def pod_deleted(self, pod: Any) -> None:
        self._there.pop(("pod", pod.metadata.uid), None)
        self._handlers.pod_deleted(pod)

    def object_changed(self, thing: Any) -> None:
        self._there[type(thing), object_key(thing.metadata)] = lambda: self._handlers.object_deleted(thing)
        self._handlers.object_changed(thing)

    def object_deleted(self, thing: Any) -> None:
        self._there.pop((type(thing), object_key(thing.metadata)), None)
        self._handlers.object_deleted(thing)

    def node_changed(self, node: Any) -> None:
        self._there["node", node.metadata.name] = lambda: self._handlers.node_deleted(node)
        self._handlers.node_changed(node)

    def node_deleted(self, node: Any) -> None:
        self._there.pop(("node", node.metadata.name), None)
        self._handlers.node_deleted(node)

    def there(self) -> list[Any]:
        """Return what there is now."""
        return list(self._there)

    def let_go(self, *, but: Collection[Any]) -> None:
        """Let everything go, the last first, but for these."""
        for key in reversed([key for key in self._there if key not in but]):
            self._there.pop(key)()


class Stage:
    """Nodes, a policy and a scheduler, in a running event loop."""

    def __init__(self, policy: str = POLICY, *, nodes: int = NODES, rules: KubernetesRules = DEFAULT_RULES) -> None:
        quiet: Any = _Quiet()
        self.nodes = nodes
        self.now = NOW
        ticks = itertools.count()
        self.scheduler = Scheduler(
            context_of(
                quiet,
                cluster=Cluster(rules),
                clock=lambda: self.now,
                stopwatch=lambda: next(ticks) * 1.0,  # each batch is one decision
            )
        )
        self.scheduler.use_policies(_compiled(policy))
        self.event_handlers = Recorded(self.scheduler.event_handlers)
        self._serial = itertools.count()
        for number in range(nodes):
            self.event_handlers.node_changed(self.node(number))

    # --- things ---------------------------------------------------------------------------------------

    def node(self, number: int, **labels: str) -> objects.Node:
        name = f"n{number}"
        usual = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "abc"[number % 3]}
        body = {
            "metadata": {"name": name, "labels": usual | labels},
            "status": {"allocatable": {"cpu": "1000", "memory": "4Ti", "pods": "10000"}},
        }
        return msgspec.convert(body, objects.Node)

    def pod(self, namespace: str = "neighbour", *bodies: Mapping[str, Any], node: str = "", name: str = "") -> Any:
        """Return a pod; each of the bodies adds to its metadata, spec and status."""
        name = name or f"p{next(self._serial)}"
        body: dict[str, Json] = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
            "spec": {"schedulerName": "policy-scheduler", "containers": [container()]},
            "status": {"phase": "Pending"},
        }
        for more in bodies:
            for part in _MERGED:
                body[part] |= more.get(part, {})
        if node:
            body["spec"]["nodeName"] = node
        return msgspec.json.decode(msgspec.json.encode(body), type=objects.Pod)

    def on_node(self, pod: Any, node: str) -> Any:
        """Return a pod as it is once it is bound."""
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        return msgspec.structs.replace(pod, spec=spec)

    def thing(self, kind: type, body: Json) -> Any:
        return msgspec.convert(body, kind)

    # --- what happens ---------------------------------------------------------------------------------

    def run_pod(self, pod: Any) -> None:
        """Let a pod come, and be bound if it fits."""
        self.event_handlers.pod_changed(pod)
        self.decide()
        if (node := self.node_of(pod)) is not None:
            self.event_handlers.pod_changed(self.on_node(pod, node))

    def place(self, pod: Any, node: int = 0) -> Any:
        """Let a pod be seen on a node."""
        bound = self.on_node(pod, f"n{node % self.nodes}")
        self.event_handlers.pod_changed(bound)
        return bound

    def move_pods(self) -> None:
        """Move all pods that events may help, as several turns of the loop do."""
        while self.scheduler.queue.move_some(self.now):
            pass

    def let_minutes_pass(self) -> None:
        """Let nothing happen for as long as anything is kept for pods that may come back."""
        for _ in range(3):
            self.now += FORGET_EVERY_SECONDS
            self.scheduler.keep_queue()

    def decide(self) -> None:
        """Decide until nothing is left that can be decided; an attempt may take several turns."""
        while self.scheduler.queue.has_active() or self.scheduler.is_searching:
            self.scheduler.schedule_batch()

    async def settle(self) -> None:
        """Decide and bind until nothing is left that can be decided."""
        self.decide()
        await self.scheduler.drained()

    def node_of(self, pod: Any) -> str | None:
        return self.scheduler.cluster.node_of(pod.metadata.uid)


def container(**requests: str) -> Json:
    return {"name": "c", "image": "app", "resources": {"requests": requests or {"cpu": "10m"}}}


class Meter(ABC):
    """Runs steps, and notes what each took."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}

    def step(self, name: str, run: Callable[[], object]) -> None:
        """Run a step; of several by one name the sum is noted."""
        self.taken[name] = self.taken.get(name, 0.0) + self._measured(run)

    @abstractmethod
    def _measured(self, run: Callable[[], object]) -> float: ...


class Lines(Meter):
    """Counts the lines of Python that are run: the same in every run if nothing is collected. C code does not count."""

    def _measured(self, run: Callable[[], object]) -> float:
        lines = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before)
        return lines


class Memory(Meter):
    """Takes the most bytes that were in use at the same time, beyond what was before: C code that copies shows."""

    def _measured(self, run: Callable[[], object]) -> float:
        tracemalloc.start()
        try:
            run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


class Seconds(Meter):
    """Takes CPU time; for people, not for tests."""

    def _measured(self, run: Callable[[], object]) -> float:
        gc.collect()
        gc.disable()
        began = time.process_time()
        try:
            run()
            return time.process_time() - began
        finally:
            gc.enable()
