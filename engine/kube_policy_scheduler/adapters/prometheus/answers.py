"""The bytes that Prometheus answers, decoded straight into columns. Knows no HTTP.

An answer may have 130,000 series, and may come from a server that others write to or have replaced. So it is decoded
into typed structs, which stop at the first thing that does not belong in an answer; the labels stay JSON; and it is
decoded piece by piece, so that other threads wait for one piece at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.signals import LabelSets, SeriesColumns

PIECE_BYTES = 2**18
"""Decoded at once: about 800 series, half a millisecond in which no other thread runs Python."""
MAX_PIECE_BYTES = 2**22
"""The most of an answer that cannot be split, such as one series: decoded it takes at most ten times as much."""
MAX_WARNINGS = 10
MAX_TEXT = 300
"""Characters of a text of the server that are kept."""


class AnswerError(Exception):
    """The answer gives no value per node. The text is fit for a log line."""


class NotAnAnswerError(AnswerError):
    """These bytes do not come from Prometheus."""


class MalformedResultError(AnswerError):
    """The result is not written as Prometheus writes it."""


class WrongResultError(AnswerError):
    """The query gives something else than one number per node."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number for all nodes."""

    value: float
    timestamp: float
    """Unix seconds."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """An instant vector."""

    series: SeriesColumns
    warnings: tuple[str, ...] = ()
    nameless: bytes = b""
    """The labels of all series without the metric's name; empty where it was not asked for."""


_Number = Annotated[str, msgspec.Meta(max_length=64)]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    data: _Data
    warnings: list[msgspec.Raw] | None = None


class _Failure(msgspec.Struct, rename="camel"):
    error: str
    error_type: str = ""


class _Element(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, _Number] | None = None
    """None for a native histogram, which has no single value."""


_ANSWER = msgspec.json.Decoder(_Answer)
_FAILURE = msgspec.json.Decoder(_Failure)
_ELEMENTS = msgspec.json.Decoder(list[_Element])
_LABELS = msgspec.json.Decoder(list[dict[str, str]])
_SCALAR = msgspec.json.Decoder(tuple[float, _Number])
_TEXT = msgspec.json.Decoder(str)
_MALFORMED = (ValueError, RecursionError)
"""What decoders and `float` raise; errors of msgspec and of UTF-8 are ValueErrors."""

_RESULT = re.compile(rb'"result"\s*:\s*\[')
_HEAD_BYTES = 1024
_NEXT_ELEMENT = re.compile(rb',\s*\{\s*"metric"\s*:')
"""Within a string a quotation mark has a backslash before it: this is never part of a label's value."""
_CUT = b'"cut",'
"""Stands where elements were taken out."""
_NAME = re.compile(rb'"__name__":"[^"\\]*",?')


def decode_answer(
    body: bytes,
    *,
    known: LabelSets | None = None,
    nameless: bool = False,
    pause: Callable[[], None] = lambda: None,
    piece_bytes: int = PIECE_BYTES,
) -> Scalar | Vector:
    """Decode a successful answer to an instant query.

    Args:
        body: JSON.
        known: labels of an earlier answer; the same object is returned where they are the same now.
        nameless: whether `Vector.nameless` is wanted.
        pause: called between two pieces, to give other threads their turn.
        piece_bytes: about how much is decoded at once.

    Raises:
        AnswerError: it gives no number per node; see its subclasses.
    """
    rest, places = _split(body, piece_bytes)
    if max(len(rest), *(end - start for start, end in places), 0) > MAX_PIECE_BYTES + piece_bytes:
        raise MalformedResultError(f"one series of the answer is longer than {MAX_PIECE_BYTES >> 20} MiB")
    try:
        answer = _ANSWER.decode(rest)
    except _MALFORMED as error:
        raise NotAnAnswerError("not an answer of Prometheus") from error
    warnings = tuple(_text(warning) for warning in (answer.warnings or ())[:MAX_WARNINGS])
    match answer.data.result_type:
        case "scalar":
            return _scalar(answer.data.result, warnings)
        case "vector":
            columns = _Columns()
            result = bytes(answer.data.result)
            if places:
                if not result.startswith(b"[" + _CUT) or rest.count(_CUT) > 1:
                    raise _not_a_vector()  # what was cut was another array of that name
                result = b"[" + result[1 + len(_CUT) :]
            for start, end in places:
                columns.add(b"[%b]" % body[start:end])
                pause()
            columns.add(result)
            return columns.vector(known, warnings, nameless=nameless, pause=pause)
        case other:
            raise WrongResultError(
                f"the query returns a {other[:40]}, expected one value per node (an instant vector) or a scalar"
            )


