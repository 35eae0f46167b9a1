"""How long the event loop stands still, by cause: while pods are decided, something large happens beside them."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from types import FrameType
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.kube.changes import Updated
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, WatchEvent
from kube_policy_scheduler.adapters.kube.reflector import LIST_OBJECTS
from kube_policy_scheduler.adapters.process.freed_memory import return_freed_memory
from kube_policy_scheduler.adapters.process.garbage_collector import short_collections
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.spare_time import SpareTime, in_turns
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.adapters.prometheus.queries import PrometheusEndpoint
from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.cluster.steps import Unfinished, in_turn
from kube_policy_scheduler.daemon.daemon import SWITCH_SECONDS
from kube_policy_scheduler.daemon.observing.signal_feed import ReadyReadings
from kube_policy_scheduler.daemon.policies.live import PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import Accepted
from kube_policy_scheduler.daemon.scheduling.context import Policies
from kube_policy_scheduler.daemon.scheduling.schedule_one import BATCH_SECONDS, WORK_IN_A_TURN, Scheduler
from kube_policy_scheduler.daemon.serving.state_dump import dump_in_steps
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.detail import look
from tests.benchmarks.decisions import NOW
from tests.benchmarks.manifests import Json, pod, pod_info
from tests.benchmarks.policies import FOUR_LINES, policy_text, signals
from tests.benchmarks.scale import waiting
from tests.benchmarks.scale.loads import LOADS
from tests.benchmarks.scale.site import Churn, Load, Site
from tests.simulation.chaos import policies_of

BOUNDS_MS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Upper ends of the classes of the histogram; the last class is what is longer."""
GOAL_MS = 50
_QUIET_SECONDS = 2.0
_WATCH_LINES = 25
"""Heartbeats in one chunk of a watch."""
_POLICIES, _CLAUSES = 100, 20
_ADDED = 10
_LOOKS = 10
_ENDED = 10_000
_RESOURCE = "example.com/new"
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "urgent"}},
}
_MOST_RECOUNTED = 100_000
"""Pods; a recount of more takes minutes, in a tenth of the time."""
CAUSES = (
    "decisions",
    "heartbeats",
    "scrape",
    "node-added",
    "close-looks",
    "page",
    "relist",
    "reload",
    "new-rules",
    "new-resource",
    "pods-end",
    "pods-arrive",
    "pods-wake",
    "gang-refused",
    "gang-evicts",
    "gang-starts",
    "gang-differs",
    "queues",
    "objects",
    "new-labels",
    "watched",
    "preemption",
    "preemption-spread",
    "names",
    "budgets",
)


@dataclass(frozen=True)
class Stalls:
    """The turns of the event loop while something happened."""

    cause: str
    text: str
    seconds: float
    """How long it took."""
    turns: int
    longest_ms: float
    """Wall time."""
    longest_cpu_ms: float
    """The longest by CPU time of the thread: without what other processes took, or waiting for Python's lock."""
    longest_collection_ms: float
    """Of the garbage collector, in that time."""
    histogram: tuple[int, ...]
    """Turns by class, see `BOUNDS_MS`."""
    where: str = ""
    """What ran in the longest turn when it had taken half the goal, the innermost call first; "" if it was shorter."""


_INNERMOST = 4
"""Calls of ours that say what ran."""


