"""Every transcript comes out as it is written. `--snapshot-update` writes what comes out: review it like code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.transcript import played

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_transcript(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    wanted = file.read_text()
    got = played(wanted, tmp_path)
    assert "Traceback" not in got, got
    if pytestconfig.option.update_snapshots:
        file.write_text(got)
    assert got == wanted or pytestconfig.option.update_snapshots


def test_there_are_transcripts() -> None:
    assert FILES
