"""Where numba is missing, old or broken, the scheduler uses NumPy, and says so in one line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from kube_policy_scheduler.adapters.compute.compiled_kernels import (
    LEAST_NUMBA,
    CompiledKernels,
    compile_kernels,
    find_numba,
)


@pytest.fixture(autouse=True)
def _not_loaded_before() -> Iterator[None]:
    compile_kernels.cache_clear()
    yield
    compile_kernels.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes another numba the installed one."""

    def install(
        *, version: str = "0.61.2", writable: bool = True, error: Exception | None = None, wrong: bool = False
    ) -> None:
        known = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: version if name == "numba" else known(name))

        def njit(signature: str, *, cache: bool, error_model: str) -> object:
            if error is not None:
                raise error
            if cache and not writable:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: (lambda *columns: 0) if wrong else function

        monkeypatch.setitem(sys.modules, "numba", SimpleNamespace(njit=njit))

    return install


def reason(caplog: pytest.LogCaptureFixture) -> str:
    """Return why the kernels are not in use; the log says so once."""
    with caplog.at_level(logging.INFO):
        loaded = compile_kernels()
        compile_kernels()
    assert loaded.kernels is None
    (record,) = caplog.records
    assert record.getMessage() == f"compiled kernels are not in use, the scheduler uses NumPy: {loaded.text}"
    return loaded.text


def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)

    assert reason(caplog) == "numba is not installed (extra `fast`)"
    assert caplog.records[0].levelno == logging.INFO, "it is optional"


@pytest.mark.parametrize("writable", [True, False])
def test_nothing_needs_to_be_writable(writable: bool, installed: Callable[..., None]) -> None:
    installed(writable=writable)

    loaded = compile_kernels()

    assert isinstance(loaded.kernels, CompiledKernels)
    assert loaded.text.startswith("numba 0.61.2, loaded in ")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"version": "0.60.1"}, "numba 0.60.1 is too old: install 0.61 or newer (extra `fast`)"),
        ({"error": NotImplementedError("\n  void(x)\nmore")}, "numba 0.61.2 failed: NotImplementedError: void(x)"),
        ({"wrong": True}, "numba 0.61.2 failed: ValueError: its results differ from those of NumPy"),
    ],
)
def test_a_numba_that_is_old_or_broken_is_not_used(
    what: dict[str, Any], expected: str, installed: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    installed(**what)

    assert reason(caplog) == expected
    assert caplog.records[0].levelno == logging.WARNING


def test_a_numba_that_cannot_be_imported_is_not_used(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed()
    monkeypatch.setitem(sys.modules, "numba", None)

    assert reason(caplog).startswith("numba 0.61.2 failed: ModuleNotFoundError: ")


def test_the_variable_of_numba_turns_them_off(installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    installed()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")

    assert find_numba().problem == "the environment variable NUMBA_DISABLE_JIT turns them off"
    assert compile_kernels().kernels is None


def test_the_least_version_is_that_of_the_extra() -> None:
    least = ".".join(map(str, LEAST_NUMBA))
    wanted = [each for each in metadata.requires("kube-policy-scheduler") or () if 'extra == "fast"' in each]
    assert f"numba>={least}" in [each.partition(";")[0].replace(" ", "") for each in wanted]
