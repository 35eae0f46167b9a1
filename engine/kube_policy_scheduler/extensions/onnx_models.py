"""`model("file.onnx", …)`: a trained model evaluated for all nodes at once, in a process that can be killed.

Models are files in one folder, which a variable of the environment names. They are read when a policy is checked, and
again when they change: a thread looks for that, so no decision waits for a file system, nor for a process to start.
While a model has no process, its result is missing for every node, as that of a metric without an answer.
"""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import threading
import time
import weakref
from collections import deque
from functools import lru_cache
from importlib.util import find_spec
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.adapters.process.worker_process import WorkerExceeded, WorkerLost, WorkerProcess
from kube_policy_scheduler.installation import command_for
from kube_policy_scheduler.lang.model_card import ModelCard, read_card
from kube_policy_scheduler.lang.signature import MaybeNumber, TypeSpec, Unavailable, Words, builtin
from kube_policy_scheduler.lang.types import Depends, Kind, Shape

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "POLICY_SCHEDULER_MODELS"
DEFAULT_FOLDER = "/etc/policy-scheduler/models"
MODULE = "kube_policy_scheduler.extensions.onnx_worker"
MAX_BYTES = 16 << 20
MAX_INPUTS = 64
TRIAL_ROWS = 1000
MAX_TRIAL_SECONDS = 0.01
"""Processor time for `TRIAL_ROWS`: a model that takes longer would hold up every decision of its policy."""
LOAD_CPU_SECONDS = 5
"""To read a model and try it."""
BASE_SECONDS = 0.02
"""Processor time that an evaluation may take beside twice that of the trial, by its rows; else it is killed."""
MOST_SECONDS = 1.0
"""Until the answer of an evaluation, on a machine that is busy with other things."""
MEMORY_BYTES = 256 << 20
"""Beside what onnxruntime takes."""
SAID_EVERY_SECONDS = 60.0
"""At most: the same problem in the log."""
LOOK_SECONDS = 5.0
"""Between two looks whether files have changed."""
PAUSES_SECONDS = (0.0, 60.0, 600.0)
"""After the first kill of a model's process, the second and all others: until it gets another process."""
FORGIVEN_SECONDS = 3600.0
"""After which a time does not count any more."""


