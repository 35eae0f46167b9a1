"""Files that a command rewrites: what would change, and the change in one step."""

from __future__ import annotations

import difflib
import os
import tempfile
from pathlib import Path

from kube_policy_scheduler.cli.terminal import say
from kube_policy_scheduler.diagnostics import Source


def difference(source: Source, text: str, *, done: str) -> str:
    """Return how a text differs from its source, as `diff -u` shows it; `done` says what was done to it."""
    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True), text.splitlines(keepends=True), source.name, f"{source.name} ({done})"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def written(path: Path, text: str) -> bool:
    """Replace a file in one step, so that whoever reads it sees the old text or the new one; say why if it fails."""
    target = path.resolve()
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            Path(name).chmod(target.stat().st_mode & 0o7777)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        say(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}", err=True)
        return False
    return True
