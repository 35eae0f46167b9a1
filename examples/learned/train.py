"""Train a model on rows of `policyctl dataset`, and write it as ONNX with a card that the scheduler watches it by.

    python train.py rows.parquet --predict busy_later --outcome 'node_load1@10min' --output models/load.onnx

Needs the extra `learn`. The rows of the last day are held out: the model does not see them, and its error on them is
in its card. Train on days that are like those to come, and on decisions that reach all nodes, not the best ones alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from pyarrow import ArrowInvalid, ArrowNotImplementedError, csv, parquet
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingRegressor

from kube_policy_scheduler.lang.model_card import (
    CARD_KEY,
    CardError,
    ModelCard,
    OutcomeCard,
    encode_card,
    input_card,
)
from kube_policy_scheduler.times import parse_duration

Column = NDArray[np.float64]
MOST_DIFFERENCE = 1e-3
"""Between what scikit-learn and ONNX predict, as a share of the range of the predictions: `float32` is not exact."""


def fail(why: str) -> NoReturn:
    """End with an error that a person can act on."""
    sys.exit(f"train.py: {why}")


@dataclass(frozen=True)
class Rows:
    """Rows without missing values, in order of time."""

    names: tuple[str, ...]
    """Of the inputs, as the policy writes them."""
    times: Column
    inputs: NDArray[np.float32]
    target: Column

    def where(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(self.names, self.times[chosen], self.inputs[chosen], self.target[chosen])


def read(file: Path, predict: str, *, as_logarithm: bool) -> Rows:
    """Read the rows of a dataset."""
    try:
        table: Any = parquet.read_table(file) if file.suffix == ".parquet" else csv.read_csv(file)
    except (OSError, ArrowInvalid) as error:
        fail(f"cannot read {file}: {error}")
    columns = table.column_names
    if columns[:3] != ["time", "pod", "node"] or "wait_seconds" not in columns:
        fail(f"{file} is no table of `policyctl dataset`")
    names = tuple(columns[3 : columns.index("wait_seconds")])
    if predict not in columns[columns.index("wait_seconds") :]:
        outcomes = ", ".join(columns[columns.index("wait_seconds") :])
        fail(f"{file} has no outcome {predict}; it has {outcomes}")
    numbers = [_numbers(table, name, file) for name in ("time", *names, predict)]
    times, inputs, target = numbers[0], np.stack(numbers[1:-1], axis=1).astype(np.float32), numbers[-1]
    if as_logarithm:
        with np.errstate(divide="ignore", invalid="ignore"):
            target = np.log(target)
    is_known = np.isfinite(inputs).all(axis=1) & np.isfinite(target)
    print(f"{int(is_known.sum())} of {len(is_known)} rows are complete", flush=True)
    found = Rows(names, times, inputs, target).where(is_known)
    order = np.argsort(found.times, kind="stable")
    return Rows(names, found.times[order], found.inputs[order], found.target[order])


def _numbers(table: Any, name: str, file: Path) -> Column:
    try:
        return np.array(table.column(name).cast("float64").to_numpy(), np.float64)
    except (ArrowInvalid, ArrowNotImplementedError):
        fail(f"{file}: the column {name} has something else than numbers")


def train(rows: Rows, held_out: Rows, *, seed: int) -> tuple[Any, float]:
    """Return a model as ONNX, and its mean absolute error on rows that it did not see."""
    model = GradientBoostingRegressor(n_estimators=100, max_depth=4, subsample=0.7, random_state=seed)
    model.fit(rows.inputs, rows.target)
    made: Any = to_onnx(model, rows.inputs[:1])
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (predicted,) = session.run(None, {session.get_inputs()[0].name: held_out.inputs})
    predicted, wanted = np.asarray(predicted).ravel(), model.predict(held_out.inputs)
    if np.abs(predicted - wanted).max() > MOST_DIFFERENCE * max(np.ptp(wanted), 1e-9):
        fail("the model predicts something else as ONNX: use another kind of model, or another version of skl2onnx")
    return made, float(np.abs(predicted - held_out.target).mean())


def write(file: Path, content: bytes) -> None:
    """Replace a file in one step: the scheduler looks at it every five seconds."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(file)


def outcome(text: str) -> tuple[str, float]:
    """Return a query and seconds. text: as of `policyctl dataset --outcome`, without the name."""
    query, _, after = text.rpartition("@")
    seconds = parse_duration(after)
    if not query or not seconds:
        fail(f"--outcome: expected PROMQL@DURATION such as 'node_load1@10min', got {text!r}")
    return query, seconds


def main() -> None:
    """Train a model."""
    parser = argparse.ArgumentParser(description="Train a model on rows of `policyctl dataset`.")
    parser.add_argument("rows", type=Path, help="the table: .parquet, .csv or .csv.gz")
    parser.add_argument("--predict", required=True, metavar="COLUMN", help="the outcome that the model predicts")
    parser.add_argument("--log", action="store_true", help="predict its natural logarithm, as of a duration")
    parser.add_argument("--outcome", metavar="PROMQL@DURATION", help="what the scheduler compares predictions with")
    parser.add_argument("--held-out", type=float, default=1.0, metavar="DAYS", help="the last days, not trained on")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.onnx")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = read(given.rows, given.predict, as_logarithm=given.log)
    after = outcome(given.outcome) if given.outcome else None
    is_old = rows.times < rows.times.max(initial=0.0) - given.held_out * 86_400
    if is_old.sum() < 100 or (~is_old).sum() < 10:
        fail(f"{int(is_old.sum())} rows to train on and {int((~is_old).sum())} held out: need 100 and 10")
    old, new = rows.where(is_old), rows.where(~is_old)
    made, error = train(old, new, seed=given.seed)
    print(f"trained on {len(old.target)} rows, held out {len(new.target)}")
    print(f"mean error on the rows held out: {error:.4f}")
    plain = float(np.abs(old.target.mean() - new.target).mean())
    print(f"if it always said the mean: {plain:.4f}")
    for at, name in enumerate(rows.names):
        alone = float(np.abs(new.inputs[:, at] - new.target).mean())
        if alone < plain:
            print(f"if it said the input `{name}`: {alone:.4f}")
    try:
        inputs = tuple(input_card(name, old.inputs[:, at]) for at, name in enumerate(rows.names))
    except CardError as problem:
        fail(str(problem))
    predicts = OutcomeCard(*after, error) if after else None
    entry = made.metadata_props.add()
    entry.key, entry.value = CARD_KEY, encode_card(ModelCard(inputs, rows=len(old.target), outcome=predicts))
    write(given.output, made.SerializeToString())
    print(f"{given.output}: {given.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
