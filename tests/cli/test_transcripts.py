"""Every transcript matches the real output. `--snapshot-update` rewrites them: review them like code."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kube_policy_scheduler.cli.main import policyctl
from tests.cli.transcript import played

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
NEEDS_A_CLUSTER = {"rollout"}
"""Tested on one in `tests/integration`."""


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


@pytest.mark.parametrize("name", policyctl.list_commands(click.Context(policyctl)))
def test_every_command_has_a_transcript(name: str) -> None:
    if name in NEEDS_A_CLUSTER:
        return
    shown = [file.name for file in FILES if f"$ policyctl {name}" in file.read_text()]
    assert shown, f"write tests/cli/transcripts/{name}.txt: files, commands, and what they print"
