"""Lines appended to a file that is exchanged when it is full; written in a thread. Knows nothing of what it writes.

Callers that hand a line in never wait: where the disk is too slow, lines are left out and counted.
The handlers of `logging.handlers` do less: they flush the file after each record, bound no bytes in memory, do not
count what they leave out, and with one file kept they never start it again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Lines handed in and not written yet."""
_MAX_WAITING_BYTES = 64 * 2**20
"""What those keep in memory."""
_PAUSE_SECONDS = 0.2
"""Between two rounds of writing: lines are written many at a time, and a crash loses no more than these."""
_COMPLAIN_EVERY_ROUNDS = 300


class FileError(Exception):
    """The folder cannot be written to; the text says why."""


class RotatingLines:
    """`NAME`, and the files it was before: `NAME.1`, the newest, to `NAME.<files - 1>`."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        file_bytes: int,
        files: int,
        max_waiting: int = MAX_WAITING,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        """Open the file.

        Args:
            folder: made if it is not there; not to be shared with another process.
            name: of the current file.
            file_bytes: size at which the next file is begun.
            files: how many are kept, the current one included.
            max_waiting: lines that may wait to be written.
            pause_seconds: between two rounds of writing.

        Raises:
            FileError: it cannot be written to.
        """
        self._path = folder / name
        self._file_bytes = file_bytes
        self._files = files
        self._max_waiting = max_waiting
        self._pause_seconds = pause_seconds
        self._waiting: deque[tuple[int, Callable[[], bytes]]] = deque()
        self._taken_bytes = 0
        """Sizes of all lines that were put; only the caller of `put` writes it."""
        self._done_bytes = 0
        """Sizes of those that wait no longer; only the thread writes it."""
        self._ending = threading.Event()
        self._broken_rounds = 0
        self.written = 0
        """Lines written."""
        self.dropped = 0
        """Lines left out: too many waited, or they could not be written."""
        self._file: BinaryIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if _is_cut_off(self._path):
                self._rotate()  # a line cut off by a crash stays the last of its file
            self._open()
        except OSError as error:
            raise FileError(f"cannot write to {self._path}: {(error.strerror or str(error)).lower()}") from error
        self._thread = threading.Thread(target=self._work, name=f"write {name}", daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], bytes], *, size: int = 0) -> bool:
        """Have a line written; returns at once.

        Args:
            make: called in the thread; returns the line with its end.
            size: bytes that it keeps in memory until then.
        """
        full = self._taken_bytes - self._done_bytes + size > _MAX_WAITING_BYTES and len(self._waiting) > 0
        if full or len(self._waiting) >= self._max_waiting:
            self.dropped += 1
            return False
        self._taken_bytes += size
        self._waiting.append((size, make))
        return True

    def close(self, *, timeout_seconds: float = 2.0) -> None:
        """Write what waits and close the file; what the disk does not take in time is lost."""
        self._ending.set()
        self._thread.join(timeout_seconds)

    def _work(self) -> None:
        while not self._ending.wait(self._pause_seconds):
            self._write()
        self._write()
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _write(self) -> None:
        lines: list[bytes] = []
        while self._waiting:
            size, make = self._waiting.popleft()
            self._done_bytes += size
            try:
                lines.append(make())
            except Exception:
                self.dropped += 1
                log.exception("failed to format a line for %s", self._path)
        if not lines:
            return
        try:
            self._append(lines)
            self._broken_rounds = 0
        except Exception as error:  # whatever it is, the thread goes on
            self.dropped += len(lines)
            if self._broken_rounds % _COMPLAIN_EVERY_ROUNDS == 0:
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                log.error("cannot write to %s: %s", self._path, why.lower())
            self._broken_rounds += 1
            self._file = None

    def _append(self, lines: list[bytes]) -> None:
        if self._file is None and _is_cut_off(self._path):
            self._rotate()
        file = self._file or self._open()
        size = file.tell()
        for line in lines:
            if size and size + len(line) > self._file_bytes:
                file.close()
                self._rotate()
                file, size = self._open(), 0
            file.write(line)
            size += len(line)
        file.flush()
        self.written += len(lines)

    def _open(self) -> BinaryIO:
        self._file = file = self._path.open("ab")
        return file

    def _rotate(self) -> None:
        """Make every file one older; the oldest goes."""
        for age in range(self._files - 1, 0, -1):
            source = self._aged(age - 1)
            with suppress(FileNotFoundError):
                source.replace(self._aged(age))
        if self._files == 1:
            with suppress(FileNotFoundError):
                self._path.unlink()

    def _aged(self, age: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{age}") if age else self._path


def _is_cut_off(path: Path) -> bool:
    """Return whether a file ends in the middle of a line."""
    try:
        with path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False
