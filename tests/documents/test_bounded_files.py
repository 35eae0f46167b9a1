"""Untrusted files: unpacking and reading are bounded."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
from pathlib import Path

import pytest

from kube_policy_scheduler.documents import bounded_files
from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, lines_of, read_bounded, read_stream


def bomb(mebibytes: int) -> bytes:
    return gzip.compress(b"[],\n" * (mebibytes << 18))


def test_a_bomb_is_refused_and_a_recorded_cluster_is_not(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(bomb(64))
    with pytest.raises(UnreadableFileError, match="unpacks to more than 100 times its size"):
        read_bounded(tmp_path / "bomb.gz")
    (tmp_path / "small.gz").write_bytes(bomb(8))
    assert len(read_bounded(tmp_path / "small.gz")) == 8 << 20
    with pytest.raises(UnreadableFileError, match="unpacks to more than 100 times its size"):
        list(lines_of(io.BytesIO(bomb(64))))


def test_several_packed_parts_count_together() -> None:
    with pytest.raises(UnreadableFileError, match="unpacks to more"):
        read_stream(io.BytesIO(bomb(4) * 16))


def test_what_has_no_end_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(bounded_files, "MOST_LINE_BYTES", 2 << 20)
    with Path("/dev/zero").open("rb") as endless, pytest.raises(UnreadableFileError, match="it is larger than 8 MiB"):
        read_stream(endless)
    with Path("/dev/zero").open("rb") as endless, pytest.raises(UnreadableFileError, match="longer than 2 MiB"):
        list(lines_of(endless))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_no_file(path: str) -> None:
    with pytest.raises(UnreadableFileError, match="it is a device, expected a file"):
        read_bounded(Path(path))
    assert read_bounded(Path("/dev/null")) == b""


@pytest.mark.long
def test_a_pipe_is_read_if_somebody_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "WRITER_SECONDS", 0.01)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFileError, match="it is a pipe, and nobody has opened it to write"):
        read_bounded(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"sleep 0.1; echo a > {tmp_path}/pipe"]):
        monkeypatch.setattr(bounded_files, "WRITER_SECONDS", 30.0)
        assert read_bounded(tmp_path / "pipe") == b"a\n"
    monkeypatch.setattr(bounded_files, "WRITER_SECONDS", 0.01)
    with subprocess.Popen(["sh", "-c", "sleep 0.1; echo a; sleep 0.1; echo b"], stdout=subprocess.PIPE) as slow:
        assert slow.stdout is not None
        assert read_bounded(Path(f"/dev/fd/{slow.stdout.fileno()}")) == b"a\nb\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\nb\n", b"a\n\nb", b"x" * 3_000_000 + b"\nlast"])
def test_lines_are_those_of_the_file(text: bytes, packed: bool) -> None:
    given = gzip.compress(text) if packed else text
    assert list(lines_of(io.BytesIO(given))) == list(io.BytesIO(text))
    assert read_stream(io.BytesIO(given)) == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a" * 1000)[:-6], "end-of-stream"),
        (b"\x1f\x8b\x07" + b"rest" * 9, "unknown compression method"),
        (gzip.compress(b"a" * 1000)[:-8] + bytes(8), "crc check failed"),
    ],
    ids=["cut", "method", "checksum"],  # gzip writes the time: ids made of bytes would differ between workers
)
def test_what_cannot_be_unpacked_is_reported(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(UnreadableFileError, match=said):
        read_bounded(tmp_path / "x.gz")
