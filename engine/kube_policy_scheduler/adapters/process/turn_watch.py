"""Watches the turns of the event loop: nothing else runs while one lasts, no probe, no renewal of the lease, no signal.

A turn is what the loop does between two looks at its selector. Its CPU time is measured, as a machine that is busy with
others makes each turn longer; and the longest step in it that was named, such as the decision of a pod. CPU time is
read only where something has taken long by the steady clock: reading it is a call of the kernel, and there are several
steps for each pod. After the turn it is too late where it never ends: so a thread looks, too, and says once in which
step and in which function a turn is.

It also joins turns: while many answers are awaited, the loop waits a moment for the next ones when some have come. To
wake, and to read and write a socket, costs as much as all else that an answer leads to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import FrameType, TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

logger = logging.getLogger(__name__)

LONG_SECONDS = 0.1
"""CPU time from which on a turn is long."""
HANG_SECONDS = 1.0
"""Time that has passed after which a turn that is still under way is reported. Probes time out after 3 and 5 s."""
READ_SECONDS = 0.02
"""CPU time is read no more often than this: a turn or a step may seem so much longer than it was."""
LOOK_SECONDS = 0.5
SAID_SECONDS = 10.0
"""Of long turns in the same step, one is logged in this many seconds; all are counted."""
RECENT_SECONDS = 600.0
JOIN_SECONDS = 0.002
"""How long a turn waits for what else comes, where turns are joined."""
FRAMES = 6
"""Functions that are named of a turn that hangs, the innermost ones."""

ThingT = TypeVar("ThingT")


class LongTurn(msgspec.Struct, Generic[ThingT], frozen=True):
    """A turn that was too long."""

    seconds: float
    """CPU time of the loop's thread."""
    step: str
    """What took longest in it; "" where nothing of it was named."""
    step_seconds: float
    thing: ThingT | None
    """What the step was about."""
    name: str
    """Of the thing, for people."""


class _Turn(msgspec.Struct):
    began: float
    """By the steady clock."""
    step: str = ""
    """The one under way."""
    name: str = ""
    is_told: bool = False
    """Whether it was said that it hangs."""


