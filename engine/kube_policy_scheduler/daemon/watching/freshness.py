"""Whether the view of the cluster is current enough to decide by. Knows watches, not what they show.

One answer for all that a decision rests on. Each kind of object is watched apart: after an outage the pods of meanwhile
may be known before the nodes that went meanwhile are, and a decision between the two would send a pod to a node that is
gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kube_policy_scheduler.adapters.kube.changes import Phase, Status

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""With the API server in reach, a watch that cannot be had holds decisions up no longer than this: what is done to pods
is mostly done by ourselves. Not so where somebody else decided until now (`Reflector.prove`)."""
READING_SECONDS = 60.0
"""The same while what there is is being read: mostly that ends soon."""
STALE_POLL_SECONDS = 0.05
"""How often who looks at one view alone asks whether it is current again."""
NEWS_SECONDS = 0.25
"""After which it is asked again though no view has told anything: patience ends by time alone."""


class View(Protocol):
    """What is asked of a reflector (`adapters.kube.reflector`)."""

    resource: Any
    is_optional: bool
    on_status: list[Callable[[], None]]
    """Called when it has another status."""

    @property
    def status(self) -> Status:
        """What it is doing, and since when."""
        ...

    @property
    def losses(self) -> int:
        """How often it has ceased to be current."""
        ...

    @property
    def late_since(self) -> float | None:
        """Since when it has not been known to be current; None while it is."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether it is known to show everything."""
        ...

    @property
    def keeps_promise(self) -> bool:
        """Whether the view is as recent as a caller needs it."""
        ...


class ClusterView(Protocol):
    """Whether to decide by what is known of the cluster (`Freshness`)."""

    @property
    def losses(self) -> int:
        """How often it has ceased to be current."""
        ...

    def __call__(self) -> bool:
        """Return whether to decide now; cheap. If not, it is to be asked again after `news`."""
        ...

    async def news(self) -> None:
        """Wait until the answer may be another one: a view has another status, or a while has passed."""
        ...


class AlwaysCurrent:
    """Of a cluster without watches."""

    losses = 0

    def __call__(self) -> bool:
        """Return that it is."""
        return True

    async def news(self) -> None:
        """Wait for a while: there is never any."""
        await asyncio.sleep(NEWS_SECONDS)


class Freshness:
    """Answers for a few views together."""

    def __init__(
        self,
        views: Sequence[View],
        *,
        is_reachable: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """views: all that a decision rests on. is_reachable: whether the API server is."""
        self._views = views
        self._is_reachable = is_reachable
        self._clock = clock
        self._late_since: float | None = None
        self._looked_at = 0.0
        self._late_seconds = 0.0
        self._stuck_seconds = 0.0
        self._logged: set[str] = set()
        self._is_settled = False
        """Whether all views were current, and will be until one of them has another status."""
        self._settled_losses = 0
        self._news = asyncio.Event()
        self._next_news: asyncio.TimerHandle | None = None
        """When all who wait for news are told that a while has passed; None where nobody waits."""
        for view in views:
            view.on_status.append(self._unsettle)
        self.is_stale = False
        """Whether decisions go on though it is not current, as nothing better can be had."""

    @property
    def losses(self) -> int:
        """How often any view has ceased to be current: while it stays the same, so does what decisions rest on."""
        return self._settled_losses if self._is_settled else sum(view.losses for view in self._views)

    def _unsettle(self) -> None:
        self._is_settled = False
        self._tell()

    async def news(self) -> None:
        """Wait until the answer may be another one: a view has another status, or a while has passed."""
        if self._next_news is None:
            self._next_news = asyncio.get_running_loop().call_later(NEWS_SECONDS, self._tell)
        await self._news.wait()

    def _tell(self) -> None:
        """Wake all who wait for news."""
        if self._next_news is not None:
            self._next_news.cancel()
            self._next_news = None
        self._news.set()
        self._news.clear()

    def __call__(self) -> bool:
        """Return whether to decide now; cheap. If not, it is to be asked again after `news`."""
        if self._is_settled:
            return True
        late = [view for view in self._views if not view.is_current]
        if not late:
            if self._late_since is not None:
                self._recover()
            # time alone ends that a view is current whose watch has ended
            self._is_settled = all(view.status.phase is not Phase.CONNECTING for view in self._views)
            self._settled_losses = sum(view.losses for view in self._views)
            return True
        now = self._clock()
        if self._late_since is None:
            self._late_since, self._looked_at, self._late_seconds, self._stuck_seconds = now, now, 0.0, 0.0
        passed, self._looked_at = now - self._looked_at, now
        essential = [view for view in late if not view.is_optional]
        is_reading = any(view.status.phase in (Phase.LISTING, Phase.CATCHING_UP) for view in essential)
        if not self._is_reachable():
            self._late_seconds = self._stuck_seconds = 0.0
        else:
            self._late_seconds += passed
            self._stuck_seconds += passed if not is_reading else 0.0
        is_over = self._late_seconds >= READING_SECONDS if is_reading else self._stuck_seconds >= PATIENCE_SECONDS
        self.is_stale = is_over and all(view.keeps_promise for view in essential)
        if self.is_stale:
            if self._note_news("stale"):
                logger.warning("scheduling from a stale cache", extra=self._why())
            return True
        if now - self._late_since >= PATIENCE_SECONDS and self._note_news("waits"):
            logger.warning("not scheduling until the caches are current", extra=self._why())
        return False

    def problems(self) -> list[str]:
        """Return what is not current, and what is being done about it, in words."""
        now = self._clock()
        return [_described(view, now) for view in self._views if not view.is_current]

    @property
    def late_seconds(self) -> float:
        """For how long something that decisions cannot do without has not been current; 0.0 while all is."""
        now = self._clock()
        essential = [view for view in self._views if not view.is_optional and not view.is_current]
        return max((now - view.late_since for view in essential if view.late_since is not None), default=0.0)

    def _note_news(self, what: str) -> bool:
        """Note that something is logged; return whether it is for the first time."""
        is_news = what not in self._logged
        self._logged.add(what)
        return is_news

    def _why(self) -> dict[str, str]:
        return {"why": "; ".join(self.problems())}

    def _recover(self) -> None:
        assert self._late_since is not None
        if self._logged:
            logger.info("the caches are current again after %.0f s", self._clock() - self._late_since)
        self._late_since = None
        self.is_stale = False
        self._logged.clear()


def _described(view: View, now: float) -> str:
    status = view.status
    why = f" ({status.problem})" if status.problem else ""
    since = f" for {max(0.0, now - status.since):.0f} s" if status.since is not None else ""
    return f"{view.resource.label} {status.phase.value}{since}{why}"
