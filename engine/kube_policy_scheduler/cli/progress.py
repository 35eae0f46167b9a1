"""A line on the terminal that says how far a command is; nothing where no terminal reads it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from kube_policy_scheduler.cli.terminal import columns
from kube_policy_scheduler.diagnostics import printable

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
