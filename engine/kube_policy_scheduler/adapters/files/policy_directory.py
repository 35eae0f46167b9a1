"""Watches a directory of policies and delivers each new generation. Knows nothing of what policies say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import (
    LIMITS,
    FolderLimits,
    PolicySources,
    PolicySourcesError,
    read_policies,
    shown_name,
    subpath_mounts,
)
from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.files.folder_watch import FolderWatch

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.05
"""Quiet time after an event before reading: the kubelet's swap is nine events within a millisecond, an editor's
save three within some."""
LONGEST_DEBOUNCE_SECONDS = 1.0
"""A directory that is never quiet is read nevertheless."""
POLL_SECONDS = 5.0
"""Reading without an event: for NFS and overlays, which have none, lost events, and a directory that was replaced."""
POLL_WITHOUT_EVENTS_SECONDS = 1.0
"""The same when the system has no watch to give, and after the first reading; a reading of 20 files takes under a
millisecond."""
SLOW_SECONDS = 10.0
"""A read that takes longer is reported as an error: a network file system may never answer."""
MOUNTINFO = Path("/proc/self/mountinfo")


class PolicyDirectory:
    """Delivers the policies of a directory, or of one file, at the start and after every change.

    `deliver` is called on the event loop with the sources, or with what is wrong, and only when that differs
    from what it was told last: about 50 ms after a change, and up to a second after one in the first second after the
    start. Nothing that lies in the directory, and no file system that does not answer, ends this.
    """

    def __init__(
        self,
        path: Path,
        *,
        deliver: Callable[[PolicySources | PolicySourcesError], None],
        proof: PolicyProof | None = None,
        limits: FolderLimits = LIMITS,
        name: str = "policy-directory",
        poll_seconds: float = POLL_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
        loops: Loops | None = None,
    ) -> None:
        """Set up; nothing is read yet.

        Args:
            path: the directory or the file.
            deliver: takes what was read, or why it could not be.
            proof: what has to vouch for the policies; None: nothing.
            limits: of what it may hold.
            name: of the loop.
            poll_seconds: between two readings without an event.
            slow_seconds: a reading that takes longer is delivered as an error, until it ends.
            loops: of the process; None: its own.
        """
        # absolute but not resolved: a link in the path may be swapped
        self.path = Path(os.path.abspath(path))  # noqa: PTH100
        self._deliver = deliver
        self._proof = proof
        self._limits = limits
        self._name = name
        self._poll_seconds = poll_seconds
        self._slow_seconds = slow_seconds
        self._touched = asyncio.Event()
        self._delivered = asyncio.Event()
        self._logged: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: FolderWatch | None = None
        """Made with the second reading: a start waits for the first, and the import takes 10 ms."""
        self._has_read = False
        self._worker: WorkerThread | None = None
        self._loops = loops or Loops()
        self._watching: Loop | None = None

    async def __aenter__(self) -> PolicyDirectory:
        """Deliver what is there now, then go on watching."""
        self._loop = asyncio.get_running_loop()
        # not in the pool of the event loop: that one waits for its threads when the process ends
        self._worker = WorkerThread("policy directory")
        self._watching = self._loops.start(self._name, partial(self._run, self._worker), restarts=True)
        await self._delivered.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        if self._watching is not None:
            await self._loops.end(self._watching)
            self._watching = None
        if self._worker is not None:
            self._worker.stop(finally_call=self._disarm)
            self._worker = None

    def _wake(self) -> None:
        """Note a change, in the thread of the watch; a file that is written all the time says so once."""
        if self._loop is not None and not self._touched.is_set():
            self._loop.call_soon_threadsafe(self._touched.set)

    async def _run(self, worker: WorkerThread) -> None:
        worker.call(self._warn_of_subpath)
        while True:
            try:
                await self._check(worker)
                await self._wait()
            except Exception:
                log.exception("unexpected error while watching %s", self.path)
                await asyncio.sleep(POLL_WITHOUT_EVENTS_SECONDS)

    async def _wait(self) -> None:
        """Wait for a change and then for quiet, or until it is time to look without one."""
        poll_seconds = self._poll_seconds
        if self._watch is None or not self._watch.armed:
            poll_seconds = min(poll_seconds, POLL_WITHOUT_EVENTS_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(poll_seconds):  # not wait_for: see `SignalSource`
                await self._touched.wait()
        latest = time.monotonic() + LONGEST_DEBOUNCE_SECONDS
        while self._touched.is_set() and time.monotonic() < latest:
            self._touched.clear()
            await asyncio.sleep(DEBOUNCE_SECONDS)
        self._touched.clear()

    async def _check(self, worker: WorkerThread) -> None:
        reading = worker.call(self._read)
        try:
            async with asyncio.timeout(self._slow_seconds):
                found = await asyncio.shield(reading)
        except TimeoutError:
            shown = shown_name(str(self.path))
            self._tell(PolicySourcesError(f"{shown} cannot be read: no answer within {self._slow_seconds:g} s"))
            found = await reading
        self._tell(found)

    def _read(self) -> PolicySources | PolicySourcesError:
        if self._has_read:
            self._arm()
        self._has_read = True
        try:
            return read_policies(self.path, proof=self._proof, limits=self._limits)
        except PolicySourcesError as error:
            return error
        except Exception as error:
            shown = shown_name(str(self.path))
            log.exception("unexpected error while reading %s", shown)
            return PolicySourcesError(f"cannot read {shown}: unexpected {type(error).__name__}: {error}")

    def _arm(self) -> None:
        if self._watch is None:
            from kube_policy_scheduler.adapters.files.folder_watch import FolderWatch

            self._watch = FolderWatch(self._wake, poll_seconds=POLL_WITHOUT_EVENTS_SECONDS)
        self._watch.arm(self.path)

    def _disarm(self) -> None:
        if self._watch is not None:
            self._watch.disarm()

    def _tell(self, found: PolicySources | PolicySourcesError) -> None:
        state = found.hash if isinstance(found, PolicySources) else f"error: {found}"
        self._delivered.set()
        if state == self._logged:
            return
        self._logged = state
        try:
            self._deliver(found)
        except Exception:
            log.exception("unexpected error while activating the policies of %s", self.path)

    def _warn_of_subpath(self) -> None:
        try:
            mounts = subpath_mounts(self.path, mountinfo=MOUNTINFO.read_text(errors="replace"))
        except (OSError, ValueError):
            return  # not Linux
        for mount in mounts:
            log.warning(
                "%s is mounted with subPath, which the kubelet never updates; mount the whole volume instead", mount
            )
