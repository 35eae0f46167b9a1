"""Where numba is missing or broken, the scheduler uses NumPy."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from kube_policy_scheduler.adapters.compiled_kernels import CompiledKernels, compile_kernels


@pytest.fixture(autouse=True)
def _not_loaded_before() -> None:
    compile_kernels.cache_clear()


def numba(*, writable: bool, works: bool = True) -> SimpleNamespace:
    """Return what stands for numba: on a read-only disk it raises RuntimeError for `cache=True`, as the real one."""

    def njit(signature: str, *, cache: bool, error_model: str) -> object:
        if not works:
            raise NotImplementedError(signature)
        if cache and not writable:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    return SimpleNamespace(njit=njit)


def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)

    assert compile_kernels() is None


@pytest.mark.parametrize("writable", [True, False])
def test_nothing_needs_to_be_writable(writable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", numba(writable=writable))

    assert isinstance(compile_kernels(), CompiledKernels)


def test_a_numba_that_cannot_compile_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", numba(writable=True, works=False))

    with caplog.at_level(logging.WARNING):
        assert compile_kernels() is None
    assert "the scheduler uses NumPy" in caplog.text
    compile_kernels.cache_clear()
