"""Calls of builtins: kernels over numbers take columns, kernels over texts are asked once per distinct text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import as_texts, by_value, map_texts, texts_of
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.types import Kind


def apply(value: typed.Apply, arguments: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the callable of a call, from those of its arguments."""
    kernel, reads_frame = value.kernel, value.builtin.reads_frame or value.builtin.staged
    if any(argument.info.type.kind is Kind.TEXT for argument in value.arguments):
        return _by_text(value, arguments)
    if reads_frame:
        if not arguments:
            return kernel
        return lambda frame: kernel(frame, *(argument(frame) for argument in arguments))
    if len(arguments) == 1:
        only = arguments[0]
        return lambda frame: kernel(only(frame))
    return lambda frame: kernel(*(argument(frame) for argument in arguments))


def _by_text(value: typed.Apply, arguments: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    kernel = value.kernel
    texts = [at for at, argument in enumerate(value.arguments) if argument.info.type.kind is Kind.TEXT]
    gives = value.info.type.kind
    absent: Any = {Kind.TRUTH: False, Kind.NUMBER: float("nan"), Kind.LIST: ()}.get(gives)
    frames = value.builtin.reads_frame

    def call(frame: Any) -> Any:
        given = [argument(frame) for argument in arguments]
        inner = partial(kernel, frame) if frames else kernel
        columns = [at for at in texts if isinstance(given[at], Texts)]
        if not columns:
            return absent if any(given[at] is None for at in texts) else inner(*given)
        others = [value for at, value in enumerate(given) if at not in columns]
        if len(columns) == 1 and not any(other is None or isinstance(other, np.ndarray) for other in others):
            return _one_column(inner, given, columns[0], gives, absent)
        return _row_by_row(inner, given, texts, gives, absent, frame.size)

    return call


def _one_column(kernel: Callable[..., Any], given: list[Any], at: int, gives: Kind, absent: Any) -> Any:
    column: Texts = given[at]
    before, after = given[:at], given[at + 1 :]

    def one(text: str) -> Any:
        return kernel(*before, text, *after)

    match gives:
        case Kind.TEXT:
            return map_texts(column, one)
        case Kind.TRUTH:
            return by_value(column, one, absent=absent, dtype=np.bool_)
        case Kind.NUMBER:
            return by_value(column, one, absent=absent, dtype=np.float64)
        case _:
            made = [*(one(text) for text in column.values), absent]
            return [made[code] for code in column.codes.tolist()]


def _row_by_row(
    kernel: Callable[..., Any], given: list[Any], texts: list[int], gives: Kind, absent: Any, size: int
) -> Any:
    """Ask the kernel for each row: where two texts, or a text and a number, both differ by node."""
    columns: list[list[Any]] = []
    for at, value in enumerate(given):
        if at in texts:
            coded = as_texts(value, size)
            words: list[str | None] = [*coded.values, None]
            columns.append([words[code] for code in coded.codes.tolist()])
        else:
            columns.append(value.tolist() if isinstance(value, np.ndarray) else [value] * size)
    rows = [absent if any(row[at] is None for at in texts) else kernel(*row) for row in zip(*columns, strict=True)]
    match gives:
        case Kind.TEXT:
            return texts_of(rows)
        case Kind.LIST:
            return rows
        case _:
            return np.array(rows, np.bool_ if gives is Kind.TRUTH else np.float64)
