"""`policyctl lint`: everything that is wrong with policies, and what is probably not meant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import format_option, say
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.lint.fixing import Fixed

SUFFIX = ".policy"
EPILOG = """
\b
Examples:
  policyctl lint spread.policy                 # one file
  policyctl lint policies/                     # every .policy file below a folder
  policyctl lint - < draft.policy              # standard input
  policyctl lint --fix policies/               # apply fixes that do not change decisions
  policyctl lint --diff policies/              # show what --fix would change, write nothing
  policyctl lint policies/ --format github     # in a workflow: annotate the lines of a pull request
  policyctl lint policies/ --format sarif > policies.sarif

\b
Exit codes: 0 no finding of --fail-level; 1 a finding, or --diff would change a file; 2 a file cannot be used.
"""
_NEVER = "never"


def _text(found: Sequence[Diagnostic]) -> str:
    return files.rendered(found)


def _json(found: Sequence[Diagnostic]) -> str:
    return json.dumps([files.as_data(diagnostic) for diagnostic in found], indent=2, ensure_ascii=False)


def _sarif(found: Sequence[Diagnostic]) -> str:
    from importlib.metadata import version

    from kube_policy_scheduler.documents import codes as documents
    from kube_policy_scheduler.lang.codes import codes_in
    from kube_policy_scheduler.lint.formats import sarif
    from kube_policy_scheduler.lint.runner import all_codes

    codes = {**all_codes(), **codes_in(documents)}
    done = sarif(found, codes=codes, version=version("kube-policy-scheduler"))
    return json.dumps(done, indent=2, ensure_ascii=False)


def _github(found: Sequence[Diagnostic]) -> str:
    from kube_policy_scheduler.lint.formats import annotation

    return "\n".join(map(annotation, found))


FORMATS: dict[str, Callable[[Sequence[Diagnostic]], str]] = {
    "text": _text,
    "json": _json,
    "sarif": _sarif,
    "github": _github,
}


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="PATH...")
@format_option(*FORMATS)
@click.option(
    "--fail-level",
    type=click.Choice([*(severity.value for severity in Severity), _NEVER]),
    default=Severity.ERROR.value,
    show_default=True,
    help="Exit with 1 if a finding has at least this severity.",
)
@click.option("--fix", is_flag=True, help="Apply the safe fixes, then report the remaining findings.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@owner_options
def command(paths: tuple[Path, ...], form: str, fail_level: str, fix: bool, diff: bool) -> int:
    """Check policies: syntax, names, types, units, and likely mistakes.

    The policies of one folder are one set, as in a ConfigMap, and are also checked against each other.
    """
    from kube_policy_scheduler.cli.policies import linted
    from kube_policy_scheduler.documents.yaml_document import DocumentError

    if fix and diff:
        raise click.UsageError("use --fix or --diff, not both")
    unreadable: list[Diagnostic] = []
    read: dict[Path, Source] = {}
    for path in files.expanded(paths, suffix=SUFFIX):
        try:
            read[path] = files.source(path)
        except DocumentError as error:
            unreadable += error.diagnostics
    written, changed = True, False
    if fix or diff:
        from kube_policy_scheduler.lint.fixing import fixed

        result = fixed(list(read.values()), linted)
        if diff:
            changed = _shown(read, result)
            return 2 if unreadable else 1 if changed else 0
        written = _written(read, result)
        found = [*unreadable, *result.left]
    else:
        found = [*unreadable, *linted(list(read.values()))]
    shown = FORMATS[form](found)
    piped = fix and files.STANDARD_INPUT in read  # then the policy is the output
    if shown:
        say(shown, err=piped)
    say(_summary(len(read), found, fixing=fix), err=True)
    if unreadable or not written:
        return 2
    return 1 if any(_fails(diagnostic, fail_level) for diagnostic in found) else 0


def _fails(diagnostic: Diagnostic, level: str) -> bool:
    return level != _NEVER and diagnostic.severity.rank <= Severity(level).rank


def _summary(checked: int, found: Sequence[Diagnostic], *, fixing: bool) -> str:
    counts = Counter(diagnostic.severity for diagnostic in found)
    words = [plural(counts[s], s.value) for s in Severity if counts[s]]
    text = f"{plural(checked, 'file')} checked: {', '.join(words) or 'nothing found'}"
    fixable = sum(1 for diagnostic in found if diagnostic.fix is not None and diagnostic.fix.safe)
    which = f"{fixable:,} of them" if fixable < len(found) else "it" if fixable == 1 else "all of them"
    return f"{text}; --fix can correct {which}" if fixable and not fixing else text


def _shown(read: dict[Path, Source], result: Fixed) -> bool:
    """Print what fixing changes; return whether it changes anything."""

    changed = False
    for before, after in zip(read.values(), result.sources, strict=True):
        if after.text != before.text:
            changed = True
            say(files.difference(before, after.text, done="fixed"), nl=False)
    return changed


def _written(read: dict[Path, Source], result: Fixed) -> bool:
    """Write what was fixed and say so; return whether all of it could be written."""

    done = True
    for (path, before), after in zip(read.items(), result.sources, strict=True):
        if path == files.STANDARD_INPUT:
            click.echo(after.text, nl=False)
        elif after.text != before.text and not files.rewrite_file(path, after.text):
            done = False
            continue
        for diagnostic in result.made:
            if diagnostic.fix is not None and diagnostic.span.source.name == after.name:
                say(f"{diagnostic.span}: fixed[{diagnostic.code}]: {diagnostic.fix.title}", err=True)
    for name, reason in result.refused.items():
        done = False
        say(f"{name}: not fixed because of a bug in policyctl: {reason}; please report it", err=True)
    return done
