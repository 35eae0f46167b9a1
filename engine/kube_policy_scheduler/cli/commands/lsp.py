"""`policyctl lsp`: the language server for editors."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  policyctl lsp                        # started by the editor, which talks to it over standard input and output
  policyctl lsp --config config.yaml   # also the extensions and owners that the configuration names

\b
Exit codes: 0 the editor ended the session; 2 the server could not start.
"""
_PACKAGES = ("pygls", "lsprotocol", "cattrs", "attrs")


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.option("--stdio", is_flag=True, help="Use standard input and output. This is the default; editors add it.")
@owner_options
def command(stdio: bool) -> int:
    """Run the language server for editors (Language Server Protocol).

    It checks policies while you write them, and offers completion, hover, definitions, references, rename, quick fixes
    and formatting. To set up an editor, see editors/README.md.
    """
    from kube_policy_scheduler.builtins.environment import environment

    owned = owners()
    try:
        from kube_policy_scheduler.cli.language_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        from kube_policy_scheduler.installation import command_for

        message = f"the language server needs the package {error.name}: run {command_for('lsp')}"
        raise click.ClickException(message) from error
    serve(environment(), owner_of=owned.owner_of if owned is not None else None)
    return 0
