"""Processes that end with the one that has started them, also where that is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
"""Looked up here: what runs between fork and exec must not load anything."""


def child(command: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
    """Start a process, with the options of Popen; on Linux the kernel ends it with SIGTERM when this thread ends.

    Call it in the main thread, which ends with the process.
    """
    return subprocess.Popen(command, preexec_fn=partial(_end_with, os.getpid()), **options)


def _end_with(parent: int) -> None:
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), signal.SIGTERM)
