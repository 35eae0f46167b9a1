"""What a model's file names outside of itself. Reads just as much of the format as that takes: it is protobuf.

The fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (IR version 13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""By kind of message: its fields that hold messages in which there may be tensors."""
_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 8, 13, 14
"""Fields of a tensor. The location is 0 for data inside of the file."""


class NoModelError(ValueError):
    """The bytes are no model in the ONNX format."""


def tensors_elsewhere(content: bytes) -> Iterator[str]:
    """Yield the names of tensors whose data are in other files, of all graphs in a model.

    onnxruntime reads such files from the folder of the process: any file that it may read would become numbers.

    Raises:
        NoModelError: it is something else.
    """
    pending = [("model", memoryview(content))]
    while pending:
        kind, message = pending.pop()
        inside = _INSIDE[kind]
        name, is_elsewhere = "", False
        for number, value in _fields(message):
            if isinstance(value, memoryview):
                if number in inside:
                    pending.append((inside[number], value))
                elif kind == "tensor" and number == _NAME:
                    name = bytes(value[:100]).decode(errors="replace")
            if kind == "tensor" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)):
                is_elsewhere = True
        if is_elsewhere:
            yield name or "unnamed"


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a message: their numbers, and the bytes or the number that is there."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        length = 0
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(message, at)
            case 5:
                length = 4
            case _:
                raise NoModelError("it is not in the ONNX format")
        if length > end - at:
            raise NoModelError("it is cut off, or not in the ONNX format")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number of at most ten bytes, and where the next field begins."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise NoModelError("it is cut off, or not in the ONNX format")
