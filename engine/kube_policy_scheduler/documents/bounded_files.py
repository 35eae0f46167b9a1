"""Files that people name, plain or packed with gzip, read with a bound: a few KB may unpack to any size."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 2**30
"""Of one text: a snapshot of 5,000 nodes and 150,000 pods has a quarter of it."""
MOST_LINE_BYTES = 64 * 2**20
"""Of one line of JSON Lines."""
FREE_BYTES = 8 * 2**20
MOST_RATIO = 100
"""What is packed may unpack to `FREE_BYTES`, or to so many times its size: recorded clusters come to 20 or 60."""
_PIECE_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"


class UnreadableFileError(Exception):
    """A file cannot be read, or not within the bounds; the text says why and does not name it."""


def read_bounded(path: Path) -> bytes:
    """Return what a file holds, unpacked where it is packed.

    Raises:
        UnreadableFileError: it is not there, cannot be unpacked, or is too large.
    """
    with _reading(), path.open("rb") as raw:
        return read_stream(raw)


def read_stream(raw: BinaryIO) -> bytes:
    """Return what an opened file holds, unpacked where it is packed.

    Raises:
        UnreadableFileError: it cannot be read or unpacked, or is too large.
    """
    with _reading():
        pieces, read = [], 0
        for piece in _pieces(raw):
            read += len(piece)
            if read > MOST_BYTES:
                raise UnreadableFileError(f"it is larger than {MOST_BYTES >> 20:,} MiB")
            pieces.append(piece)
        return b"".join(pieces)


def lines_of(raw: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an opened file with their ends, unpacked where it is packed; the last may have no end.

    Raises:
        UnreadableFileError: it cannot be read or unpacked, or a line is too long.
    """
    with _reading():
        rest: list[bytes] = []
        length = 0
        for piece in _pieces(raw):
            *whole, last = piece.split(b"\n")
            for line in whole:
                yield b"".join((*rest, line, b"\n"))
                rest, length = [], 0
            rest.append(last)
            length += len(last)
            if length > MOST_LINE_BYTES:
                raise UnreadableFileError(f"a line is longer than {MOST_LINE_BYTES >> 20} MiB")
        if length:
            yield b"".join(rest)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(reason.lower()) from error


def _pieces(raw: BinaryIO) -> Iterator[bytes]:
    counted = io.BufferedReader(_Counted(raw))
    if counted.peek(2)[:2] != _GZIP_MAGIC:
        while piece := counted.read(_PIECE_BYTES):
            yield piece
        return
    unpacked = 0
    with gzip.GzipFile(fileobj=counted) as packed:
        while piece := packed.read(_PIECE_BYTES):
            unpacked += len(piece)
            if unpacked > max(FREE_BYTES, MOST_RATIO * counted.raw.count):
                raise UnreadableFileError(
                    f"it unpacks to more than {MOST_RATIO} times its size; unpack it first if that is meant"
                )
            yield piece


class _Counted(io.RawIOBase):
    """Counts what is read of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        self.count += len(piece)
        return len(piece)
