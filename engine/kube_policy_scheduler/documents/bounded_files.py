"""Files that people name, plain or packed with gzip, read with a bound: a few KB may unpack to any size."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

MOST_BYTES = 2**30
"""Of one text: a snapshot of 5,000 nodes and 150,000 pods has a quarter of it."""
MOST_LINE_BYTES = 64 * 2**20
"""Of one line of JSON Lines."""
WRITER_SECONDS = 5.0
"""For somebody to open the other end of a pipe."""
FREE_BYTES = 8 * 2**20
MOST_RATIO = 100
"""What is packed may unpack to `FREE_BYTES`, or to so many times its size: recorded clusters come to 20 or 60."""
_PIECE_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"


class Readable(Protocol):
    """An opened file."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Return at most this many bytes; none at the end."""
        ...


class UnreadableFileError(Exception):
    """A file cannot be read, or not within the bounds; the text says why and does not name it."""


class MissingFileError(UnreadableFileError):
    """There is no such file."""


def problem_of(path: Path, error: UnreadableFileError) -> str:
    """Return why a file cannot be used, with its name: the one wording for people."""
    return f"{path} does not exist" if isinstance(error, MissingFileError) else f"cannot read {path}: {error}"


def encoding_problem(content: bytes) -> str:
    """Return which byte makes a text no UTF-8, in the one wording for people; "" if none does."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"byte 0x{content[error.start]:02x} is not UTF-8"
    return ""


def read_bounded(path: Path, *, most_bytes: int | None = None) -> bytes:
    """Return what a file holds, unpacked where it is packed.

    Raises:
        UnreadableFileError: as `opened`; or it cannot be unpacked, or is too large.
    """
    with opened(path) as raw:
        return read_stream(raw, most_bytes=most_bytes)


@contextmanager
def opened(path: Path) -> Iterator[Readable]:
    """Open a file, or a pipe that somebody writes to.

    Raises:
        UnreadableFileError: it is not there, a folder, a device (which may have no end), or a pipe without a writer.
    """
    with _reading():
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as raw:
            about = os.fstat(descriptor)
            is_device = stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode)
            if is_device and not os.isatty(descriptor) and about.st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116
                raise UnreadableFileError("it is a device, expected a file")
            first = _awaited(raw) if stat.S_ISFIFO(about.st_mode) else b""
            os.set_blocking(descriptor, True)
            yield _After(first, raw) if first else raw


def _awaited(raw: io.FileIO) -> bytes:
    """Wait until there is something in a pipe, or its writer has ended; return what had to be taken from it for that.

    Raises:
        UnreadableFileError: nobody has it open for writing.
    """
    poll = select.poll()
    poll.register(raw, select.POLLIN)
    while not poll.poll(1000 * WRITER_SECONDS):
        taken = raw.read(1)
        if taken == b"":
            raise UnreadableFileError(f"it is a pipe, and nobody has opened it to write within {WRITER_SECONDS:g} s")
        if taken:
            return taken
    return b""


class _After(io.RawIOBase):
    """A file of which the first bytes have been taken already."""

    def __init__(self, first: bytes, file: Readable) -> None:
        self._first = first
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._first[: len(buffer)] or self._file.read(len(buffer)) or b""
        self._first = self._first[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def read_stream(raw: Readable, *, most_bytes: int | None = None) -> bytes:
    """Return what an opened file holds, unpacked where it is packed.

    Raises:
        UnreadableFileError: it cannot be read or unpacked, or is too large.
    """
    most = MOST_BYTES if most_bytes is None else most_bytes
    with _reading():
        pieces, read = [], 0
        for piece in _pieces(raw):
            read += len(piece)
            if read > most:
                raise UnreadableFileError(f"it is larger than {most >> 20:,} MiB")
            pieces.append(piece)
        return b"".join(pieces)


def lines_of(raw: Readable) -> Iterator[bytes]:
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
    except FileNotFoundError as error:
        raise MissingFileError("no such file or directory") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(reason.lower()) from error


def _pieces(raw: Readable) -> Iterator[bytes]:
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

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._file.read(len(buffer)) or b""
        buffer[: len(piece)] = piece
        self.count += len(piece)
        return len(piece)
