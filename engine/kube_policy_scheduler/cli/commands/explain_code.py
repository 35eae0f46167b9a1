"""`policyctl explain-code`: the page behind a diagnostic's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli.listing import completing
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say, say_lines, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.codes import Code

EPILOG = """
\b
Examples:
  policyctl explain-code             # list all codes
  policyctl explain-code P0102       # its meaning, an example, and the correction
"""


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("ids", nargs=-1, metavar="[CODE]...", shell_complete=completing(lambda: all_codes()))
def command(ids: tuple[str, ...]) -> int:
    """Explain diagnostic codes: what is wrong, why, and what to write instead."""
    from kube_policy_scheduler.diagnostics import closest
    from kube_policy_scheduler.lang.codes import page

    codes = all_codes()
    if not ids:
        rows = [("", "", ""), *((code.id, code.severity.value, code.name) for code in codes.values())]
        say_lines(terminal().table(rows, right_from=3))
        return 0
    for position, wanted in enumerate(ids):
        found = codes.get(wanted.upper())
        if found is None:
            by_name = {code.name: code for code in codes.values()}
            found = by_name.get(wanted)
        if found is None:
            meant = closest(wanted, codes)
            advice = f"did you mean `{meant}`?" if meant else "list all: policyctl explain-code"
            raise click.ClickException(f"unknown code `{wanted}`: {advice}")
        say("\n" * bool(position) + page(found), nl=False)
    return 0


def all_codes() -> Mapping[str, Code]:
    """Return every code that any command reports, by id."""
    from kube_policy_scheduler.documents import codes as documents
    from kube_policy_scheduler.lang.codes import codes_in
    from kube_policy_scheduler.lint import runner
    from kube_policy_scheduler.tooling.tester import codes as tester

    return {**runner.all_codes(), **codes_in(documents), **codes_in(tester)}
