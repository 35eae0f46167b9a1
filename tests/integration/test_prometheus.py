"""A real Prometheus that scrapes a real exporter: hot nodes lose; without it the policy's own fall-back decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.prometheus_server import PrometheusServer
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

pytestmark = pytest.mark.needs("prometheus", "promtool")

# without a fresh measurement a node counts as fully used, and the labelled one is then the best
POLICY = """\
metric cpu = promql("cpu_usage") every 1s stale after 4s
score 100 - cpu ?? 100
score 1 if label preferred=yes
"""


class Exporter:
    """Serves `cpu_usage` per node on loopback."""

    def __init__(self) -> None:
        registry = prometheus_client.CollectorRegistry()
        self._gauge = prometheus_client.Gauge("cpu_usage", "CPU in use, percent.", ["node"], registry=registry)
        self._server, self._thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def set(self, **usage: float) -> None:
        for name, percent in usage.items():
            self._gauge.labels(name).set(percent)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    serving = Exporter()
    yield serving
    serving.close()


def degraded(process: SchedulerProcess) -> bool:
    return process.metrics()["policy_scheduler_degraded"] == 1


def test_hot_nodes_lose_and_a_prometheus_that_is_gone_is_bridged_and_seen(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, exporter: Exporter, tmp_path: Path
) -> None:
    cluster.add_nodes(node("hot"), node("cool"), node("labelled", labels={"preferred": "yes"}))
    exporter.set(hot=90.0, cool=10.0, labelled=60.0)
    folder = tmp_path / "prometheus"
    folder.mkdir()
    policies.update({"cpu.policy": POLICY})
    prometheus = PrometheusServer(folder)
    prometheus.scrape([exporter.address])
    with prometheus:
        process = scheduler(f"--prometheus-url={prometheus.url}").start_ready()
        eventually(lambda: process.metrics().get('policy_scheduler_signal_series{query="cpu_usage"}') == 3)
        eventually(lambda: not degraded(process))
        cluster.add_pods(pod("one"))
        assert cluster.wait_bound("one") == {"one": "cool"}

        exporter.set(hot=5.0, cool=95.0)
        eventually(lambda: binds(cluster) == "hot")

        prometheus.stop()
        eventually(lambda: degraded(process))
        eventually(lambda: binds(cluster) == "labelled")
        assert process.get("/readyz")[0] == 200, "it goes on by the declared fall-back"
        assert any("prometheus" in e["message"].lower() for e in process.log_entries() if e["level"] == "warning")

        exporter.set(hot=99.0, cool=1.0)
        prometheus.start()
        eventually(lambda: not degraded(process))
        eventually(lambda: binds(cluster) == "cool")
    assert "Traceback" not in process.log()


def binds(cluster: Cluster) -> str:
    """Have one more pod bound, and return where."""
    name = f"p{len(cluster.placements())}"
    cluster.add_pods(pod(name, cpu="1m", memory="1Mi"))
    return cluster.wait_bound(name)[name]


def test_an_absent_prometheus_delays_nothing(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    cluster.add_nodes(node("hot"), node("labelled", labels={"preferred": "yes"}))
    policies.update({"cpu.policy": POLICY})
    cluster.add_pods(pod("one"))
    process = scheduler("--prometheus-url=http://127.0.0.1:1").start_ready()
    assert cluster.wait_bound("one") == {"one": "labelled"}
    eventually(lambda: degraded(process))
    warnings = [entry for entry in process.log_entries() if entry["level"] == "warning"]
    assert len([entry for entry in warnings if "127.0.0.1:1" in entry["message"]]) == 1, "one line, not one a second"


def test_without_a_configured_prometheus_values_are_missing_and_it_is_reported(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    cluster.add_nodes(node("plain"), node("labelled", labels={"preferred": "yes"}))
    policies.update({"cpu.policy": POLICY})
    process = scheduler().start_ready()
    cluster.add_pods(pod("one"))
    assert cluster.wait_bound("one") == {"one": "labelled"}
    assert degraded(process)
    assert any("prometheus" in entry["message"].lower() for entry in process.log_entries() if entry["level"] != "info")
