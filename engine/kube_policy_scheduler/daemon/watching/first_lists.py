"""The first lists of everything that decisions rest on; nothing is decided before they are complete."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kube_policy_scheduler.adapters.kube.changes import Phase
from kube_policy_scheduler.adapters.kube.reflector import Reflector, wait_synced

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
"""After this long the log says what has not been listed yet; waiting goes on."""
MOST_NAMED = 3


@contextmanager
def collection_deferred() -> Iterator[None]:
    """Keep the cyclic collector off, then freeze what was built so that it is never traversed again.

    Half or more of a large decode is otherwise spent in collections that find nothing. None is made before the
    freeze: it would take 0.1 s to find some 3,000 objects that importing modules left behind.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class FirstLists:
    """Waits for them, and tells whether they are there."""

    def __init__(self, reflectors: Sequence[Reflector[Any]], *, counts: Callable[[], Mapping[str, int]]) -> None:
        """counts: returns the number of objects by kind, for the log and to see progress."""
        self._reflectors = reflectors
        self._counts = counts
        self._are_complete = False

    async def wait(self) -> None:
        """Return once all are complete."""
        began = time.monotonic()
        with collection_deferred():
            missing = await wait_synced(self._reflectors, timeout_seconds=PATIENCE_SECONDS)
            before = -1
            while missing and (listed := sum(self._counts().values())) > before:  # the largest lists take longer
                before = listed
                missing = await self._wait_on(missing)
        while missing:
            missing = await self._wait_on(missing)
        self._are_complete = True
        seconds = round(time.monotonic() - began, 3)
        absent = [str(each.resource) for each in self._reflectors if each.status.phase is Phase.ABSENT]
        fields = {"absent": ", ".join(absent)} if absent else {}
        logger.info("caches are synced", extra={**self._counts(), "seconds": seconds, **fields})

    async def _wait_on(self, missing: Sequence[Reflector[Any]]) -> list[Reflector[Any]]:
        logger.warning("still waiting for the first list of %s", ", ".join(map(_described, missing)))
        return await wait_synced(self._reflectors, timeout_seconds=PATIENCE_SECONDS)

    def problem(self) -> str | None:
        """Return why nothing can be decided yet, None where it can."""
        if self._are_complete:
            return None
        missing = [each for each in self._reflectors if not each.synced.is_set()]
        if not missing:
            return "the first lists are not complete"
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"the first lists are not complete: {', '.join(map(_described, missing[:MOST_NAMED]))}{more}"


def _described(reflector: Reflector[Any]) -> str:
    return f"{reflector.resource} ({reflector.status.problem or reflector.status.phase.value})"
