"""A replica that follows another binds at once what has waited, though nothing happens that would tell it to.

The pods wait because no policy of the leader lets them on a node; those of the next replica do. So at the moment at
which it leads there is no event to come, as in a cluster where everybody waits for the scheduler.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.faults.accounts import sound
from tests.faults.conftest import Size
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import ALL_GOOD, StartScheduler
from tests.integration.front import Front
from tests.integration.objects import node, pod
from tests.integration.process import SchedulerProcess

NONE_FITS = 'filter pod.name == "none"\n'
CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
leaderElection:
  leaseName: elected
  leaseDuration: {lease}s
  renewDeadline: {deadline}s
  retryPeriod: {retry}ms
"""
MOST_SECONDS = 3.0
"""From leading to the first binding."""
WAITING = 3


class Replica:
    """One process, the API server as it sees it, and policies of its own."""

    def __init__(self, number: int, front: Front, start: StartScheduler, config: Path, folder: Path) -> None:
        self.front = front
        self._volume = ConfigMapVolume(folder / f"policies-{number}")
        self._volume.update({"default.policy": ALL_GOOD})
        self.process: SchedulerProcess = start(
            "--leader-election",
            f"--config={config}",
            f"--policies={self._volume.path}",
            kubeconfig=front.kubeconfig(folder / f"front-{number}"),
        )

    @property
    def led_at(self) -> float | None:
        """When it asked for the lease that it got."""
        for verb in ("update", "create"):
            for exchange in self.front.asked(verb, "leases"):
                is_its = exchange.name == "elected" or verb == "create"
                if is_its and exchange.code in (200, 201) and json.loads(exchange.body)["spec"]["holderIdentity"]:
                    return exchange.at
        return None

    @property
    def first_binding_at(self) -> float | None:
        found = self.front.asked("create", "pods/binding", code=201)
        return found[0].at if found else None

    def refuse_all(self) -> None:
        """Let its policies refuse every node."""
        before = self.process.policies()["active"]
        self._volume.update({"default.policy": NONE_FITS})
        eventually(lambda: self.process.policies()["active"] != before)


@pytest.fixture
def replica(scheduler: StartScheduler, cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[Path], Replica]]:
    """Starts the next replica by a configuration, and waits until it is ready."""
    with contextlib.ExitStack() as stack:
        made: list[Replica] = []

        def start(config: Path) -> Replica:
            front = stack.enter_context(Front(cluster.endpoint))
            made.append(Replica(len(made), front, scheduler, config, tmp_path))
            made[-1].process.start_ready()
            return made[-1]

        yield start


def config(folder: Path, *, lease: int, deadline: int, retry: int) -> Path:
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(lease=lease, deadline=deadline, retry=retry))
    return path


def follow(
    leader: Replica, standby: Replica, cluster: Cluster, names: list[str], how: signal.Signals
) -> tuple[float, float]:
    """Let the leader leave pods behind; return how long the next took: from its end, and from leading, to binding."""
    eventually(lambda: leader.led_at is not None, else_=leader.process.log)
    leader.refuse_all()
    cluster.add_pods(*(pod(name) for name in names))
    eventually(
        lambda: all(cluster.condition(name).get("status") == "False" for name in names),
        within=20.0,
        else_=lambda: [cluster.condition(name) for name in names],
    )
    ended = time.monotonic()
    leader.process.signal(how)
    eventually(lambda: standby.first_binding_at is not None, within=120.0, else_=standby.process.log)
    cluster.wait_bound(*names)
    led, bound = standby.led_at, standby.first_binding_at
    assert led is not None
    assert bound is not None
    for name in names:
        cluster.delete_pod(name)
    return bound - ended, bound - led


def told(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(f"{what}: median {ordered[len(ordered) // 2]:.2f} s, longest {ordered[-1]:.2f} s, of {len(ordered)}")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended in order", "killed"])
def test_after_each_of_many_restarts_pods_that_wait_are_bound_soon_after_somebody_leads(
    how: signal.Signals, cluster: Cluster, replica: Callable[[Path], Replica], size: Size[int], tmp_path: Path
) -> None:
    times = config(tmp_path, lease=5, deadline=4, retry=300)
    cluster.add_nodes(node("n1"))
    leader, from_leading = replica(times), list[float]()
    for number in range(size(2, 50)):
        standby = replica(times)
        names = [f"p{number}-{each}" for each in range(WAITING)]
        from_leading.append(follow(leader, standby, cluster, names, how)[1])
        leader.process.kill()
        leader = standby
    told("from leading to the first binding", from_leading)
    assert max(from_leading) < MOST_SECONDS
    sound(cluster)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("others", [0, 600], ids=["few pods", "many pods"])
def test_the_lease_time_is_nearly_all_that_a_leader_that_is_killed_costs(
    others: int, cluster: Cluster, replica: Callable[[Path], Replica], size: Size[int], tmp_path: Path
) -> None:
    """Many pods are not listed again where a watch says nothing: a bookmark shows that it lacks nothing."""
    if not size(0, 1):
        pytest.skip("the simulation sees that in virtual time: tests/simulation/test_taking_over.py")
    lease = 15
    times = config(tmp_path, lease=lease, deadline=10, retry=2000)
    cluster.add_nodes(*(node(f"n{number}", pods="1000") for number in range(10)))
    cluster.add_pods(*(pod(f"other{number}", cpu="1m", memory="1Mi", nodeName="n0") for number in range(others)))
    leader, from_end, from_leading = replica(times), list[float](), list[float]()
    for number in range(12):
        standby = replica(times)
        names = [f"p{number}-{each}" for each in range(WAITING)]
        took = follow(leader, standby, cluster, names, signal.SIGKILL)
        from_end.append(took[0])
        from_leading.append(took[1])
        leader.process.kill()
        leader = standby
    told("from the kill to the first binding", from_end)
    told("from leading to the first binding", from_leading)
    assert max(from_end) < lease + 1.0
    sound(cluster)
