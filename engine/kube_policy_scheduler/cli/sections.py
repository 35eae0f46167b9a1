"""Lists of commands in `--help`: under headings, each with its whole first sentence."""

from __future__ import annotations

from enum import Enum

import click

_LONGEST_SENTENCE = 1_000
"""Characters; click cuts what is longer than a line by default."""


class Section(Enum):
    """What a command is for; each command module says its own in `SECTION`."""

    WRITE = "Write and check policies"
    UNDERSTAND = "Understand a decision"
    CHANGE = "Change policies safely"
    CLUSTER = "Look after the cluster"
    SET_UP = "Move here, and set up"


class SentenceGroup(click.Group):
    """A group whose help cuts no sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all commands in one list."""
        self.write_list(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_list(self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]) -> None:
        """Write some commands under a heading; texts begin in one column under all headings."""
        widest = max(map(len, self.list_commands(ctx)))
        with formatter.section(title):
            formatter.write_dl([(name.ljust(widest), self._sentence(ctx, name)) for name in names])

    def _sentence(self, ctx: click.Context, name: str) -> str:
        found = self.get_command(ctx, name)
        return found.get_short_help_str(_LONGEST_SENTENCE) if found is not None else ""
