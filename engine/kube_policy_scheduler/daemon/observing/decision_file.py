"""The file of a decision log: what is decided goes there line by line, within the settings' bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kube_policy_scheduler.adapters.files.rotating_file import RotatingLines
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings

FILE_NAME = "decisions.jsonl"


class DecisionFile:
    """The file that the settings ask for; without a folder, nothing is written."""

    def __init__(self, settings: DecisionLogSettings) -> None:
        """Open it. Raises FileError: it cannot be written to."""
        self._lines: RotatingLines | None = None
        if settings.directory is not None:
            self._lines = RotatingLines(
                settings.directory, FILE_NAME, file_bytes=settings.file_mebibytes * 2**20, files=settings.files
            )

    def put(self, make: Callable[[], bytes], *, size: int) -> None:
        """Have a line written; returns at once.

        Args:
            make: called in a thread; returns the line with its end.
            size: bytes that it keeps in memory until then.
        """
        if self._lines is not None:
            self._lines.put(make, size=size)

    def tallies(self) -> Mapping[str, int]:
        """Return how many records were written, and how many were left out; nothing if there is no file."""
        return {"written": self._lines.written, "dropped": self._lines.dropped} if self._lines is not None else {}

    async def close(self) -> None:
        """Write what is left."""
        if self._lines is not None:
            await asyncio.to_thread(self._lines.close)
