"""Files named on a command line: a path, a folder with everything below it, or `-` for standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

STANDARD_INPUT = Path("-")
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


def expanded(paths: Sequence[Path], *, suffix: str) -> list[Path]:
    """Return the files meant: each folder stands for the files with the suffix below it, each file comes once.

    Raises:
        click.ClickException: a path is not there, or a folder holds no such file: nothing checked is no success.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = _below(path, suffix)
            if not inside:
                raise click.ClickException(f"{path} holds no {suffix} file")
            found.update(dict.fromkeys(inside))
        elif path != STANDARD_INPUT and not path.exists():
            raise click.ClickException(f"{path} does not exist")
        else:
            found[path] = None
    return list(found)


def _below(folder: Path, suffix: str) -> list[Path]:
    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        found.extend(Path(here) / name for name in sorted(names) if name.endswith(suffix) and name[0] != ".")
    return found


def colour() -> bool:
    """Return whether to use colours: on a terminal that has them, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
