"""Memory that the process no longer needs, given back to the operating system."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import re
from pathlib import Path

_MAPPED_CODE = r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ \S+ +(/.*)"
"""A line of `/proc/self/maps`: code of a file, which nobody has written to."""

_EVERY_SECONDS = 60.0


async def return_freed_memory_again() -> None:
    """Give freed memory back in a thread, again and again: after a list or many pods, hundreds of MB may be free."""
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        await asyncio.to_thread(return_freed_memory)


def return_freed_memory() -> None:
    """Give freed memory back, where the C library is glibc; elsewhere nothing happens.

    glibc keeps freed columns for the next ones (see `cycle`), also those of policies that are gone. It takes
    about 0.1 ms for each MB that is given back, and other threads that need memory meanwhile wait.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def return_code(library: str) -> None:
    """Give the code of a loaded library back, whose file name contains `library`; on Linux, elsewhere nothing happens.

    Where it is called again, the operating system reads its pages from the file again, mostly from memory.
    """
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for found in filter(None, (re.match(_MAPPED_CODE, line) for line in lines)):
        if library not in found[3]:
            continue
        start, end = int(found[1], 16), int(found[2], 16)
        advise(start, end - start, mmap.MADV_DONTNEED)