class TurnWatch(Generic[ThingT]):
    """Of the one event loop of a process. It ends with the `with` statement."""

    def __init__(
        self,
        *,
        cpu: Callable[[], float] = time.thread_time,
        steady: Callable[[], float] = time.monotonic,
        long_seconds: float = LONG_SECONDS,
        hang_seconds: float = HANG_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make one.

        Args:
            cpu: CPU seconds of the calling thread.
            steady: seconds that pass evenly.
            long_seconds: of CPU, from which on a turn is long.
            hang_seconds: after which a turn that is under way hangs.
            sleep: lets so many seconds pass.
        """
        self.sleep = sleep
        self._cpu, self._steady = cpu, steady
        self._long_seconds, self._hang_seconds = long_seconds, hang_seconds
        self._turn: _Turn | None = None
        """The one under way; None while the loop waits for something to happen."""
        self._step_began = 0.0
        """By the steady clock."""
        self._read_at = -READ_SECONDS
        """When CPU time was read last, by the steady clock."""
        self._read_cpu = 0.0
        """What it was then."""
        self._longest: tuple[float, str, str, ThingT | None] = (0.0, "", "", None)
        self._thing: ThingT | None = None
        self._thread_id = 0
        self._said: dict[str, float] = {}
        self._recent: list[tuple[float, float]] = []
        """When a turn was long, and how long; of the last minutes, and only those with no longer one since."""
        self._is_armed = False
        self._end = threading.Event()
        self._looking: threading.Thread | None = None
        self.last: tuple[float, LongTurn[ThingT]] | None = None
        """The last long turn, and when it was, by the steady clock."""
        self.on_long: Callable[[LongTurn[ThingT]], None] = lambda turn: None
        """Called after a long turn, on the loop."""
        self.joins: Callable[[], bool] = lambda: False
        """Whether what has come is handled together with what comes within `JOIN_SECONDS`, where nothing is due before.
        While the loop has other work, it looks for what has come once in so many seconds, not between any two tasks."""

    # --- the loop ------------------------------------------------------------------------------------

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop whose turns are watched."""
        return _Loop(_WatchedSelector(self, self._steady))

    def __enter__(self) -> Self:
        """Begin to look whether a turn hangs."""
        self._looking = threading.Thread(target=self._look_on, name="turn-watch", daemon=True)
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more."""
        self._end.set()
        if self._looking is not None:
            self._looking.join(timeout=LOOK_SECONDS)

    def arm(self) -> None:
        """Watch from here on: at a start, turns are long where nobody waits for anything else yet."""
        self._is_armed = True

    def begin_turn(self) -> None:
        """Note that the loop goes on."""
        if not self._is_armed:
            return
        self._thread_id = threading.get_ident()
        self._longest = (0.0, "", "", None)
        now = self._steady()
        self._turn = _Turn(now)
        if now - self._read_at >= READ_SECONDS:
            self._read_at, self._read_cpu = now, self._cpu()

    def end_turn(self) -> None:
        """Note that the loop waits again."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        seconds = self._steady() - turn.began
        if seconds >= self._long_seconds and (seconds := min(seconds, self._cpu() - self._read_cpu)) >= (
            self._long_seconds
        ):
            step_seconds, step, name, thing = self._longest
            self._report(LongTurn(seconds, step, step_seconds, thing, name))

    # --- steps ---------------------------------------------------------------------------------------

    def begin(self, step: str, name: str, thing: ThingT) -> None:
        """Name what is done from here on; `end` ends it.

        Args:
            step: what is done, for people: "deciding".
            name: of what it is about.
            thing: what it is about.
        """
        if self._turn is not None:
            self._turn.step, self._turn.name, self._thing = step, name, thing
            self._step_began = self._steady()

    def end(self) -> None:
        """End the step."""
        turn = self._turn
        if turn is not None and turn.step:
            seconds = self._steady() - self._step_began
            if seconds > self._longest[0] and seconds >= READ_SECONDS:
                seconds = min(seconds, self._cpu() - self._read_cpu)
                if seconds > self._longest[0]:
                    self._longest = seconds, turn.step, turn.name, self._thing
            turn.step = turn.name = ""
            self._thing = None

    # --- what is known -------------------------------------------------------------------------------

    def longest_seconds(self) -> float:
        """Return the CPU time of the longest turn of the last ten minutes; 0.0 where none was long."""
        self._forget_old()
        return self._recent[0][1] if self._recent else 0.0

    def recent(self) -> str:
        """Return what is to be said of the last long turn, if it was within ten minutes; "" otherwise."""
        if self.last is None or self._steady() - self.last[0] > RECENT_SECONDS:
            return ""
        at, turn = self.last
        step = f", most of it {turn.step} {turn.name}" if turn.step else ""
        return f"a turn of the event loop took {turn.seconds:.1f} s of CPU {self._steady() - at:.0f} s ago{step}"

    def _forget_old(self) -> None:
        now = self._steady()
        while self._recent and now - self._recent[0][0] > RECENT_SECONDS:
            self._recent.pop(0)

    def _report(self, turn: LongTurn[ThingT]) -> None:
        now = self._steady()
        self._forget_old()
        while self._recent and self._recent[-1][1] <= turn.seconds:
            self._recent.pop()
        self._recent.append((now, turn.seconds))
        self.last = now, turn
        if now - self._said.get(turn.step, -SAID_SECONDS) >= SAID_SECONDS:
            self._said[turn.step] = now
            fields = {"seconds": round(turn.seconds, 3), **_fields(turn.step, turn.name)}
            logger.warning("a turn of the event loop took too long: nothing else ran meanwhile", extra=fields)
        try:
            self.on_long(turn)
        except Exception:
            logger.exception("unexpected error in a report")

    # --- the thread ----------------------------------------------------------------------------------

    def _look_on(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Say once if a turn has been under way for too long; called by another thread than that of the loop."""
        turn = self._turn
        if turn is None or turn.is_told:
            return
        seconds = self._steady() - turn.began
        if seconds < self._hang_seconds:
            return
        turn.is_told = True
        fields = {"seconds": round(seconds, 3), **_fields(turn.step, turn.name)}
        with contextlib.suppress(OSError):  # it says whether the loop computes, or waits for a file or the processor
            clock = time.pthread_getcpuclockid(self._thread_id)
            fields["cpu_seconds"] = round(min(seconds, time.clock_gettime(clock) - self._read_cpu), 3)
        frame = sys._current_frames().get(self._thread_id)
        if frame is not None:
            fields["where"] = where(frame)
        why = "the event loop hangs: until this turn ends, no probe is answered and no lease renewed"
        logger.error(why, extra=fields)


def where(frame: FrameType) -> str:
    """Return the functions that a thread is in, the innermost first: `function (module.py:12) < …`."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=FRAMES, lookup_lines=False)
    return " < ".join(f"{each.name} ({PurePath(each.filename).name}:{each.lineno})" for each in stack)


def _fields(step: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("step", step), ("pod", name)) if value}


class _Loop(asyncio.SelectorEventLoop):
    time = staticmethod(time.monotonic)
    """The library's own method calls the same, from Python; a pod asks a dozen times."""


class _WatchedSelector(selectors.BaseSelector):
    """A selector that says when the loop waits, and when it goes on."""

    def __init__(self, watch: TurnWatch[Any], steady: Callable[[], float]) -> None:
        self._watch, self._steady, self._selector = watch, steady, selectors.DefaultSelector()
        self._looked_at = 0.0
        """By the steady clock."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._watch.end_turn()
        try:
            if timeout is not None and timeout <= 0.0:
                return self._look_beside_work()
            found = self._selector.select(timeout)
            has_time = timeout is None or timeout > JOIN_SECONDS  # nothing due soon
            if found and has_time and self._watch.joins():
                self._watch.sleep(JOIN_SECONDS)
                found = self._selector.select(0)
            self._looked_at = self._steady()
            return found
        finally:
            self._watch.begin_turn()

    def _look_beside_work(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Look what has come while the loop has other work: where turns are joined, not each time."""
        now = self._steady()
        if now - self._looked_at < JOIN_SECONDS and self._watch.joins():
            return []
        self._looked_at = now
        return self._selector.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def close(self) -> None:
        self._watch.end_turn()
        self._selector.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._selector.get_map()
