"""One seeded run: the real informer, queue, cycle, scheduler, binder and evictor over a model of an API server."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from engine.adapters.kube.binding import Binder, Outcome
from engine.adapters.kube.eviction import Evictor
from engine.adapters.policy_sources import PolicySources
from engine.adapters.settable_clock import SettableClock
from engine.cluster.cluster import Cluster
from engine.daemon.observing import Observer
from engine.daemon.policies import LivePolicies, PolicyCompiler
from engine.daemon.reload import Accepted
from engine.daemon.scheduler import Scheduler
from engine.framework.cycle import Cycle
from engine.framework.frame import Frame
from engine.framework.invariants import violations
from engine.framework.queue import Place, SchedulingQueue
from tests.simulation.api_server import ApiServer, Connection, Json, Watch
from tests.simulation.virtual_time import StandstillError, run

NAMES = frozenset({"policy-scheduler"})
QUOTA = {"a": 5, "b": 3}
GANG_SECONDS = 40
BASE = f"""
gang by pod.label.job size number(pod.label.size) ?? 1 within {GANG_SECONDS}s if pod.label.job
limit count() by pod.label.tenant to if pod.label.tenant == "a" then 5 else if pod.label.tenant == "b" then 3 else 1000
"""
POLICIES: tuple[str, ...] = (
    BASE,
    BASE + "score node.free.cpu\npreempt never\n",
    BASE + 'spread by pod.label.app\nfilter node.label.disk != "hdd" if pod.label.app == "web"\n',
    BASE
    + 'order by pod.priority desc, pod.label.app\npreempt if pod.priority > 5 evict where victim.label.app == "db"\n',
    BASE + 'hold if pod.label.app == "held" and pod.waiting < 20s\n',
)
BROKEN = "filter node.redy\n"
SETTLE_SECONDS = 900.0
"""After the last change; the queue flushes what no event concerned after 300 s."""


class Violation(AssertionError):
    """Something that must never happen has happened; the text says how to see it again."""


@dataclass
class Reports(Observer):
    """Reporter, observer and volumes in one: nothing is reported, no pod has volumes."""

    told: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)

    def bound(self, pod: Any, node_name: str) -> None:
        self.told["bound"] += 1

    def unschedulable(self, decision: Any) -> None:
        self.told["unschedulable"] += 1
        self.why[decision.pod.name] = decision.message

    def held(self, pod: Any, why: str) -> None:
        self.told["held"] += 1
        self.why[pod.name] = why

    def failed(self, pod: Any, why: str) -> None:
        self.told["failed"] += 1
        if "internal error" in why:
            raise AssertionError(why)

    def preempted(self, victim: Any, *, by: Any, node_name: str) -> None:
        self.told["preempted"] += 1

    def nominated(self, pod: Any, node_name: str) -> None:
        self.told["nominated"] += 1

    async def bind(self, reservation: Any) -> str:
        raise AssertionError("no pod has volumes")


class Process:
    """One life of the scheduler."""

    def __init__(self, server: ApiServer, policies: LivePolicies, told: Reports, *, seed: int) -> None:
        self.server = server
        self.connection = Connection(server)
        transport: Any = self.connection
        self._binder = Binder(transport, random=Random(seed))
        ticks = itertools.count()
        clock = SettableClock(wall=lambda: server.now() + server.clock_ahead, steady=asyncio.get_running_loop().time)
        self.scheduler = Scheduler(
            Cluster(),
            SchedulingQueue(),
            cycle=Cycle(seed=seed),
            binder=self,
            evictor=Evictor(transport, controller="policy-scheduler", clock=clock),
            volumes=told,
            reporter=told,
            observer=told,
            clock=clock,
            stopwatch=lambda: next(ticks) * 0.0005,  # a batch ends after some ten decisions
        )
        clock.on_set(self.scheduler.clock_was_set)
        informer = self.scheduler.informer
        self.watches = [
            Watch(
                server,
                "nodes",
                replaced=informer.nodes_replaced,
                changed=informer.node_changed,
                deleted=informer.node_deleted,
            ),
            Watch(
                server,
                "pods",
                replaced=informer.pods_replaced,
                changed=informer.pod_changed,
                deleted=informer.pod_deleted,
            ),
        ]
        server.watches = self.watches
        self.scheduler.is_current = lambda: all(watch.connected for watch in self.watches)
        self.scheduler.use_policies(policies)
        self.tasks = [asyncio.create_task(watch.run()) for watch in self.watches]
        self.tasks.append(asyncio.create_task(self._begin()))

    async def _begin(self) -> None:
        while not self.scheduler.is_current():  # noqa: ASYNC110 (as the scheduler itself asks)
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.server.lag_seconds)
        await self.scheduler.run()

    async def bind(self, *, namespace: str, name: str, uid: str, node: str, annotations: Any = None) -> Outcome:
        """Bind, after a look at whether the pod's group is complete."""
        self._judge_gang(name, uid)
        return await self._binder.bind(namespace=namespace, name=name, uid=uid, node=node)

    def _judge_gang(self, name: str, uid: str) -> None:
        cluster = self.scheduler.cluster
        pod = cluster.pods.get(uid)
        if pod is None or "job" not in pod.labels:
            return
        waiting = set(self.scheduler.permitting.permit)
        members = [p for p in cluster.pods.values() if p.labels.get("job") == pod.labels["job"]]
        placed = sum(member.uid not in waiting for member in members)
        if placed < int(pod.labels["size"]):
            self.server.violations.append(f"{name} binds, though only {placed} of its group have a place")

    def kill(self) -> None:
        """End at once, in the middle of anything; what is on its way to the server may still arrive."""
        self.connection.closed = True
        for watch in self.watches:
            watch.cut()
        for task in self.tasks:
            task.cancel()
        self.scheduler.bindings.cancel()

    def broken(self) -> list[str]:
        """Return what died that must not."""
        return [repr(task.exception()) for task in self.tasks if task.done() and not task.cancelled()]


