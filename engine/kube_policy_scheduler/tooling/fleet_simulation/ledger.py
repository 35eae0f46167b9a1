"""What a simulation of a fleet adds up: who runs, who is missing, and what that costs, over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

import msgspec

Key = TypeVar("Key", bound=Hashable)
MOST_SAMPLES = 1_000
_MINUTE = 60.0


class FleetSample(msgspec.Struct, frozen=True):
    """How it is from one moment on."""

    at: float
    """Seconds from the beginning."""
    wanted: int
    """Replicas that are to run."""
    placed: int
    """Replicas that have a cluster."""
    running: Mapping[str, int]
    """Healthy replicas by cluster."""
    price: float
    """Per hour: requested cores of the placed replicas · `cluster.price`."""


class _Account(msgspec.Struct):
    """One workload."""

    wanted: int = 0
    placed: int = 0
    running: int = 0
    ran: bool = False
    """Whether a replica of it ran before."""
    down_since: float | None = None
    down_seconds: float = 0.0


class Ledger(Generic[Key]):
    """Adds up. Times are seconds from the beginning, and never go back."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0
        self.wanted = self.placed = self.running = 0
        self.missing_seconds = 0.0
        """Replicas that did not run, times seconds."""
        self.unplaced_seconds = 0.0
        """Replicas without a cluster, times seconds."""
        self.priced_seconds = 0.0
        """Price per hour, times seconds."""
        self.most_unplaced = 0
        self.moved = self.evicted = 0
        self.most_moved = 0
        """Replicas that moved within one minute, at most."""
        self.samples: list[FleetSample] = []
        self._every = 0.0
        self._price = 0.0
        self._accounts: dict[Key, _Account] = {}
        self._last_minute: deque[tuple[float, int]] = deque()
        self._moved_lately = 0
        self._worst = (0.0, "")

    def go_on(self, now: float) -> None:
        """Let time pass."""
        seconds = now - self.now
        if seconds > 0:
            self.missing_seconds += seconds * self._missing
            self.unplaced_seconds += seconds * (self.wanted - self.placed)
            self.priced_seconds += seconds * self._price
            self.now = now

    @property
    def _missing(self) -> int:
        return self.wanted - self.running

    def count(self, key: Key, name: str, *, wanted: int, placed: int, running: int) -> None:
        """Note how it stands about a workload; more than is wanted counts as what is wanted."""
        known = self._accounts.setdefault(key, _Account())
        placed, running = min(placed, wanted), min(running, wanted)
        self.wanted += wanted - known.wanted
        self.placed += placed - known.placed
        self.running += running - known.running
        known.wanted, known.placed, known.running = wanted, placed, running
        known.ran = known.ran or running > 0
        is_down = known.ran and wanted > 0 and running == 0
        if is_down and known.down_since is None:
            known.down_since = self.now
        elif not is_down and known.down_since is not None:
            self._up(known, name)
        self.most_unplaced = max(self.most_unplaced, self.wanted - self.placed)

    def _up(self, known: _Account, name: str) -> None:
        assert known.down_since is not None
        known.down_seconds += self.now - known.down_since
        known.down_since = None
        self._worst = max(self._worst, (known.down_seconds, name))

    def forget(self, key: Key, name: str) -> None:
        """Note that a workload has ended."""
        self.count(key, name, wanted=0, placed=0, running=0)

    def move(self, replicas: int) -> None:
        """Note that replicas moved now, as nothing but the policy asked for it."""
        self.moved += replicas
        self._last_minute.append((self.now, replicas))
        self._moved_lately += replicas
        while self._last_minute[0][0] <= self.now - _MINUTE:
            self._moved_lately -= self._last_minute.popleft()[1]
        self.most_moved = max(self.most_moved, self._moved_lately)

    def sample(self, running: Mapping[str, int], price: float) -> None:
        """Note how it is from now on; of very many samples, those that follow closely on another are left out."""
        self._price = price
        kept = {name: count for name, count in running.items() if count}
        made = FleetSample(self.now, self.wanted, self.placed, kept, price)
        if self.samples and (self.samples[-1].at == made.at or made.at - self.samples[-1].at < self._every):
            self.samples[-1] = msgspec.structs.replace(made, at=self.samples[-1].at)
            return
        self.samples.append(made)
        if len(self.samples) > MOST_SAMPLES:
            self.samples = self.samples[::2]
            self._every = self.now / MOST_SAMPLES * 2

    def down(self, names: Mapping[Key, str]) -> tuple[float, int, float, str]:
        """Return for how many seconds workloads had no replica that ran, of how many, and the longest, with its name.

        A workload counts from its first replica on. names: of the workloads that are there.
        """
        total, several, worst = 0.0, 0, self._worst
        for key, known in self._accounts.items():
            seconds = known.down_seconds + (self.now - known.down_since if known.down_since is not None else 0.0)
            if seconds > 0:
                total, several = total + seconds, several + 1
                worst = max(worst, (seconds, names.get(key, worst[1])))
        return total, several, *worst
