"""The first lists: while they go on nothing is collected, however long they take; without progress it is, again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.changes import Phase, Status
from kube_policy_scheduler.daemon.watching.first_lists import PATIENCE_SECONDS, FirstLists
from tests.simulation.virtual_time import run


class Listing:
    """What is asked of a reflector."""

    def __init__(self) -> None:
        self.resource = "pods"
        self.status = Status(Phase.LISTING)
        self.synced = asyncio.Event()


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def _collects(listed: list[int]) -> list[bool]:
    """Return whether the collector was on at the end of each wait, with so many objects listed by then."""
    found: list[bool] = []

    async def story() -> None:
        listing: Any = Listing()
        now = 0
        lists = FirstLists([listing], counts=lambda: {"pods": now})
        waiting = asyncio.create_task(lists.wait())
        for number in listed:
            now = number
            await asyncio.sleep(PATIENCE_SECONDS)
            found.append(gc.isenabled())
            assert lists.problem() is not None
        listing.synced.set()
        await waiting
        assert lists.problem() is None
        assert gc.isenabled()

    run(story())
    return found


def test_nothing_is_collected_while_objects_come() -> None:
    assert _collects([1_000, 2_000, 3_000, 4_000]) == [False] * 4


def test_where_no_more_objects_come_garbage_is_collected_again() -> None:
    assert _collects([1_000, 2_000, 2_000, 2_000, 2_000])[-1] is True
