"""`policyctl man`: the help of every command as man pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import click

from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say

EPILOG = """
\b
Examples:
  policyctl man ~/.local/share/man/man1      # then: man policyctl, man policyctl-lint, man policy-scheduler
  policyctl man /usr/share/man/man1          # for all users of this machine, or into a package

\b
Exit codes: 0 success; 2 the folder cannot be written.
"""

_DISTRIBUTION = "kube-policy-scheduler"
_DAEMON = "policy-scheduler"
_WIDTH = 200
"""Wide enough that click shortens no summary; the reader of a page breaks its lines."""


class _RoffFormatter(click.HelpFormatter):
    """Writes as roff what click would write to a terminal; see man(7) for the macros."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the synopsis; the description follows."""
        self.write(f".SH SYNOPSIS\n.B {_escaped(prog)}\n{_escaped(args)}\n.SH DESCRIPTION\n")

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f".SH {_escaped(heading.upper())}\n")

    def write_paragraph(self) -> None:
        """Write nothing: `write_text` begins its paragraphs."""

    def write_text(self, text: str) -> None:
        """Write paragraphs; those that begin with \\b may have a title, and keep lines that are indented."""
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
            kept = paragraph.startswith("\b")
            lines = paragraph.removeprefix("\b").strip("\n").splitlines()
            if kept and re.fullmatch(r"[A-Z][a-z ]+:", lines[0]):
                self.write_heading(lines.pop(0).rstrip(":"))
            elif kept and lines[0].startswith("Exit codes: "):
                self.write_heading("Exit status")
                lines[0] = lines[0].removeprefix("Exit codes: ")
            else:
                self.write(".PP\n")
            kept = kept and any(line.startswith(" ") for line in lines)
            body = "\n".join(_escaped(line) for line in lines)
            self.write(f".nf\n{body}\n.fi\n" if kept else f"{body}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of terms, each with its meaning."""
        for term, meaning in rows:
            self.write(f".TP\n.B {_escaped(term)}\n{_escaped(meaning)}\n")


SECTION = Section.SET_UP


@click.command(epilog=EPILOG)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> int:
    """Write the man pages of policyctl, its commands, and policy-scheduler to a folder.

    The pages say what --help says. Write them again after an update.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in _pages():
            (folder / f"{name}.1").write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or folder}: {error.strerror}") from None
    say(f"man pages written to {folder}", err=True)
    return 0


def _pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    root = click.get_current_context().find_root().command
    assert root.name is not None
    installed = distribution(_DISTRIBUTION)
    programs = installed.entry_points.select(group="console_scripts")
    yield from _pages_of(root, root.name, installed.version)
    for also in programs.select(value=programs[root.name].value):  # such as the plugin of kubectl
        if also.name != root.name:
            yield also.name, f".so man1/{root.name}.1\n"
    yield from _pages_of(programs[_DAEMON].load(), _DAEMON, installed.version)


def _pages_of(
    program: click.Command, name: str, version: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    context = click.Context(program, info_name=name, parent=parent, **program.context_settings)
    names = program.list_commands(context) if isinstance(program, click.Group) else []
    page = context.command_path.replace(" ", "-")
    related = [parent.command_path.replace(" ", "-")] if parent else []
    related += [f"{page}-{subcommand}" for subcommand in names]
    formatter = _RoffFormatter(width=_WIDTH)
    formatter.write(f'.TH "{page.upper()}" 1 "" "{_DISTRIBUTION} {version}" "User Commands"\n')
    summary = program.get_short_help_str(limit=_WIDTH).rstrip(".")
    formatter.write(f".SH NAME\n{_escaped(page)} \\- {_escaped(summary)}\n")
    program.format_help(context, formatter)
    formatter.write(f".SH SEE ALSO\n{', '.join(f'{_escaped(other)}(1)' for other in related)}\n")
    yield page, formatter.getvalue()
    for subcommand in names:
        found = program.get_command(context, subcommand) if isinstance(program, click.Group) else None
        if found is not None:
            yield from _pages_of(found, subcommand, version, context)


def _escaped(text: str) -> str:
    """Return text in which roff finds no macro and no escape; a hyphen stays one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"(?m)^(?=[.'])", r"\\&", text)
    return "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)
