"""How many pods a second one process binds: the daemon itself, with a synthetic API server, at full size.

The API server shows all pods at once. Each one is decided, bound over HTTP, and its event is written. The watch shows
each pod six times: new, bound, three reports of the kubelet, and its end.

Before the clock runs, some pods of each template come and go, and the process comes to rest: what is imported, compiled
and made once after a start would otherwise count as the cost of the first pods.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import psutil  # type: ignore[import-untyped]

from tests.benchmarks.reference import Reference
from tests.benchmarks.scale.api import synthetic_api
from tests.children import child

_POLICY = "filter node.ready\nuse kubernetes scores\n"
_POLL_SECONDS = 0.05
_START_SECONDS = 900.0
_PATIENCE_SECONDS = 300.0
_WARM_UP_PODS = 500
"""That come first, at most: some of each template."""
_REST_SECONDS, _REST_CPU = 0.5, 0.1
"""The process is at rest when it uses less than this share of a core, for three times so long."""
EVENTS = 6
"""Of the watch, for each pod."""


@dataclass(frozen=True)
class Bound:
    """What the daemon spent on its pods."""

    nodes: int
    placed: int
    pods: int
    start_cpu_seconds: float
    """Of the process, until it was ready."""
    per_second: float
    """Pods bound in a second of wall time."""
    cpu_us: float
    """CPU time of the process for each pod, until its end was seen and its event was written."""
    loop_us: float
    """Of it, the thread of the event loop."""
    system_us: float
    """Of it, in the operating system: sockets."""
    relative: float
    """CPU time for each pod in turns of the reference loop."""
    memory_mb: float


def measure_daemon(directory: Path, reference: Reference, *, nodes: int, placed: int, pods: int) -> Bound:
    """Start the daemon, let so many pods come, and wait until all are bound and gone."""
    with synthetic_api(nodes=nodes, pods=placed) as url, _daemon(url, directory) as process:
        main_thread = process.pid
        start = process.cpu_times()
        warm_up = min(pods, _WARM_UP_PODS)
        _bind(url, warm_up, after=0)
        _rest(process)
        turn = reference.seconds()
        began_cpu, loop_before = process.cpu_times(), _thread_seconds(process, main_thread)
        bound_after = _bind(url, pods, after=warm_up)
        after = process.cpu_times()
        user, system = after.user - began_cpu.user, after.system - began_cpu.system
        turn = (turn + reference.seconds()) / 2
        return Bound(
            nodes,
            placed,
            pods,
            start.user + start.system,
            pods / bound_after,
            (user + system) / pods * 1e6,
            (_thread_seconds(process, main_thread) - loop_before) / pods * 1e6,
            system / pods * 1e6,
            (user + system) / pods / turn,
            process.memory_info().rss / 1e6,
        )


def _bind(url: str, pods: int, *, after: int) -> float:
    """Let so many pods come after others, wait until all are gone, and return when all were bound, in seconds."""
    began, bound_after, wanted = time.monotonic(), 0.0, after + pods
    _ask(f"{url}/create/pods?count={pods}", method="POST")
    while (counts := json.loads(_ask(f"{url}/counts")))["ended"] < wanted or counts["events"] < wanted:
        if counts["bound"] >= wanted:
            bound_after = bound_after or time.monotonic() - began
        elif time.monotonic() - began > _PATIENCE_SECONDS:
            raise TimeoutError(f"{counts} of {wanted} pods")
        time.sleep(_POLL_SECONDS)
    return bound_after or time.monotonic() - began


def _rest(process: psutil.Process) -> None:
    """Wait until a process does almost nothing. Raises TimeoutError."""
    until, quiet = time.monotonic() + _PATIENCE_SECONDS, 0
    before = sum(process.cpu_times()[:2])
    while quiet < 3:
        if time.monotonic() > until:
            raise TimeoutError("the daemon does not come to rest")
        time.sleep(_REST_SECONDS)
        now = sum(process.cpu_times()[:2])
        quiet = quiet + 1 if now - before < _REST_CPU * _REST_SECONDS else 0
        before = now


def _thread_seconds(process: psutil.Process, thread: int) -> float:
    return float(next(each.user_time + each.system_time for each in process.threads() if each.id == thread))


@contextlib.contextmanager
def _daemon(url: str, directory: Path) -> Iterator[psutil.Process]:
    kubeconfig, address, policies = directory / "kubeconfig.json", directory / "address", directory / "policies"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "scale",
                "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": ""}}],
                "clusters": [{"name": "scale", "cluster": {"server": url}}],
                "users": [],
            }
        )
    )
    policies.mkdir()
    (policies / "scale.policy").write_text(_POLICY)
    command = [sys.executable, "-m", "kube_policy_scheduler.daemon", f"--kubeconfig={kubeconfig}"]
    command += [f"--policies={policies}", "--no-leader-election", "--http-address=127.0.0.1:0"]
    command += [f"--http-address-file={address}", "--log-format=json"]
    log = directory / "daemon.log"
    with log.open("wb") as output:
        process = child(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_SECONDS
        while not _is_ready(address):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the daemon did not start: {log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(address: Path) -> bool:
    if not address.exists():
        return False
    try:
        _ask(f"http://{address.read_text().strip()}/readyz")
    except OSError:
        return False
    return True


def _ask(url: str, *, method: str = "GET") -> bytes:
    with urlopen(Request(url, method=method), timeout=30.0) as answer:
        return bytes(answer.read())
