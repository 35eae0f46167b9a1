"""What standard output is: a terminal with colours and a width, or a pipe that takes lines as long as they come."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from engine.tooling.text_table import Terminal

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


_FORMATS = {
    "text": "for people",
    "json": "for programs",
    "github": "annotations of GitHub Actions",
    "sarif": "SARIF 2.1.0",
    "junit": "JUnit's XML",
    "tap": "TAP 14",
}


def format_option(*forms: str) -> Callable[[_CommandT], _CommandT]:
    """Add `--format` (as `form`): what standard output gets. Whatever prints a report has it; text and json always."""
    known = forms or ("text", "json")
    words = "; ".join(f"{form}: {_FORMATS[form]}" for form in known)
    return click.option("--format", "form", type=click.Choice(known), default="text", show_default=True, help=words)


def colour(*, err: bool = False) -> bool:
    """Return whether to use colours: on a terminal that has them, unless NO_COLOR is set."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return the width for running text, which is wrapped in pipes too: COLUMNS, that of the terminal, or 80."""
    return shutil.get_terminal_size().columns


def terminal() -> Terminal:
    """Return what reports are written to; COLUMNS holds for pipes as well."""
    from engine.tooling.text_table import Terminal

    bounded = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Terminal(colour=colour(), width=columns() if bounded else None)
