"""`if … then … else …` and `??`, over columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE, as_texts, full, is_nan, select_text
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.types import Kind, Shape

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate


def choose(compiler: Compiler, value: typed.Choose) -> Evaluate:
    """Return the callable of `if … then … else …`; where the condition is missing, so is the result."""
    condition, kind = compiler.kleene(value.condition), value.info.type.kind
    node = value.info.shape is Shape.NODE
    truth = kind is Kind.TRUTH and value.info.maybe
    then = compiler.kleene(value.then) if truth else compiler.compile(value.then)
    other = compiler.kleene(value.otherwise) if truth else compiler.compile(value.otherwise)
    absent: Any = MISSING if kind is Kind.TRUTH else float("nan") if kind is Kind.NUMBER else None

    def chosen_by(frame: Any) -> Any:
        which = condition(frame)
        if not isinstance(which, np.ndarray):
            chosen = absent if which == MISSING else then(frame) if which == TRUE else other(frame)
            if not node:
                return chosen
            return as_texts(chosen, frame.size) if kind is Kind.TEXT else full(chosen, frame.size)
        if kind is Kind.TEXT:
            chosen = select_text(which == TRUE, then(frame), other(frame), frame.size)
            return select_text(which != MISSING, chosen, None, frame.size)
        if kind is Kind.LIST:
            rows = zip(which.tolist(), _rows(then(frame), frame.size), _rows(other(frame), frame.size), strict=True)
            return [a if w == TRUE else b if w == FALSE else () for w, a, b in rows]
        picked = np.where(which == TRUE, then(frame), other(frame))
        if kind is Kind.TRUTH:
            return np.where(which == MISSING, np.uint8(MISSING), picked) if truth else picked
        return np.where(which == MISSING, np.nan, picked)

    return chosen_by


def otherwise(compiler: Compiler, value: typed.Otherwise) -> Evaluate:
    """Return the callable of `left ?? right`."""
    kind, node = value.info.type.kind, value.info.shape is Shape.NODE
    if not value.left.info.maybe:
        return compiler.compile(value.left)
    if kind is Kind.TRUTH:
        return _otherwise_truth(compiler, value)
    x, y = compiler.compile(value.left), compiler.compile(value.right)

    def defaulted(frame: Any) -> Any:
        left = x(frame)
        if kind is Kind.TEXT:
            if isinstance(left, Texts):
                return select_text(left.codes >= 0, left, y(frame), len(left.codes))
            chosen = y(frame) if left is None else left
            return as_texts(chosen, frame.size) if node else chosen
        missing = is_nan(left)
        if isinstance(left, np.ndarray):
            return np.where(missing, y(frame), left) if missing.any() else left
        chosen = y(frame) if missing else left
        return full(chosen, frame.size) if node else chosen

    return defaulted


def _otherwise_truth(compiler: Compiler, value: typed.Otherwise) -> Evaluate:
    x, y, maybe = compiler.kleene(value.left), compiler.kleene(value.right), value.info.maybe
    node = value.info.shape is Shape.NODE

    def defaulted(frame: Any) -> Any:
        left, right = x(frame), y(frame)
        if node:
            column = full(left, frame.size)
            chosen: Any = np.where(column == MISSING, right, column)
        else:
            chosen = right if left == MISSING else left
        return chosen if maybe else chosen == TRUE

    return defaulted


def _rows(value: Any, size: int) -> Any:
    return value if isinstance(value, list) else [value] * size
