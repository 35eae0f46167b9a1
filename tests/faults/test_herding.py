"""Fifty pods in five seconds, between two scrapes: they do not all go to the node that was coolest at the last one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.prometheus_server import PrometheusServer
from tests.integration.api import Api
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

pytestmark = pytest.mark.needs("prometheus", "promtool")

IDLE = {"cool": 10.0, "mild": 14.0, "warm": 18.0, "hot": 22.0}
PER_POD = 2.0
"""Percent of a node's processor that one pod comes to use."""
LAG_SECONDS = 60.0
"""Until it does: longer than the test, as an average over minutes is."""
PODS, SECONDS = 50, 5.0
FAIR = {"cool": 15, "mild": 13, "warm": 12, "hot": 10}
"""How many pods each node gets where all come out equally used: (what 50 pods use + what is used)/4 - its own."""

QUERY = "last_over_time(cpu_usage[1m])"
"""A scrape that a busy machine misses takes nothing away."""
METRIC = f'metric cpu = promql("{QUERY}") every 1s stale after 2min\n'
POLICIES = {
    "as measured": METRIC + "score 100 - cpu ?? 0\n",
    "predicted": METRIC + f"score 100 - predicted(cpu, {PER_POD:g}, lag={LAG_SECONDS:g}s) ?? 0\n",
}


class Usage(Collector):
    """What nodes use: it follows the pods that run there, late."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = Api(cluster.endpoint)
        self._seen: dict[str, float] = {}
        self.scrapes = 0

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic()
        usage = dict(IDLE)
        for each in self._api.list("pods"):
            at = each["spec"].get("nodeName")
            if at and now - self._seen.setdefault(each["metadata"]["name"], now) > LAG_SECONDS:
                usage[at] += PER_POD
        family = GaugeMetricFamily("cpu_usage", "CPU in use, percent.", labels=["node"])
        for name, percent in usage.items():
            family.add_metric([name], percent)
        self.scrapes += 1
        yield family

    def close(self) -> None:
        self._api.close()


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[PrometheusServer]:
    registry = prometheus_client.CollectorRegistry()
    usage = Usage(cluster)
    registry.register(usage)
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)
    folder = tmp_path / "prometheus"
    folder.mkdir()
    serving = PrometheusServer(folder)
    serving.scrape([f"127.0.0.1:{server.server_port}"], interval_seconds=2.0)
    with serving:
        yield serving
    server.shutdown()
    server.server_close()
    thread.join()
    usage.close()


def test_a_burst_is_spread_by_what_it_will_use_and_herds_without_that(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, prometheus: PrometheusServer
) -> None:
    cluster.add_nodes(*(node(name, cpu="64") for name in IDLE))
    policies.update({"default.policy": POLICIES["predicted"]})
    process = scheduler(f"--prometheus-url={prometheus.url}").start_ready()
    series = f'policy_scheduler_signal_series{{query="{QUERY}"}}'
    eventually(lambda: process.metrics().get(series) == 4)

    placed = burst(cluster, "a")
    assert all(abs(placed[name] - fair) <= 3 for name, fair in FAIR.items()), placed

    for name in cluster.placements():
        cluster.delete_pod(name)
    policies.update({"default.policy": POLICIES["as measured"]})
    eventually(lambda: "predicted" not in str(process.policies()), else_=process.policies)
    placed = burst(cluster, "b", seconds=1.0)
    assert placed["cool"] >= PODS * 0.9, "without prediction they herd, or this test shows nothing"


def burst(cluster: Cluster, name: str, *, seconds: float = SECONDS) -> Counter[str]:
    """Create the pods evenly over the time, and return how many each node got."""
    names = [f"{name}{number}" for number in range(PODS)]
    began = time.monotonic()
    for number, each in enumerate(names):
        time.sleep(max(0.0, began + number * seconds / PODS - time.monotonic()))
        cluster.add_pods(pod(each, cpu="10m", memory="1Mi"))
    return Counter(cluster.wait_bound(*names).values())
