"""Functions that compare nodes with each other: among those that passed every filter, so only in scores."""

import numpy as np

from kube_policy_scheduler.framework.extremes import span_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.signature import Number, Numbers, Same, Words, builtin
from kube_policy_scheduler.lang.types import Depends, Shape


@builtin(
    shape=Shape.NODE, bounds=(0, 100), depends=Depends.FEASIBLE, scores_only=True, words=Words(foreign=("normalise",))
)
def normalize(frame: Frame, x: Same) -> Number:
    """Return x scaled to 0 to 100 over the feasible nodes: lowest 0, highest 100; if all are equal, 0."""
    values = _column(frame, x)
    span = span_of(values) if frame.extremes is None else frame.extremes.find(values)
    if span is None:
        return values
    low, high = span
    if not high > low:
        return np.where(np.isnan(values), np.nan, 0.0)
    # halves, so that the span of two extremes does not overflow
    return (values / 2 - low / 2) / (high / 2 - low / 2) * 100


@builtin(shape=Shape.NODE, bounds=(0, 100), depends=Depends.FEASIBLE, scores_only=True)
def rank(frame: Frame, x: Same) -> Number:
    """Return the rank of x among the feasible nodes: 100 for the highest, 0 for the lowest; equal values rank equal."""
    if frame.extremes is not None:
        frame.extremes.reject()
    values = _column(frame, x)
    known = np.unique(values[~np.isnan(values)])
    if len(known) < 2:
        return np.where(np.isnan(values), np.nan, 0.0)
    places = np.searchsorted(known, values) / (len(known) - 1) * 100
    return np.where(np.isnan(values), np.nan, places)


@builtin(bounds=(0, 100))
def scale(x: Same, low: Same, high: Same) -> Number:
    """Return the position of x between low (0) and high (100), limited to 0 to 100; reversed if low is above high.

    If low and high are equal, the result is 0 below them, otherwise 100.
    """
    # halves, so that the span of two extremes does not overflow
    span = np.subtract(np.divide(high, 2), np.divide(low, 2))
    above = np.subtract(np.divide(x, 2), np.divide(low, 2))
    with np.errstate(all="ignore"):
        share = np.where(span == 0, np.where(np.isnan(above), np.nan, np.where(above < 0, 0, 1)), above / span)
    result = np.clip(share * 100, 0, 100)
    return result if result.ndim else float(result)


def _column(frame: Frame, x: Numbers) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return x if isinstance(x, np.ndarray) else np.full(frame.size, x)
