"""Work on other backends of joblib, which stand in here for those that Dask and Ray register."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import joblib
import pytest
from joblib._parallel_backends import ThreadingBackend

from kube_policy_scheduler.adapters.process.parallel import DASK, RAY, workers


class _InThreads(ThreadingBackend):  # type: ignore[misc]  # joblib has no types
    """As Dask's workers do, it runs tasks in threads other than the main one."""


class _AllAtOnce(ThreadingBackend):  # type: ignore[misc]
    """As Ray's backend, it gives no result before all are there."""

    supports_return_generator = False


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(contents)
    return made


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Client:
        def __init__(self, address: str | None = None, **_: object) -> None:
            joblib.register_parallel_backend("dask", _InThreads)

        def close(self) -> None:
            pass

    def register() -> None:
        joblib.register_parallel_backend("ray", _AllAtOnce)

    monkeypatch.setitem(sys.modules, "distributed", module("distributed", Client=Client))
    monkeypatch.setitem(sys.modules, "ray", module("ray", init=lambda **_: None))
    monkeypatch.setitem(sys.modules, "ray.util", module("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.joblib", module("ray.util.joblib", register_ray=register))
    yield
    for name in (DASK, RAY):
        joblib.parallel.BACKENDS.pop(name, None)


def where(number: int) -> tuple[int, bool]:
    return number, threading.current_thread() is threading.main_thread()


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize("backend", [DASK, RAY])
def test_results_come_in_their_order_from_every_backend(backend: str) -> None:
    with workers(backend, jobs=2) as run_all:
        assert list(run_all(where, range(5))) == [(number, False) for number in range(5)]
