"""How fast schedulers bind: real processes against a real control plane (KUBEBUILDER_ASSETS), or the embedded one.

    python -m tests.benchmarks.real_cluster [--nodes 5000] [--pods 10000] [--scheduler ours] [--scheduler kube]

Each scheduler gets a fresh cluster. It starts, lists everything and waits for its lease, which the benchmark
holds; then it is let go. Measured: pods per second from the first to the last binding, by the times in the
scheduler's own events; CPU of the scheduler's
process from being let go until the last pod's event is written; its memory at the end. Then everything is
counted again from what the API server says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from engine.adapters.kube.credentials import find_credentials
from engine.adapters.kube.transport import Transport
from tests.benchmarks.full_cluster import SCHEDULER, FullCluster
from tests.integration.cluster import Real
from tests.integration.control_plane import ControlPlane, assets

DEFAULT_POLICY = "filter node.ready\nuse kubernetes scores\n"
LEASES = {"ours": "policy-scheduler", "kube": "kube-scheduler"}
IDLE_SHARE = 0.15
"""Of a core: Go's runtime is never quite idle."""
IDLE_PATIENCE_SECONDS = 30.0
GOALS = "goals: 900 pods/s, 0.8 ms of CPU a pod, 250 MB"


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    scheduler: str
    nodes: int
    pods: int
    bound: int
    pods_per_second: float
    cpu_millis_per_pod: float
    rss_mb: float
    peak_rss_mb: float
    synced_seconds: float
    last_event_seconds: float
    """From the last binding to the last event."""
    scheduled_events: int
    wrong: list[str]
    load_average: float


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Path]:
    """Start a cluster and yield the administrator's kubeconfig."""
    kubeconfig = directory / "admin.kubeconfig"
    programs = assets()
    if programs is not None:
        with ControlPlane(programs, directory / "control-plane") as plane:
            seen = Real(plane)
            seen.kubeconfig(kubeconfig)
            seen.api.close()
            yield kubeconfig
        return
    command = [sys.executable, "-m", "engine.embedded", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # its address: it serves
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def scheduler(
    kind: str, directory: Path, kubeconfig: Path, policy: str, profile: Path | None
) -> Iterator[tuple[psutil.Process, Path]]:
    """Start a scheduler that waits for its lease; yield its process and its log."""
    command = _ours(directory, kubeconfig, policy, profile) if kind == "ours" else _kube(directory, kubeconfig)
    log = directory / f"{kind}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid), log
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ours(directory: Path, kubeconfig: Path, policy: str, profile: Path | None) -> list[str]:
    policies = directory / "policies"
    policies.mkdir()
    (policies / "bench.policy").write_text(policy)
    arguments = [f"--kubeconfig={kubeconfig}", f"--policies={policies}", "--http-address=127.0.0.1:0"]
    profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
    return [sys.executable, *profiler, "-m", "engine.daemon", *arguments, "--log-format=json"]


def _kube(directory: Path, kubeconfig: Path) -> list[str]:
    programs = assets()
    assert programs is not None, "kube-scheduler is a program of KUBEBUILDER_ASSETS"
    config = directory / "kube-scheduler.json"
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": True},
        "profiles": [{"schedulerName": SCHEDULER}],
    }
    config.write_text(json.dumps(settings))
    return [str(programs / "kube-scheduler"), f"--config={config}", "--secure-port=0"]


async def measure(kind: str, *, nodes: int, pods: int, policy: str, profile: Path | None = None) -> Result:
    """Run one scheduler once."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kubeconfig = stack.enter_context(cluster(directory))
        transport = Transport(find_credentials(kubeconfig=str(kubeconfig), context=None), max_connections=64)
        seen = FullCluster(transport)
        _say(f"{kind}: filling the cluster")
        await seen.fill(nodes=nodes, pods=pods)
        release = await seen.hold_lease(LEASES[kind])
        process, log = stack.enter_context(scheduler(kind, directory, kubeconfig, policy, profile))
        began = time.monotonic()
        synced_seconds = await _idle(process) - began
        _say(f"{kind}: waits with full caches after {synced_seconds:.1f} s")
        load_average = os.getloadavg()[0]
        all_bound = asyncio.create_task(seen.wait_bound(pods, timeout_seconds=300))
        await asyncio.sleep(0.5)
        cpu_before = _cpu_seconds(process)
        await release()
        await all_bound
        bound_at = time.monotonic()
        if not await _all_told(seen, process, pods):
            _say(f"not all events came; the log ends with {_tail(log)}")
        events_at = time.monotonic()
        cpu = _cpu_seconds(process) - cpu_before
        memory = process.memory_info().rss
        peak = _peak_rss(process)
        bound, wrong = await seen.recount()
        told = await seen.scheduled()
        first, last = min(told.values(), default=0.0), max(told.values(), default=0.0)
        await transport.close()
        return Result(
            scheduler=kind,
            nodes=nodes,
            pods=pods,
            bound=bound,
            pods_per_second=round(len(told) / (last - first), 1) if last > first else 0.0,
            cpu_millis_per_pod=round(1000 * cpu / max(1, bound), 3),
            rss_mb=round(memory / 1e6, 1),
            peak_rss_mb=round(peak / 1e6, 1),
            synced_seconds=round(synced_seconds, 2),
            last_event_seconds=round(events_at - bound_at, 2),
            scheduled_events=len(told),
            wrong=wrong,
            load_average=round(load_average, 2),
        )


async def _all_told(seen: FullCluster, process: psutil.Process, pods: int) -> bool:
    """Wait until every pod has its event."""
    for _ in range(600):
        if await seen.event_total() >= pods:
            return True
        if not process.is_running():
            return False
        await asyncio.sleep(0.2)
    return False


def _tail(log: Path) -> str:
    return log.read_text()[-1000:]


async def _idle(process: psutil.Process) -> float:
    """Wait until a process has done next to nothing for two seconds; return when those began.

    Garbage collection and leases go on: what is not quiet after `IDLE_PATIENCE_SECONDS` counts as quiet then.
    """
    began = quiet_since = time.monotonic()
    used = 0.0
    while time.monotonic() - quiet_since < 2.0 and time.monotonic() - began < IDLE_PATIENCE_SECONDS:
        await asyncio.sleep(0.25)
        now = _cpu_seconds(process)
        if now - used > IDLE_SHARE * 0.25 or now < 0.5:
            quiet_since = time.monotonic()
        used = now
    return quiet_since


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak_rss(process: psutil.Process) -> int:
    """Return bytes; Linux alone keeps them."""
    status = Path(f"/proc/{process.pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--policy", type=Path, help="policy file for ours; default: kube-scheduler's own scores")
    parser.add_argument("--scheduler", action="append", choices=sorted(LEASES), help="default: ours, and kube if there")
    parser.add_argument("--profile", type=Path, help="where cProfile writes what ours did; it is slower then")
    arguments = parser.parse_args()
    programs = assets()
    known = ["ours", *(["kube"] if programs is not None and (programs / "kube-scheduler").exists() else [])]
    policy = arguments.policy.read_text() if arguments.policy is not None else DEFAULT_POLICY
    wrong = False
    _say(GOALS)
    for kind in arguments.scheduler or known:
        run = measure(kind, nodes=arguments.nodes, pods=arguments.pods, policy=policy, profile=arguments.profile)
        result = asyncio.run(run)
        print(json.dumps(asdict(result)), flush=True)
        wrong |= bool(result.wrong) or result.scheduled_events != arguments.pods
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
