"""The lines of a decision log that `why` is given, in a file or of a running scheduler, and what they are about."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli.files import STANDARD_INPUT
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord
    from kube_policy_scheduler.tooling.workload_record import WorkloadRecord


@dataclass(frozen=True, slots=True)
class PastDecisions:
    """Lines as they were written; the oldest first."""

    name: str
    """Of the file or the scheduler, for errors."""
    lines: Sequence[bytes]
    about_workloads: bool
    """Whether they are of `policy-scheduler fleet`, so that records are about workloads, not pods."""

    def of_pods(self) -> list[DecisionRecord]:
        """Return the records.

        Raises:
            click.ClickException: a line is none, or they are about workloads.
        """
        from kube_policy_scheduler.tooling.decision_record import RecordError, decode_lines

        if self.about_workloads:
            advice = "`policyctl why` reads these"
            raise click.ClickException(
                f"{self.name}: expected decisions about pods, got decisions about workloads; {advice}"
            )

        try:
            return list(decode_lines(self.lines, name=self.name, on_truncated=_cut))
        except RecordError as error:
            raise click.ClickException(str(error)) from error

    def of_workloads(self) -> list[WorkloadRecord]:
        """Return the records. Raises click.ClickException: a line is none."""
        from kube_policy_scheduler.tooling.decision_record import RecordError, decode_lines_as
        from kube_policy_scheduler.tooling.workload_record import WorkloadRecord

        try:
            return list(decode_lines_as(WorkloadRecord, self.lines, name=self.name, on_truncated=_cut))
        except RecordError as error:
            raise click.ClickException(str(error)) from error


def _cut(place: str) -> None:
    say(f"policyctl: {place}: incomplete line at the end, ignored", err=True)


def decisions_in(path: Path) -> PastDecisions:
    """Return the lines of a file.

    Raises:
        click.ClickException: it cannot be read, or is empty.
    """
    from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, lines_of, opened, problem_of
    from kube_policy_scheduler.tooling.workload_record import is_about_workload

    try:
        if path == STANDARD_INPUT:
            lines = list(lines_of(sys.stdin.buffer))
        else:
            with opened(path) as file:
                lines = list(lines_of(file))
    except UnreadableFileError as error:
        raise click.ClickException(problem_of(path, error)) from error
    if not any(line.strip() for line in lines):
        raise click.ClickException(f"{path} is empty: expected decisions, one JSON object a line")
    return PastDecisions(str(path), lines, any(is_about_workload(line) for line in lines[:1]))


def decisions_of(url: str, *, asked: str, token_file: Path | None, ca_file: Path | None) -> PastDecisions:
    """Return what a running scheduler decided about a pod or a workload (`namespace/name` or a name).

    Raises:
        click.ClickException: it does not answer, or not with decisions.
    """
    from kube_policy_scheduler.adapters.http.decision_client import (
        DecisionLogError,
        UnknownParameterError,
        fetch_decisions,
    )

    try:
        try:
            lines, of_fleet = fetch_decisions(url, pod=asked, token_file=token_file, ca_file=ca_file), False
        except UnknownParameterError:
            lines, of_fleet = fetch_decisions(url, workload=asked, token_file=token_file, ca_file=ca_file), True
        # no decision is about something of that name: list the others, so that the error can suggest one
        lines = lines or fetch_decisions(url, token_file=token_file, ca_file=ca_file)
    except DecisionLogError as error:
        raise click.ClickException(str(error)) from error
    return PastDecisions(url, lines, of_fleet)
