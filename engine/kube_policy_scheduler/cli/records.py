"""Decision logs named on a command line: files of JSON lines, also compressed; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli.files import STANDARD_INPUT
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord


def records_in(path: Path) -> list[DecisionRecord]:
    """Return the records of a decision log, oldest first.

    Raises:
        click.ClickException: it cannot be read, or a line is no record.
    """
    from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, lines_of
    from kube_policy_scheduler.tooling.decision_record import RecordError, decode_lines

    def cut(place: str) -> None:
        say(f"policyctl: {place}: cut off while it was written: left out", err=True)

    try:
        if path == STANDARD_INPUT:
            return list(decode_lines(lines_of(sys.stdin.buffer), name=str(path), on_truncated=cut))
        with path.open("rb") as file:
            return list(decode_lines(lines_of(file), name=str(path), on_truncated=cut))
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    except (OSError, UnreadableFileError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
        raise click.ClickException(f"cannot read {path}: {reason}") from error


def records_of(url: str, *, pod: str, token_file: Path | None, ca_file: Path | None) -> list[DecisionRecord]:
    """Return what a running scheduler decided about a pod (`namespace/name` or a name), oldest first.

    Raises:
        click.ClickException: it does not answer, or not with decisions.
    """
    from kube_policy_scheduler.adapters.decision_client import DecisionLogError, fetch_decisions
    from kube_policy_scheduler.tooling.decision_record import RecordError, decode_lines

    try:
        lines = fetch_decisions(url, pod=pod, token_file=token_file, ca_file=ca_file)
        # about nobody of that name: what there is, so that the error can say what may be meant
        lines = lines or fetch_decisions(url, token_file=token_file, ca_file=ca_file)
        return list(decode_lines(lines, name=url))
    except (DecisionLogError, RecordError) as error:
        raise click.ClickException(str(error)) from error
