"""`policyctl lint`: everything that is wrong with policies, and what is probably not meant."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from engine.cli import files
from engine.diagnostics import Severity

SUFFIX = ".policy"
EPILOG = """
\b
Examples:
  policyctl lint spread.policy                 # one file
  policyctl lint policies/                     # every .policy file below a folder
  policyctl lint - < draft.policy              # standard input
  policyctl lint policies/ --format json       # for scripts and editors

\b
Exit codes: 0 no errors, perhaps warnings; 1 errors; 2 a file cannot be read.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="PATH...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(paths: tuple[Path, ...], form: str) -> int:
    """Check policies: syntax, names, types, units, and likely mistakes.

    Policies of one folder are one set, as in a ConfigMap: they are also held against each other.
    """
    from engine.cli.policies import linted
    from engine.documents.yaml_document import DocumentError

    try:
        sources = [files.source(path) for path in files.expanded(paths, suffix=SUFFIX)]
    except DocumentError as error:
        click.echo(files.rendered(error.diagnostics, err=True), err=True)
        return 2
    found = linted(sources)
    if form == "json":
        click.echo(json.dumps([files.as_data(diagnostic) for diagnostic in found], indent=2, ensure_ascii=False))
    elif found:
        click.echo(files.rendered(found))
    counts = Counter(diagnostic.severity for diagnostic in found)
    words = [f"{counts[s]} {s.value}{'s' if counts[s] != 1 else ''}" for s in Severity if counts[s]]
    plural = "s" if len(sources) != 1 else ""
    click.echo(f"{len(sources)} file{plural} checked: {', '.join(words) or 'nothing found'}", err=True)
    return 1 if counts[Severity.ERROR] else 0
