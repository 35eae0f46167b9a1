from __future__ import annotations

from pathlib import Path

import pytest

from tests.tooling.tester.command_line import Folder


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    """An empty folder in which commands are run, outside of any CI system."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return Folder(tmp_path, capsys)
