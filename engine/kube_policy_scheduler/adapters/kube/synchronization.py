"""The first lists: run all reflectors, wait until each has delivered, without the garbage collector in between."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kube_policy_scheduler.adapters.kube.reflector import Reflector


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


async def wait_synced(reflectors: Iterable[Reflector[Any]], *, timeout_seconds: float) -> list[Reflector[Any]]:
    """Wait until all have delivered their first list; return those that have not within timeout_seconds."""
    waits = {asyncio.ensure_future(reflector.synced.wait()): reflector for reflector in reflectors}
    if not waits:
        return []
    _, pending = await asyncio.wait(waits, timeout=timeout_seconds)
    for task in pending:
        task.cancel()
    return [reflector for task, reflector in waits.items() if task in pending]
