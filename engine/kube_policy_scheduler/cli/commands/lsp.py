"""`policyctl lsp`: the language server for editors."""

from __future__ import annotations

from pathlib import Path

import click

from kube_policy_scheduler.cli.cluster_sources import Url
from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  policyctl lsp                        # started by the editor, which talks to it over standard input and output
  policyctl lsp --config config.yaml   # also the extensions and owners that the configuration names
  policyctl lsp --live                 # complete labels of the cluster of your kubectl context, read-only

\b
Exit codes: 0 the editor ended the session; 2 the server could not start.
"""
_PACKAGES = ("pygls", "lsprotocol", "cattrs", "attrs")


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.option("--stdio", is_flag=True, help="Use standard input and output. This is the default; editors add it.")
@click.option(
    "--live",
    is_flag=True,
    help="Also complete the labels, annotations, resources and node names of the cluster of your kubectl context."
    " Lists nodes and pods, the first 1,000 of each, at most every 5 minutes.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file; implies --live.")
@click.option("--context", help="Context of the kubeconfig; implies --live.")
@click.option("--prometheus-url", type=Url(), help="Also complete the names of metrics of this Prometheus.")
@owner_options
def command(stdio: bool, live: bool, kubeconfig: Path | None, context: str | None, prometheus_url: str | None) -> int:
    """Run the language server for editors (Language Server Protocol).

    It checks policies while you write them, and offers completion, hover, definitions, references, rename, quick fixes
    and formatting. To set up an editor, see editors/README.md.
    """
    from kube_policy_scheduler.builtins.environment import environment

    owned = owners()
    try:
        from kube_policy_scheduler.cli.language_server import serve
        from kube_policy_scheduler.cli.live_words import LiveSources
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        from kube_policy_scheduler.installation import command_for

        message = f"the language server needs the package {error.name}: run {command_for('lsp')}"
        raise click.ClickException(message) from error
    where = str(kubeconfig) if kubeconfig is not None else None
    asked = LiveSources(live or bool(where or context), where, context, prometheus_url)
    sources = asked if asked.cluster or prometheus_url is not None else None
    serve(environment(), owner_of=owned.owner_of if owned is not None else None, live=sources)
    return 0
