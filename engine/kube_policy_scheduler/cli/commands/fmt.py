"""`policyctl fmt`: policies in their canonical form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.lang.formatting.format import Formatted

SUFFIX = ".policy"
EPILOG = """
\b
Examples:
  policyctl fmt policies/              # rewrite every .policy file below a folder
  policyctl fmt --check policies/      # write nothing; 1 if a file would change
  policyctl fmt --diff spread.policy   # write nothing; show what would change
  policyctl fmt --upgrade old.policy   # write it in the newest version of the language
  policyctl fmt - < draft.policy       # standard input to standard output

\b
Exit codes: 0 success; 1 with --check or --diff: a file would change; 2 a file cannot be used.
"""


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@click.option("--upgrade", is_flag=True, help="Also write `language 1` files in the newest version; say what changes.")
def command(paths: tuple[Path, ...], check: bool, diff: bool, upgrade: bool) -> int:
    """Format policies in the standard style, without changing their meaning.

    Comments are kept. Before it writes a file, the command parses the formatted text and checks that its meaning is the
    same. With --upgrade, the meaning also stays the same: a statement that the newest version of the language reads
    differently is rewritten.
    """
    changed, unusable, usable, upgraded = 0, 0, 0, 0
    for path in files.expanded(paths, suffix=SUFFIX):
        found = _formatted(path, upgrade=upgrade)
        if found is None:
            unusable += 1
            continue
        source, text = found[0], found[1].text
        usable += 1
        if found[1].language is not None:
            upgraded += 1
            _say_upgrade(source, found[1], err=diff or path == files.STANDARD_INPUT)
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
    if upgrade and usable and not upgraded:
        count = "the file is" if usable == 1 else f"all {usable} files are"
        say(f"nothing to upgrade: {count} in the newest version of the language", err=True)
    if unusable:
        return 2
    return 1 if changed and (check or diff) else 0


def _say_upgrade(source: Source, result: Formatted, *, err: bool) -> None:
    """Say from which version to which a file goes, and each statement that is written differently."""
    from kube_policy_scheduler.lang.formatting.show import formatted_statement
    from kube_policy_scheduler.lang.language_versions import NEWEST

    say(f"{source.name}: from language {result.language} to {NEWEST}", err=err)
    said: set[int] = set()
    for each in result.rewritings:
        line, _ = source.position(each.before.span.start)
        say(f"  line {line}: {formatted_statement(each.after)}", err=err)
        if each.version.number not in said:
            say(f"    since language {each.version.number}, {each.version.changed}", err=err)
            said.add(each.version.number)


def _formatted(path: Path, *, upgrade: bool) -> tuple[Source, Formatted] | None:
    """Return a file and its canonical text; None, after saying why, where there is none."""
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.lang.formatting.format import Formatted, Unfaithful, Unreadable, format_source

    try:
        source = files.source(path)
    except DocumentError as error:
        say(files.rendered(error.diagnostics, err=True), err=True)
        return None
    match format_source(source, upgrade=upgrade):
        case Formatted() as result:
            return source, result
        case Unreadable(diagnostics=diagnostics):
            say(files.rendered(diagnostics, err=True), err=True)
        case Unfaithful(reason=reason):
            message = f"{source.name}: not formatted because of a bug in policyctl: {reason}"
            say(f"{message}; please report it with the file", err=True)
        case never:
            assert_never(never)
    return None
