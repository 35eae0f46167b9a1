"""The benchmark with a control plane leaves nothing behind when it is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
