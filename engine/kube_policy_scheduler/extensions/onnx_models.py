"""`model("file.onnx", …)`: a trained model evaluated for all nodes at once. The only module that knows onnxruntime.

Models are files in one folder, which a variable of the environment names. They are read when a policy is checked, and
again when they change: a thread looks for that, so no decision waits for a file system.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.installation import command_for
from kube_policy_scheduler.lang.signature import MaybeNumber, TypeSpec, builtin
from kube_policy_scheduler.lang.types import Depends, Kind, Shape

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "POLICY_SCHEDULER_MODELS"
DEFAULT_FOLDER = "/etc/policy-scheduler/models"
MAX_BYTES = 16 << 20
MAX_INPUTS = 64
TRIAL_ROWS = 1000
MAX_TRIAL_SECONDS = 0.01
"""For `TRIAL_ROWS`: a model that takes longer would hold up every decision of its policy."""
TRIALS = 5
"""The fastest counts, as the machine may be busy."""
LOOK_SECONDS = 5.0
"""Between two looks whether files have changed."""


@dataclass(frozen=True, slots=True)
class Session:
    """One version of a model."""

    session: Any
    input_name: str
    inputs: int
    """Number of columns that it takes."""
    stamp: tuple[int, int, int]
    """Of the file: when it changed, its size and number."""

    def evaluate(self, rows: Any) -> Any:
        """Return `float64[rows]` for `float32[rows, inputs]`."""
        (first, *_) = self.session.run(None, {self.input_name: rows})
        return np.asarray(first).reshape(-1).astype(np.float64)


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

    def look(self) -> None:
        """Take over a newer version, if there is one that can be used."""
        try:
            now = _stamp(os.stat(self._path))  # noqa: PTH116
            if now in (self.current.stamp, self._refused):
                return
            self._refused = now
            self.current = read_session(self._path, self.name)
        except (OSError, ValueError) as error:
            logger.warning("the earlier version of model %s stays in use: %s", self.name, error)
        else:
            logger.info("model %s has changed, and is in use", self.name)


_models: dict[str, Model] = {}


@lru_cache(maxsize=1)
def _start_looking() -> threading.Thread:
    def look() -> None:
        while True:
            time.sleep(LOOK_SECONDS)
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
    folder = os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)
    if os.path.basename(name) != name or not name.endswith(".onnx") or name.startswith("."):  # noqa: PTH119
        raise ValueError(f"expected the name of a file such as price.onnx, got {name}; models are in {folder}")
    path = os.path.join(folder, name)  # noqa: PTH118
    known = _models.get(path)
    if known is not None:
        known.look()
        return known
    model = _models[path] = Model(name, path)
    _start_looking()
    return model


def read_session(path: str, name: str) -> Session:
    """Return the model of a file.

    Raises:
        ValueError: it cannot be read, is too large, takes or returns something else, or takes too long.
    """
    try:
        import onnxruntime
    except ImportError as error:
        advice = f"run {command_for('onnx')}, or build the image with `--build-arg EXTRAS=onnx`"
        raise ValueError(f"`model` needs onnxruntime; {advice}") from error
    content, stamp = _read(path, name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has exceptions of its own for each kind of problem
        raise ValueError(f"{name} is no model that onnxruntime can use: {str(error)[:200]}") from error
    inputs = session.get_inputs()
    shapes = ", ".join(f"{each.type} {each.shape}" for each in inputs)
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 2:
        raise ValueError(f"{name} takes {shapes}; expected one input float32[rows, columns]")
    rows, columns = inputs[0].shape
    if isinstance(rows, int) or not isinstance(columns, int) or not 0 < columns <= MAX_INPUTS:
        raise ValueError(f"{name} takes {shapes}; expected any number of rows and 1 to {MAX_INPUTS} columns")
    made = Session(session, inputs[0].name, columns, stamp)
    _try(made, name)
    return made


def _try(made: Session, name: str) -> None:
    """Raise ValueError where a model returns something else than a value per row, or is slow."""
    rows = np.zeros((TRIAL_ROWS, made.inputs), np.float32)
    best = float("inf")
    for _ in range(TRIALS):
        began = time.perf_counter()
        try:
            found = made.evaluate(rows)
        except Exception as error:
            raise ValueError(f"{name} fails for {TRIAL_ROWS} rows: {str(error)[:200]}") from error
        best = min(best, time.perf_counter() - began)
        if found.shape != (TRIAL_ROWS,):
            raise ValueError(f"{name} returns {found.size} values for {TRIAL_ROWS} rows; expected one for each")
    if best > MAX_TRIAL_SECONDS:
        took, limit = f"{1000 * best:.0f} ms", f"{1000 * MAX_TRIAL_SECONDS:g} ms"
        raise ValueError(f"{name} takes {took} for {TRIAL_ROWS} nodes; use a smaller model: at most {limit}")


def _read(path: str, name: str) -> tuple[bytes, tuple[int, int, int]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        advice = f"set {FOLDER_VARIABLE} to its folder"
        raise ValueError(f"cannot read the model {name}: {reason.lower()}; {advice}") from error
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


ModelFile: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=find_model)]


@builtin(shape=Shape.NODE, depends=Depends.CLUSTER, scores_only=True, problem=_arguments_problem)
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
    result: NDArray[np.float64] = current.evaluate(rows)
    result[missing | ~np.isfinite(result)] = np.nan
    return result
