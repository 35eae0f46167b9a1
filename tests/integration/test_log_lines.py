"""Log lines that kube-scheduler also writes, with the same words and levels."""

from __future__ import annotations

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

TRIES = "Attempting to schedule pod"
FAILS = "Unable to schedule pod"
BINDS = "Successfully bound pod to node"


def lines(process: SchedulerProcess, message: str, name: str, *, level: str = "info") -> list[dict[str, object]]:
    found = [entry for entry in process.log_entries() if (entry["message"], entry["level"]) == (message, level)]
    return [entry for entry in found if entry["pod"] == f"default/{name}"]


def test_each_attempt_and_its_end_have_their_lines(cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler("--log-level=debug").start_ready()
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("fits"), pod("huge", cpu="500"))
    cluster.wait_bound("fits")
    eventually(lambda: lines(process, BINDS, "fits") and lines(process, FAILS, "huge"), else_=process.log)

    assert lines(process, TRIES, "fits", level="debug")
    assert lines(process, TRIES, "huge", level="debug")
    assert lines(process, BINDS, "fits")[0]["node"] == "n1"
    assert "Insufficient cpu" in str(lines(process, FAILS, "huge")[0]["why"])


def test_a_repeated_rejection_is_one_event(cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler("--log-level=debug").start_ready()
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("huge", cpu="500"))
    eventually(lambda: lines(process, FAILS, "huge"), else_=process.log)
    for size in ("5", "6"):
        cluster.api.patch("nodes", "n1", {"status": {"allocatable": {"cpu": size}}}, subresource="status")
        eventually(lambda tries=int(size) - 3: len(lines(process, TRIES, "huge", level="debug")) >= tries)  # type: ignore[misc]

    eventually(lambda: len(lines(process, FAILS, "huge", level="debug")) >= 1, else_=process.log)
    assert len(lines(process, FAILS, "huge")) == 1
