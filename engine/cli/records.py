"""Decision logs named on a command line: files of JSON lines, also compressed; `-` is standard input."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.cli.files import STANDARD_INPUT

if TYPE_CHECKING:
    from engine.tooling.decision_record import DecisionRecord


def records_in(path: Path) -> list[DecisionRecord]:
    """Return the records of a decision log, oldest first.

    Raises:
        click.ClickException: it cannot be read, or a line is no record.
    """
    from engine.tooling.decision_record import RecordError, decode_lines

    def cut(place: str) -> None:
        click.echo(f"policyctl: {place}: cut off while it was written: left out", err=True)

    try:
        if path == STANDARD_INPUT:
            lines = sys.stdin.buffer.readlines()
        elif path.suffix == ".gz":
            with gzip.open(path) as packed:
                lines = packed.readlines()
        else:
            with path.open("rb") as plain:
                lines = plain.readlines()
        return list(decode_lines(lines, name=str(path), on_truncated=cut))
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    except (OSError, EOFError) as error:
        raise click.ClickException(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}".lower()
        ) from error
