"""What standard output is: a terminal with colours and a width, or a pipe that takes lines as long as they come."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.tooling.text_table import Terminal


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
