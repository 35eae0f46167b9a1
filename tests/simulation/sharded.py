"""Several replicas that share the work, over the same model of an API server: they come, go, die and are cut off."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from engine.adapters.kube.binding import Binder
from engine.adapters.kube.eviction import Evictor
from engine.adapters.kube.lease import LeaseSettings
from engine.adapters.kube.membership import Membership
from engine.adapters.kube.pod_status import PodStatusWriter
from engine.cluster.cluster import Cluster
from engine.daemon.policies import LivePolicies
from engine.daemon.scheduler import Scheduler
from engine.daemon.sharding import Sharding
from engine.framework.cycle import Cycle
from engine.framework.invariants import violations
from engine.framework.queue import SchedulingQueue
from tests.simulation.api_server import ApiServer, Connection, Json, Watch, cpu_millis
from tests.simulation.simulation import SOLO, Reports, Violation, compiled, containers
from tests.simulation.virtual_time import run

QUOTA = {"a": 5, "b": 3}
POLICY = """
gang by pod.label.job size number(pod.label.size) ?? 1 within 40s if pod.label.job
limit count() by pod.label.tenant to if pod.label.tenant == "a" then 5 else if pod.label.tenant == "b" then 3 else 1000
"""


class SharedReports(Reports):
    """Writes nominations, as what is told to the API server decides who has a pod."""

    def __init__(self, statuses: PodStatusWriter) -> None:
        super().__init__()
        self._statuses = statuses

    def unschedulable(self, decision: Any) -> None:
        super().unschedulable(decision)
        found = decision.preemption
        if found is not None and not found.keeps_nomination:
            self.nominated(decision.pod, found.nominated_node or "")

    def nominated(self, pod: Any, node_name: str) -> None:
        super().nominated(pod, node_name)
        self._statuses.nominate(pod, node=node_name)


class Replica:
    """One life of one replica."""

    def __init__(self, server: ApiServer, policies: LivePolicies, name: str, *, seed: int) -> None:
        self.name, self.server = name, server
        self.connection = Connection(server)
        transport: Any = self.connection
        random = Random(seed)
        ticks = itertools.count()
        statuses = PodStatusWriter(transport, random=random, may_write=lambda: self.membership.may_act)
        self.told = SharedReports(statuses)
        self.scheduler = Scheduler(
            Cluster(),
            SchedulingQueue(),
            cycle=Cycle(seed=1),
            binder=Binder(transport, random=random, may_bind=lambda: self.membership.may_act),
            evictor=Evictor(
                transport,
                controller="policy-scheduler",
                clock=server.now,
                may_evict=lambda: self.membership.may_act,
            ),
            volumes=self.told,
            reporter=self.told,
            observer=self.told,
            nominator=statuses,
            clock=server.now,
            stopwatch=lambda: next(ticks) * 0.0005,
        )
        scheduler, informer = self.scheduler, self.scheduler.informer
        scheduler.leading = False
        scheduler.deciding.sharding = Sharding(name, unit=lambda pod: policies.unit(pod, by_pod=False))
        self.watches = [
            Watch(
                server,
                kind,
                replaced=getattr(informer, f"{kind}_replaced"),
                changed=getattr(informer, f"{kind[:-1]}_changed"),
                deleted=getattr(informer, f"{kind[:-1]}_deleted"),
            )
            for kind in ("nodes", "pods")
        ]
        server.watches += self.watches
        scheduler.is_current = lambda: all(watch.connected for watch in self.watches)
        scheduler.use_policies(policies)
        passing = scheduler.passing
        assert passing is not None
        self.membership = Membership(
            transport,
            LeaseSettings("kube-system", "shared", name),
            on_members=passing.share_with,
            on_ready=scheduler.lead,
            has_handed_over=passing.has_handed_over,
            has_settled=passing.has_settled,
            pods_seen=lambda: informer.pods_seen,
            pods_known=lambda: self.watches[1].position,
            clock=server.now,
        )
        self.deciding = asyncio.create_task(scheduler.run())
        self.leading = asyncio.create_task(self._lead())
        background = [statuses.run(), *(watch.run() for watch in self.watches)]
        self.tasks = [*(asyncio.create_task(work) for work in background), self.deciding]

    async def _lead(self) -> str:
        while not self.scheduler.is_current():  # noqa: ASYNC110 (as the scheduler itself asks)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2 * self.server.lag_seconds)
        return await self.membership.run()

    @property
    def has_ended(self) -> bool:
        """Whether its lease is lost: a process would end then."""
        return self.leading.done()

    def kill(self) -> None:
        """End at once; what is on its way to the server may still arrive."""
        self.connection.closed = True
        for watch in self.watches:
            watch.cut()
            self.server.watches.remove(watch)
        for task in (*self.tasks, self.leading):
            task.cancel()
        self.scheduler.bindings.cancel()

    async def leave(self) -> None:
        """End in order, as the daemon does."""
        self.deciding.cancel()
        await self.scheduler.drained()
        self.leading.cancel()
        await asyncio.wait([self.leading])
        self.kill()

    def broken(self) -> list[str]:
        """Return what died that must not."""
        return [repr(task.exception()) for task in self.tasks if task.done() and not task.cancelled()]


class SharedSimulation:
    """A run; replayed by its seed."""

    def __init__(self, seed: int, *, steps: int) -> None:
        self.seed, self.steps = seed, steps
        self.random = Random(seed)
        self.log: list[str] = []
        self.done: Counter[str] = Counter()
        self.replicas: list[Replica] = []
        self._names = 0

    def run(self) -> Counter[str]:
        """Run to the end; return what was done. Raises Violation."""
        return run(self._main())

    async def _main(self) -> Counter[str]:
        random = self.random
        self.server = server = ApiServer(Random(self.seed + 1))
        server.quota = QUOTA
        server.lag_seconds = 0.05
        policies = compiled(POLICY)
        assert policies is not None
        self.policies = policies
        for number in range(random.randint(3, 7)):
            labels = {"zone": random.choice("ab")}
            server.set_node(f"n{number}", cpu=random.randint(2, 5), labels=labels)
        for _ in range(2):
            self._join()
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self._create),
            (6, self._gang),
            (12, self._delete),
            (12, self._finish),
            (2, self._join),
            (1, self._kill),
            (1, self._leave),
            (1, self._cut_off),
            (3, self._faults),
            (10, lambda: None),
        ]
        weights = [weight for weight, _ in actions]
        for step in range(self.steps):
            self.step = step
            (action,) = random.choices([act for _, act in actions], weights)
            self.log.append(f"{asyncio.get_running_loop().time():.2f} {getattr(action, '__name__', '')}")
            action()
            await asyncio.sleep(random.choice((0.0, 0.01, 0.1, 0.5, 2.0)))
            self._check()
        await self._settle()
        return self.done

    # --- what happens --------------------------------------------------------------------------------

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def _join(self) -> None:
        if len(self.replicas) < 4:
            self.done["joined"] += 1
            name = f"r{self.done['joined']}"
            self.replicas.append(Replica(self.server, self.policies, name, seed=self.random.randrange(10**6)))

    def _kill(self) -> None:
        if len(self.replicas) > 1:
            self.replicas.pop(self.random.randrange(len(self.replicas))).kill()
            self.done["killed"] += 1

    def _leave(self) -> None:
        if len(self.replicas) > 1:
            replica = self.replicas.pop(self.random.randrange(len(self.replicas)))
            self._leaving = asyncio.create_task(replica.leave())
            self.done["left"] += 1

    def _cut_off(self) -> None:
        replica = self.random.choice(self.replicas)
        replica.connection.is_cut = True
        seconds = self.random.choice((1.0, 8.0, 40.0))
        asyncio.get_running_loop().call_later(seconds, setattr, replica.connection, "is_cut", False)
        self.done["cut off"] += 1

    def _create(self) -> None:
        random = self.random
        if len(self.server.pods) > 40:
            return
        for _ in range(random.choice((1, 1, 6, 12))):
            labels = {"app": random.choice(("web", "db"))}
            if random.random() < 0.3:
                labels["tenant"] = random.choice("ab")
            spec: Json = {"priority": random.choice((0, 0, 0, 10))}
            if random.random() < 0.1:
                labels["solo"] = "x"
                spec["affinity"] = SOLO
            namespace = random.choice(("default", "one", "two", "three")) if "solo" not in labels else "default"
            millis = random.choice((100, 500, 900, 1500))
            self.server.create_pod(self._name(), spec | containers(millis), labels, namespace=namespace)

    def _gang(self) -> None:
        random = self.random
        if len(self.server.pods) > 40:
            return
        name, size = self._name(), random.randint(2, 3)
        labels = {"job": name, "size": str(size), "app": "db"}
        spec = {"priority": random.choice((0, 10))} | containers(500)
        for number in range(size):
            self.server.create_pod(f"{name}-{number}", spec, labels, namespace=random.choice(("one",)))

    def _delete(self) -> None:
        if self.server.pods:
            self.server.delete_pod(self.random.choice(list(self.server.pods)))

    def _finish(self) -> None:
        running = [n for n, p in self.server.pods.items() if p["status"]["phase"] == "Running"]
        if running:
            self.server.finish_pod(self.random.choice(running))

    def _faults(self) -> None:
        self.server.fault_rate = self.random.choice((0.0, 0.1, 0.3))

    # --- what must hold ------------------------------------------------------------------------------

    def _check(self) -> None:
        found = list(self.server.violations)
        for replica in self.replicas:
            scheduler = replica.scheduler
            own = violations(scheduler.cluster, scheduler.queue, scheduler.informer.assumed)
            found += [f"{replica.name}: {text}" for text in (*own, *replica.broken())]
        active = [replica for replica in self.replicas if replica.membership.is_ready and replica.scheduler.leading]
        acting = []
        for replica in active:
            if replica.membership.may_act:
                acting.append(replica)
        for node in self.server.nodes:
            owners = [r.name for r in acting if r.scheduler.deciding.sharding.owns_node(node)]  # type: ignore[union-attr]
            if len(owners) > 1:
                found.append(f"{node} has the owners {owners}")
        if found:
            last = "\n  ".join(self.log[-12:])
            raise Violation(f"seed {self.seed}, step {self.step} of {self.steps}: {'; '.join(found)}\n  {last}")
        for replica in [replica for replica in self.replicas if replica.has_ended]:
            self.replicas.remove(replica)
            replica.kill()
            self.done["lost its lease"] += 1
            self._join()
        if not self.replicas:
            self._join()
        for replica in self.replicas:
            passing = replica.scheduler.passing
            assert passing is not None
            self.done["passed on"] = max(self.done["passed on"], passing.passed_on)
            self.done["given back"] = max(self.done["given back"], passing.given_back)

    async def _settle(self) -> None:
        """Let the storm pass; then there is nobody left who fits somewhere alone."""
        self.server.fault_rate = 0.0
        for replica in self.replicas:
            replica.connection.is_cut = False
        loop = asyncio.get_running_loop()
        end = loop.time() + 900.0
        while True:
            await asyncio.sleep(15.0)
            self._check()
            lost = self._lost()
            if not lost:
                return
            if loop.time() > end:
                raise Violation(
                    f"seed {self.seed}: could run and do not: {[(name, self._where(name)) for name in lost]}"
                )

    def _where(self, name: str) -> list[str]:
        found = []
        for replica in self.replicas:
            for queued in replica.scheduler.queue:
                if queued.pod.name == name:
                    found.append(f"{replica.name}: {queued.place.value} {replica.told.why.get(name)}")
            for uid in replica.scheduler.informer.passed:
                if uid.startswith(f"{name}."):
                    found.append(f"{replica.name}: passed on")
        return found

    def _lost(self) -> list[str]:
        """Return pending pods, in no gang and under no limit, for which there is a free node."""
        server = self.server
        free = {
            name: int(node["status"]["allocatable"]["cpu"]) * 1000
            - sum(cpu_millis(p) for p in server.pods.values() if p["spec"].get("nodeName") == name)
            for name, node in server.nodes.items()
        }
        number = Counter(p["spec"].get("nodeName") for p in server.pods.values())
        return [
            name
            for name, pod in server.pods.items()
            if not pod["spec"].get("nodeName")
            and not {"job", "tenant", "solo"} & pod["metadata"]["labels"].keys()
            and any(room >= cpu_millis(pod) and number[node] < 8 for node, room in free.items())
        ]
