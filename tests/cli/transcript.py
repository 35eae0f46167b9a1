"""Transcripts: files, commands, and what these print, in one text that reads like a terminal.

    --- a.policy
    score 10
    $ policyctl lint a.policy
    a.policy:1:1: warning[…]
    [1]

A command's output ends at the next command or file; `[N]` is its exit code where that is not 0.
"""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from kube_policy_scheduler.builtins.environment import install_extensions
from kube_policy_scheduler.cli.main import run


@dataclass
class Step:
    """A file to write, or a command to run, with the lines below it."""

    head: str
    lines: list[str] = field(default_factory=list)

    @property
    def is_file(self) -> bool:
        return self.head.startswith("--- ")


def steps(text: str) -> Iterator[Step]:
    current: Step | None = None
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        # of the two, the first line of a diff is the one before `+++ `
        if line.startswith("$ ") or (line.startswith("--- ") and not following.startswith("+++ ")):
            if current is not None:
                yield current
            current = Step(line)
        else:
            assert current is not None, "a transcript begins with a file or a command"
            current.lines.append(line)
    if current is not None:
        yield current


def played(text: str, folder: Path) -> str:
    """Do all steps in a folder and return the transcript that comes out."""
    done: list[str] = []
    for step in steps(text):
        done.append(step.head)
        if step.is_file:
            path = folder / step.head.removeprefix("--- ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(step.lines) + "\n")
            done += step.lines
        else:
            printed, code = command(step.head.removeprefix("$ "), folder)
            done += printed.splitlines()
            if code:
                done.append(f"[{code}]")
    return "\n".join(done) + "\n"


def command(line: str, folder: Path) -> tuple[str, int]:
    """Run `policyctl … [< FILE]` in this process; return what it prints and its exit code."""
    before, _, given = line.partition(" < ")
    program, *arguments = shlex.split(before)
    assert program == "policyctl"
    printed = io.StringIO()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO((folder / given).read_bytes() if given else b""))
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            code = run(arguments)
    finally:
        sys.stdin = stdin
        install_extensions((), stopwatch=time.perf_counter)  # the next command is another process
    return printed.getvalue(), code