class Session:
    """One version of a model, and its process."""

    def __init__(self, content: bytes, stamp: tuple[int, int, int], name: str) -> None:
        """Start the process.

        Args:
            content: of the file.
            stamp: of the file: when it changed, its size and number.
            name: of the file.

        Raises:
            ValueError: it cannot be used.
        """
        self.stamp = stamp
        self.name = name
        self._content = content
        self._lock = threading.Lock()
        self._of_process = _copies[0]
        self._process = WorkerProcess(
            MODULE, cpu_seconds=LOAD_CPU_SECONDS, memory_bytes=MEMORY_BYTES, idle_seconds=math.inf, niceness=0
        )
        weakref.finalize(self, _end, self._process, os.getpid())
        self.inputs, self.card = self._load()
        """Number of columns that it takes, and its card; None: it has none."""

    def again(self) -> Session:
        """Return the same version with a new process.

        Raises:
            ValueError: it cannot be used.
        """
        return Session(self._content, self.stamp, self.name)

    def _load(self) -> tuple[int, ModelCard | None]:
        limits = {"most_inputs": MAX_INPUTS, "trial_rows": TRIAL_ROWS, "most_trial_seconds": MAX_TRIAL_SECONDS}
        try:
            self._process.ask(b"l" + json.dumps(limits).encode() + b"\n" + self._content)
            answer = self._process.receive()
        except (WorkerExceeded, WorkerLost) as error:
            raise ValueError(f"{self.name} cannot be read and tried: {error}") from error
        if answer[:1] != b"l":
            self._process.kill()
            raise ValueError(f"{self.name} {answer[1:].decode()}")
        columns, _, card = answer[1:].partition(b"\n")
        return int(columns), read_card(card) if card else None

    def is_started(self) -> bool:
        """Return whether it has a process here, which may have ended since."""
        return self._of_process == _copies[0] and self._process.is_started

    def is_running(self) -> bool:
        """Return whether it can be evaluated here: a copy of the process that started it cannot."""
        return self._of_process == _copies[0] and self._process.is_running

    def evaluate(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `float64[rows]` for `float32[rows, inputs]`.

        Raises:
            WorkerExceeded: it took too much time or memory; its process is gone.
            WorkerLost: it has no process, or that is gone for another reason.
            ValueError: it fails for these rows.
        """
        seconds = BASE_SECONDS + 2 * MAX_TRIAL_SECONDS * len(rows) / TRIAL_ROWS
        work = b"e" + rows.tobytes()
        with self._lock:
            self._process.ask(work, within_seconds=MOST_SECONDS, within_cpu_seconds=seconds, starts=False)
            answer = self._process.receive()
        if answer[:1] != b"v":
            raise ValueError(answer[1:].decode())
        return np.frombuffer(answer, np.float64, offset=1).copy()


_copies = [0]
"""How many copies (`fork`) lead to this process: it must not talk to those that another one has started."""


def _count_copy() -> None:
    _copies[0] += 1


os.register_at_fork(after_in_child=_count_copy)


def _end(process: WorkerProcess, of_process: int) -> None:
    """End a process with its session, unless this is a copy of the process that started it."""
    if os.getpid() == of_process:
        process.kill()


class Model:
    """A model by its file, in its newest version that can be used."""

    def __init__(self, name: str, path: str) -> None:
        """Read it.

        Raises:
            ValueError: it cannot be used.
        """
        self.name = name
        self._path = path
        self.current = read_session(path, name)
        self._refused: tuple[int, int, int] | None = None
        self._ended_at: list[float] = []
        """When processes of this version were killed, in steady seconds."""
        self._looking = threading.Lock()
        self._said_at = -math.inf
        """When a problem was logged last, in steady seconds."""

    def look(self) -> None:
        """Take over a newer version if there is one that can be used, and give it a process where it has none."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        try:
            now = _stamp(os.stat(self._path))  # noqa: PTH116
            if now in (self.current.stamp, self._refused):
                self._restart()
                return
            self._refused = now
            self.current = read_session(self._path, self.name)
            self._ended_at.clear()
        except (OSError, ValueError) as error:
            logger.warning("the earlier version of model %s stays in use: %s", self.name, error)
            self._restart()
        else:
            logger.info("model %s has changed, and is in use", self.name)

    def _restart(self) -> None:
        """Begin a new process if there is none and the pause is over."""
        if self.current.is_running():
            return
        now = time.monotonic()
        recent = [at for at in self._ended_at if now - at < FORGIVEN_SECONDS]
        pause = PAUSES_SECONDS[min(len(recent), len(PAUSES_SECONDS)) - 1] if recent else 0.0
        if recent and now - recent[-1] < pause:
            return
        try:
            self.current = self.current.again()
        except ValueError as error:
            self._ended_at = [*recent, now]
            logger.warning("model %s has no process: %s", self.name, error)
        else:
            logger.info("model %s is in use again", self.name)

    def evaluate(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `float64[rows]` for `float32[rows, inputs]`.

        Raises:
            Unavailable: there are no values now; the log has said why.
        """
        if not len(rows):
            return np.empty(0)
        current = self.current
        if not current.is_started():
            _look_soon.set()
            raise Unavailable(f"model {self.name} has no process")
        try:
            return current.evaluate(rows)
        except (WorkerExceeded, WorkerLost) as error:
            self._ended_at.append(time.monotonic())
            _look_soon.set()
            why = f"its process was ended: {error}"
        except ValueError as error:
            why = str(error)
        if time.monotonic() - self._said_at >= SAID_EVERY_SECONDS:
            self._said_at = time.monotonic()
            logger.warning("model %s has no value for %d nodes: %s", self.name, len(rows), why)
        raise Unavailable(f"model {self.name}: {why}")


_models: weakref.WeakValueDictionary[str, Model] = weakref.WeakValueDictionary()
_recent: deque[Model] = deque(maxlen=8)
"""Models that are kept although no policy holds them now: one is about to be checked again."""
_finding = threading.Lock()
_look_soon = threading.Event()


@lru_cache(maxsize=1)
def _start_looking() -> threading.Thread:
    def look() -> None:
        while True:
            _look_soon.wait(LOOK_SECONDS)
            _look_soon.clear()
            for model in list(_models.values()):
                model.look()

    thread = threading.Thread(target=look, name="onnx models", daemon=True)
    thread.start()
    return thread


def find_model(name: str) -> Model:
    """Return the model of a file in the folder of models.

    Raises:
        ValueError: there is none, or it cannot be used; the text says what to do.
    """
    path = _path(name)
    if os.path.basename(name) != name or not name.endswith(".onnx") or name.startswith("."):  # noqa: PTH119
        folder = os.path.dirname(_path("x"))  # noqa: PTH120
        raise ValueError(f"expected the name of a file such as price.onnx, got {name}; models are in {folder}")
    with _finding:
        model = _models.get(path)
        if model is None:
            model = _models[path] = Model(name, path)
        else:
            model.look()
        if model not in _recent:
            _recent.append(model)
    _start_looking()
    return model


def _path(name: str) -> str:
    return os.path.join(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER), name)  # noqa: PTH118


def read_session(path: str, name: str) -> Session:
    """Return the model of a file.

    Raises:
        ValueError: it cannot be read, is too large, takes or returns something else, or takes too long.
    """
    if problem := runtime_problem():
        raise ValueError(problem)
    return Session(*_read(path, name), name)


def runtime_problem() -> str:
    """Return why no model can be used here, with what to do; "" if nothing is wrong."""
    if find_spec("onnxruntime") is not None:
        return ""
    return f"`model` needs onnxruntime; run {command_for('onnx')}, or build the image with `--build-arg EXTRAS=onnx`"


def _read(path: str, name: str) -> tuple[bytes, tuple[int, int, int]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        folder = os.path.dirname(path)  # noqa: PTH120
        advice = f"put it there, or set {FOLDER_VARIABLE} to the folder of your models"
        raise ValueError(f"there is no model {name} in {folder}; {advice}") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ValueError(f"cannot read the model {path}: {reason.lower()}; check who may read it") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"the model {name} is not a regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"the model {name} is larger than {MAX_BYTES >> 20} MiB; use a smaller model")
    return content, _stamp(about)


def _stamp(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_mtime_ns, about.st_size, about.st_ino


def _arguments_problem(file: Model, count: int) -> str:
    """Return what is wrong with the number of inputs, "" where nothing is."""
    wanted = file.current.inputs
    return "" if count == wanted else f"{file.name} takes {wanted} inputs, but {count} are given"


def _card(name: str) -> ModelCard | None:
    """Return the card of a model that a policy has named."""
    model = _models.get(_path(name))
    return model.current.card if model is not None else None


ModelFile: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=find_model)]


@builtin(
    shape=Shape.NODE,
    depends=Depends.CLUSTER,
    scores_only=True,
    words=Words(problem=_arguments_problem, trained=True, card=_card, unusable=runtime_problem),
)
def model(frame: Any, file: ModelFile, *inputs: MaybeNumber) -> MaybeNumber:
    """Return what a trained model (ONNX) says of each node. The inputs are its columns, in order. If an input of a node
    is missing, the result is missing."""
    current = file.current
    rows = np.empty((frame.size, current.inputs), np.float32)
    if len(inputs) != current.inputs:  # the file has changed since the policy was checked
        raise ValueError(f"{file.name} takes {current.inputs} inputs now, but the policy gives {len(inputs)}")
    for at, values in enumerate(inputs):
        rows[:, at] = values
    missing = ~np.isfinite(rows).all(axis=1)
    rows[missing] = 0.0
    result: NDArray[np.float64] = file.evaluate(rows)
    result[missing | ~np.isfinite(result)] = np.nan
    return result
