"""The cluster and the processes of the integration tests, and how long to go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.integration.conftest import cluster, control_plane, front, policies, scheduler

__all__ = ["cluster", "control_plane", "front", "policies", "scheduler"]

T = TypeVar("T")
Size = Callable[[T, T], T]


@pytest.fixture
def size() -> Size[int]:
    """Takes a number for the default run and one for `make faults`, and returns the one that counts."""
    return lambda short, long: long if os.environ.get("FAULTS") == "long" else short
