"""What the scheduler exports in each mode, read as Prometheus reads it."""

from __future__ import annotations

import pytest

from tests.exposition import unique_series
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

LONG = "sum by (node) (" + "node_load1 + " * 12
RULES = f"""\
queue all
queue team of all by pod.label.team max cpu 5
order by queue.share
rebalance
metric one = promql("{LONG} 1)")
metric two = promql("{LONG} 2)")
metric three = promql("up  + 1")
metric four = promql("up + 1")
filter fits(cpu)
filter node.label.disk != "tape"
filter node.label.disk != "tape"
score one + two + three + four ?? 0
gang by pod.label.job size 2 within one kubernetes.io/hostname if pod.label.job
"""
MODES = {
    "scheduler": (),
    "elected": ("--leader-election",),
    "shared": ("--sharding",),
    "shadow": ("--shadow",),
    "extender": ("--mode=extender",),
}


@pytest.mark.parametrize("mode", MODES)
def test_no_series_is_there_twice(
    mode: str, cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume
) -> None:
    policies.update({"web.policy": RULES, "next.policy": "canary of web for 50%\nfilter fits(cpu)\n"})
    cluster.add_nodes(node("n1", cpu="2"))
    cluster.add_pods(*(pod(f"p{at}", cpu="1", labels={"team": f"t{at}"}) for at in range(4)))
    process = scheduler(*MODES[mode]).start_ready()
    eventually(lambda: "policy_scheduler_signal_degraded{" in process.get("/metrics")[1], else_=process.log)
    if mode in ("scheduler", "elected", "shared"):
        eventually(lambda: sum(map(bool, cluster.placements().values())) == 2, else_=process.log)
    series = unique_series(process.get("/metrics")[1])
    assert len([labels for name, labels in series if name == "policy_scheduler_signal_degraded"]) == 4
