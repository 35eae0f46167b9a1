"""The benchmark with a control plane leaves nothing behind when it is ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

pytestmark = pytest.mark.long

_PROGRAM = """
import asyncio, contextlib, sys
from pathlib import Path
from tests.benchmarks.end_to_end.processes import end_in_order

@contextlib.contextmanager
def server(name):
    try:
        yield
    finally:
        Path(sys.argv[1], name).write_text("ended")

async def measure():
    with server("in-the-loop"):
        print("measuring", flush=True)
        await asyncio.sleep(60)

end_in_order()
with server("outside"):
    asyncio.run(measure())
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_benchmark_that_is_terminated_ends_what_it_started(tmp_path: Path, times: int) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert {path.name for path in tmp_path.iterdir()} == {"in-the-loop", "outside"}


_KILLED = """
import asyncio, sys
from tests.benchmarks.end_to_end.processes import scene

async def measure():
    async with scene() as now:
        with now.scheduler("ours", elects=False):
            print(now.kubeconfig.parent, flush=True)
            await asyncio.sleep(600)

asyncio.run(measure())
"""


def test_what_a_benchmark_has_started_ends_where_it_is_killed() -> None:
    if sys.platform != "linux":
        pytest.skip("only the kernel of Linux tells a process that its parent has ended")
    environment = {key: value for key, value in os.environ.items() if key != "KUBEBUILDER_ASSETS"}
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        folder = process.stdout.readline().strip()
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 2, "an API server and a scheduler"
        process.kill()
    _, alive = psutil.wait_procs(started, timeout=60)
    shutil.rmtree(folder)
    for one in alive:
        one.kill()
    assert alive == []
