"""`policy-scheduler config`: every setting with its default, or what a configuration file comes to."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
from msgspec.structs import replace

from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings
from kube_policy_scheduler.daemon.configuration.settings_text import defaults_text, settings_text
from kube_policy_scheduler.daemon.serving.server import without_password
from kube_policy_scheduler.documents.yaml_document import DocumentError

EPILOG = """
\b
Examples:
  policy-scheduler config --print-defaults > config.yaml
  policy-scheduler config config.yaml                    # print errors, or the active settings
  policy-scheduler --http-plain config config.yaml       # with the flags of the Deployment

\b
Exit codes: 0 the file is valid; 2 the file cannot be used, and each problem is printed, one of the file with its line.
"""


def _extension_problems(settings: Settings) -> list[str]:
    """Return why policies cannot call the functions of an extension here."""
    from kube_policy_scheduler.builtins.environment import extension_problems, install_extensions
    from kube_policy_scheduler.builtins.extensions import ExtensionError

    try:
        install_extensions(settings.policies.extensions, stopwatch=time.perf_counter)
    except ExtensionError as error:
        return [str(error)]
    return extension_problems()


@click.command(epilog=EPILOG, short_help="Check a configuration file, or print every setting.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--print-defaults", is_flag=True, help="Print every setting with its default and meaning.")
@click.pass_obj
def config(given: Callable[[Settings], Settings], file: Path | None, print_defaults: bool) -> None:
    """Check a configuration file and print the active settings, without passwords in URLs.

    The output is a valid configuration file.
    """
    if print_defaults == (file is not None):
        raise click.UsageError("specify a FILE to check, or --print-defaults")
    if file is None:
        click.echo(defaults_text(), nl=False)
        return
    try:
        settings = given(load_settings(file))
    except DocumentError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    if problems := _extension_problems(settings):
        for problem in problems:
            click.echo(f"{file}: {problem}", err=True)
        sys.exit(2)
    settings = replace(settings, http=settings.http.in_force())
    if settings.prometheus is not None:
        shown = replace(settings.prometheus, url=without_password(settings.prometheus.url))
        settings = replace(settings, prometheus=shown)
    click.echo(settings_text(settings), nl=False)
