"""Signals that end a process: the first in order, the second at once. SIGHUP (the terminal is gone) is only a first."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

logger = logging.getLogger(__name__)

LEFT_BEHIND = "compiled-kernels"
"""Name of the thread for which the end of the process does not wait: on a busy machine numba may take half a minute."""


def end_on_signals(begin: Callable[[], object], *, what: str) -> None:
    """Let signals end this process. Call once, on the event loop of the main thread.

    SIGHUP comes in rows (from the terminal and from the shell, or from systemd right behind SIGTERM): it never counts
    as the second signal. Where it is ignored, as under `nohup`, it stays so.

    Args:
        begin: begins the end.
        what: is done first, for the log.
    """
    loop = asyncio.get_running_loop()
    received: set[signal.Signals] = set()

    def end(number: signal.Signals) -> None:
        if number is signal.SIGHUP and received:
            return
        if received - {signal.SIGHUP}:
            logger.warning("exiting immediately; work in progress is not finished", extra={"signal": number.name})
            os._exit(1)  # as kube-scheduler does; nothing may hold this up, not even a thread
        if not received:
            logger.info("shutting down: %s; a second signal exits immediately", what, extra={"signal": number.name})
            begin()
        received.add(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)


def end_process(code: int) -> NoReturn:
    """End this process in order, also while numba still compiles.

    Python would pull that thread down in the middle of LLVM's code, which may crash. numba's cache is written in whole
    files.
    """
    if any(thread.name == LEFT_BEHIND for thread in threading.enumerate()):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)
