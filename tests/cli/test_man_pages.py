"""`policyctl man`: pages that say what --help says, and that roff reads without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run

ROFF = shutil.which("groff")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("share") / "man" / "man1"
    assert run(["man", str(folder)]) == 0
    return {path.stem: path.read_text(encoding="ascii") for path in sorted(folder.iterdir())}


def test_every_command_of_every_program_has_a_page(pages: dict[str, str]) -> None:
    assert {"policyctl", "kubectl-policy", "policyctl-lint", "policyctl-import", "policyctl-canary-promote"} <= set(
        pages
    )
    assert {"policy-scheduler", "policy-scheduler-config"} <= set(pages)
    for name, text in pages.items():
        for other in re.findall(r"([\w\\-]+)\(1\)", text):
            assert other.replace("\\-", "-") in pages, f"{name} refers to a page that does not exist"


def test_a_page_has_the_sections_of_a_man_page(pages: dict[str, str]) -> None:
    sections = re.findall(r"(?m)^\.SH (.+)", pages["policyctl-drift"])
    assert sections == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]
    assert "policyctl\\-drift \\- List running pods" in pages["policyctl-drift"]
    assert "List canaries, promote them, or remove them." in pages["policyctl"]


@pytest.mark.long
@pytest.mark.skipif(ROFF is None, reason="groff is not installed")
def test_roff_reads_every_page_without_a_warning(pages: dict[str, str]) -> None:
    assert ROFF is not None
    for name, text in pages.items():
        if not text.startswith(".so"):
            shown = subprocess.run(
                [ROFF, "-man", "-ww", "-Tutf8"], input=text, capture_output=True, text=True, check=True
            )
            assert shown.stderr == "", name
            assert "\b" not in re.sub(r".\x08", "", shown.stdout), name


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "man").write_text("a file")
    assert run(["man", str(tmp_path / "man" / "man1")]) == 2
    assert "Error: cannot write" in capsys.readouterr().err