class _Turns:
    """Notes how long each turn of the event loop takes, and what ran in the longest."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.collections: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._wall, self._cpu = time.perf_counter(), time.thread_time()
        self._collecting = 0.0
        self._handle = self._loop.call_soon(self._turn)
        self._longest, self._seen = 0.0, ""
        self.where = ""
        signal.signal(signal.SIGALRM, self._look)

    def _turn(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, GOAL_MS / 2e3)
        wall, cpu = time.perf_counter(), time.thread_time()
        self.wall.append(wall - self._wall)
        self.cpu.append(cpu - self._cpu)
        if self.wall[-1] > self._longest:
            self._longest, self.where = self.wall[-1], self._seen
        self._seen = ""
        self._wall, self._cpu = wall, cpu
        self._handle = self._loop.call_soon(self._turn)

    def _look(self, _: int, frame: FrameType | None) -> None:
        ours = [each for each in traceback.extract_stack(frame) if "/kube_policy_scheduler/" in each.filename]
        names = [f"{each.filename.rpartition('/kube_policy_scheduler/')[2]}:{each.lineno} {each.name}" for each in ours]
        self._seen = " < ".join(reversed(names[-_INNERMOST:]))

    def collected(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._collecting = now
        else:
            self.collections.append(now - self._collecting)

    def end(self) -> None:
        self._handle.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@contextmanager
def _turns() -> Iterator[_Turns]:
    found = _Turns()
    gc.callbacks.append(found.collected)
    try:
        yield found
    finally:
        gc.callbacks.remove(found.collected)
        found.end()


async def measure_stalls(site: Site, *, say: Callable[[str], None], only: Sequence[str] = ()) -> AsyncIterator[Stalls]:
    """Let each cause happen while pods are decided, and yield what it did to the loop; only: some of `CAUSES`."""
    causes: tuple[tuple[str, str, Callable[[], Awaitable[None]]], ...] = (
        ("decisions", "nothing else happens", _nothing),
        ("heartbeats", "every node sends one, and the garbage collector runs", lambda: _heartbeats(site)),
        ("scrape", f"a metric with {site.nodes:,} series is read twice", lambda: _scrape(site)),
        ("node-added", f"{_ADDED} nodes are added under a metric, and removed", lambda: _nodes_added(site, readings)),
        ("close-looks", f"{_LOOKS} decisions are looked at closely", lambda: _close_looks(site)),
        ("page", "the status page is made, and the state is dumped", lambda: _page(site)),
        ("relist", f"{site.pods:,} pods and {site.nodes:,} nodes are listed again", lambda: _relist(site)),
        ("reload", f"{_POLICIES} policies of {_CLAUSES} clauses are replaced", lambda: _reload(site)),
        ("new-rules", "pods with rules that read what nobody read before", lambda: _new_rules(site)),
        ("new-resource", "a node offers a resource that no other one has", lambda: _new_resource(site)),
        ("pods-end", f"{_ENDED:,} pods end, and come back", lambda: _pods_end(site)),
        ("pods-arrive", f"{waiting.PODS:,} pods come at once, and are bound", lambda: waiting.pods_arrive(site)),
        ("pods-wake", f"a pod ends for whose room {waiting.PODS:,} wait", lambda: waiting.wake(site)),
        ("gang-refused", f"a gang of {waiting.MEMBERS:,} fits nowhere", lambda: waiting.gang_refused(site)),
        ("gang-evicts", f"a gang of {waiting.MEMBERS:,} evicts others", lambda: waiting.gang_evicts(site)),
        (
            "gang-starts",
            f"a gang of {waiting.MEMBERS:,} is planned and bound",
            lambda: waiting.gang_starts(site),
        ),
        ("gang-differs", f"a gang of {waiting.MEMBERS:,} that differ is planned", lambda: waiting.gang_differs(site)),
        ("queues", f"policies with quotas are replaced while {waiting.PODS:,} pods wait", lambda: waiting.queues(site)),
        (
            "objects",
            f"a namespace, a budget and a volume claim change while {waiting.PODS:,} pods wait",
            lambda: waiting.other_objects(site),
        ),
        (
            "new-labels",
            f"a node with {waiting.LABELS} new labels is added, and removed",
            lambda: waiting.new_labels(site),
        ),
        ("watched", f"status page and metrics while {waiting.PODS:,} pods wait", lambda: waiting.watched(site)),
    )
    for _ in chain(
        site.scheduler.columns_in_steps(), site.scheduler.reading_ahead()
    ):  # as the daemon does at its start
        await asyncio.sleep(0)
    sys.setswitchinterval(SWITCH_SECONDS)
    readings = signals(site.nodes, now=NOW)
    for cause, text, happens in causes:
        if not only or cause in only:
            say(f"stalls: {cause}")
            yield await _beside_decisions(site, LOADS[0], cause, text, happens)
    preemption = next(load for load in LOADS if load.preempts)
    spread = replace(preemption, make_pod=_preempting_and_spread)
    searches: tuple[tuple[str, Load, str, Callable[[], Awaitable[None]]], ...] = (
        ("preemption", preemption, preemption.text, _nothing),
        ("preemption-spread", spread, f"{preemption.text}, and filters besides resources have a say", _nothing),
        (
            "names",
            preemption,
            f"{preemption.text}, and {waiting.NODES_CHANGED} nodes come and go",
            lambda: waiting.names(site),
        ),
        (
            "budgets",
            preemption,
            f"{preemption.text}, and the status of {waiting.BUDGETS} budgets changes",
            lambda: waiting.budgets(site),
        ),
    )
    for cause, load, text, happens in searches:
        if not only or cause in only:
            say(f"stalls: {cause}")
            yield await _beside_decisions(site, load, cause, text, happens)


async def _beside_decisions(
    site: Site, load: Load, cause: str, text: str, happens: Callable[[], Awaitable[None]]
) -> Stalls:
    deciding = asyncio.create_task(_decide(site, load))
    await asyncio.sleep(0.2)
    gc.collect()
    gc.freeze()
    gc.collect()  # the daemon freezes without one: after it, the next would wait for a quarter of what it left
    try:
        with _turns() as turns, short_collections():
            began = time.perf_counter()
            await happens()
            seconds = time.perf_counter() - began
    finally:
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
    if not deciding.cancelled() and (error := deciding.exception()) is not None:
        raise error
    histogram = [0] * (len(BOUNDS_MS) + 1)
    for wall in turns.wall:
        histogram[sum(1e3 * wall > bound for bound in BOUNDS_MS)] += 1
    return Stalls(
        cause,
        text,
        seconds,
        len(turns.wall),
        max(turns.wall) * 1e3,
        max(turns.cpu) * 1e3,
        max(turns.collections, default=0.0) * 1e3,
        tuple(histogram),
        turns.where,
    )


async def _decide(site: Site, load: Load) -> None:
    """Decide pods in batches as the daemon does, and give each its place back."""
    profile, cluster = load.profile(), site.scheduler.cluster
    while True:
        end = time.perf_counter() + BATCH_SECONDS
        pods = iter(site.infos(load.make_pod, 8))
        while time.perf_counter() < end and (pod := next(pods, None)) is not None:
            frame = Frame(pod, cluster, NOW)
            decided = in_turn(site.deciding(frame, profile), most=WORK_IN_A_TURN)
            while isinstance(decided, Unfinished):
                await asyncio.sleep(0)
                decided = in_turn(site.deciding(frame, profile), most=WORK_IN_A_TURN)
            decision, victims = decided
            cluster.displace(pod.uid)
            for victim in victims:
                cluster.place(victim, decision.host or "")
        await asyncio.sleep(0)


async def _nothing() -> None:
    await asyncio.sleep(_QUIET_SECONDS)


async def _heartbeats(site: Site) -> None:
    churn, decoder = Churn(site), ObjectDecoder(objects.Node)
    handler = site.scheduler.event_handlers.handler(objects.Node)
    for _ in range(site.nodes // _WATCH_LINES):
        events = decoder.events(b"".join(churn.heartbeats(_WATCH_LINES)))
        handler.changed([Updated(event.object) for event in events if isinstance(event, WatchEvent)])
        await asyncio.sleep(0)


async def _use(scheduler: Scheduler, policies: Policies) -> None:
    """Let policies be those in force; freed memory goes back in a thread, as in the daemon."""
    scheduler.use_policies(policies)
    await asyncio.to_thread(return_freed_memory)


async def _scrape(site: Site) -> None:
    scheduler = site.scheduler
    policies = policies_of(FOUR_LINES)
    await _use(scheduler, policies)
    read: asyncio.Queue[int] = asyncio.Queue()

    def publish(found: Signals) -> None:
        scheduler.use_signals(found)
        read.put_nowait(len(found.readings))

    queries = [Query(query.promql, every_seconds=1.0) for query in policies.queries]
    ready = ReadyReadings(publish=publish, joining=scheduler.algorithm.joining, loops=Loops())
    ready.use(queries)
    endpoint = PrometheusEndpoint(f"{site.url}/prometheus", timeout_seconds=30.0)
    async with ready, SignalSource(endpoint, publish=ready.take) as source:
        source.set_queries(queries)
        times = 0
        while times < 2:
            times += await read.get() > 0


async def _nodes_added(site: Site, readings: Signals) -> None:
    policies = policies_of(FOUR_LINES)
    profile, cluster = policies.policy_set.policies[0].profile, site.scheduler.cluster
    churn, decoder = Churn(site), ObjectDecoder(objects.Node)
    load = LOADS[0]
    for _ in chain(policies.preparing(cluster), site.scheduler.algorithm.joining(policies.queries, readings)):
        await asyncio.sleep(0)  # as the daemon does before new policies are in use
    for _ in range(2 * _ADDED):
        for event in decoder.events(churn.replacement()):
            assert isinstance(event, WatchEvent)
            handlers = site.scheduler.event_handlers
            (handlers.node_deleted if event.type == "DELETED" else handlers.node_changed)(event.object)
        frame = Frame(site.infos(load.make_pod, 1)[0], cluster, NOW, signals=readings)
        site.decide(frame, profile)
        cluster.displace(frame.pod.uid)
        await asyncio.sleep(0.01)


async def _close_looks(site: Site) -> None:
    load, cluster = LOADS[0], site.scheduler.cluster
    profile = load.profile()
    for _ in range(_LOOKS):
        frame = Frame(site.infos(load.make_pod, 1)[0], cluster, NOW)
        decision, _ = site.decide(frame, profile)
        look(frame, profile, host=decision.host)
        cluster.displace(frame.pod.uid)
        await asyncio.sleep(0.01)


async def _page(site: Site) -> None:
    scheduler = site.scheduler
    await waiting.show_status_page(site)
    dump = dump_in_steps(
        scheduler.cluster, scheduler.queue, assumed={}, now=NOW, leading=True, recount=site.pods <= _MOST_RECOUNTED
    )
    await SpareTime().run(dump)


async def _relist(site: Site) -> None:
    lists = [reflector.counts.lists for reflector in site.reflectors]
    for kind in ("nodes", "pods"):
        await site.transport.request("POST", f"/renew/{kind}")
    while any(each.counts.lists == before for each, before in zip(site.reflectors, lists, strict=True)):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _reload(site: Site) -> None:
    worker = WorkerProcess(MODULE)
    compiler = PolicyCompiler(frozenset({"policy-scheduler"}), checker=PolicyChecker(worker))
    try:
        for generation in range(2):
            accepted = await asyncio.to_thread(compiler, _sources(generation))
            assert isinstance(accepted, Accepted), accepted
            await _use(site.scheduler, accepted.policies)
    finally:
        worker.kill()


async def _new_rules(site: Site) -> None:
    cluster, default = site.scheduler.cluster, LOADS[0].profile()
    near = {"labelSelector": {"matchLabels": {"app": "app-1"}}, "topologyKey": "kubernetes.io/hostname"}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": near}]}
    specs: tuple[dict[str, Any], ...] = (
        {"topologySpreadConstraints": [_SPREAD]},
        {"affinity": {"podAntiAffinity": preferred}},
        {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
    )
    policies = policies_of(next(load for load in LOADS if load.name == "sums").policy)
    await in_turns(site.scheduler.preparing(policies))
    sums = policies.policy_set.policies[0].profile
    for number, (profile, spec) in enumerate((*((default, spec) for spec in specs), (sums, {}))):
        made = pod(f"rules-{number}", labels={"app": "app-1"}, **spec)
        info = pod_info(cluster, made)
        while not cluster.nodes.make_labels(info.template.labels_read):  # noqa: ASYNC110 - as the daemon does
            await asyncio.sleep(0)
        site.cycle.decide(Frame(info, cluster, NOW), profile)
        await asyncio.sleep(0.05)


async def _new_resource(site: Site) -> None:
    handlers, nodes = site.scheduler.event_handlers, site.scheduler.cluster.nodes
    for node in (nodes.infos[0].node, nodes.infos[-1].node):
        offered = msgspec.structs.replace(node.status, allocatable={**(node.status.allocatable or {}), _RESOURCE: "8"})
        for status in (offered, node.status):
            handlers.node_changed(msgspec.structs.replace(node, status=status))
            await asyncio.sleep(0.05)


async def _pods_end(site: Site) -> None:
    cluster, handlers = site.scheduler.cluster, site.scheduler.event_handlers
    ended = [(info, info.node_name) for info in list(cluster.pods.values())[:_ENDED] if info.node_name]
    for start in range(0, len(ended), LIST_OBJECTS):
        for info, _ in ended[start : start + LIST_OBJECTS]:
            handlers.pod_deleted(objects.Pod(metadata=objects.ObjectMeta(name=info.name, uid=info.uid)))
        await asyncio.sleep(0)
    for info, node_name in ended:
        cluster.place(info, node_name)


def _preempting_and_spread(number: int) -> Json:
    made = next(load for load in LOADS if load.preempts).make_pod(number)
    made["spec"]["topologySpreadConstraints"] = [_SPREAD]
    return made


def _sources(generation: int) -> PolicySources:
    return PolicySources.of(
        {
            f"policy-{number}.policy": f'# {generation}\nfor pods where pod.namespace == "team-{number}"\n'
            f"{policy_text(_CLAUSES)}"
            for number in range(_POLICIES)
        }
    )
