"""What is written to the terminal: text, tables and JSON, colours, and a status line while something runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.diagnostics import printable

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.text_table import Terminal

_OUR_STYLES = re.compile(r"(\x1b\[(?:0|1|2|32|33|1;3[1-6])m)")
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


_FORMATS = {
    "text": "for people",
    "json": "for programs",
    "github": "annotations of GitHub Actions",
    "sarif": "SARIF 2.1.0",
    "junit": "JUnit's XML",
    "tap": "TAP 14",
}


def format_option(*forms: str, short: str = "") -> Callable[[_CommandT], _CommandT]:
    """Add `--format` (as `form`): what standard output gets. Whatever prints a report has it; text and json always.

    short: another name of the option, such as `-o` for commands that write no files.
    """
    known = forms or ("text", "json")
    words = "; ".join(f"{form}: {_FORMATS[form]}" for form in known)
    names = (short, "--format") if short else ("--format",)
    return click.option(*names, "form", type=click.Choice(known), default="text", show_default=True, help=words)


def colour(*, err: bool = False) -> bool:
    """Return whether to use colours: on a terminal that has them, unless NO_COLOR is set."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Tell people something; line ends stay."""
    click.echo(_harmless(text, keep="\n", styles=colour(err=err)), err=err, nl=nl)


def say_lines(lines: Iterable[str]) -> None:
    """Tell people the lines of a report; a line end within one would forge another."""
    styles = colour()
    for line in lines:
        click.echo(_harmless(line, keep="", styles=styles))


def say_json(data: Any) -> None:
    """Print a report for programs."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    click.echo(_escaped(text) if not text.isascii() else text)


def _harmless(text: str, *, keep: str, styles: bool) -> str:
    if text.isprintable():
        return text
    if not styles:
        return printable(text, keep=keep)
    parts = _OUR_STYLES.split(text)
    return "".join(part if at % 2 else printable(part, keep=keep) for at, part in enumerate(parts))


def _escaped(text: str) -> str:
    """Return JSON with the characters escaped that JSON allows and a terminal does not show."""
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def columns() -> int:
    """Return the width for running text, which is wrapped in pipes too: COLUMNS, that of the terminal, or 80."""
    return shutil.get_terminal_size().columns


def terminal() -> Terminal:
    """Return what reports are written to; COLUMNS holds for pipes as well."""
    from kube_policy_scheduler.tooling.text_table import Terminal

    bounded = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Terminal(colour=colour(), width=columns() if bounded else None)


_EVERY_SECONDS = 0.1
_CLEAR = "\r\x1b[K"


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text in place of the one before; the line is gone in the end."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    last = 0.0

    def show(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _EVERY_SECONDS:
            last = now
            width = columns() - 1
            click.echo(_CLEAR + printable(text)[:width], nl=False, err=True)

    try:
        yield show
    finally:
        click.echo(_CLEAR, nl=False, err=True)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether Ctrl-C was pressed; the work ends where it next asks. A second one kills."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
