"""How new a view of a collection is known to be, and how new it must be. Pure: times and versions come from outside.

A watch that is open may still owe what happened while it was not, and one that is silent may hang. What is certain is
causal: a caller that asks the API server for the version of a collection, and then sees its view reach that
version, knows that the view has everything that had happened by the time of the question. Versions are compared within
one collection only: two collections may be kept in two etcds.
"""

from __future__ import annotations

import msgspec

NEVER = float("-inf")


class Recency(msgspec.Struct):
    """Of one view; all times are those of one clock that never goes back."""

    as_of: float = NEVER
    """Everything that had happened by then is in the view."""
    required: float = NEVER
    """How new the view must be for it to count as current."""
    promised: float = NEVER
    """How recent the view must be for a caller that needs it."""
    target: int | None = None
    """The version that shows that the view is as new as the last question; None where no question is open."""
    asked: float = NEVER
    """When the last question was asked."""

    @property
    def is_met(self) -> bool:
        """Whether the view is as new as it must be."""
        return self.as_of >= self.required

    @property
    def keeps_promise(self) -> bool:
        """Whether the view is as recent as a caller needs it."""
        return self.as_of >= self.promised

    def require(self, at: float) -> None:
        """Let the view count as current only where it has everything that had happened by then."""
        self.required = max(self.required, at)
        if self.asked < self.required:
            self.target = None  # a question of before says too little

    def promise(self, at: float) -> None:
        """The same, for a caller that needs it."""
        self.promised = max(self.promised, at)
        self.require(at)

    def known(self, at: float) -> None:
        """Note that the view has everything that had happened by then."""
        self.as_of = max(self.as_of, at)

    def aim(self, asked: float, version: int) -> None:
        """Take the answer to a question: the collection's version, at the earliest as of when it was asked.

        One that says too little by now, as more is required since, is none; of two that say enough, the view reaches
        the lower version first.
        """
        if asked < self.required or (self.target is not None and version >= self.target):
            return
        self.asked, self.target = asked, version

    def reach(self, version: int) -> None:
        """Note the version that the view has reached."""
        if self.target is not None and version >= self.target:
            self.reach_target()

    def reach_target(self) -> None:
        """Note that the view has reached the version of the last answer."""
        if self.target is not None:
            self.target = None
            self.known(self.asked)
