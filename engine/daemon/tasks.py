"""Work in the background of the daemon: what breaks is told, and all of it can be ended. Knows not what it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

logger = logging.getLogger(__name__)


async def guarded(work: Coroutine[Any, Any, object]) -> None:
    """Run background work; if it breaks in an unforeseen way, say so loudly instead of losing it silently."""
    try:
        await work
    except Exception:
        logger.exception("background work ended in an unforeseen way")
        raise


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
