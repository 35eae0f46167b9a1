"""What a release has had stays: each line of `released_surface.txt` is still there (deploy/VERSIONING.md).

`python -m tests.deploy.test_compatibility` writes the file; do that for each release, and never to make a test pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cli.commands.explain_code import all_codes
from kube_policy_scheduler.cli.main import policyctl
from kube_policy_scheduler.daemon.main import main as policy_scheduler
from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.documents.published import configuration_schema_text
from kube_policy_scheduler.tooling.tester.suite_file import schema_text
from tests.deploy.exported import registry

FILE = Path(__file__).with_name("released_surface.txt")


def test_nothing_that_was_released_is_gone() -> None:
    gone = set(FILE.read_text(encoding="utf-8").splitlines()) - set(surface())
    assert not gone, "deprecate first, as deploy/VERSIONING.md says"


def test_the_version_before_can_leave_new_settings_out() -> None:
    """It ignores a key that resembles none of its own; one that does may be mistyped, and ends its start.

    A section that it does not know is left out with all that is in it.
    """
    lines = FILE.read_text(encoding="utf-8").splitlines()
    released = {line.removeprefix("setting ") for line in lines if line.startswith("setting ")}
    now = keys(json.loads(configuration_schema_text()))
    assert not too_similar(now, released)
    assert too_similar({*released, "http.hosts"}, released) == ["http.hosts is like host"]
    assert too_similar({*released, "http.leaseDuration"}, released) == ["http.leaseDuration is one of another section"]
    assert not too_similar({*released, "http.websockets", "forecasting", "forecasting.host"}, released)


def too_similar(now: set[str], released: set[str]) -> list[str]:
    """Return the new settings that a version with the released ones would not leave out."""
    names = {path.rpartition(".")[2] for path in released}
    found = []
    for path in sorted(now - released):
        holder, _, name = path.rpartition(".")
        beside = {each.rpartition(".")[2] for each in released if each.rpartition(".")[0] == holder}
        if not beside:
            continue
        if name in names:
            found.append(f"{path} is one of another section")
        elif (like := closest(name, beside)) is not None:
            found.append(f"{path} is like {like}")
    return found


def test_the_surface_has_every_kind() -> None:
    kinds = {line.partition(" ")[0] for line in surface()}
    assert kinds == {"command", "option", "metric", "code", "setting", "test-file", "function", "field"}


def surface() -> Iterator[str]:
    """Yield a line for each public thing that a release promises to keep."""
    for name, program in (("policyctl", policyctl), ("policy-scheduler", policy_scheduler)):
        yield from commands(program, click.Context(program, info_name=name))
    for family in registry().collect():
        yield f"metric {family.name} {family.type}"
    yield from (f"code {each}" for each in all_codes())
    yield from (f"setting {path}" for path in keys(json.loads(configuration_schema_text())))
    yield from (f"test-file {path}" for path in keys(json.loads(schema_text())))
    yield from (f"function {one.name}" for one in environment().builtins.values())
    yield from (f"field {one.path}" for one in environment().fields.values())


def commands(program: click.Command, context: click.Context) -> Iterator[str]:
    yield f"command {context.command_path}"
    for parameter in program.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                yield f"option {context.command_path} {flag}"
    if isinstance(program, click.Group):
        for name in program.list_commands(context):
            found = program.get_command(context, name)
            assert found is not None
            yield from commands(found, click.Context(found, info_name=name, parent=context))


def keys(schema: Mapping[str, Any]) -> set[str]:
    """Return the names of keys, each with the name of the key that holds it."""
    found = set()

    def look(part: Any, holder: str) -> None:
        if isinstance(part, Mapping):
            for name, below in part.get("properties", {}).items():
                found.add(f"{holder}.{name}" if holder else name)
                look(below, name)
            for name, below in part.items():
                if name == "$defs":
                    for definition, each in below.items():
                        look(each, definition)
                elif name != "properties":
                    look(below, holder)
        elif isinstance(part, list):
            for each in part:
                look(each, holder)

    look(schema, "")
    return found


if __name__ == "__main__":
    FILE.write_text("\n".join(sorted(set(surface()))) + "\n", encoding="utf-8")
