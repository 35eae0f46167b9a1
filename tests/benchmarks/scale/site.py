"""A scheduler at full size: started from the bytes of a synthetic API server, deciding while the cluster changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, WatchEvent
from kube_policy_scheduler.adapters.kube.reflector import FirstList, Reflector
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.freed_memory import return_freed_memory
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.daemon.watching.first_lists import FirstLists
from kube_policy_scheduler.framework.choice import TieBreak, best
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from tests.benchmarks.decisions import NOW, accelerated_cycle, quiet
from tests.benchmarks.manifests import Json, pod_info
from tests.benchmarks.policies import signals
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale import recorded
from tests.fakes.scheduler_context import context_of
from tests.simulation.chaos import policies_of

KUBERNETES_RULES = "filter node.ready\nuse kubernetes scores\n"
SECONDS_BETWEEN_HEARTBEATS = 300
STATIC_CHANGES = 50
"""Labels, taints, conditions and images of nodes that change, a second."""
NODES_REPLACED = 1
"""Nodes that are added or removed, in turn, a second."""
PODS_ENDED = 50
"""Placed pods that end, a second."""
_CHUNK = 64
"""Lines of a watch, and pods to decide, that are made at once, outside the measurement."""
_WARM_UP = 5


class Hands:
    """What a scheduler reports to and binds with: every binding succeeds at once."""

    def __init__(self) -> None:
        self.bound_pods = 0

    async def bind(self, *, node: str, **_: Any) -> Outcome:
        """Bind a pod."""
        await asyncio.sleep(0)
        return Bound(node)

    async def try_evict(self, victim: PodInfo) -> None:
        """Allow it."""

    async def evict(self, victim: PodInfo) -> None:
        """Evict a pod."""

    def bound(self, pod: PodInfo, node_name: str, *, by_us: bool) -> None:
        """Count it."""
        self.bound_pods += 1

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **more: None


@dataclass(frozen=True)
class Started:
    """What a start took."""

    nodes: int
    pods: int
    cpu_seconds: float
    """From the first byte of the lists to the first decision, without making the bytes."""
    relative: float
    memory_mb: float
    """Of the process, with everything imported, after the start."""
    empty_mb: float
    """The same before the start."""


@dataclass(frozen=True)
class Load:
    """What is decided, by which rules."""

    name: str
    text: str
    goal: int
    """Decisions a second to reach at 130,000 nodes."""
    before: float
    """The same before the work on large clusters began."""
    make_pod: Callable[[int], Json]
    policy: str = ""
    """"" for Kubernetes' default rules."""
    metrics: bool = False
    preempts: bool = False
    templates: int = 0
    """The pods are of so many, in turn; 0: each may have one of its own."""

    def profile(self) -> Profile:
        """Return the rules; always the same object, as what is kept for them is theirs."""
        return _profile(self.policy)


@cache
def _profile(policy: str) -> Profile:
    return policies_of(policy).policy_set.policies[0].profile if policy else kubernetes_profile()


@dataclass(frozen=True)
class Decided:
    """What the decisions of one load cost."""

    name: str
    text: str
    nodes: int
    decisions: int
    per_second: float
    """Of CPU time, the changes of nodes and pods meanwhile included."""
    churn_share: float
    """Of the CPU time, for those changes: decoding and taking them in."""
    p50_us: float
    """CPU time of a decision with its placement, the first one after a change included."""
    p99_us: float
    worst_us: float
    new_us: float
    """The same, on average, for the first two pods of each template, which are decided before the clock runs: once, all
    nodes are looked at for a template, and joined with its metrics."""
    checked: int
    """Decisions that were held against the plain path; a difference ends the benchmark."""
    goal: int
    before: float
    relative: float
    """CPU time of a decision with its share of the changes, in turns of the reference loop."""


@dataclass
class Site:
    """A scheduler, its reflectors, and the pods that are decided."""

    url: str
    nodes: int
    pods: int
    transport: Transport
    scheduler: Scheduler
    reflectors: Sequence[Reflector[Any]]
    hands: Hands
    cycle: Cycle
    """The scheduler's."""
    serial: int = 0

    def use(self, load: Load) -> None:
        """Let the load's rules be those in force: as in the daemon, what is kept for others is dropped."""
        self.scheduler.use_policies(policies_of(load.policy or KUBERNETES_RULES))
        self.cycle.keep_only((load.profile(),))
        return_freed_memory()

    def infos(self, make_pod: Callable[[int], Json], count: int) -> list[PodInfo]:
        """Return so many new pods."""
        first, self.serial = self.serial, self.serial + count
        return [pod_info(self.scheduler.cluster, make_pod(number)) for number in range(first, first + count)]

    def decide(self, frame: Frame, profile: Profile) -> tuple[Decision, tuple[PodInfo, ...]]:
        """Decide and place a pod at once; see `deciding`."""
        return now(self.deciding(frame, profile))

    def deciding(self, frame: Frame, profile: Profile) -> Generator[int, None, tuple[Decision, tuple[PodInfo, ...]]]:
        """Decide and place a pod, with those gone that it preempts; return its last decision and the victims."""
        cluster, pod = self.scheduler.cluster, frame.pod
        decision = yield from self.cycle.deciding(frame, profile)
        victims: tuple[PodInfo, ...] = ()
        if decision.preemption is not None and decision.preemption.nominated_node is not None:
            victims = decision.preemption.victims
            for victim in victims:
                cluster.displace(victim.uid)
            pod.nominated_node = decision.preemption.nominated_node
            decision = self.cycle.decide(frame, profile)
        if decision.host is not None:
            cluster.place(pod, decision.host)
        return decision, victims


