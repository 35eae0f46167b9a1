"""Processes of the scheduler that begin with its modules imported: a start costs a fork, not a second of CPU.

They are forked from a server (multiprocessing's) that has one thread and holds nothing of the test. `python -m
kube_policy_scheduler.daemon` itself, the same program from an empty interpreter, is what tests of its start use.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path

from kube_policy_scheduler.daemon.main import main

FORKING = get_context("forkserver")
FORKING.set_forkserver_preload([__name__, "kube_policy_scheduler.daemon.daemon"])


def run(arguments: Sequence[str], *, environment: Mapping[str, str], folder: str, log_file: Path) -> None:
    """Be the scheduler; runs in the new process."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    main(list(arguments), prog_name="python -m kube_policy_scheduler.daemon")


class Forked:
    """One such process, used and ended as one of `subprocess`."""

    def __init__(self, arguments: Sequence[str], *, environment: Mapping[str, str], log_file: Path) -> None:
        self._arguments = arguments
        self._process = FORKING.Process(
            target=run,
            args=(arguments,),
            kwargs={"environment": environment, "folder": os.getcwd(), "log_file": log_file},  # noqa: PTH109
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
