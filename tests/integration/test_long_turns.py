"""A decision that takes seconds, in a running scheduler: the log says so while it lasts, and the pod waits last."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

DAEMON = ("-m", "kube_policy_scheduler.daemon")
PACKAGE = '''\
import time

import numpy as np

from kube_policy_scheduler.lang.signature import Number, builtin


@builtin()
def endless(x: Number) -> Number:
    """Take seconds, and some CPU."""
    end, most = time.thread_time() + 0.3, time.monotonic() + 1.7
    while time.thread_time() < end or time.monotonic() < most:
        pass
    return np.zeros(len(x))
'''


def test_a_decision_that_takes_seconds_is_said_and_its_pod_waits_behind_all(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    site, folder = tmp_path / "site", tmp_path / "rules"
    described = site / "slow-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[kube_policy_scheduler.builtins]\nslow = slow_builtins\n")
    (site / "slow_builtins.py").write_text(PACKAGE)
    folder.mkdir()
    (folder / "default.policy").write_text("score node.free.cpu\n")
    # what is used differs at each attempt, or the answer of the first one would do
    (folder / "slow.policy").write_text(
        "for pods where pod label slow\npriority 1\nfilter endless(node.used_fraction.cpu) > 1\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies: {extensions: [slow]}\n"
    )
    cluster.add_nodes(node("n1"))
    path = os.pathsep.join((str(site), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)
    arguments = (f"--config={config}", f"--policies={folder}", "--log-format=json")
    process = scheduler(*arguments, environment={"PYTHONPATH": path}, command=DAEMON).start_ready()
    cluster.add_pods(pod("evil", labels={"slow": "yes"}))

    def said(text: str) -> list[dict[str, object]]:
        return [entry for entry in process.log_entries() if text in str(entry.get("message", ""))]

    eventually(lambda: said("the event loop hangs"), else_=process.log)
    first = said("the event loop hangs")[0]
    assert (first["step"], first["pod"]) == ("deciding", "default/evil")
    assert str(first["where"]).startswith("endless (slow_builtins.py:")
    for number in range(1, 10):
        cluster.add_pods(pod(f"p{number}"))
        cluster.wait_bound(f"p{number}")  # each takes room, so the slow one is tried again
        cluster.add_nodes(node(f"more-{number}"))
        if said("pod waits behind all others"):
            break
    eventually(lambda: said("pod waits behind all others"), else_=process.log)