def decode_failure(body: bytes) -> tuple[str, str]:
    """Return the text and the kind of the error that an answer tells; "" where it tells none."""
    try:
        failure = _FAILURE.decode(body)
    except _MALFORMED:
        return "", ""
    return failure.error[:MAX_TEXT], failure.error_type


def _split(body: bytes, piece_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return an answer with the last elements only, and where in `body` the elements before them are, by piece."""
    found = _RESULT.search(body, 0, _HEAD_BYTES)
    if found is None:
        return body, []
    places = []
    start = found.end()
    while (following := _NEXT_ELEMENT.search(body, start + piece_bytes)) is not None:
        places.append((start, following.start()))
        start = following.start() + 1
    return body[: found.end()] + _CUT + body[start:] if places else body, places


def _scalar(result: msgspec.Raw, warnings: tuple[str, ...]) -> Scalar:
    try:
        timestamp, text = _SCALAR.decode(result)
        return Scalar(float(text), timestamp, warnings)
    except _MALFORMED as error:
        raise MalformedResultError("the answer is not a valid scalar") from error


class _Columns:
    """The columns of a vector while they are filled, one array for each piece."""

    def __init__(self) -> None:
        self._labels: list[bytes] = []
        """Of each piece: the labels of its series, with a comma after each but the last."""
        self._lengths: list[NDArray[np.int64]] = []
        self._values: list[NDArray[np.float64]] = []
        self._timestamps: list[NDArray[np.float64]] = []
        self._without_value = 0

    def add(self, elements: bytes) -> None:
        """Add the elements of a JSON array."""
        try:
            decoded = _ELEMENTS.decode(elements)
            found = [(bytes(one.metric), one.value) for one in decoded if one.value is not None]
            values = np.array([float(value[1]) for _, value in found], np.float64)
        except _MALFORMED as error:
            raise _not_a_vector() from error
        self._without_value += len(decoded) - len(found)
        if found:
            self._labels.append(b",".join([labels for labels, _ in found]))
            self._lengths.append(np.array([len(labels) for labels, _ in found], np.int64))
            self._values.append(values)
            self._timestamps.append(np.array([value[0] for _, value in found], np.float64))

    def vector(
        self, known: LabelSets | None, warnings: tuple[str, ...], *, nameless: bool, pause: Callable[[], None]
    ) -> Vector:
        """Return the whole."""
        if not self._labels:
            if self._without_value:
                raise WrongResultError("the query returns histograms, expected one number per node")
            return Vector(SeriesColumns.of(()), warnings)
        lengths = np.concatenate(self._lengths)
        ends = np.cumsum(lengths + 1) - 1
        labels = LabelSets(b",".join(self._labels), ends - lengths, ends)
        if known is not None and known.same_as(labels):
            labels = known
        else:
            self._check_labels(pause)
        series = SeriesColumns(labels, np.concatenate(self._values), np.concatenate(self._timestamps))
        for column in (series.values, series.timestamps):
            column.flags.writeable = False
        return Vector(series, warnings, self._nameless(pause) if nameless else b"")

    def _check_labels(self, pause: Callable[[], None]) -> None:
        for piece in self._labels:
            try:
                _LABELS.decode(b"[%b]" % piece)
            except _MALFORMED as error:
                raise _not_a_vector() from error
            pause()

    def _nameless(self, pause: Callable[[], None]) -> bytes:
        pieces = []
        for piece in self._labels:
            pieces.append(_NAME.sub(b"", piece))
            pause()
        return b",".join(pieces)


def _not_a_vector() -> MalformedResultError:
    return MalformedResultError("the answer is not a valid instant vector")


def _text(raw: msgspec.Raw) -> str:
    try:
        return _TEXT.decode(raw)[:MAX_TEXT]
    except _MALFORMED:
        return bytes(raw)[:MAX_TEXT].decode(errors="replace")
