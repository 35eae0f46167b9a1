"""`policyctl functions`: what a policy can call."""

from __future__ import annotations

import click

from engine.cli.listing import Entry, show

EPILOG = """
\b
Examples:
  policyctl functions           # all of them
  policyctl functions clamp     # one, in full
"""


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def command(names: tuple[str, ...]) -> int:
    """Show the functions of the policy language, with what they take and give."""
    from engine.builtins.environment import environment

    found = environment().builtins.values()
    return show([Entry(one.name, one.signature, one.doc) for one in found], names, kind="function")
