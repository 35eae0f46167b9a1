"""A leader is killed or stopped during a burst: no pod is lost, bound twice or bound wrongly."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.faults.accounts import bindings, books_right, recovery, sound, wait_all_bound
from tests.faults.conftest import Size
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Front
from tests.integration.objects import node, pod

CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
leaderElection:
  leaseName: elected
  leaseDuration: {lease}s
  renewDeadline: {deadline}s
  retryPeriod: {retry}ms
"""
MOST_RECOVERY_SECONDS = 60.0


@pytest.fixture
def config(size: Size[int], tmp_path: Path) -> str:
    """The default times at length; else shorter ones, which a busy machine can just keep."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(lease=size(5, 15), deadline=size(4, 10), retry=size(300, 2000)))
    return f"--config={path}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_when_the_leader_goes_in_the_middle_of_a_burst_the_standby_does_the_rest(
    how: str, cluster: Cluster, scheduler: StartScheduler, config: str, size: Size[int], tmp_path: Path
) -> None:
    if how == "stopped" and not size(0, 1):
        pytest.skip("in the default run tests/integration/test_leader_election.py stops a leader, without the burst")
    pods = size(80, 2000)
    cluster.add_nodes(*(node(f"n{i}", cpu="4") for i in range(pods // 36 + 1)))  # room for 40 each
    with Front(cluster.endpoint) as seen_first, Front(cluster.endpoint) as seen_second:
        first, second = (
            scheduler("--leader-election", config, kubeconfig=seen.kubeconfig(tmp_path / f"seen-{number}"))
            for number, seen in enumerate((seen_first, seen_second))
        )
        first.start_ready()
        eventually(lambda: "became leader" in first.log())
        second.start_ready()
        print(f"two replicas are up; {pods} pods come")
        names = [f"p{i}" for i in range(pods)]
        # some are there before, some come meanwhile, the second half comes after: else a fast leader may leave none
        half = pods // 2
        creating = threading.Thread(target=lambda: cluster.add_pods(*(pod(name) for name in names[:half])))
        creating.start()
        eventually(lambda: len(bindings(seen_first)) > pods // 4, within=120.0)
        first.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        done_by_first = len(bindings(seen_first))
        creating.join()
        cluster.add_pods(*(pod(name) for name in names[half:]))
        with recovery(f"leader {how}, first binding of the standby", most_seconds=MOST_RECOVERY_SECONDS):
            eventually(lambda: bindings(seen_second), within=MOST_RECOVERY_SECONDS, else_=second.log)
        with recovery(f"leader {how}, the other bindings", most_seconds=size(60, 200)):
            wait_all_bound(cluster, names, within=size(60, 180))
        print(f"{done_by_first} of {pods} were bound by the first, {len(bindings(seen_second))} by the second")
        if how == "stopped":
            before = bindings(seen_first)
            second.kill()  # else there would be nothing left to bind wrongly
            cluster.add_pods(*(pod(f"tempting{i}") for i in range(20)))
            first.signal(signal.SIGCONT)
            assert first.exit_code() == 1
            late = bindings(seen_first) - before
            # what was on its way when it stopped may arrive; nothing may be begun
            assert not [name for name in late if name.startswith("tempting")]
            assert {at for name, at in cluster.placements().items() if name.startswith("tempting")} == {""}
        else:
            books_right(second)
        sound(cluster, seen_first, seen_second)
