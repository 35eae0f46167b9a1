"""What one attempt to schedule a pod may spend on the search for its devices, counted, so that it is bounded.

Claims, selectors and slices are written by tenants and drivers, and what they ask for can take for ever. Everything
that the search does counts: candidates that are tried, selectors by what they take, devices that are looked at, on all
nodes together. A step is about 2 µs. Counts, not clocks: every machine comes to the same answers.

    with work.attempt(pod_uid, in_turn=10_000, most=most_steps(nodes)):
        ...  # `OutOfTurn` where the turn is over: call again, and it goes on from there
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import TracebackType

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.object_store import ObjectStore

STEPS_AT_LEAST, STEPS_A_NODE, STEPS_AT_MOST = 500_000, 256, 5_000_000
"""Of one attempt: 1 s, and what it takes to look at some 60 devices of each node in every way; at most 10 s, after
which kube-scheduler gives up a single node."""
STEPS_IN_A_TURN = 5_000
"""Before the event loop runs, 10 ms."""
STEPS_AT_ONCE = 25_000
"""More of them for placements that are tried and undone, 50 ms."""
_MOST_UNDER_WAY = 65_536
"""Pods whose search can be paused at a time; the search of one more would start over with each turn."""


def most_steps(nodes: int) -> int:
    """Return how many steps one attempt may take in a cluster of so many nodes."""
    return min(STEPS_AT_LEAST + STEPS_A_NODE * nodes, STEPS_AT_MOST)


class OutOfTurn(Exception):
    """The turn is over. What was found is kept: the next turn goes on from there."""


class Work:
    """What is left."""

    def __init__(self, left: float = 0) -> None:
        self.left_now: float = left
        """Of the turn, or of the attempt if that is less; below 0 it is over."""
        self.attempts = 0
        """How many attempts have begun: what is not known because one took too long, the next one tries again."""
        self._left_later: float = 0
        self.is_open = False
        """Whether an attempt is under way now."""
        self._under_way: KeptView[str, float] = KeptView(most=_MOST_UNDER_WAY)
        """What is left of attempts whose turn is over, by pod."""

    @property
    def is_spent(self) -> bool:
        """Return whether the attempt has taken all that it may take."""
        return self.left_now + self._left_later < 0

    def attempt(self, pod_uid: str, *, most: int, in_turn: int | None = None) -> _Attempt:
        """Return a context that pays for what is searched from one budget; within another attempt, from that one's.

        Args:
            pod_uid: the pod; its attempt goes on if its last turn ended with `OutOfTurn`.
            most: steps of the whole attempt.
            in_turn: steps of this turn; None: any.
        """
        return _Attempt(self, pod_uid, most, in_turn)

    def open(self, pod_uid: str, *, most: int, in_turn: int | None) -> bool:
        """Begin a turn of an attempt, unless one is under way; return whether. Arguments as of `attempt`."""
        if self.is_open:
            return False
        known = self._under_way.pop(pod_uid)
        if known is None:
            self.attempts += 1
        left = float(most) if known is None else known
        self.left_now = left if in_turn is None else min(in_turn, left)
        self._left_later = left - self.left_now
        self.is_open = True
        return True

    def pause(self, pod_uid: str) -> None:
        """Note that the attempt for a pod goes on in another turn."""
        self._under_way.set(pod_uid, self.left_now + self._left_later)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let what cannot pause, because it is undone at its end, take more steps in this turn."""
        more = max(0, min(STEPS_AT_ONCE, self._left_later)) if self.is_open else 0
        self.left_now += more
        self._left_later -= more
        try:
            yield
        finally:
            unused = max(0, min(more, self.left_now))
            self.left_now -= unused
            self._left_later += unused

    def in_turns(self, go_on: Callable[[], bool]) -> None:
        """Go on with what is done in steps until it is over, or the turn is; it takes nothing of the attempt's budget.

        go_on: does a step of about 5 ms, and returns whether it was the last one; what is done is kept.

        Raises:
            OutOfTurn: the turn is over.
        """
        while not go_on():
            self.use_turn(0.5)

    def use_turn(self, share: float) -> None:
        """Note that a share of the turn was used for what is kept; it takes nothing of the attempt's budget.

        Raises:
            OutOfTurn: the turn is over.
        """
        if self.is_open:
            self.left_now -= share * STEPS_IN_A_TURN
            self._left_later += share * STEPS_IN_A_TURN
            self.end_turn_if_over()

    def end_turn_if_over(self) -> None:
        """Let others have their turn if this one is over.

        Raises:
            OutOfTurn: it is.
        """
        if self.is_open and self.left_now < 0 <= self.left_now + self._left_later:
            raise OutOfTurn


class _Attempt:
    """A turn of an attempt, as a context; a generator of `contextmanager` takes twice as many calls."""

    __slots__ = ("_in_turn", "_is_own", "_most", "_pod_uid", "_work")

    def __init__(self, work: Work, pod_uid: str, most: int, in_turn: int | None) -> None:
        self._work, self._pod_uid, self._most, self._in_turn = work, pod_uid, most, in_turn
        self._is_own = False

    def __enter__(self) -> None:
        self._is_own = self._work.open(self._pod_uid, most=self._most, in_turn=self._in_turn)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_own:
            if isinstance(error, OutOfTurn):
                self._work.pause(self._pod_uid)
            self._work.is_open = False


UNLIMITED = Work(inf)
"""For what is not part of an attempt. Never runs out."""


def search_work(store: ObjectStore) -> Work:
    """Return what pays for searches in a cluster."""
    return store.keep("search-work", None, Work)