@contextlib.asynccontextmanager
async def started(
    url: str, directory: Path, reference: Reference, *, nodes: int, pods: int
) -> AsyncIterator[tuple[Site, Started]]:
    """Start a scheduler as the daemon does: lists, columns, first decision; its watches stay open."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "scale",
                "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": ""}}],
                "clusters": [{"name": "scale", "cluster": {"server": url}}],
                "users": [],
            }
        )
    )
    turn = reference.seconds()
    empty = resident_mb()
    hands = Hands()
    parts: Any = hands
    cycle = accelerated_cycle()
    scheduler = Scheduler(context_of(parts, observer=Observer(), cycle=cycle))
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    transport = Transport(find_credentials(kubeconfig=str(kubeconfig), context=None))
    random = Random(0)
    listed: Reflector[objects.Node] = Reflector(transport, NODES, first_list=FirstList(compare=True), random=random)
    placed = Reflector(transport, PODS, first_list=FirstList(listed.synced, compare=True), random=random)
    reflectors: list[Reflector[Any]] = [listed, placed]
    for reflector in reflectors:
        reflector.attach(scheduler.event_handlers.handler(reflector.resource.type))
    site = Site(url, nodes, pods, transport, scheduler, reflectors, hands, cycle)
    began = time.process_time()
    watching = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        cluster = scheduler.cluster
        counts = lambda: {"nodes": cluster.nodes.size, "pods": len(cluster.pods)}  # noqa: E731
        await FirstLists(reflectors, counts=counts).wait()
        pod = site.infos(lambda number: json.loads(recorded.pod(number)), 1)[0]
        decision = site.cycle.decide(Frame(pod, scheduler.cluster, NOW), kubernetes_profile())
        spent = time.process_time() - began
        assert decision.host is not None
        assert (scheduler.cluster.nodes.size, len(scheduler.cluster.pods)) == (nodes, pods)
        turn = (turn + reference.seconds()) / 2
        yield site, Started(nodes, pods, spent, spent / turn, resident_mb(), empty)
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await transport.close()


def resident_mb() -> float:
    """Return the memory of this process."""
    return float(psutil.Process().memory_info().rss) / 1e6


class Churn:
    """What changes in a cluster by itself, by the CPU seconds that have passed; each change comes as its bytes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._random = Random(0)
        self._handlers = site.scheduler.event_handlers
        self._node_events, self._pod_events = ObjectDecoder(objects.Node), ObjectDecoder(objects.Pod)
        rates = {
            self._heartbeat: site.nodes / SECONDS_BETWEEN_HEARTBEATS,
            self._static: float(STATIC_CHANGES),
            self._replace: float(NODES_REPLACED),
            self._end: float(PODS_ENDED),
        }
        self._rates = list(rates.items())
        self._made = [0] * len(rates)
        self._lines: list[list[tuple[bool, bytes]]] = [[] for _ in rates]
        self._beats = 0
        self._ended = 0
        self._state: dict[int, int] = {}
        self._new: list[int] = []
        self._next_new = site.nodes
        self._version = 2

    def prepare(self, seconds: float) -> None:
        """Make the lines that will be due by then: a measurement does not contain that."""
        for (make, rate), made, lines in zip(self._rates, self._made, self._lines, strict=True):
            while made + len(lines) < rate * seconds:
                lines += [make() for _ in range(min(_CHUNK, int(rate * seconds) + 1 - made - len(lines)))]

    def apply(self, seconds: float) -> None:
        """Let what is due by then happen, as far as it was prepared."""
        for number, (_, rate) in enumerate(self._rates):
            lines = self._lines[number]
            while lines and self._made[number] < rate * seconds:
                is_node, line = lines.pop(0)
                self._made[number] += 1
                self._take(self._node_events if is_node else self._pod_events, line, is_node=is_node)

    def _take(self, decoder: ObjectDecoder[Any], line: bytes, *, is_node: bool) -> None:
        for event in decoder.events(line):
            assert isinstance(event, WatchEvent)
            if is_node:
                (self._handlers.node_deleted if event.type == "DELETED" else self._handlers.node_changed)(event.object)
            else:
                self._handlers.pod_deleted(event.object)

    def heartbeats(self, count: int) -> list[bytes]:
        """Return so many heartbeats of nodes in turn."""
        return [self._heartbeat()[1] for _ in range(count)]

    def replacement(self) -> bytes:
        """Return how a node is added, or the last one that was added is removed, in turn."""
        return self._replace()[1]

    def _heartbeat(self) -> tuple[bool, bytes]:
        self._beats += 1
        number = self._beats % self._site.nodes
        return True, self._modified(number)

    def _static(self) -> tuple[bool, bytes]:
        number = self._random.randrange(self._site.nodes)
        other = self._random.randrange(1, recorded.NODE_STATES)
        self._state[number] = (self._state.get(number, 0) + other) % recorded.NODE_STATES
        return True, self._modified(number)

    def _modified(self, number: int) -> bytes:
        self._version += 1
        thing = recorded.node(number, state=self._state.get(number, 0), beat=self._beats, version=self._version)
        return recorded.line("MODIFIED", thing)

    def _replace(self) -> tuple[bool, bytes]:
        if self._new:
            return True, recorded.line("DELETED", recorded.node(self._new.pop()))
        self._new.append(self._next_new)
        self._next_new += 1
        return True, recorded.line("ADDED", recorded.node(self._new[-1]))

    def _end(self) -> tuple[bool, bytes]:
        number = self._ended % self._site.pods
        self._ended += 1
        return False, recorded.line("DELETED", recorded.pod(number, node_name=f"node-{number % self._site.nodes}"))


