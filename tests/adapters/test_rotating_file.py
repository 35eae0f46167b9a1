"""Rotating files: no line is split, no caller waits, and lost lines are counted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.files.rotating_file import FileError, RotatingLines
from tests.patience import PATIENCE_SECONDS


def lines(folder: Path, **changes: int) -> RotatingLines:
    given = {"file_bytes": 100, "files": 3} | changes
    return RotatingLines(folder, "log", pause_seconds=0.001, **given)  # type: ignore[arg-type]


def line(number: int) -> bytes:
    return f"{number:09d}\n".encode()


def put(target: RotatingLines, numbers: range) -> None:
    for number in numbers:
        target.put(lambda number=number: line(number))  # type: ignore[misc]


def test_files_take_turns_and_the_oldest_goes(tmp_path: Path) -> None:
    target = lines(tmp_path / "made")
    put(target, range(35))
    target.close()
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["log", "log.1", "log.2"]
    read = b"".join((tmp_path / "made" / name).read_bytes() for name in ("log.2", "log.1", "log"))
    assert read == b"".join(line(number) for number in range(10, 35))
    assert (target.written, target.dropped) == (35, 0)


def test_with_one_file_a_full_log_starts_again(tmp_path: Path) -> None:
    target = lines(tmp_path, files=1)
    put(target, range(11))
    target.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]
    assert (tmp_path / "log").read_bytes() == line(10)


def test_a_file_of_before_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line(1))
    target = lines(tmp_path)
    put(target, range(2, 3))
    target.close()
    assert (tmp_path / "log").read_bytes() == line(1) + line(2)


def test_a_line_that_a_crash_cut_off_stays_the_last_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(line(1) + b"0000")
    target = lines(tmp_path)
    put(target, range(2, 3))
    target.close()
    assert (tmp_path / "log.1").read_bytes() == line(1) + b"0000"
    assert (tmp_path / "log").read_bytes() == line(2)


def test_a_slow_disk_delays_no_caller(tmp_path: Path) -> None:
    target = lines(tmp_path, max_waiting=10)
    slow, entered = threading.Event(), threading.Event()

    def hang() -> bytes:
        entered.set()
        slow.wait(PATIENCE_SECONDS)
        return line(0)

    target.put(hang)
    assert entered.wait(PATIENCE_SECONDS)
    put(target, range(1, 31))
    assert target.dropped == 20
    slow.set()
    target.close()
    assert target.written == 11


def test_a_line_that_cannot_be_made_keeps_no_other_from_being_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = lines(tmp_path)
    target.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    put(target, range(1))
    target.close()
    assert (tmp_path / "log").read_bytes() == line(0)
    assert target.dropped == 1
    assert "failed to format a line" in caplog.text


def test_an_impossible_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot write to .*file/log: (not a directory|file exists)"):
        lines(tmp_path / "file")
