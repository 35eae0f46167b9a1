"""Objects of the API server that cannot be used: told, and passed over. Knows nothing of what they are for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


def report_unusable(thing: Any, error: Exception) -> None:
    """Say that an object is passed over; what was known of it before stays."""
    metadata = thing.metadata
    key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    internal = None if isinstance(error, ValueError) else error
    logger.error(
        "%s %s cannot be used and is passed over: %s", type(thing).__name__.lower(), key, error, exc_info=internal
    )


def take_each(take: Callable[[T], None], things: Iterable[T]) -> None:
    """Take all objects that can be taken: one that cannot must not keep the others from being known."""
    for thing in things:
        try:
            take(thing)
        except Exception as error:
            report_unusable(thing, error)
