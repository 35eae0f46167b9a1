"""The processes: a control plane, real with KUBEBUILDER_ASSETS and embedded without, and a scheduler on it."""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import functools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

import kube_policy_scheduler
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.benchmarks.end_to_end.accounts import account_kubeconfigs
from tests.benchmarks.end_to_end.api import Api
from tests.benchmarks.end_to_end.workloads import SCHEDULER
from tests.benchmarks.manifests import Json
from tests.children import child
from tests.integration.cluster import Real
from tests.integration.control_plane import ControlPlane, assets

KUBERNETES_SCORES = "filter node.ready\nuse kubernetes scores\n"
LEASES = {"ours": "policy-scheduler", "kube": "kube-scheduler"}
GROUP_GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
"""Of kube-scheduler 1.36; those of 1.37 are two of them."""
IDLE_SHARE = 0.15
"""Of a core: Go's runtime is never quite idle."""
IDLE_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Kubeconfigs:
    """How to reach the API server of a cluster."""

    administrator: Path
    schedulers: Mapping[str, Path]
    """By kind of scheduler; the others are the administrator."""


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[Process]:
    """Run a scheduler, and end it by its process id. log: what it writes."""
    with log.open("wb") as output:
        process = child(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield Process(psutil.Process(process.pid), log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Scene:
    """A fresh cluster in a folder of its own, and the schedulers started on it."""

    def __init__(self, directory: Path, kubeconfigs: Kubeconfigs, api: Api) -> None:
        self.directory = directory
        self.kubeconfig = kubeconfigs.administrator
        self.api = api
        self._of_schedulers = kubeconfigs.schedulers

    @contextlib.contextmanager
    def scheduler(
        self,
        kind: str,
        *,
        policy: str = KUBERNETES_SCORES,
        profile: Path | None = None,
        stages: Path | None = None,
        serves: str = SCHEDULER,
        avoids: tuple[str, str] | None = None,
        elects: bool = True,
        groups: bool = False,
    ) -> Iterator[Process]:
        """Start a scheduler, and end it by its process id.

        Args:
            kind: one of `schedulers()`.
            policy: what ours decides by.
            profile: where cProfile writes what ours did.
            stages: where ours writes when each pod passed which stage, once it has ended.
            serves: the `schedulerName` of kube-scheduler's pods.
            avoids: label and value of the nodes that kube-scheduler leaves alone.
            elects: whether it waits for a lease.
            groups: whether kube-scheduler knows PodGroups, with their topology.
        """
        command = self._ours(policy, profile, stages) if kind == "ours" else self._kube(serves, avoids, elects)
        if kind == "kube" and groups:
            command.append("--feature-gates=" + ",".join(f"{gate}=true" for gate in GROUP_GATES))
        if kind == "ours" and not elects:
            command.append("--no-leader-election")
        log = self.directory / f"{kind}.log"
        with running(command, log) as process:
            yield process

    def _ours(self, policy: str, profile: Path | None, stages: Path | None) -> list[str]:
        policies = self.directory / "policies"
        policies.mkdir(exist_ok=True)
        (policies / "bench.policy").write_text(policy)
        kubeconfig = self._of_schedulers.get("ours", self.kubeconfig)
        arguments = [f"--kubeconfig={kubeconfig}", f"--policies={policies}", "--http-address=127.0.0.1:0"]
        profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
        program = (
            ["kube_policy_scheduler.daemon"] if stages is None else ["tests.benchmarks.end_to_end.stages", str(stages)]
        )
        return [sys.executable, *profiler, "-m", *program, *arguments, "--log-format=json"]

    def _kube(self, serves: str, avoids: tuple[str, str] | None, elects: bool) -> list[str]:
        programs = assets()
        assert programs is not None, "kube-scheduler is a program of KUBEBUILDER_ASSETS"
        config = self.directory / "kube-scheduler.json"
        profile: Json = {"schedulerName": serves}
        if avoids is not None:
            key, value = avoids
            terms = [{"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}]
            added = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            profile["pluginConfig"] = [{"name": "NodeAffinity", "args": {"addedAffinity": added}}]
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._of_schedulers["kube"]), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": elects},
            "profiles": [profile],
        }
        config.write_text(json.dumps(settings))
        return [str(programs / "kube-scheduler"), f"--config={config}", "--secure-port=0"]


class Process:
    """A running scheduler."""

    def __init__(self, process: psutil.Process, log: Path) -> None:
        self._process = process
        self._log = log

    def stop(self) -> None:
        """Let it do nothing for a while."""
        self._process.suspend()

    def go_on(self) -> None:
        """Let it go on."""
        self._process.resume()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return bool(self._process.is_running())

    @property
    def cpu_seconds(self) -> float:
        """CPU that it has used."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @property
    def rss_mb(self) -> float:
        """Memory that it holds."""
        return float(self._process.memory_info().rss) / 1e6

    @property
    def peak_rss_mb(self) -> float:
        """The most that it has held; Linux alone keeps it."""
        status = Path(f"/proc/{self._process.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return next((1024 * int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM:")), 0.0)

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log.read_text()

    @property
    def log_tail(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-1000:]

    async def idle(self) -> float:
        """Wait until it has done next to nothing for two seconds; return when those began.

        Garbage collection and leases go on: what is not quiet after `IDLE_PATIENCE_SECONDS` counts as quiet then.
        """
        began = quiet_since = time.monotonic()
        used = 0.0
        while time.monotonic() - quiet_since < 2.0 and time.monotonic() - began < IDLE_PATIENCE_SECONDS:
            await asyncio.sleep(0.25)
            now = self.cpu_seconds
            if now - used > IDLE_SHARE * 0.25 or now < 0.5:
                quiet_since = time.monotonic()
            used = now
        return quiet_since


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Start a cluster and end it."""
    _compile_bytecode()  # before anything is measured
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _cluster(Path(folder)) as kubeconfigs:
        credentials = find_credentials(kubeconfig=str(kubeconfigs.administrator), context=None)
        transport = Transport(credentials, max_connections=64)
        try:
            yield Scene(Path(folder), kubeconfigs, Api(transport))
        finally:
            await transport.close()


def end_in_order() -> None:
    """Let SIGTERM end this process as Ctrl-C does: with the API servers, etcd and schedulers that it has started."""

    def end(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another one would interrupt that
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def schedulers() -> list[str]:
    """Return the schedulers that can be started here."""
    programs = assets()
    return ["ours", *(["kube"] if programs is not None and (programs / "kube-scheduler").exists() else [])]


@functools.cache
def _compile_bytecode() -> None:
    """Have it there, as after `pip install` and in the image: some environments keep Python from writing it."""
    for folder in kube_policy_scheduler.__path__:
        compileall.compile_dir(folder, quiet=1)


@contextlib.contextmanager
def _cluster(directory: Path) -> Iterator[Kubeconfigs]:
    kubeconfig = directory / "admin.kubeconfig"
    programs = assets()
    if programs is not None:
        with ControlPlane(programs, directory / "control-plane") as plane:
            seen = Real(plane)
            found = Kubeconfigs(seen.kubeconfig(kubeconfig), account_kubeconfigs(seen, directory))
            seen.api.close()
            yield found
        return
    command = [sys.executable, "-m", "kube_policy_scheduler.embedded", "--kubeconfig", str(kubeconfig)]
    with child(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # its address: it serves
            yield Kubeconfigs(kubeconfig, {})
        finally:
            process.terminate()
            process.wait(30)
