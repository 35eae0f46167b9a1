"""Work in another process: no matter what it does, a result or an error comes soon."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.process import worker_process
from kube_policy_scheduler.adapters.process.worker_process import WorkerExceeded, WorkerLost, WorkerProcess
from tests.adapters.worker_to_break import handle

pytestmark = pytest.mark.long

Make = Callable[..., WorkerProcess]


@pytest.fixture(params=["a process of its own", "a copy of ours"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[WorkerProcess] = []

    def worker(**limits: Any) -> WorkerProcess:
        made.append(WorkerProcess("tests.adapters.worker_to_break", **limits))
        if request.param == "a copy of ours":
            made[-1].fork(lambda: handle)
        return made[-1]

    yield worker
    for each in made:
        each.kill()


def answer(worker: WorkerProcess, work: bytes) -> bytes:
    worker.ask(work)
    return worker.receive()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_does_one_thing_after_another(make: Make) -> None:
    worker = make()
    pid = int(answer(worker, b"pid"))
    assert pid != os.getpid()
    nicer = os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, 0)
    assert nicer == worker_process.NICENESS, "who decides comes first, once the first work is done"
    assert answer(worker, b"x" * 1_000_000) == b"x" * 1_000_000
    assert int(answer(worker, b"pid")) == pid
    worker.kill()
    assert not is_alive(pid)


@pytest.mark.parametrize(
    ("work", "limits", "kind", "said"),
    [
        (b"spin", {"cpu_seconds": 1}, WorkerExceeded, "it takes more than 1 s of CPU time"),
        (b"memory 200", {"memory_bytes": 50 << 20}, WorkerExceeded, "it needs more than 50 MiB of memory"),
        (b"signal 11", {}, WorkerExceeded, "it broke the process: SIGSEGV"),
        (b"signal 6", {}, WorkerExceeded, "it broke the process: SIGABRT"),
        (b"signal 9", {}, WorkerLost, "the process ended: SIGKILL"),
        (b"exit 3", {}, WorkerLost, "the process ended: exit code 3"),
        (b"sleep", {"wall_seconds": 2.5}, WorkerLost, "no answer within 2.5 s"),  # long enough to start a process
        (b"raise", {}, WorkerLost, "unexpected error: ZeroDivisionError: a fault"),
    ],
)
def test_work_that_takes_too_much_or_fails_is_reported_and_the_next_work_is_done(
    make: Make, work: bytes, limits: dict[str, Any], kind: type[Exception], said: str
) -> None:
    worker = make(**limits)
    pid = int(answer(worker, b"pid"))
    with pytest.raises(kind) as raised:
        answer(worker, work)
    assert str(raised.value) == said
    if work != b"raise":
        assert not is_alive(pid)
    assert answer(worker, b"more") == b"more"


def test_memory_within_the_limit_is_given(make: Make) -> None:
    assert answer(make(memory_bytes=100 << 20), b"memory 50") == str(50 << 20).encode()


def test_time_counts_for_each_piece_of_work(make: Make) -> None:
    worker = make(cpu_seconds=1)
    pid = answer(worker, b"pid")
    for _ in range(3):
        assert answer(worker, b"count 10000000") == b"count 10000000"
    assert answer(worker, b"pid") == pid


def test_a_piece_of_work_may_be_given_less_processor_time(make: Make) -> None:
    """What it is given is its own: a busy machine takes nothing away from it."""
    worker = make()
    pid = int(answer(worker, b"pid"))
    worker.ask(b"spin", within_cpu_seconds=0.05)
    with pytest.raises(WorkerExceeded, match="more processor time than it may"):
        worker.receive()
    assert not is_alive(pid)
    assert not worker.is_running
    assert answer(worker, b"more") == b"more"
    assert worker.is_running
    worker.ask(b"sleep", within_seconds=0.2, within_cpu_seconds=0.05)
    with pytest.raises(WorkerLost, match=r"no answer within 0\.2 s"):
        worker.receive()
    answer(worker, b"pid")  # its start takes some
    for _ in range(3):
        worker.ask(b"pid", within_cpu_seconds=0.05)
        worker.receive()


def test_a_process_may_be_as_important_as_who_asks(make: Make) -> None:
    worker = make(niceness=0, idle_seconds=math.inf)
    pid = int(answer(worker, b"pid"))
    answer(worker, b"more")
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)


def test_work_without_a_waiting_caller_is_dropped(make: Make) -> None:
    worker = make()
    pid = int(answer(worker, b"pid"))
    worker.ask(b"spin")
    assert answer(worker, b"next") == b"next"
    assert not is_alive(pid)


def test_an_idle_process_ends_and_is_started_again(make: Make) -> None:
    worker = make(idle_seconds=0.1)
    pid = int(answer(worker, b"pid"))
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.01)
    assert int(answer(worker, b"pid")) != pid


def test_a_process_that_is_killed_between_two_works_is_started_again(make: Make) -> None:
    worker = make()
    pid = int(answer(worker, b"pid"))
    os.kill(pid, signal.SIGKILL)
    assert int(answer(worker, b"pid")) != pid


def test_a_process_that_cannot_start_is_reported(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(worker_process.os, "posix_spawn", refuse)
    monkeypatch.setattr(worker_process.os, "fork", refuse)
    with pytest.raises(WorkerLost, match="cannot start a process: resource temporarily unavailable"):
        make().ask(b"pid")


def test_a_copy_shares_nothing_that_is_open_and_no_handler_of_signals(make: Make) -> None:
    reading, writing = os.pipe()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        worker = make()
        assert answer(worker, b"more") == b"more"
        os.close(writing)
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b"", "nobody can write any more"
        with pytest.raises(WorkerLost, match="SIGUSR1"):
            answer(worker, b"signal 10")
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(reading)


def test_a_copy_that_cannot_prepare_itself_is_replaced() -> None:
    def fail() -> Callable[[bytes], bytes]:
        raise ZeroDivisionError("a fault")

    worker = WorkerProcess("tests.adapters.worker_to_break")
    worker.fork(fail)
    try:
        assert answer(worker, b"more") == b"more"
    finally:
        worker.kill()


def test_it_ends_with_its_parent(make: Make) -> None:
    """The other end of the socket goes with the process that asks."""
    worker = make()
    pid = int(answer(worker, b"pid"))
    worker._forget()
    os.waitpid(pid, 0)
