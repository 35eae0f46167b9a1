"""Pages that are made from the program, before each build of the site; and llms.txt after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from sphinx.application import Sphinx

from kube_policy_scheduler.cli.commands.explain_code import all_codes
from kube_policy_scheduler.cli.main import policyctl
from kube_policy_scheduler.daemon.configuration.settings_text import defaults_text
from kube_policy_scheduler.daemon.main import main as policy_scheduler
from kube_policy_scheduler.lang.codes import page

FOLDER = Path(__file__).with_name("generated")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}


def pages() -> dict[str, str]:
    """Return the generated pages, by file name."""
    commands = [*_commands(policyctl, "policyctl"), *_commands(policy_scheduler, "policy-scheduler")]
    codes = [page(code).replace("\n## ", "\n### ").replace("# ", "## ", 1) for code in all_codes().values()]
    return {
        "commands.md": "# Commands\n\nEach command prints this with `--help`.\n\n" + "\n".join(commands),
        "settings.md": "# Settings\n\n`policy-scheduler config --print-defaults` prints this file.\n\n"
        f"```yaml\n{defaults_text()}```\n",
        "codes.md": "# Diagnostic codes\n\n`policyctl explain-code CODE` prints one of them.\n\n" + "\n".join(codes),
    }


def _commands(program: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    context = click.Context(program, info_name=name, parent=parent, **program.context_settings)
    yield f"## {context.command_path}\n\n```text\n{program.get_help(context)}\n```\n"
    if isinstance(program, click.Group):
        for subcommand in program.list_commands(context):
            found = program.get_command(context, subcommand)
            assert found is not None
            yield from _commands(found, subcommand, context)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the first page, and llms.txt: each page with its address and what it begins with (https://llmstxt.org)."""
    if error is not None:
        return
    first_page = f'<!doctype html><meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">\n'
    Path(app.outdir, "index.html").write_text(first_page, encoding="utf-8")
    lines = [
        f"# {app.config.project}",
        "",
        "> A Kubernetes scheduler whose placement rules are small policy files.",
        "",
    ]
    for name in sorted(app.env.found_docs):
        source = Path(app.env.doc2path(name)).read_text(encoding="utf-8")
        title = re.search(r"(?m)^# (.+)$", source)
        begin = re.search(r"(?m)^([A-Z][^\n|]+(?:\n[^\n#|`]+)*)", source.partition("\n")[2])
        words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(begin[1].split())) if begin else ""
        first = words.partition(". ")[0].rstrip(".:")
        lines.append(f"- [{title[1] if title else name}]({name}.html)" + (f": {first}" if first else ""))
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
