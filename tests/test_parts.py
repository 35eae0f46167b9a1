"""What is left out of `make test`, and that a new test finds its part by itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import LONG_FOLDERS, ONCE_FOR_ALL, is_long, quick

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("start", [lambda: subprocess.run([sys.executable, "-V"], check=True), os.fork])
def test_a_quick_test_that_starts_a_process_fails_and_hears_where_it_belongs(
    start: object, request: pytest.FixtureRequest
) -> None:
    assert callable(start)
    expected = r"a quick test starts a process \(.*pytest\.mark\.long"
    with pytest.raises(pytest.fail.Exception, match=expected), quick.phase(request.node):
        start()


def test_it_fails_too_if_the_code_under_test_catches_everything(request: pytest.FixtureRequest) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match="a quick test starts a process"),
        quick.phase(request.node),
        contextlib.suppress(BaseException),
    ):
        subprocess.run([sys.executable, "-V"], check=True)


@pytest.mark.parametrize("program", ONCE_FOR_ALL)
def test_what_a_library_starts_once_on_a_machine_is_not_the_fault_of_a_test(
    program: str, request: pytest.FixtureRequest
) -> None:
    with quick.phase(request.node), contextlib.suppress(FileNotFoundError):
        subprocess.run([program, "--version"], check=False, capture_output=True)


@pytest.mark.long
def test_a_long_one_may(request: pytest.FixtureRequest) -> None:
    assert is_long(request.node)
    subprocess.run([sys.executable, "-V"], check=True, capture_output=True)


@pytest.mark.needs(sys.executable)
def test_one_that_needs_a_program_is_long(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("long") is not None


def test_the_folders_exist() -> None:
    assert [folder for folder in LONG_FOLDERS if not (ROOT / folder).is_dir()] == []
