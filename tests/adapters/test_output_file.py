"""Files that commands write: replaced atomically, with the mode of the old file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file


def test_a_file_that_is_replaced_keeps_its_mode_and_the_link_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "real.txt", tmp_path / "link.txt"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)

    write_file(link, ["n", "ew"])

    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "real.txt"]


def test_targets_that_are_not_files_are_written_to(tmp_path: Path) -> None:
    write_file(Path("/dev/null"), ["text"])
    assert Path("/dev/null").is_char_device()


def test_a_link_to_a_pipe_is_written_to(tmp_path: Path) -> None:
    """As `/dev/stdout` is one, whose target has a name that cannot be opened."""
    reading, writing = os.pipe()
    link = tmp_path / "out"
    link.symlink_to(f"/proc/self/fd/{writing}")
    write_file(link, [b"by", b"tes"])
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - it has no path
        assert pipe.read() == b"bytes"


def test_the_same_text_gives_the_same_packed_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_file(tmp_path / name, ["text"])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*/none/a.txt: no such file or directory"):
        write_file(tmp_path / "none" / "a.txt", ["text"])
