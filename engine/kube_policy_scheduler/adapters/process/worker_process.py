"""Work in a process of its own, which is killed where it takes too much time or memory. Knows nothing of the work.

The process is started when it is first needed, does one thing after another, and ends when nothing has come for long.
The first one may be a copy of the caller (`fork`), which has the modules: importing them takes longer than most work.
Frames on a socket pair: a kind (one byte), a length (four bytes, big-endian), the content.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

CPU_SECONDS = 20
"""Of the process, for one piece of work."""
WALL_SECONDS = 120.0
"""The same on a machine that is busy with other things."""
MEMORY_BYTES = 256 << 20
"""Beside what the process has once its modules are imported."""
MAX_FRAME_BYTES = 64 << 20
_PIECE_BYTES = 1 << 18
IDLE_SECONDS = 300.0
"""Without work for this long the process ends and gives its memory back; the next start takes half a second."""
NICENESS = 5
"""Where processor time is scarce, who started the process gets three times as much once the first work is done: a start
waits for that."""
_HEAD = struct.Struct(">cI")
_SOCKET = 3
"""Descriptor of the socket in the process."""
_DESCRIPTORS = Path("/proc/self/fd")
_BY_FAULT = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class _Kind(Enum):
    WORK = b"w"
    ANSWER = b"a"
    NO_MEMORY = b"m"
    FAULT = b"f"


class WorkerExceeded(Exception):
    """The work took more than it may, or broke the process: it would do so again."""


class WorkerLost(Exception):
    """The process could not be started, or ended for a reason that has nothing to do with the work."""


class WorkerLate(WorkerLost):
    """There was no answer in time; the machine may be busy with other things."""


class WorkerProcess:
    """A process that runs a module, from the outside. For one thread at a time."""

    def __init__(
        self,
        module: str,
        *,
        cpu_seconds: int = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        niceness: int = NICENESS,
    ) -> None:
        """Start nothing yet.

        Args:
            module: run as `python -m`; calls `serve`.
            cpu_seconds: for one piece of work.
            wall_seconds: from the asking to the answer.
            memory_bytes: beside what the imported modules take.
            idle_seconds: after which the process ends; `math.inf`: with the one that asks.
            niceness: how much less processor time it gets where that is scarce, once the first work is done.
        """
        self._module = module
        self._limits = (cpu_seconds, memory_bytes, idle_seconds, niceness)
        self._wall_seconds = wall_seconds
        self._pid: int | None = None
        self._socket: socket.socket | None = None
        self._seconds = wall_seconds
        """For the present work."""
        self._deadline = 0.0
        self._within_cpu: float | None = None
        """Processor time that the process may take for the present work, in seconds."""
        self._most_cpu = math.inf
        """That which it may have had when the work is done."""
        self._lock = threading.Lock()
        """Around the life of the process, which may be stopped from another thread."""
        self._is_stopped = False
        self._again: bytes | None = None
        """Work of which nothing has been heard yet."""

    @property
    def is_started(self) -> bool:
        """Whether a process was started and has not been seen to end; asks nobody."""
        return self._pid is not None

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        with self._lock:
            if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0]:
                self._forget()
            return self._pid is not None

    def start(self) -> None:
        """Start the process, unless it is there.

        Raises:
            WorkerLost: the system has no room for another process.
        """
        self._start(self._spawn)

    def fork(self, prepare: Callable[[], Callable[[bytes], bytes]]) -> None:
        """Start the process as a copy of this one where the system is Linux, else as `start` does.

        Call it in the main thread, while no other thread does anything: what that one holds stays locked in the copy.

        prepare: called in the copy; returns what takes work and returns the answer, as the module gives it to `serve`.

        Raises:
            WorkerLost: as `start`.
        """
        if _DESCRIPTORS.is_dir():
            self._start(lambda theirs: self._fork(theirs, prepare))
        else:
            self.start()

    def _start(self, begin: Callable[[socket.socket], int]) -> None:
        """Start a process at the other end of a new socket, unless there is one; `begin` returns its id."""
        with self._lock:
            if self._is_stopped:
                raise WorkerLost("the process was stopped")
            if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                return
            self._forget()
            ours, theirs = socket.socketpair()
            try:
                self._pid = begin(theirs)
            except OSError as error:
                ours.close()
                raise WorkerLost(f"cannot start a process: {(error.strerror or str(error)).lower()}") from error
            finally:
                theirs.close()
            ours.setblocking(False)
            self._socket = ours

    def _fork(self, theirs: socket.socket, prepare: Callable[[], Callable[[bytes], bytes]]) -> int:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # none finds our handlers in the copy
        try:
            pid = os.fork()
            if pid == 0:
                _be_the_process(theirs, mask, prepare, name=self._module.rpartition(".")[2], limits=self._limits)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid

    def _spawn(self, theirs: socket.socket) -> int:
        arguments = [sys.executable, "-P", "-m", self._module, *map(str, self._limits)]
        # the modules that we have, whatever folder either of us was started in
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        # OpenBLAS would start threads that take memory and help nothing
        environment["OPENBLAS_NUM_THREADS"] = "1"
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing, 0),
            (os.POSIX_SPAWN_DUP2, 2, 1),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), _SOCKET),
        ]
        try:
            return os.posix_spawn(sys.executable, arguments, environment, file_actions=actions)
        finally:
            os.close(nothing)

    def ask(
        self,
        work: bytes,
        *,
        within_seconds: float | None = None,
        within_cpu_seconds: float | None = None,
        starts: bool = True,
    ) -> None:
        """Begin a piece of work; what was begun before and not finished is dropped, with its process.

        Args:
            work: what `serve` has handled.
            within_seconds: until the answer, no more than `wall_seconds`; None: so long.
            within_cpu_seconds: of the process, exactly, where the system tells it, as Linux does. It may need longer on
                a machine that is busy with other things. None: what the process may take for one piece of work.
            starts: whether to start the process where it is not there; that takes longer than some can wait.

        Raises:
            WorkerLost: there is no process, and none can be started.
        """
        if self._deadline:
            self.kill()
        self._seconds = min(self._wall_seconds, within_seconds if within_seconds is not None else self._wall_seconds)
        self._within_cpu = within_cpu_seconds
        self._most_cpu = math.inf
        if within_cpu_seconds is not None:
            pid = self._pid
            self._most_cpu = within_cpu_seconds + (_cpu_seconds(pid) if pid is not None else 0.0)
        deadline = time.monotonic() + self._seconds
        if starts:
            self._begin(work, deadline)
            self._again = work
        else:
            self._give(work, deadline)

    def _begin(self, work: bytes, deadline: float) -> None:
        self.start()
        self._give(work, deadline)

    def _give(self, work: bytes, deadline: float) -> None:
        connected = self._connected()
        self._deadline = deadline
        parts = [memoryview(_HEAD.pack(_Kind.WORK.value, len(work))), memoryview(work)]
        with contextlib.suppress(OSError):  # it ended right now, as nothing had come for long: noticed by `receive`
            while parts:
                try:
                    sent = connected.sendmsg(parts)
                except BlockingIOError:
                    if not _is_ready(connected, select.POLLOUT, deadline):
                        break
                    continue
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if sent:
                    parts[0] = parts[0][sent:]

    def receive(self) -> bytes:
        """Wait for the answer.

        Raises:
            WorkerExceeded: it took too much.
            WorkerLate: the system gave it no time, or it took all there was.
            WorkerLost: it ended for another reason.
        """
        again, self._again = self._again, None
        deadline = self._deadline
        connected = self._connected()
        try:
            kind, content = self._answer(connected, deadline)
        except TimeoutError:
            self.kill()
            raise WorkerLate(f"no answer within {self._seconds:g} s") from None
        except (OSError, EOFError, ValueError):
            ended = self._ended()
            if again is None or isinstance(ended, WorkerExceeded):
                raise ended from None
            self._begin(again, deadline)  # it may have ended before the work came
            return self.receive()
        self._deadline = 0.0
        if kind is _Kind.NO_MEMORY:
            self.kill()  # what it has taken is not all given back
            raise WorkerExceeded(f"it needs more than {self._limits[1] >> 20} MiB of memory")
        if kind is _Kind.FAULT:
            raise WorkerLost(f"unexpected error: {content.decode(errors='replace')}")
        return content

    def _answer(self, connected: socket.socket, deadline: float) -> tuple[_Kind, bytes]:
        """Return the answer.

        Raises:
            WorkerExceeded: the process has had its processor time before that; it is killed.
            TimeoutError: the time is over.
            EOFError: the process ended.
        """
        answer = bytearray()
        length = math.inf
        kind = b""
        patience = self._within_cpu if self._within_cpu is not None else math.inf
        while len(answer) < length:
            if _is_ready(connected, select.POLLIN, min(deadline, time.monotonic() + patience)):
                piece = connected.recv(_PIECE_BYTES)
                if not piece:
                    raise EOFError
                answer += piece
                if math.isinf(length) and len(answer) >= _HEAD.size:
                    kind, bytes_ = _HEAD.unpack_from(answer)
                    length = _HEAD.size + _within_a_frame(bytes_)
            elif time.monotonic() >= deadline:
                raise TimeoutError
            elif self._pid is not None:
                patience = self._most_cpu - _cpu_seconds(self._pid)
                if patience <= 0:
                    self.kill()
                    raise WorkerExceeded("it takes more processor time than it may")
        return _Kind(kind), bytes(answer[_HEAD.size :])

    def kill(self) -> None:
        """End the process at once."""
        self._reap(signal.SIGKILL)

    def stop(self) -> None:
        """End the process at once and for good; may be called while another thread waits for an answer."""
        with self._lock:
            self._is_stopped = True
            if self._pid is not None:
                os.kill(self._pid, signal.SIGKILL)  # not waited for before, so the number is no other's

    def _reap(self, number: signal.Signals) -> int:
        """Signal the process, wait for its end, and return its exit code, negative for a signal."""
        status = 0
        with self._lock:
            if self._pid is not None:
                os.kill(self._pid, number)
                _, status = os.waitpid(self._pid, 0)
            self._forget()
        return os.waitstatus_to_exitcode(status)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise WorkerLost("the process was ended")
        return self._socket

    def _ended(self) -> WorkerExceeded | WorkerLost:
        """Return why the process is gone."""
        code = self._reap(signal.SIGTERM)  # it hung up, or is about to end
        if code == -signal.SIGXCPU:
            return WorkerExceeded(f"it takes more than {self._limits[0]} s of CPU time")
        if -code in _BY_FAULT:
            return WorkerExceeded(f"it broke the process: {signal.Signals(-code).name}")
        return WorkerLost(f"the process ended: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._pid = None
        self._deadline = 0.0


def _cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has had; 0.0 where the system does not tell.

    Its clock as `clock_getcpuclockid(3)` makes it on Linux.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


# --- in the process --------------------------------------------------------------------------------------


def serve(handle: Callable[[bytes], bytes]) -> NoReturn:
    """Be the process: do what is asked, one piece after another, within the limits on the command line.

    handle: takes the work, returns the answer.
    """
    _serve(handle, (int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))


def _be_the_process(
    connected: socket.socket,
    mask: set[int | signal.Signals],
    prepare: Callable[[], Callable[[bytes], bytes]],
    *,
    name: str,
    limits: tuple[int, int, float, int],
) -> NoReturn:
    """Be the process as a copy of the one that asks: let go of all that is its own, then do what is asked.

    mask: signals that were blocked before.
    """
    try:
        gc.freeze()  # what is there is never finalized: its descriptors may be those of others by then
        gc.enable()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        os.dup2(connected.fileno(), _SOCKET)
        for descriptor in [int(entry.name) for entry in _DESCRIPTORS.iterdir()]:
            if descriptor > _SOCKET:
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(descriptor)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(name)
        _serve(prepare(), limits)
    except Exception:
        logging.getLogger(__name__).exception("unexpected error in a worker process")
    finally:
        os._exit(1)


def _serve(handle: Callable[[bytes], bytes], limits: tuple[int, int, float, int]) -> NoReturn:
    cpu_seconds, memory_bytes, idle_seconds, nicer = limits
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for who asked
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory gets scarce, this process goes first
    _limit_memory(memory_bytes)
    connected = socket.socket(fileno=_SOCKET)
    ends_by_itself = not math.isinf(idle_seconds)
    while True:
        try:
            if ends_by_itself:
                connected.settimeout(idle_seconds)
            _, work = _receive(connected)
            if ends_by_itself:
                connected.settimeout(None)
            _limit_time(cpu_seconds)
            done = _done(handle, work)
            if nicer:
                os.nice(nicer)
                nicer = 0
            _send(connected, *done)
        except (OSError, EOFError):  # also TimeoutError: no request came, or the parent process ended
            os._exit(0)


def _done(handle: Callable[[bytes], bytes], work: bytes) -> tuple[_Kind, bytes]:
    try:
        return _Kind.ANSWER, handle(work)
    except MemoryError:
        return _Kind.NO_MEMORY, b""
    except Exception as error:
        logging.getLogger(__name__).exception("unexpected error in a worker process")
        return _Kind.FAULT, f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]


def _limit_memory(more_bytes: int) -> None:
    """Let the data of this process grow by so much and no further, where the system can hold it to that."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _limit_time(seconds: int) -> None:
    """Have this process killed after this much more processor time."""
    most = int(time.process_time()) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


# --- frames ----------------------------------------------------------------------------------------------


def _is_ready(connected: socket.socket, event: int, until: float) -> bool:
    """Wait until there is something to read or room to write, or a steady time has come; return whether it was that."""
    ready = select.poll()  # not `select`, which knows the first 1,024 descriptors only
    ready.register(connected, event)
    return bool(ready.poll(math.ceil(1000 * max(0.0, until - time.monotonic()))))


def _within_a_frame(length: int) -> int:
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return length


def _send(connected: socket.socket, kind: _Kind, content: bytes) -> None:
    connected.sendall(_HEAD.pack(kind.value, len(content)) + content)


def _receive(connected: socket.socket) -> tuple[_Kind, bytes]:
    kind, length = _HEAD.unpack(_exactly(connected, _HEAD.size))
    return _Kind(kind), _exactly(connected, _within_a_frame(length))


def _exactly(connected: socket.socket, length: int) -> bytes:
    """Return this many bytes.

    Raises:
        EOFError: the other side hung up before.
    """
    content = bytearray()
    while len(content) < length:
        piece = connected.recv(min(length - len(content), _PIECE_BYTES))
        if not piece:
            raise EOFError
        content += piece
    return bytes(content)
