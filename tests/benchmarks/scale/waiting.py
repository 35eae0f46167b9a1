"""Causes of stalls with very many pods that wait, arrive or are refused together, and objects that concern many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Updated
from kube_policy_scheduler.adapters.kube.reflector import LIST_OBJECTS
from kube_policy_scheduler.adapters.process.spare_time import SpareTime, in_turns
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import PendingCensus
from kube_policy_scheduler.daemon.serving.status_page import rendered
from kube_policy_scheduler.daemon.serving.status_snapshot import PolicyStatus, Replica, SnapshotSources, take_snapshot
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from tests.benchmarks.decisions import NOW
from tests.benchmarks.manifests import Json, node, pod
from tests.benchmarks.queues import with_queues
from tests.benchmarks.scale import recorded
from tests.benchmarks.scale.site import KUBERNETES_RULES, Site
from tests.simulation.chaos import policies_of

PODS = 10_000
"""That wait, or come."""
MEMBERS = 1_000
"""Of a gang."""
QUEUES = 100
LABELS = 100
NODES_CHANGED = 200
BUDGETS = 50
_PATIENCE_SECONDS = 15.0
"""For pods to be decided."""
_MADE = count()
"""No two pods have one name."""
_GANG = "gang by pod.label.job size number(pod.label.size) within {within}s if pod.label.job\n" + KUBERNETES_RULES
_WHOLE_NODE = f"{1000 * recorded.CPUS - 250}m"


@asynccontextmanager
async def _scheduling(site: Site, policy: str) -> AsyncIterator[None]:
    """Let the scheduler's own loop run with a policy, and go back to Kubernetes' rules."""
    await _use(site, policy)
    running = asyncio.create_task(site.scheduler.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await site.scheduler.drained()
        await _use(site, KUBERNETES_RULES)


async def _use(site: Site, policy: str) -> None:
    """Let policies be those in force, as the daemon does: compiled elsewhere, and prepared in steps."""
    policies = await asyncio.to_thread(policies_of, policy)
    await in_turns(site.scheduler.preparing(policies))
    site.scheduler.use_policies(policies)


@asynccontextmanager
async def _pods(
    site: Site,
    number: int,
    *,
    labels: Callable[[int], dict[str, str]] = lambda _: {},
    differ: Callable[[int], dict[str, Any]] = lambda _: {},
    **spec: Any,
) -> AsyncIterator[None]:
    """Let pods come in slices, as a watch shows them, and let them end after; differ: what else each has."""
    made: list[objects.Pod] = []
    handler = site.scheduler.event_handlers.handler(objects.Pod)

    def one(each: int) -> objects.Pod:
        manifest = pod(
            f"waits-{next(_MADE)}", labels=labels(each), schedulerName="policy-scheduler", **spec, **differ(each)
        )
        manifest["metadata"]["resourceVersion"] = "1"
        return msgspec.convert(manifest, objects.Pod)

    for some in _slices(range(number)):
        part = [one(each) for each in some]
        handler.changed([Updated(each) for each in part])
        made += part
        await asyncio.sleep(0)
    try:
        yield
    finally:
        for some in _slices(made):
            for each in some:
                site.scheduler.event_handlers.pod_deleted(each)
            await asyncio.sleep(0)


def _slices(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (things[start : start + LIST_OBJECTS] for start in range(0, len(things), LIST_OBJECTS))


async def _until(holds: Callable[[], bool], *, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)


async def _settled(site: Site) -> None:
    """Wait until no pod is to be decided, or for some seconds."""
    queue = site.scheduler.queue
    await _until(lambda: not queue.has_active() and not queue.counts()[Place.IN_FLIGHT], seconds=_PATIENCE_SECONDS)


async def pods_arrive(site: Site) -> None:
    """A watch shows very many pods at once, and they are bound."""
    bound = site.hands.bound_pods
    queue = site.scheduler.queue
    async with _scheduling(site, KUBERNETES_RULES):
        await site.transport.request("POST", f"/create/pods?count={PODS}")
        await _until(lambda: site.hands.bound_pods - bound >= PODS)
        await _until(lambda: not len(queue))
    known = list(islice(reversed(site.scheduler.cluster.pods.values()), PODS))
    for some in _slices(known):
        for info in some:
            gone = objects.Pod(metadata=objects.ObjectMeta(name=info.name, uid=info.uid))
            site.scheduler.event_handlers.pod_deleted(gone)
        await asyncio.sleep(0)


def _job(name: str, *, size: int = MEMBERS) -> Callable[[int], dict[str, str]]:
    return lambda _: {"job": name, "size": str(size)}


async def gang_refused(site: Site) -> None:
    """A gang fits nowhere."""
    async with _scheduling(site, _GANG.format(within=600)), _pods(site, MEMBERS, labels=_job("none"), cpu=_WHOLE_NODE):
        await _settled(site)
        await asyncio.sleep(1.0)


async def gang_evicts(site: Site) -> None:
    """All members of a gang would have to evict others, and one has no place."""
    most = site.nodes + 1 if site.nodes < MEMBERS else MEMBERS
    selects: Json = {"nodeSelector": {"disk": "ssd"}}
    async with (
        _scheduling(site, _GANG.format(within=600)),
        _pods(site, most, labels=_job("evicts"), cpu=_WHOLE_NODE, priority=1000, **selects),
    ):
        await _settled(site)
        await asyncio.sleep(1.0)


async def gang_starts(site: Site) -> None:
    """All members of a gang fit, and are bound."""
    bound = site.hands.bound_pods
    async with _scheduling(site, _GANG.format(within=600)), _pods(site, MEMBERS, labels=_job("starts"), cpu="100m"):
        await _until(lambda: site.hands.bound_pods - bound >= MEMBERS)


async def gang_differs(site: Site) -> None:
    """The members of a gang all differ, and one fits nowhere."""
    async with (
        _scheduling(site, _GANG.format(within=600)),
        _pods(site, MEMBERS - 1, labels=_job("differs"), differ=lambda number: {"cpu": f"{100 + number}m"}),
        _pods(site, 1, labels=_job("differs"), cpu="100m", nodeSelector={"nobody": "has it"}, priority=-1),
    ):
        await _settled(site)
        await asyncio.sleep(5.0)


def _quotas() -> str:
    return with_queues(QUEUES).replace("reclaim after 30s\n", "").replace("max cpu 40000", "max cpu 4000000")


async def queues(site: Site) -> None:
    """Policies with queues and quotas are replaced while pods wait."""
    of = lambda number: {"q": f"q{number % QUEUES}", "department": f"d{number % 10}"}  # noqa: E731
    text = _quotas()
    async with _scheduling(site, text), _pods(site, PODS, labels=of, cpu=_WHOLE_NODE):
        await _settled(site)
        for number in range(2):
            await _use(site, text.replace("max cpu 4000000", f"max cpu {3000000 + number}"))
            await _settled(site)


async def wake(site: Site) -> None:
    """A pod ends while very many wait for room."""
    handlers, cluster = site.scheduler.event_handlers, site.scheduler.cluster
    async with _scheduling(site, KUBERNETES_RULES), _pods(site, PODS, cpu=_WHOLE_NODE):
        await _settled(site)
        info = next(iter(cluster.pods.values()))
        node_name = info.node_name
        handlers.pod_deleted(objects.Pod(metadata=objects.ObjectMeta(name=info.name, uid=info.uid)))
        await asyncio.sleep(0.2)
        await _settled(site)
        if node_name:
            cluster.place(info, node_name)


async def other_objects(site: Site) -> None:
    """A namespace, a PriorityClass, a PodDisruptionBudget and a volume claim change while pods wait for such."""
    everywhere = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    term: Json = everywhere | {"namespaceSelector": {"matchLabels": {"team": "none"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    handlers = site.scheduler.event_handlers
    async with _scheduling(site, KUBERNETES_RULES), _pods(site, PODS, affinity=affinity):
        await _settled(site)
        for kind, made in (
            (objects.Namespace, {"metadata": {"name": "team-1", "labels": {"team": "1"}}}),
            (objects.PodDisruptionBudget, _budget(0, allowed=1)),
            (
                objects.PersistentVolumeClaim,
                {"metadata": {"name": "data", "namespace": "default"}, "spec": {}, "status": {"phase": "Pending"}},
            ),
        ):
            thing = msgspec.convert(made, kind)
            for change in (handlers.object_changed, handlers.object_deleted):
                change(thing)
                await asyncio.sleep(0.05)
                await _settled(site)


def _budget(number: int, *, allowed: int) -> Json:
    return {
        "metadata": {"name": f"budget-{number}", "namespace": f"team-{number % 10}"},
        "spec": {"selector": {"matchLabels": {"app": f"app-{number}"}}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


async def budgets(site: Site) -> None:
    """The status of a PodDisruptionBudget of each workload changes again and again."""
    handlers = site.scheduler.event_handlers
    for allowed in range(1, 4):
        for number in range(BUDGETS):
            handlers.object_changed(msgspec.convert(_budget(number, allowed=allowed), objects.PodDisruptionBudget))
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
    for number in range(BUDGETS):
        handlers.object_deleted(msgspec.convert(_budget(number, allowed=1), objects.PodDisruptionBudget))


async def names(site: Site) -> None:
    """Very many nodes are added and removed, while pods search for victims."""
    handlers = site.scheduler.event_handlers
    made = [msgspec.convert(node(f"new-{number}", zone="moon-1"), objects.Node) for number in range(NODES_CHANGED)]
    for change in (handlers.node_changed, handlers.node_deleted):
        for some in _slices(made):
            for each in some:
                change(each)
            await asyncio.sleep(0)
        await asyncio.sleep(1.0)


async def new_labels(site: Site) -> None:
    """A node with labels that nobody else has is added and removed; pods ask for them."""
    handlers = site.scheduler.event_handlers
    labels = {f"example.com/key-{number}": "yes" for number in range(LABELS)}
    made = msgspec.convert(node("labelled", zone="moon-1", labels=labels), objects.Node)
    async with _scheduling(site, KUBERNETES_RULES):
        for change in (handlers.node_changed, handlers.node_deleted):
            change(made)
            await asyncio.sleep(0.05)
            for number in range(5):
                async with _pods(site, 1, nodeSelector={f"example.com/key-{number}": "yes"}):
                    await _settled(site)


async def show_status_page(site: Site) -> None:
    """Render the status page as it is now."""
    scheduler = site.scheduler
    counts = ClauseCounts()
    log = DecisionLog(DecisionLogSettings(), seed=0, replica="", stopwatch=time.perf_counter, counts=counts)
    sources = SnapshotSources(
        cluster=scheduler.cluster,
        queue=scheduler.queue,
        gangs=scheduler.waiting_pods.states,
        assumed=lambda: 0,
        log=log,
        counts=counts,
        policy_status=PolicyStatus(),
        metrics=lambda: (),
        replica=lambda: Replica("", "", NOW, (), True, "", elects=False, reachable=True, server=""),
        clock=lambda: NOW,
    )
    await asyncio.to_thread(rendered, take_snapshot(sources))


async def watched(site: Site) -> None:
    """The status page and the metrics are asked for, and whether all is well, while pods wait."""
    scheduler = site.scheduler
    of = lambda number: {"q": f"q{number % QUEUES}", "department": f"d{number % 10}"}  # noqa: E731
    async with _scheduling(site, _quotas()), _pods(site, PODS, labels=of, cpu=_WHOLE_NODE):
        await _settled(site)
        await show_status_page(site)
        await asyncio.sleep(0.1)
        await SpareTime().run(PendingCensus(scheduler.queue, scheduler.cluster).steps())
        await asyncio.sleep(0.1)
        assert scheduler.cluster.quota_usage is not None
        scheduler.cluster.quota_usage.states()
        await asyncio.sleep(0.1)
