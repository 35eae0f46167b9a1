"""`policyctl fmt`: policies in their canonical form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.diagnostics import Source

SUFFIX = ".policy"
EPILOG = """
\b
Examples:
  policyctl fmt policies/              # rewrite every .policy file below a folder
  policyctl fmt --check policies/      # write nothing; 1 if a file would change
  policyctl fmt --diff spread.policy   # write nothing; show what would change
  policyctl fmt - < draft.policy       # standard input to standard output

\b
Exit codes: 0 success; 1 with --check or --diff: a file would change; 2 a file cannot be used.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
def command(paths: tuple[Path, ...], check: bool, diff: bool) -> int:
    """Format policies in the standard style, without changing their meaning.

    Comments are kept. Before it writes a file, the command parses the formatted text and checks that its meaning is the
    same.
    """
    changed, unusable = 0, 0
    for path in files.expanded(paths, suffix=SUFFIX):
        found = _formatted(path)
        if found is None:
            unusable += 1
            continue
        source, text = found
        if path == files.STANDARD_INPUT and not (check or diff):
            click.echo(text, nl=False)
        elif text != source.text:
            changed += 1
            if not (check or diff) and not files.rewrite_file(path, text):
                unusable += 1
            elif diff:
                say(files.difference(source, text, done="formatted"), nl=False)
            else:
                say(source.name)
    if unusable:
        return 2
    return 1 if changed and (check or diff) else 0


def _formatted(path: Path) -> tuple[Source, str] | None:
    """Return a file and its canonical text; None, after saying why, where there is none."""
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.lang.formatting.format import Formatted, Unfaithful, Unreadable, format_source

    try:
        source = files.source(path)
    except DocumentError as error:
        say(files.rendered(error.diagnostics, err=True), err=True)
        return None
    match format_source(source):
        case Formatted(text=text):
            return source, text
        case Unreadable(diagnostics=diagnostics):
            say(files.rendered(diagnostics, err=True), err=True)
        case Unfaithful(reason=reason):
            message = f"{source.name}: not formatted because of a bug in policyctl: {reason}"
            say(f"{message}; please report it with the file", err=True)
        case never:
            assert_never(never)
    return None