def compiled(text: str) -> LivePolicies | None:
    """Return the policies of a text, None where it does not compile."""
    result = PolicyCompiler(NAMES)(PolicySources.of({"p.policy": text}))
    return result.policies if isinstance(result, Accepted) else None


class Simulation:
    """A run; replayed by its seed."""

    def __init__(self, seed: int, *, steps: int) -> None:
        self.seed, self.steps = seed, steps
        self.random = Random(seed)
        self.told = Reports()
        self.log: list[str] = []
        self._names = 0

    def run(self) -> Counter[str]:
        """Run to the end; return what was done.

        Raises:
            Violation: something is wrong.
        """
        try:
            return run(self._main())
        except StandstillError as error:
            self._fail([str(error)])
            raise

    async def _main(self) -> Counter[str]:
        random = self.random
        self.server = server = ApiServer(Random(self.seed + 1))
        server.quota = QUOTA
        self.loaded = [policies for text in POLICIES if (policies := compiled(text)) is not None]
        assert len(self.loaded) == len(POLICIES)
        self.policies = self.loaded[0]
        for number in range(random.randint(2, 6)):
            self._node(f"n{number}")
        self._start()
        for step in range(self.steps):
            self.step = step
            self._act()
            await asyncio.sleep(random.choice((0.0, 0.01, 0.1, 0.5, 2.0)))
            self._check()
        await self._settle()
        return self.told.told

    def _start(self) -> None:
        self.process = Process(self.server, self.policies, self.told, seed=self.random.randrange(10**6))

    # --- what happens --------------------------------------------------------------------------------

    def _act(self) -> None:
        random = self.random
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self._create),
            (8, self._gang),
            (12, self._delete),
            (12, self._finish),
            (4, self._change_node),
            (2, self._delete_node),
            (3, self._add_node),
            (3, self._cut),
            (1, self._restart),
            (3, self._reload),
            (2, self._faults),
            (1, self._set_clock),
            (10, lambda: None),
        ]
        weights = [weight for weight, _ in actions]
        (action,) = random.choices([act for _, act in actions], weights)
        self.log.append(f"{asyncio.get_running_loop().time():.2f} {getattr(action, '__name__', '')}")
        action()

    def _node(self, name: str) -> None:
        random = self.random
        labels = {"zone": random.choice("ab"), "disk": random.choice(("ssd", "hdd"))}
        known = self.server.nodes.get(name)
        cpu = int(known["status"]["allocatable"]["cpu"]) if known else 2 + (sum(map(ord, name)) % 4)
        self.server.set_node(name, cpu=cpu, labels=labels, unschedulable=random.random() < 0.1)

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def _create(self) -> None:
        random = self.random
        if len(self.server.pods) > 40:
            return
        for _ in range(random.choice((1, 1, 1, 6))):
            labels = {"app": random.choice(("web", "db", "db", "held"))}
            if random.random() < 0.3:
                labels["tenant"] = random.choice("ab")
            spec: Json = {"priority": random.choice((0, 0, 0, 3, 10))}
            if random.random() < 0.15:
                labels["solo"] = "x"
                spec["affinity"] = SOLO
            if random.random() < 0.15:
                spec["nodeSelector"] = {"zone": random.choice("ab")}
            # a name that was used before is another pod
            name = f"again{random.randrange(3)}" if random.random() < 0.1 else self._name()
            if name not in self.server.pods:
                self.server.create_pod(name, spec | containers(random.choice((100, 500, 900, 1500))), labels)

    def _gang(self) -> None:
        random = self.random
        if len(self.server.pods) > 40:
            return
        name, size = self._name(), random.randint(2, 4)
        labels = {"job": name, "size": str(size), "app": "db"}
        spec = {"priority": random.choice((0, 0, 10))} | containers(random.choice((500, 1500)))
        loop = asyncio.get_running_loop()
        for number in range(size + random.choice((0, 0, 1))):
            late = random.random() * 15 if random.random() < 0.2 else 0.0
            loop.call_later(late, self.server.create_pod, f"{name}-{number}", spec, labels)

    def _delete(self) -> None:
        if self.server.pods:
            self.server.delete_pod(self.random.choice(list(self.server.pods)))

    def _finish(self) -> None:
        running = [n for n, p in self.server.pods.items() if p["status"]["phase"] == "Running"]
        if running:
            self.server.finish_pod(self.random.choice(running))

    def _change_node(self) -> None:
        if self.server.nodes:
            self._node(self.random.choice(list(self.server.nodes)))

    def _delete_node(self) -> None:
        if len(self.server.nodes) > 1:
            self.server.delete_node(self.random.choice(list(self.server.nodes)))

    def _add_node(self) -> None:
        if len(self.server.nodes) < 8:
            self._node(f"n{self.random.randrange(8)}")

    def _cut(self) -> None:
        for watch in self.random.sample(self.process.watches, self.random.randint(1, 2)):
            watch.cut()

    def _restart(self) -> None:
        self.process.kill()
        self._start()

    def _reload(self) -> None:
        if compiled(BROKEN) is not None:
            raise AssertionError("a broken policy set was accepted")
        self.policies = self.random.choice(self.loaded)
        self.process.scheduler.use_policies(self.policies)

    def _faults(self) -> None:
        self.server.fault_rate = self.random.choice((0.0, 0.1, 0.5))
        self.server.lag_seconds = self.random.choice((0.01, 0.2, 3.0))

    def _set_clock(self) -> None:
        self.server.clock_ahead = self.random.choice((0.0, 0.0, 40.0, -40.0, 3 * 3600.0, -3 * 3600.0))

    # --- what must hold ------------------------------------------------------------------------------

    def _check(self) -> None:
        scheduler = self.process.scheduler
        found = [
            *violations(scheduler.cluster, scheduler.queue, scheduler.informer.assumed),
            *self.server.violations,
            *self.process.broken(),
        ]
        waiting = {q.pod.uid for q in scheduler.queue if q.place is Place.PERMIT}
        if waiting != set(scheduler.permitting.permit):
            found.append(f"at permit: {sorted(scheduler.permitting.permit)}, in the queue: {sorted(waiting)}")
        if found:
            self._fail(found)

    def _fail(self, found: list[str]) -> None:
        last = "\n  ".join(self.log[-12:])
        raise Violation(
            f"seed {self.seed}, step {getattr(self, 'step', '?')} of {self.steps}: "
            + "; ".join(found)
            + f"\nreplay: python -m tests.simulation --seed {self.seed} --steps {self.steps}\n  {last}"
        )

    async def _settle(self) -> None:
        """Let the storm pass; then every pod must have its node, unless there is none for it."""
        self.server.fault_rate, self.server.lag_seconds = 0.0, 0.01
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLE_SECONDS
        while True:
            await asyncio.sleep(15.0)
            self._check()
            lost = self._lost()
            if not lost:
                return
            if loop.time() > end:
                scheduler = self.process.scheduler
                places = {q.pod.name: (q.place.value, self.told.why.get(q.pod.name)) for q in scheduler.queue}
                self._fail([f"{name} could run and does not: {places.get(name, 'not queued')}" for name in lost])

    def _lost(self) -> list[str]:
        """Return pending pods for which an independent look at the truth finds a place."""
        cluster, cycle = Cluster(), Cycle()
        for node in self.server.nodes.values():
            cluster.set_node(self.server.decoded("nodes", node))
        pods = [cluster.templates.pod(self.server.decoded("pods", p)) for p in self.server.listing("pods")]
        for pod in pods:
            if pod.node_name:
                cluster.place(pod, pod.node_name)
        pending = [pod for pod in pods if not pod.node_name and not pod.terminating]
        lost = []
        jobs: dict[str, list[Any]] = {}
        for pod in pending:
            if "job" in pod.labels:
                jobs.setdefault(pod.labels["job"], []).append(pod)
            elif self._fits(pod, cluster, cycle) is not None:
                lost.append(pod.name)
        for members in jobs.values():
            job, size = members[0].labels["job"], int(members[0].labels["size"])
            count = sum(p.labels.get("job") == job and not p.terminating for p in cluster.pods.values())
            placed = []
            for pod in members:
                host = self._fits(pod, cluster, cycle)
                if host is not None:
                    cluster.place(pod, host)
                    placed.append(pod)
            if placed and count + len(placed) >= size:
                lost += [pod.name for pod in placed]
            for pod in placed:
                cluster.displace(pod.uid)
        return lost

    def _fits(self, pod: Any, cluster: Cluster, cycle: Cycle) -> str | None:
        profile = self.policies.profile(pod)
        assert profile is not None
        return cycle.decide(Frame(pod, cluster, self.server.now()), profile).host


SOLO: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"solo": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def containers(millis: int) -> Json:
    """Return the part of a spec that asks for cpu."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{millis}m"}}}]}
