"""How long a leader took until it decided, and for how long it has not decided though it should. Knows no pods."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """Told by the scheduling loop what it does; asked at a scrape. All times are seconds of one steady clock."""

    def __init__(self, clock: Callable[[], float], *, leading: bool) -> None:
        """clock: never goes back. leading: whether this replica may decide from the start."""
        self._clock = clock
        self._led_at: float | None = clock() if leading else None
        self._took: float | None = None
        self._well_at = clock()
        """When something was decided last, or there was nothing to decide."""
        self._pauses = True

    def led(self, leading: bool) -> None:
        """Note that this replica leads, or no longer does."""
        self._led_at, self._took = (self._clock() if leading else None), None
        self._well_at = self._clock()

    def passed(self, *, decided: bool, has_active: bool) -> None:
        """Note one pass of the loop in which it could decide; has_active: whether active pods are left."""
        if not decided and has_active:
            self._pauses = False
            return
        self._well_at = self._clock()
        if self._led_at is not None and self._took is None:
            self._took = self._well_at - self._led_at
        self._pauses = not has_active

    def waited(self) -> None:
        """Note that the loop goes on after a pause."""
        if self._pauses:
            self._well_at, self._pauses = self._clock(), False

    @property
    def take_over_seconds(self) -> float | None:
        """From becoming leader to the first decision, or until there was nothing to decide; so far, if none was made.

        None while this replica does not lead.
        """
        if self._led_at is None or self._took is not None:
            return self._took
        return self._clock() - self._led_at

    def undecided_seconds(self, *, has_active: bool) -> float:
        """For how long nothing was decided although this replica leads and pods are active; 0.0 while all is well."""
        if self._led_at is None or not has_active or self._pauses:
            return 0.0
        return self._clock() - self._well_at
