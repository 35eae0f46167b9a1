"""The cluster and the processes of the integration tests, and how long to go on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conftest import cluster, control_plane, policies, scheduler
from tests.integration.front import Front
from tests.integration.http2_front import Http2Front

__all__ = ["cluster", "control_plane", "policies", "scheduler"]

T = TypeVar("T")
Size = Callable[[T, T], T]


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def front(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Front]:
    """What the scheduler takes for the API server: its faults happen over both protocols."""
    made = Http2Front(cluster.endpoint, tmp_path) if request.param == "HTTP/2" else Front(cluster.endpoint)
    with made as serving:
        yield serving
    if isinstance(made, Http2Front) and made.exchanges:
        assert made.streams or not made.asked("create", "pods/binding")


@pytest.fixture
def size() -> Size[int]:
    """Takes a number for the default run and one for `make faults`, and returns the one that counts."""
    return lambda short, long: long if os.environ.get("FAULTS") == "long" else short
