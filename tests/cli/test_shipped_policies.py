"""The policies that we ship are clean, formatted, and pass their tests: we use our own tools on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import OK, run

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "policies", ROOT / "deploy"]
TESTS = sorted(file for folder in FOLDERS for file in folder.rglob("*.test.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_lint_finds_no_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", str(folder)]) == OK, capsys.readouterr().out


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_they_are_formatted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fmt", "--check", str(folder)]) == OK, capsys.readouterr().out


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_their_tests_pass(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", str(file)]) == OK, capsys.readouterr().out


def test_every_policy_has_a_test() -> None:
    tested = {file.with_name(file.name.removesuffix(".test.yaml")) for file in TESTS}
    assert {file.with_suffix("") for folder in FOLDERS for file in folder.rglob("*.policy")} <= tested
