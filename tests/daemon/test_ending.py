"""The end of the process does not wait for numba."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

ENDS = """
import asyncio, sys, threading
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread
from kube_policy_scheduler.daemon.ending import LEFT_BEHIND, end_process

async def run():
    begun = threading.Event()
    compiling = WorkerThread(LEFT_BEHIND)
    compiling.call(lambda: begun.set() or threading.Event().wait())
    compiling.stop()
    await asyncio.to_thread(begun.wait)
    return 3

print("said before", end="")
end_process(asyncio.run(run()))
"""


def test_a_process_ends_while_a_thread_still_compiles_with_all_that_it_has_said() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "said before", "")
