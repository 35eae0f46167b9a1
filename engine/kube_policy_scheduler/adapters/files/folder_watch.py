"""Tells of changes in a directory, by inotify where the system has it. Knows nothing of what lies in it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

log = logging.getLogger(__name__)

_READING = frozenset({"opened", "closed_no_write"})
"""Events that our own reading causes."""


class FolderWatch(FileSystemEventHandler):
    """One inotify watch on the directory of a path, made again when that directory is another."""

    def __init__(self, on_event: Callable[[], object], *, poll_seconds: float) -> None:
        """Watch nothing yet.

        Args:
            on_event: called in a thread after each change.
            poll_seconds: between two looks of the caller while there is no watch, for the log.
        """
        self._on_event = on_event
        self._poll_seconds = poll_seconds
        self._observer: BaseObserver | None = None
        self._watched: tuple[int, int] | None = None
        self._complained = False

    @property
    def armed(self) -> bool:
        """Whether there is a watch."""
        return self._observer is not None

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Pass on what was not caused by reading."""
        if event.event_type not in _READING:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._on_event()

    def arm(self, path: Path) -> None:
        """Watch the path's directory, unless that is watched already. Never raises."""
        folder = path if os.path.isdir(path) else path.parent  # noqa: PTH112  (Path.is_dir raises)
        identity = _identity(folder)
        if self._observer is not None and identity == self._watched and self._observer.is_alive():
            return
        self.disarm()
        if identity is None:
            return
        observer: BaseObserver | None = None
        try:
            observer = Observer()  # raises here, not at start, when there are no inotify instances left
            observer.schedule(self, str(folder), recursive=False)
            observer.start()
        except Exception as error:  # also RuntimeError: no more threads
            if observer is not None and observer.is_alive():
                observer.stop()
            if not (self._complained or isinstance(error, FileNotFoundError)):  # that one will be looked for
                reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
                log.warning(
                    "cannot watch %s (%s); polling every %g s instead",
                    folder,
                    reason.lower(),
                    self._poll_seconds,
                )
                self._complained = True
            return
        self._observer, self._watched, self._complained = observer, identity, False

    def disarm(self) -> None:
        """Watch nothing."""
        observer, self._observer, self._watched = self._observer, None, None
        if observer is not None:
            observer.stop()
            observer.join()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
