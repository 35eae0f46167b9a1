"""The scheduler as a process of the demo, started as its users start it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

START_SECONDS = 20.0
_POLL_SECONDS = 0.05
_END_SECONDS = 10.0


class DemoFailed(Exception):
    """The story did not come true; the text says what was expected and what came."""


class SchedulerProcess:
    """A scheduler process that serves on a free port."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        """Start nothing yet.

        Args:
            directory: where its log is.
            say: tells a line to who watches.
        """
        self._address_file = directory / "address"
        self.log = directory / "scheduler.log"
        """What it says."""
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""
        """Where it serves."""

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        assert self._process is not None
        return self._process.pid

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[None]:
        """Start it, and end it by its process id; arguments: without those about its address and leader election.

        Raises:
            DemoFailed: it does not start.
        """
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kube_policy_scheduler.daemon", *arguments),
                *("--http-address", "127.0.0.1:0", "--http-address-file", str(self._address_file)),
                "--no-leader-election",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the demo, which ends the scheduler in order
            )
        self._say(f"started the scheduler, pid {self.pid}; its log is {self.log}")
        try:
            await self._wait_until_it_serves()
            yield
        finally:
            await self._end()

    async def _wait_until_it_serves(self) -> None:
        assert self._process is not None
        for _ in range(int(START_SECONDS / _POLL_SECONDS)):
            if self._address_file.exists() and (address := self._address_file.read_text(encoding="utf-8").strip()):
                self.url = f"http://{address}"
                return
            if self._process.returncode is not None:
                break
            await asyncio.sleep(_POLL_SECONDS)
        raise DemoFailed(f"the scheduler did not start; {self.log_tail()}")

    async def _end(self) -> None:
        process = self._process
        assert process is not None
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_SECONDS)
        if process.returncode is None:
            process.kill()
            await process.wait()

    def require_alive(self) -> None:
        """Make sure that it has not ended.

        Raises:
            DemoFailed: it has.
        """
        assert self._process is not None
        if self._process.returncode is not None:
            raise DemoFailed(f"the scheduler ended with exit code {self._process.returncode}; {self.log_tail()}")

    async def failed(self) -> None:
        """Wait until it ends, which it should not.

        Raises:
            DemoFailed: it has ended.
        """
        assert self._process is not None
        await self._process.wait()
        self.require_alive()

    def log_tail(self) -> str:
        """Return its last lines."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        return "the scheduler's last lines:\n" + "\n".join(lines)