class ClusterFull(Exception):
    """The cluster is too small for what is measured: a pod that finds no node would count as a fast decision."""


def measure(
    site: Site, load: Load, reference: Reference, *, seconds: float, checks: int, most: int = sys.maxsize
) -> Decided:
    """Decide for so many CPU seconds while the cluster changes; some decisions are held against the plain path.

    most: it ends before after so many decisions: the faster the machine, the sooner a small cluster is full.
    Raises ClusterFull.
    """
    profile, churn = load.profile(), Churn(site)
    cluster = site.scheduler.cluster
    site.use(load)
    readings = signals(site.nodes, now=NOW) if load.metrics else Signals.EMPTY
    placed: list[str] = []
    gone: list[tuple[PodInfo, str]] = []
    times: list[float] = []
    spent = churning = 0.0
    checked = 0
    turn = reference.seconds()
    with quiet():
        pods = _pods_for(site, load)
        first = [next(pods) for _ in range(max(_WARM_UP, 2 * load.templates))]
        began = time.process_time()
        for pod in first:
            _one(site, Frame(pod, cluster, NOW, signals=readings), profile, placed, gone)
        new = (time.process_time() - began) / len(first)
        while (part := max(spent / seconds, len(times) / most)) < 1:
            pod = next(pods)
            churn.prepare(spent + 0.2)
            frame = Frame(pod, cluster, NOW, signals=readings)
            began = time.process_time()
            churn.apply(spent)
            changed = time.process_time()
            is_checked = checked < checks and part >= checked / checks
            wanted = _plain(frame, profile, load) if is_checked else None
            started_at = time.process_time()
            decision, victims = _one(site, frame, profile, placed, gone)
            ended = time.process_time()
            times.append(ended - started_at)
            spent += (changed - began) + (ended - started_at)
            churning += changed - began
            if is_checked:
                checked += 1
                got = (decision.host, tuple(victim.uid for victim in victims))
                assert got == wanted, f"{load.name}: the plain path decides {wanted}, the cycle {got}"
        turn = (turn + reference.seconds()) / 2
        for uid in placed:
            cluster.displace(uid)
        for victim, node_name in gone:
            cluster.place(victim, node_name)
    return Decided(
        name=load.name,
        text=load.text,
        nodes=site.nodes,
        decisions=len(times),
        per_second=len(times) / spent,
        churn_share=churning / spent,
        p50_us=float(np.percentile(times, 50)) * 1e6,
        p99_us=float(np.percentile(times, 99)) * 1e6,
        worst_us=max(times) * 1e6,
        new_us=new * 1e6,
        checked=checked,
        goal=load.goal,
        before=load.before,
        relative=spent / len(times) / turn,
    )


def _pods_for(site: Site, load: Load) -> Iterator[PodInfo]:
    while True:
        yield from site.infos(load.make_pod, _CHUNK)


def _one(
    site: Site, frame: Frame, profile: Profile, placed: list[str], gone: list[tuple[PodInfo, str]]
) -> tuple[Decision, tuple[PodInfo, ...]]:
    decision, victims = site.decide(frame, profile)
    if decision.host is None:
        raise ClusterFull(f"after {len(placed):,} more pods, one finds no node: {decision.message}")
    placed.append(frame.pod.uid)
    gone += [(victim, decision.host) for victim in victims]
    return decision, victims


def _plain(frame: Frame, profile: Profile, load: Load) -> tuple[str | None, tuple[str, ...]]:
    """Return host and victims by the plain path, which keeps nothing from one pod to the next."""
    if load.preempts:
        decision = Cycle().decide(frame, profile)
        if (found := decision.preemption) is None:  # it fits on a node that was just added
            return decision.host, ()
        return found.nominated_node, tuple(victim.uid for victim in found.victims)
    evaluation, nodes = evaluate(frame, profile), frame.cluster.nodes
    if not len(evaluation.feasible):
        return None, ()
    top = evaluation.feasible[best(evaluation.totals)]
    return nodes.infos[TieBreak(nodes, uid=frame.pod.uid, seed=0).first(top)].name, ()
