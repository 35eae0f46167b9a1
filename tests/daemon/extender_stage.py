"""The extender on a cluster in memory, behind its real port, with requests that kube-scheduler 1.36 has sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec

from kube_policy_scheduler.adapters.http.health_checks import HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Unknown
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.modes.extender import Extender
from kube_policy_scheduler.daemon.modes.extender_routes import ExtenderRoutes
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer, Observers
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from tests.fakes.scheduler_context import context_of

RECORDINGS = Path(__file__).parent / "extender_requests"
NOW = 1_800_000_000.0
RULES = """
policy apps
for pods where pod.label.app == "web"
filter node.label.disk == "ssd"
score 10 if node.label.speed == "fast"
preempt if pod.priority >= 100 evict where victim.priority < 50
"""

Json = Any


def recorded(name: str) -> tuple[bytes, Json]:
    """Return a request as it was sent, and the answer of then."""
    return (RECORDINGS / f"{name}.request.json").read_bytes(), json.loads(
        (RECORDINGS / f"{name}.answer.json").read_text()
    )


@dataclass
class FakeBinder:
    """Binds with the given result."""

    outcome: Outcome = field(default_factory=lambda: Bound(""))
    asked: list[tuple[str, str]] = field(default_factory=list)
    error: Exception | None = None
    truth: asyncio.Future[Outcome] | None = None
    """What is found out where the outcome of a binding is unknown."""

    def begin(self, **_: Any) -> bool:
        return False

    async def bind(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        after: Unknown | None = None,
    ) -> Outcome:
        self.asked.append((name, node))
        if self.error is not None:
            raise self.error
        return self.outcome

    async def settle(self, *, namespace: str, name: str, uid: str, node: str, after: Unknown) -> Outcome:
        assert self.truth is not None
        return await self.truth


@dataclass
class Stage:
    """An extender and what it looks at."""

    rules: str = RULES
    problem: str | None = None
    kubernetes_rules: bool = False
    max_bytes: int = 1 << 20
    binds: bool = True
    binder: FakeBinder = field(default_factory=FakeBinder)
    observer: Observers = field(default_factory=Observers)

    def __post_init__(self) -> None:
        self.cluster = Cluster()
        nobody = cast(Any, object())
        self.scheduler = Scheduler(
            context_of(
                nobody,
                self.cluster,
                observer=Observer(),
                clock=lambda: NOW,
            )
        )
        names = frozenset({"policy-scheduler"})
        loaded = load([Source("apps.policy", self.rules)], default_schedulers=names)
        assert loaded.policy_set is not None, loaded.diagnostics
        self.scheduler.use_policies(LivePolicies(loaded.policy_set, scheduler_names=names, watched=frozenset()))
        self.metrics = SchedulerMetrics(version=lambda: "1")
        self.extender = Extender(
            self.scheduler,
            binder=self.binder,
            problem=lambda: self.problem,
            metrics=self.metrics.extender,
            observer=self.observer,
            stopwatch=lambda: 0.0,
            kubernetes_rules=self.kubernetes_rules,
        )

    def add_node(self, name: str, **labels: str) -> None:
        self.add_whole_node(
            {
                "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
            }
        )

    def add_whole_node(self, node: Json) -> None:
        self.scheduler.event_handlers.node_changed(msgspec.convert(node, objects.Node, strict=False))

    def add_pod(self, pod: Json) -> None:
        self.scheduler.event_handlers.pod_changed(msgspec.convert(pod, objects.Pod, strict=False))

    def counted(self, verb: str, result: str) -> float | None:
        labels = {"verb": verb, "result": result}
        return self.metrics.registry.get_sample_value("policy_scheduler_extender_requests_total", labels)

    @asynccontextmanager
    async def served(self, **server: Any) -> AsyncIterator[Client]:
        """Serve the verbs."""
        routes = ExtenderRoutes(
            self.extender, metrics=self.metrics.extender, max_bytes=self.max_bytes, binds=self.binds
        )
        http = HttpServer(
            port=HttpPort("127.0.0.1", 0),
            checks=HealthChecks(),
            scrapes=Scrapes(self.metrics.registry),
            routes=Routes(posts=routes.handlers("/extender")),
            **server,
        )
        async with http, aiohttp.ClientSession() as session:
            yield Client(session, http.url)


@dataclass
class Client:
    """Asks as kube-scheduler does."""

    session: aiohttp.ClientSession
    url: str

    async def ask(self, verb: str, body: Json, **more: Any) -> Json:
        code, text = await self.post(verb, body, **more)
        assert code == 200, text
        return json.loads(text)

    async def post(self, verb: str, body: Json, **more: Any) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        async with self.session.post(f"{self.url}/extender/{verb}", data=data, headers=headers, **more) as answer:
            return answer.status, await answer.text()


def pod(name: str = "web-1", *, app: str = "web", priority: int = 0, **spec: Json) -> Json:
    """A pod as kube-scheduler sends it."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": app}},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }
