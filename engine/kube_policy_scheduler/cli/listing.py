"""Names with what they mean, as a list or one by one: functions, fields, codes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click

from kube_policy_scheduler.cli.terminal import columns, say
from kube_policy_scheduler.diagnostics import closest

_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that can be looked up."""

    name: str
    head: str
    """How it is written, in one line."""
    doc: str
    """Its first line is shown in a list, all of it where the entry alone is asked for."""


def completing(entries: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what lets the shell complete names; they are asked for only then."""
    return lambda context, parameter, incomplete: sorted(name for name in entries() if name.startswith(incomplete))


def show(entries: Sequence[Entry], wanted: Sequence[str], *, kind: str) -> int:
    """Print all entries in short, or those wanted in full; return the exit code.

    Raises:
        click.ClickException: there is no entry of a wanted name; the nearest is suggested.
    """
    by_name = {entry.name: entry for entry in entries}
    if not wanted:
        for entry in entries:
            say(entry.head)
            doc = _first_line(entry.doc)
            say(
                textwrap.fill(doc, columns(), initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
            )
        return 0
    for position, name in enumerate(wanted):
        if name not in by_name:
            meant = closest(name, by_name)
            advice = f"did you mean `{meant}`?" if meant else f"list all: policyctl {kind}s"
            raise click.ClickException(f"unknown {kind} `{name}`: {advice}")
        if position:
            say()
        entry = by_name[name]
        say(entry.head)
        say(textwrap.indent(entry.doc.strip(), _INDENT))
    return 0


def _first_line(doc: str) -> str:
    """Return a docstring's first sentence line, joined where it was wrapped."""
    return " ".join(doc.strip().split("\n\n")[0].split())
