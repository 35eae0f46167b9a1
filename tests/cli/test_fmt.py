"""What `policyctl fmt` does to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.cli import main

UGLY, TIDY = "filter   node.ready\n", "filter node.ready\n"


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    path = tmp_path / "ugly.policy"
    path.write_text(UGLY)
    return path


def test_a_file_keeps_its_mode_and_leaves_nothing_beside_it(ugly: Path) -> None:
    ugly.chmod(0o640)
    assert main.run(["fmt", str(ugly)]) == main.OK
    assert ugly.read_text() == TIDY
    assert ugly.stat().st_mode & 0o777 == 0o640
    assert list(ugly.parent.iterdir()) == [ugly]


def test_a_link_stays_one(ugly: Path) -> None:
    link = ugly.with_name("link.policy")
    link.symlink_to(ugly)
    assert main.run(["fmt", str(link)]) == main.OK
    assert link.is_symlink()
    assert ugly.read_text() == TIDY


def test_a_tidy_file_is_not_touched(ugly: Path) -> None:
    ugly.write_text(TIDY)
    before = ugly.stat()
    assert main.run(["fmt", str(ugly)]) == main.OK
    after = ugly.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_looking_changes_nothing(option: str, ugly: Path) -> None:
    assert main.run(["fmt", option, str(ugly)]) == main.FOUND
    assert ugly.read_text() == UGLY


def test_other_ends_of_lines_are_a_change(ugly: Path) -> None:
    ugly.write_bytes(TIDY.replace("\n", "\r\n").encode())
    assert main.run(["fmt", "--check", str(ugly)]) == main.FOUND
    assert main.run(["fmt", str(ugly)]) == main.OK
    assert ugly.read_bytes() == TIDY.encode()


def test_a_file_that_cannot_be_written_is_named_and_keeps_its_text(
    ugly: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert main.run(["fmt", str(ugly)]) == main.COULD_NOT_RUN
    assert capsys.readouterr().err == f"policyctl: cannot write {ugly}: no space left on device\n"
    assert ugly.read_text() == UGLY
    assert list(ugly.parent.iterdir()) == [ugly]


def test_a_file_that_is_not_text_keeps_its_bytes(ugly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ugly.write_bytes(b'let a = "\xff"\n')
    assert main.run(["fmt", str(ugly)]) == main.COULD_NOT_RUN
    assert "byte 0xff is not UTF-8" in capsys.readouterr().err
    assert ugly.read_bytes() == b'let a = "\xff"\n'
