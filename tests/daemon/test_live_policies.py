"""A ConfigMap is edited, new metrics get their first values, and only then the new policies decide."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

import msgspec
import pytest

from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.prometheus.queries import PrometheusEndpoint
from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource
from kube_policy_scheduler.builtins.metrics import column_of
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.policies.reload import Accepted, PolicyReloader, Refused, ReloadRecord
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from tests.benchmarks.manifests import node, pod, pod_info
from tests.benchmarks.policies import signals
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.prometheus_server import PrometheusServer
from tests.fakes.scheduler_context import context_of
from tests.patience import PATIENCE_SECONDS
from tests.simulation.chaos import policies_of


@dataclass(frozen=True)
class Policies:
    """Stands for a compiled set: one query, or none, per line of its files."""

    queries: tuple[Query, ...]


def compile_lines(sources: PolicySources) -> Accepted[Policies] | Refused:
    texts = [line for _, text in sources.files for line in text.splitlines()]
    if "broken" in texts:
        return Refused(("a.policy:1:1: error[P0001]: broken",))
    return Accepted(Policies(tuple(Query(text) for text in texts)))


class Daemon:
    """Directory, reloader and signals put together as the daemon does it."""

    def __init__(self, path: Path, url: str) -> None:
        self.activated: list[tuple[Policies, Signals]] = []
        self.records: list[ReloadRecord] = []
        self.metrics = SchedulerMetrics(version=lambda: "test")
        self._more = asyncio.Event()
        self.source = SignalSource(PrometheusEndpoint(url), publish=lambda _: None)
        self.reloader: PolicyReloader[Policies] = PolicyReloader(
            compile_policies=compile_lines,
            prepare=lambda policies: self.source.prime(policies.queries, timeout_seconds=3.0),
            activate=self._activate,
            report=self._report,
            clock=time.time,
        )
        self.directory = PolicyDirectory(path, deliver=self.reloader.offer, poll_seconds=3600)

    def _activate(self, policies: Policies, _: ReloadRecord) -> None:
        self.activated.append((policies, self.source.signals))
        self.source.set_queries(policies.queries)

    def _report(self, record: ReloadRecord) -> None:
        self.records.append(record)
        self.metrics.on_reloaded(record)
        self._more.set()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not wanted():
                self._more.clear()
                await self._more.wait()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    server = PrometheusServer(tmp_path_factory.mktemp("prometheus"))
    server.backfill({"cpu_usage": [({"node": "a"}, 10.0)], "disk_usage": [({"node": "a"}, 20.0)]})
    with server:
        yield server


@pytest.mark.long
async def test_new_policies_decide_only_with_first_values_and_broken_ones_never(
    tmp_path: Path, prometheus: PrometheusServer
) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "cpu_usage"})
    daemon = Daemon(tmp_path, prometheus.url)
    async with daemon.source, daemon.reloader, daemon.directory:
        await daemon.until(lambda: len(daemon.activated) == 1)
        volume.update({"a.policy": "cpu_usage", "b.policy": "broken"})
        await daemon.until(lambda: len(daemon.records) == 2)
        volume.update({"a.policy": "cpu_usage", "b.policy": "disk_usage"})
        await daemon.until(lambda: len(daemon.activated) == 2)
    (_, before), (_, after) = daemon.activated
    assert before.readings["cpu_usage"].series[0].value == 10.0
    assert after.readings["disk_usage"].series[0].value == 20.0
    assert after.readings["cpu_usage"] is before.readings["cpu_usage"], "unchanged queries keep their readings"
    assert [record.successful for record in daemon.records] == [True, False, True]
    assert (
        daemon.metrics.registry.get_sample_value("policy_scheduler_policy_last_reload_successful", {"owner": ""}) == 1
    )


@pytest.mark.long
async def test_an_edit_decides_well_within_a_second(tmp_path: Path, prometheus: PrometheusServer) -> None:
    volume = ConfigMapVolume(tmp_path)
    volume.update({"a.policy": "cpu_usage + 0"})
    daemon = Daemon(tmp_path, prometheus.url)
    waits = []
    async with daemon.source, daemon.reloader, daemon.directory:
        await daemon.until(lambda: len(daemon.activated) == 1)
        for number in range(1, 11):
            volume.update({"a.policy": f"cpu_usage + {number}"})
            swapped = time.monotonic()
            await daemon.until(lambda count=number + 1: len(daemon.activated) == count)  # type: ignore[misc]
            waits.append(time.monotonic() - swapped)
    print(f"from the swap to the activation: {1000 * statistics.median(waits):.0f} ms (median)")
    assert statistics.median(waits) < 1.0, "51 ms of these are the debounce; 65 ms in all when this was written"


def test_new_policies_leave_nothing_of_the_old_ones_behind() -> None:
    """Results that were kept for pods under a policy go with it; those of policies that did not change stay."""

    async def told() -> None:
        hands: Any = None
        scheduler = Scheduler(context_of(hands, observer=Observer()))
        first, second = (policies_of(f"filter node.ready\nscore {score}\n") for score in ("1", "2"))
        for number in range(3):
            scheduler.event_handlers.node_changed(msgspec.convert(node(f"n{number}"), objects.Node))
        scheduler.use_policies(first)
        found = pod_info(scheduler.cluster, pod("web", schedulerName="policy-scheduler"))
        algorithm = scheduler.algorithm
        profile = algorithm.profile(found)
        assert profile is not None
        algorithm.cycle.decide(Frame(found, scheduler.cluster, 0.0), profile)
        too_large = pod_info(scheduler.cluster, pod("large", schedulerName="policy-scheduler", cpu="1000"))
        diagnosis = algorithm.decide(QueuedPod(too_large, 0.0, 0.0)).diagnosis
        assert diagnosis is not None
        refused = ref(diagnosis.first)
        del diagnosis
        kept = algorithm.cycle.kept.taken

        scheduler.use_policies(first)
        assert 0 < algorithm.cycle.kept.taken < kept, "without the decision"
        scheduler.use_policies(second)
        assert algorithm.cycle.kept.taken == 0
        assert refused() is None

    asyncio.run(told())


def test_metrics_that_no_policy_reads_any_more_are_not_kept() -> None:
    async def told() -> None:
        hands: Any = None
        scheduler = Scheduler(context_of(hands, observer=Observer()))
        asked, other = (policies_of(f'score promql("{name}") ?? 0\n') for name in ("cpu_usage", "load"))
        scheduler.event_handlers.node_changed(msgspec.convert(node("n0"), objects.Node))
        scheduler.use_policies(asked)
        values = ref(column_of(asked.queries[0], scheduler.cluster.nodes, signals=signals(1, now=0.0), now=0.0))

        scheduler.use_policies(asked)
        assert values() is not None
        scheduler.use_policies(other)
        assert values() is None

    asyncio.run(told())
