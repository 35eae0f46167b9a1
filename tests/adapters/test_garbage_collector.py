"""The garbage collector looks only once at what takes it long."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kube_policy_scheduler.adapters.garbage_collector import LONG_SECONDS, short_collections


@pytest.mark.parametrize(
    ("generation", "seconds", "frozen"),
    [(2, 2 * LONG_SECONDS, 1), (2, LONG_SECONDS / 2, 0), (1, 2 * LONG_SECONDS, 0)],
    ids=["long", "short", "of young objects"],
)
def test_what_a_long_collection_left_is_frozen(generation: int, seconds: float, frozen: int) -> None:
    times: Iterator[float] = iter([10.0, 10.0 + seconds])
    freezes = list[None]()
    with short_collections(stopwatch=lambda: next(times), freeze=lambda: freezes.append(None)):
        gc.collect(generation)
    gc.collect()

    assert len(freezes) == frozen
