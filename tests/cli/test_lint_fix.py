"""What `policyctl lint --fix` does to files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kube_policy_scheduler.cli import main

BEFORE, AFTER = "let x = 1\nfilter node.ready\n", "filter node.ready\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "a.policy"
    path.write_text(BEFORE)
    return path


def test_files_are_fixed_in_place_and_keep_their_mode(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy.chmod(0o640)

    assert main.run(["lint", "--fix", str(policy)]) == main.OK
    assert policy.read_text() == AFTER
    assert policy.stat().st_mode & 0o777 == 0o640
    assert list(policy.parent.iterdir()) == [policy]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{policy}:1:5: fixed[P0308]: remove the statement\n1 file checked: nothing found\n"


def test_a_difference_is_shown_and_nothing_written(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lint", "--diff", str(policy)]) == main.FOUND
    assert policy.read_text() == BEFORE
    assert "-let x = 1\n" in capsys.readouterr().out


def test_without_a_difference_nothing_is_found(policy: Path) -> None:
    policy.write_text(AFTER)
    assert main.run(["lint", "--diff", str(policy)]) == main.OK


def test_what_cannot_be_fixed_is_still_reported(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy.write_text("let x = 1\nfilter node.redy\n")

    assert main.run(["lint", "--fix", str(policy)]) == main.FOUND
    assert "unknown field `redy`" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_keeps_its_text(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    assert main.run(["lint", "--fix", str(policy)]) == main.COULD_NOT_RUN
    assert policy.read_text() == BEFORE
    assert list(policy.parent.iterdir()) == [policy]
    said = capsys.readouterr().err
    assert f"policyctl: cannot write {policy}: no space left on device\n" in said
    assert "fixed[" not in said


def test_standard_input_comes_out_fixed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"let x = 1\nfilter node.redy\n")))

    assert main.run(["lint", "--fix", "-"]) == main.FOUND
    said = capsys.readouterr()
    assert said.out == "let x = 1\nfilter node.redy\n"  # a name is not known to be unused where there are errors
    assert "unknown field `redy`" in said.err


def test_a_file_that_is_not_text_does_not_keep_others_from_being_checked(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = policy.with_name("b.policy")
    other.write_bytes(b"filter node.ready # \xff\n")

    assert main.run(["lint", "--format", "github", str(policy), str(other)]) == main.COULD_NOT_RUN
    said = capsys.readouterr().out
    assert "byte 0xff is not UTF-8" in said
    assert "`x` is never used" in said


@pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 1), ("note", 1), ("never", 0)])
def test_the_level_decides_what_fails(level: str, code: int, policy: Path) -> None:
    assert main.run(["lint", "--fail-level", level, str(policy)]) == code


def test_an_error_does_not_fail_where_nothing_shall(policy: Path) -> None:
    policy.write_text("filter node.redy\n")
    assert main.run(["lint", "--fail-level", "never", str(policy)]) == main.OK
    assert main.run(["lint", str(policy)]) == main.FOUND


def test_fixing_and_showing_exclude_each_other(policy: Path) -> None:
    assert main.run(["lint", "--fix", "--diff", str(policy)]) == main.COULD_NOT_RUN
