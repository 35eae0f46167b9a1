"""A checker of reviews that fails as the review asks, for tests."""

from __future__ import annotations

import os
import signal

from kube_policy_scheduler.adapters.process.worker_process import serve
from kube_policy_scheduler.daemon.webhook.checker_process import check


def handle(work: bytes) -> bytes:
    if b"SPIN" in work:
        while True:
            pass
    if b"FILL" in work:
        return bytes(2 << 30)
    if b"CRASH" in work:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"RAISE" in work:
        raise ZeroDivisionError
    return check(work)


if __name__ == "__main__":
    serve(handle)
