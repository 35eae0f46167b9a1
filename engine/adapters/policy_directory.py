"""Watches a directory of policies and delivers each new generation. Knows nothing of what policies say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from engine.adapters.policy_proof import PolicyProof
from engine.adapters.policy_sources import (
    PolicySources,
    PolicySourcesError,
    inotify_exhausted,
    read_policies,
    subpath_mounts,
)

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.05
"""Quiet time after an event before reading: the kubelet's swap is nine events within a millisecond, an editor's
save three within some."""
LONGEST_DEBOUNCE_SECONDS = 1.0
"""A directory that is never quiet is read nevertheless."""
POLL_SECONDS = 5.0
"""Reading without an event: for NFS and overlays, which have none, lost events, and a directory made anew."""
POLL_WITHOUT_EVENTS_SECONDS = 1.0
"""The same when the system has no watch to give; a reading of 20 files takes under a millisecond."""
MOUNTINFO = Path("/proc/self/mountinfo")

_READING = frozenset({"opened", "closed_no_write"})
"""Events that our own reading causes."""


class PolicyDirectory:
    """Delivers the policies of a directory, or of one file, at the start and after every change.

    `deliver` is called on the event loop with the sources, or with what is wrong, and only when that differs
    from what it was told last. A change is delivered about 50 ms after it.
    """

    def __init__(
        self,
        path: Path,
        *,
        deliver: Callable[[PolicySources | PolicySourcesError], None],
        proof: PolicyProof | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """proof: what has to vouch for the policies; None: nothing."""
        # absolute but not resolved: a link in the path may be swapped
        self.path = Path(os.path.abspath(path))  # noqa: PTH100
        self._deliver = deliver
        self._proof = proof
        self._poll_seconds = poll_seconds
        self._touched = asyncio.Event()
        self._told: str | None = None
        self._watch = _Watch()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PolicyDirectory:
        """Deliver what is there now, then go on watching."""
        loop = asyncio.get_running_loop()
        self._watch.on_event = lambda: loop.call_soon_threadsafe(self._touched.set)
        await asyncio.to_thread(self._watch.arm, self.path)
        await self._check()
        await asyncio.to_thread(self._warn_of_subpath)
        self._task = asyncio.create_task(self._run(), name="policy directory")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await asyncio.to_thread(self._watch.disarm)

    async def _run(self) -> None:
        while True:
            await self._wait()
            await asyncio.to_thread(self._watch.arm, self.path)
            await self._check()

    async def _wait(self) -> None:
        """Wait for a change and then for quiet, or until it is time to look without one."""
        poll_seconds = self._poll_seconds
        if not self._watch.armed:
            poll_seconds = min(poll_seconds, POLL_WITHOUT_EVENTS_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._touched.wait(), poll_seconds)
        latest = time.monotonic() + LONGEST_DEBOUNCE_SECONDS
        while self._touched.is_set() and time.monotonic() < latest:
            self._touched.clear()
            await asyncio.sleep(DEBOUNCE_SECONDS)
        self._touched.clear()

    async def _check(self) -> None:
        found: PolicySources | PolicySourcesError
        try:
            found = await asyncio.to_thread(read_policies, self.path, proof=self._proof)
            told = found.hash
        except PolicySourcesError as error:
            found = error
            told = f"error: {error}"
        if told == self._told:
            return
        self._told = told
        try:
            self._deliver(found)
        except Exception:
            log.exception("taking over the policies of %s failed in an unforeseen way", self.path)

    def _warn_of_subpath(self) -> None:
        try:
            mounts = subpath_mounts(self.path, mountinfo=MOUNTINFO.read_text(errors="replace"))
        except OSError:
            return  # not Linux
        for mount in mounts:
            log.warning(
                "%s is mounted with subPath: the kubelet never updates it; mount the whole volume instead", mount
            )


class _Watch(FileSystemEventHandler):
    """One inotify watch on the directory that holds the policies, made again when that directory is another."""

    def __init__(self) -> None:
        self.on_event: Callable[[], object] = lambda: None
        self._observer: BaseObserver | None = None
        self._watched: tuple[int, int] | None = None
        self._complained = False

    @property
    def armed(self) -> bool:
        return self._observer is not None

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in _READING:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self.on_event()

    def arm(self, path: Path) -> None:
        """Watch the path's directory, unless that is watched already. Never raises."""
        folder = path if path.is_dir() else path.parent
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
        except OSError as error:
            if observer is not None and observer.is_alive():
                observer.stop()
            if not self._complained and (inotify_exhausted(error) or folder.exists()):
                log.warning(
                    "no file watch for %s (%s): looking every %g s instead",
                    folder,
                    (error.strerror or str(error)).lower(),
                    POLL_WITHOUT_EVENTS_SECONDS,
                )
                self._complained = True
            return
        self._observer, self._watched, self._complained = observer, identity, False

    def disarm(self) -> None:
        """Watch nothing."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        self._observer = self._watched = None


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
