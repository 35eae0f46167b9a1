"""Runs deploy/GETTING-STARTED.md: its files, its commands and their results."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "deploy" / "GETTING-STARTED.md"
SECONDS = 90.0
_BLOCK = re.compile(r"<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<text>.*?)\n```|```sh\n(?P<sh>.*?)\n```", re.DOTALL)


def script(text: str) -> Iterator[str]:
    """Yield the page as commands of a shell; a port that may be taken on this machine becomes a free one."""
    for found in _BLOCK.finditer(text):
        if found["file"] is not None:
            yield f"mkdir -p $(dirname {found['file']}); cat > {found['file']} <<'END'\n{found['text']}\nEND"
        else:
            yield found["sh"].replace("policy-scheduler --", "policy-scheduler --http-address 127.0.0.1:0 --")


def promised(text: str) -> list[str]:
    """Return the lines that the page shows below its commands."""
    return re.findall(r"```\n\n    (\S.*)\n", text)


def test_a_newcomer_gets_to_the_end(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed (apt-get install kubernetes-client)")
    text = PAGE.read_text(encoding="utf-8")
    assert len(promised(text)) == 3
    commands = "\n".join(script(text))
    assert commands.count("kubectl create -f web.yaml") == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "NO_PROXY": "*"}
    out = tmp_path / "printed"  # a file: what goes on in the background would keep a pipe open
    with out.open("wb") as printing:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printing,
            stderr=printing,
            start_new_session=True,
        )
    try:
        code: int | None = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the cluster and the scheduler, which the page leaves running
        process.wait(5)
    printed = out.read_text()
    log = tmp_path / "scheduler.log"
    assert code == 0, printed + (log.read_text() if log.exists() else "")
    lines = iter(printed.splitlines())
    for wanted in promised(text):
        assert any(line.startswith(wanted) for line in lines), f"{wanted!r} is not in, or not in order:\n{printed}"
