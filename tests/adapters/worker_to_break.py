"""A worker process that does what a test asks, with any consequence."""

from __future__ import annotations

import os
import signal
import time

from kube_policy_scheduler.adapters.process.worker_process import serve


def handle(work: bytes) -> bytes:
    match work.split():
        case [b"pid"]:
            return str(os.getpid()).encode()
        case [b"count", number]:
            for _ in range(int(number)):
                pass
        case [b"spin"]:
            while True:
                pass
        case [b"sleep"]:
            time.sleep(60)
        case [b"memory", mebibytes]:
            return str(len(bytes(int(mebibytes) << 20))).encode()
        case [b"signal", number]:
            os.kill(os.getpid(), signal.Signals(int(number)))
            time.sleep(60)
        case [b"exit", code]:
            os._exit(int(code))
        case [b"raise"]:
            raise ZeroDivisionError("a fault")
    return work


if __name__ == "__main__":
    serve(handle)
