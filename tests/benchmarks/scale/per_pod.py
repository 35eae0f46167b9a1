"""What the daemon spends on one pod at full size, by part: from the event that shows it until the one of its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from kube_policy_scheduler.adapters.kube.binding import Binder
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, WatchEvent
from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.cluster import objects
from tests.benchmarks.decisions import quiet
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale import recorded
from tests.benchmarks.scale.site import KUBERNETES_RULES, Site
from tests.simulation.chaos import policies_of

UPDATES = 4
"""Events of a pod between its binding and its end: bound, and what the kubelet reports."""
_AT_ONCE = 100


@dataclass(frozen=True)
class Part:
    """One part of the work on a pod."""

    name: str
    cpu_us: float
    """CPU time of the process for each pod."""
    relative: float
    """The same in turns of the reference loop."""


async def measure_pods(site: Site, reference: Reference, *, pods: int = 500) -> list[Part]:
    """Let pods come, decide and bind them, report them, and let them end; return the cost of each part."""
    scheduler, handlers = site.scheduler, site.scheduler.event_handlers
    scheduler.use_policies(policies_of(KUBERNETES_RULES))
    decoder = ObjectDecoder(objects.Pod)
    turn = reference.seconds()
    spent: dict[str, float] = {}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        spent[name] = spent.get(name, 0.0) + time.process_time() - began

    def take(lines: Sequence[bytes], handle: Callable[[objects.Pod], None]) -> list[objects.Pod]:
        found = []
        for start in range(0, len(lines), _AT_ONCE):
            for event in decoder.events(b"".join(lines[start : start + _AT_ONCE])):
                assert isinstance(event, WatchEvent)
                handle(event.object)
                found.append(event.object)
        return found

    numbers = range(10 * site.pods, 10 * site.pods + pods)
    with quiet():
        with part("the event of a new pod: decode, queue"):
            come = take([recorded.line("ADDED", recorded.pod(number)) for number in numbers], handlers.pod_changed)
        bound_before = site.hands.bound_pods
        with part("decide, assume, and the binding task"):
            running = asyncio.create_task(scheduler.run())
            while site.hands.bound_pods - bound_before < pods:
                assert not running.done(), running.exception()
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await scheduler.drained()
        hosts = [scheduler.cluster.node_of(pod.metadata.uid) or "" for pod in come]
        binder = Binder(site.transport, random=Random(0))
        with part("the request that binds it, without TLS"):
            await asyncio.gather(
                *(
                    binder.bind(
                        namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=host
                    )
                    for pod, host in zip(come, hosts, strict=True)
                )
            )
        recorder = EventRecorder(site.transport, controller="bench", instance="bench", random=Random(0))
        infos = [scheduler.cluster.pods[pod.metadata.uid] for pod in come]
        with part("its event Scheduled, without TLS"):
            sending = asyncio.create_task(recorder.run())
            for info, host in zip(infos, hosts, strict=True):
                recorder.scheduled(info, node=host)
            await recorder.drain(timeout_seconds=60.0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        placed = list(zip(numbers, hosts, strict=True))
        for version in range(2, 2 + UPDATES):
            lines = [recorded.line("MODIFIED", recorded.pod(n, node_name=host, version=version)) for n, host in placed]
            with part(f"{UPDATES} events of the bound pod: decode, confirm"):
                take(lines, handlers.pod_changed)
        with part("the event of its end"):
            take(
                [recorded.line("DELETED", recorded.pod(n, node_name=host, version=9)) for n, host in placed],
                handlers.pod_deleted,
            )
    turn = (turn + reference.seconds()) / 2
    return [Part(name, seconds / pods * 1e6, seconds / pods / turn) for name, seconds in spent.items()]
