"""Pages that are made from the program, before each build of the site; and llms.txt after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from kube_policy_scheduler.cli.commands.explain_code import all_codes
from kube_policy_scheduler.cli.main import policyctl
from kube_policy_scheduler.daemon.configuration.settings_text import defaults_text
from kube_policy_scheduler.daemon.main import main as policy_scheduler
from kube_policy_scheduler.lang.codes import page

FOLDER = Path(__file__).with_name("generated")
_COLUMNS = 100
"""Width of the help of commands; the lists of subcommands cut their texts to fit."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    app.connect("doctree-read", index)
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
        "codes.md": "# Diagnostic codes\n\n`policyctl explain-code CODE` prints one of them.\n\n"
        "```{highlight} policy\n```\n\n" + "\n".join(codes),
    }


def _commands(program: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    settings = program.context_settings | {"terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    context = click.Context(program, info_name=name, parent=parent, **settings)
    yield f"## {context.command_path}\n\n```text\n{program.get_help(context)}\n```\n"
    if isinstance(program, click.Group):
        for subcommand in program.list_commands(context):
            found = program.get_command(context, subcommand)
            assert found is not None
            yield from _commands(found, subcommand, context)


def index(app: Sphinx, tree: nodes.document) -> None:
    """Let the search lead to the section of a function, a diagnostic code or a command, by its name."""
    for section in tree.findall(nodes.section):
        named = re.match(r"(\w+)(?=\()|(P\d{4})\b|(policyctl [\w -]+|policy-scheduler [\w -]+)$", section[0].astext())
        if named:
            entry = addnodes.index(entries=[("single", named[0], section["ids"][0], "main", None)])
            section.insert(1, entry)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the first page, each page as Markdown, and llms.txt: what each begins with (https://llmstxt.org)."""
    if error is not None:
        return
    first_page = f'<!doctype html><meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">\n'
    Path(app.outdir, "index.html").write_text(first_page, encoding="utf-8")
    for name in app.env.found_docs:
        Path(app.outdir, f"{name}.md").write_bytes(Path(app.env.doc2path(name)).read_bytes())
    lines = [
        f"# {app.config.project}",
        "",
        "> A Kubernetes scheduler whose placement rules are small policy files.",
        "",
    ]
    lines += [_line(app, app.config.root_doc)]
    for kind in app.env.get_doctree(app.config.root_doc).findall(addnodes.toctree):
        lines += ["", f"## {kind['caption']}", "", *(_line(app, name) for _, name in kind["entries"])]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(app: Sphinx, name: str) -> str:
    source = Path(app.env.doc2path(name)).read_text(encoding="utf-8")
    title = re.search(r"(?m)^# (.+)$", source)
    paragraphs = [each for each in source.split("\n\n") if re.match(r"[\w`*]", each)]
    words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    first = re.split(r"(?<=\w)[.:](?: |$)", words)[0]
    return f"- [{title[1] if title else name}]({name}.md)" + (f": {first}" if first else "")
