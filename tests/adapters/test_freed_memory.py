"""Freed memory goes back to the operating system when somebody asks for it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys

import pytest

from kube_policy_scheduler.adapters.process import freed_memory

FREES = """
import numpy as np, psutil
from kube_policy_scheduler.adapters.process.freed_memory import return_freed_memory
from kube_policy_scheduler.framework.decide.cycle import Cycle

cycle = Cycle()  # the allocator keeps what is freed from now on
columns = [np.ones(130_000) for _ in range(200)]
last = np.ones(130_000)
del columns
kept = psutil.Process().memory_info().rss
return_freed_memory()
print(kept - psutil.Process().memory_info().rss)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc")
def test_columns_that_were_freed_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, check=True, env=os.environ)

    assert int(done.stdout) > 100_000_000


async def test_it_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, twice, times = asyncio.get_running_loop(), asyncio.Event(), list[None]()

    def given_back() -> None:
        times.append(None)
        if len(times) == 2:
            loop.call_soon_threadsafe(twice.set)

    monkeypatch.setattr(freed_memory, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(freed_memory, "return_freed_memory", given_back)
    running = asyncio.create_task(freed_memory.return_freed_memory_again())
    await twice.wait()
    running.cancel()


UNUSED = """
import numpy as np, psutil
from kube_policy_scheduler.adapters.process.freed_memory import return_code

def resident():
    mapped = psutil.Process().memory_maps(grouped=False)
    return sum(each.rss for each in mapped if FILE in each.path and "x" in each.perms)

FILE = "_multiarray_umath"
before = resident()
return_code("no such library")
same = resident()
return_code(FILE)
after = resident()
assert np.arange(1_000).sum() == 499_500
print(before > 1_000_000, same == before, after < before / 4, resident() > after)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="there is no list of what is mapped")
def test_code_is_given_back_and_runs_again_when_it_is_called() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True, env=os.environ)

    assert done.stdout.split() == ["True"] * 4
