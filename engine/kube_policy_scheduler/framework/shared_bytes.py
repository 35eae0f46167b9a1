"""How many bytes some things take together, where several holders share one of them."""

from __future__ import annotations

from typing import Protocol

from kube_policy_scheduler.cluster.bounded_cache import Sized


class KeptAlong(Sized, Protocol):
    """What is kept along with something else, whose changes it follows: it goes with it."""

    def is_of_use(self) -> bool:
        """Return whether all else that it follows is still there."""
        ...


class SharedBytes:
    """The bytes of all things that somebody holds, each counted once."""

    def __init__(self) -> None:
        self._counted: dict[Sized, list[int]] = {}
        """By thing: its holders, and its bytes when it was measured."""
        self.bytes = 0

    def hold(self, thing: Sized) -> None:
        """Count one more holder; the thing is measured with the first one."""
        counted = self._counted.get(thing)
        if counted is None:
            counted = self._counted[thing] = [0, thing.bytes]
            self.bytes += counted[1]
        counted[0] += 1

    def release(self, thing: Sized) -> None:
        """Count one holder less."""
        counted = self._counted[thing]
        counted[0] -= 1
        if not counted[0]:
            self.bytes -= counted[1]
            del self._counted[thing]

    def measure(self, thing: Sized) -> None:
        """Measure a thing again if somebody holds it: it grew or shrank."""
        counted = self._counted.get(thing)
        if counted is not None:
            before, counted[1] = counted[1], thing.bytes
            self.bytes += counted[1] - before

    def measure_all(self) -> None:
        """Measure everything again."""
        for thing in self._counted:
            self.measure(thing)
