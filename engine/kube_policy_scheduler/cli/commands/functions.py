"""`policyctl functions`: what a policy can call."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli.listing import Entry, completing, show
from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  policyctl functions           # list all
  policyctl functions clamp     # show one
  policyctl functions --config config.yaml   # also those of the extensions that the configuration names
"""


def _entries() -> list[Entry]:
    from kube_policy_scheduler.builtins.environment import environment

    return [Entry(one.name, one.signature, one.doc) for one in environment().builtins.values()]


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument(
    "names", nargs=-1, metavar="[NAME]...", shell_complete=completing(lambda: [one.name for one in _entries()])
)
@owner_options
def command(names: tuple[str, ...]) -> int:
    """Show the functions of the policy language, with their parameters and results."""
    owners()
    return show(_entries(), names, kind="function")
