"""The process that evaluates one trained model; `onnx_models` has the other side.

The only module that knows onnxruntime. A model is a program: its file, and the values that it is given, can make it
take any time and memory. So it runs where it can be killed.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import onnxruntime

from kube_policy_scheduler.adapters.process.worker_process import serve
from kube_policy_scheduler.extensions.onnx_files import NoModelError, tensors_elsewhere
from kube_policy_scheduler.lang.model_card import CARD_KEY, CardError, encode_card, read_card
from kube_policy_scheduler.wording import some

LOAD, EVALUATE = b"l", b"e"
"""First byte of what is asked. Then: limits as JSON, a line end, the file; or `float32[rows, columns]`."""
VALUES, PROBLEM, LOADED = b"v", b"p", b"l"
"""First byte of an answer. Then: `float64[rows]`; a text; the number of columns, a line end, and the card, if any."""
TRIALS = 5
"""The fastest counts."""


class ModelServer:
    """Holds one model."""

    def __init__(self) -> None:
        """Hold none."""
        self._session: Any = None
        self._input = self._output = ""
        self._columns = 0
        self._card = b""

    def handle(self, work: bytes) -> bytes:
        """Do what is asked."""
        kind, content = work[:1], work[1:]
        try:
            if kind == LOAD:
                limits, _, file = content.partition(b"\n")
                self._load(file, **json.loads(limits))
                return LOADED + str(self._columns).encode() + b"\n" + self._card
            rows = np.frombuffer(content, np.float32).reshape(-1, max(1, self._columns))
            values: bytes = self._evaluate(rows).tobytes()
        except ValueError as error:
            return PROBLEM + str(error).encode(errors="replace")
        return VALUES + values

    def _load(self, file: bytes, *, most_inputs: int, trial_rows: int, most_trial_seconds: float) -> None:
        """Take over a model.

        Raises:
            ValueError: it cannot be used.
        """
        try:
            elsewhere = list(tensors_elsewhere(file))
        except NoModelError as error:
            raise ValueError(f"is no model that onnxruntime can use: {error}") from error
        if elsewhere:
            names = some(elsewhere, limit=3)
            raise ValueError(f"keeps values in other files ({names}); save it with all values in one file")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has exceptions of its own for each kind of problem
            raise ValueError(f"is no model that onnxruntime can use: {str(error)[:200]}") from error
        inputs = session.get_inputs()
        shapes = ", ".join(f"{each.type} {each.shape}" for each in inputs)
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 2:
            raise ValueError(f"takes {shapes}; expected one input float32[rows, columns]")
        rows, columns = inputs[0].shape
        if isinstance(rows, int) or not isinstance(columns, int) or not 0 < columns <= most_inputs:
            raise ValueError(f"takes {shapes}; expected any number of rows and 1 to {most_inputs} columns")
        self._card = _card(session.get_modelmeta().custom_metadata_map.get(CARD_KEY, ""), columns)
        self._session, self._columns = session, columns
        self._input, self._output = inputs[0].name, session.get_outputs()[0].name
        self._try(trial_rows, most_trial_seconds)

    def _try(self, count: int, most_seconds: float) -> None:
        """Raise ValueError where the model returns something else than a value per row, or is slow."""
        rows = np.zeros((count, self._columns), np.float32)
        best = float("inf")
        for _ in range(TRIALS):
            began = time.process_time()
            self._evaluate(rows)
            best = min(best, time.process_time() - began)
        if best > most_seconds:
            took, limit = f"{1000 * best:.0f} ms", f"{1000 * most_seconds:g} ms"
            raise ValueError(f"takes {took} for {count} nodes; use a smaller model: at most {limit}")

    def _evaluate(self, rows: Any) -> Any:
        """Return `float64[rows]`.

        Raises:
            ValueError: the model fails, or returns something else.
        """
        try:
            (first,) = self._session.run([self._output], {self._input: rows})
            found = np.asarray(first).reshape(-1).astype(np.float64)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"fails for {len(rows)} rows: {str(error)[:200]}") from error
        if found.shape != (len(rows),):
            raise ValueError(f"returns {found.size} values for {len(rows)} rows; expected one for each")
        return found


def _card(text: str, columns: int) -> bytes:
    """Return the card of a model, b"" where it has none.

    Raises:
        ValueError: it cannot be read, or is about another number of columns.
    """
    if not text:
        return b""
    try:
        card = read_card(text.encode(errors="replace"))
    except CardError as error:
        raise ValueError(f"has a card ({CARD_KEY}) that cannot be used: {error}") from error
    if len(card.inputs) != columns:
        raise ValueError(f"takes {columns} columns, but its card ({CARD_KEY}) is about {len(card.inputs)}")
    return encode_card(card).encode()


if __name__ == "__main__":
    serve(ModelServer().handle)
