"""`policyctl fields`: what a policy can read of nodes and pods."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli.listing import Entry, completing, show
from kube_policy_scheduler.cli.sections import Section

EPILOG = """
\b
Examples:
  policyctl fields                  # list all
  policyctl fields node.free        # show one
"""


def _entries() -> list[Entry]:
    from kube_policy_scheduler.builtins.environment import environment

    known = environment()
    return [Entry(one.path, one.written, one.doc) for each in (known, *known.others) for one in each.fields.values()]


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument(
    "names", nargs=-1, metavar="[NAME]...", shell_complete=completing(lambda: [one.name for one in _entries()])
)
def command(names: tuple[str, ...]) -> int:
    """Show the fields of nodes and pods, or of clusters and workloads, that policies read."""
    return show(_entries(), names, kind="field")
