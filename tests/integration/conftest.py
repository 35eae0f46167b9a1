"""The cluster, the front before it and the scheduler's processes, for every test of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kube_policy_scheduler.embedded.controllers import ControllerSettings
from kube_policy_scheduler.embedded.resources import DEFAULT_VERSION
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.cluster import Cluster, Embedded, Real
from tests.integration.control_plane import ControlPlane, assets
from tests.integration.front import Front
from tests.integration.process import SchedulerProcess

ALL_GOOD = "filter node.ready and fits(cpu, mem)\n"

StartScheduler = Callable[..., SchedulerProcess]


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | None]:
    """The real control plane where KUBEBUILDER_ASSETS names one, else None."""
    programs = assets()
    if programs is None:
        yield None
        return
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def cluster(request: pytest.FixtureRequest, control_plane: ControlPlane | None, tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster; `@pytest.mark.controllers(...)` says what the controllers of the embedded one do.

    `@pytest.mark.kubernetes("1.37")` says of which version the embedded one is; a real one is what it is.
    """
    if control_plane is not None:
        real = Real(control_plane)
        real.wipe()
        yield real
        real.api.close()
        return
    folder = tmp_path / "cluster"
    folder.mkdir()
    marked = request.node.get_closest_marker("controllers")
    controllers = ControllerSettings(**marked.kwargs) if marked is not None else ControllerSettings()
    version = request.node.get_closest_marker("kubernetes")
    kubernetes = KubernetesVersion.parse(*version.args) if version is not None else DEFAULT_VERSION
    with SecureCluster(controllers=controllers, kubernetes=kubernetes).in_thread() as served:
        embedded = Embedded(served, folder)
        yield embedded
        embedded.api.close()


@pytest.fixture
def front(cluster: Cluster) -> Iterator[Front]:
    """What the scheduler takes for the API server."""
    with Front(cluster.endpoint) as serving:
        yield serving


@pytest.fixture
def policies(tmp_path: Path) -> ConfigMapVolume:
    """The policies as the kubelet mounts them, with one that is good."""
    volume = ConfigMapVolume(tmp_path / "policies")
    volume.update({"default.policy": ALL_GOOD})
    return volume


@pytest.fixture
def scheduler(cluster: Cluster, policies: ConfigMapVolume, tmp_path: Path) -> Iterator[StartScheduler]:
    """Makes scheduler processes with sensible arguments; all are ended after the test."""
    made: list[SchedulerProcess] = []

    def make(
        *arguments: str,
        kubeconfig: Path | None = None,
        environment: dict[str, str] | None = None,
        defaults: bool = True,
        command: tuple[str, ...] | None = None,
    ) -> SchedulerProcess:
        directory = tmp_path / f"scheduler-{len(made)}"
        if defaults:
            config = kubeconfig or cluster.kubeconfig(tmp_path / "kubeconfig")
            arguments = (f"--kubeconfig={config}", f"--policies={policies.path}", "--log-format=json", *arguments)
            if not any("leader-election" in argument for argument in arguments):
                arguments = ("--no-leader-election", *arguments)
        process = SchedulerProcess(directory, arguments=arguments, environment=environment, command=command)
        made.append(process)
        return process

    yield make
    for process in made:
        process.kill()
        print(f"--- log of process {process.log_file.parent.name}\n{process.log()[-8000:]}")
