"""`policyctl schema`: the JSON schemas of the YAML files that people write."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  policyctl schema tests > policy-test.schema.json           # of .test.yaml files
  policyctl schema configuration > configuration.schema.json # of the scheduler's configuration

\b
Exit codes: 0 success; 2 the command line is wrong.
"""


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("kind", type=click.Choice(["tests", "configuration"]))
def command(kind: str) -> int:
    """Print the JSON schema of test files or of the configuration, for editors and other tools.

    An editor that uses `policyctl lsp` needs no schema file.
    """
    if kind == "tests":
        from kube_policy_scheduler.tooling.tester.suite_file import schema_text

        text = schema_text()
    else:
        from kube_policy_scheduler.documents.published import configuration_schema_text

        text = configuration_schema_text()
    click.echo(text, nl=False)
    return 0
