"""What the scheduler exports in each mode, read as Prometheus reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY
from tests.exposition import unique_series
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

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
CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
policies: {owners: [{name: shop, schedulingPolicies: shop, namespaces: [shop]}]}
"""
MODES = {
    "scheduler": (),
    "elected": ("--leader-election",),
    "shared": ("--sharding",),
    "shadow": ("--shadow",),
    "extender": ("--mode=extender",),
}


def undocumented(process: SchedulerProcess, loops: set[str]) -> list[str]:
    """Return the loops and the checks of readiness that OBSERVABILITY.md does not name."""
    text = (DEPLOY / "OBSERVABILITY.md").read_text(encoding="utf-8").partition("## Loops")[2]
    known = set(re.findall(r"`([a-z-]+)`", text))
    checks = set(re.findall(r"^\[.\](\S+)", process.get("/readyz?verbose")[1], re.MULTILINE))
    owners = {loop for loop in loops if loop.removesuffix("-shop") in known and loop.startswith("policy-")}
    return sorted(checks - known) + sorted(loop for loop in loops - owners - known if not loop.startswith("watch-"))


@pytest.mark.parametrize("mode", MODES)
def test_no_series_is_there_twice(
    mode: str, cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    policies.update({"web.policy": RULES, "next.policy": "canary of web for 50%\nfilter fits(cpu)\n"})
    cluster.add_nodes(node("n1", cpu="2"))
    cluster.add_pods(*(pod(f"p{at}", cpu="1", labels={"team": f"t{at}"}) for at in range(4)))
    (tmp_path / "config.yaml").write_text(CONFIG)
    process = scheduler(*MODES[mode], f"--config={tmp_path / 'config.yaml'}").start_ready()
    eventually(lambda: "policy_scheduler_signal_degraded{" in process.get("/metrics")[1], else_=process.log)
    if mode in ("scheduler", "elected", "shared"):
        eventually(lambda: sum(map(bool, cluster.placements().values())) == 2, else_=process.log)
    series = unique_series(process.get("/metrics")[1])
    assert undocumented(process, {dict(labels)["loop"] for name, labels in series if name.endswith("_loop_up")}) == []
    assert len([labels for name, labels in series if name == "policy_scheduler_signal_degraded"]) == 4
