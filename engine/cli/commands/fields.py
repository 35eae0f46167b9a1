"""`policyctl fields`: what a policy can read of nodes and pods."""

from __future__ import annotations

import click

from engine.cli.listing import Entry, show

EPILOG = """
\b
Examples:
  policyctl fields                  # all of them
  policyctl fields node.free        # one, in full
"""


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def command(names: tuple[str, ...]) -> int:
    """Show the fields of nodes and pods that policies read."""
    from engine.builtins.environment import environment

    found = environment().fields.values()
    return show([Entry(one.path, one.written, one.doc) for one in found], names, kind="field")
