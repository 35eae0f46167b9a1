"""One wording, in every command, for a file that is not there, is a folder, is empty, or is not UTF-8."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kube_policy_scheduler.cli.main import policyctl, run
from kube_policy_scheduler.daemon.main import main as policy_scheduler
from tests.cli.bad_files import COMMANDS, FILES

PROGRAMS = {"policyctl": policyctl, "policy-scheduler": policy_scheduler}
ASKED = [
    *(("policyctl", *command) for name, command in COMMANDS.items() if name != "canary"),
    *(
        tuple(command.split())
        for command in (
            "policyctl eval node.ready --cluster cluster.yaml --policies p.policy --metrics metrics.yaml",
            "policyctl eval node.ready --kubeconfig kubeconfig",
            "policyctl tune tuned.policy --cluster cluster.yaml --pods pods.yaml --metrics usage.csv --objective wait"
            " --events events.yaml --autoscale shapes.yaml --trials 2",
            "policyctl playground p.policy --cluster cluster.yaml --metrics metrics.yaml",
            "policyctl playground p.policy --kubeconfig kubeconfig",
            "policyctl test --init p.policy",
            "policyctl test x.test.yaml --config config.yaml",
            "policyctl functions --config config.yaml",
            "policyctl capture web --record decisions.jsonl --cluster cluster.yaml --policies p.policy",
            "policyctl why pod.yaml --cluster cluster.yaml",
            "policyctl why web --fleet fleet.yaml",
            "policyctl doctor --policies w.policy --fleet fleet.yaml",
            "policyctl impact p.policy q.policy --fleet fleet.yaml",
            "policyctl playground w.policy --fleet fleet.yaml",
            *(
                f"policyctl {command} --kubeconfig kubeconfig"
                for command in (
                    "capacity", "capture web --policies p.policy", "doctor --policies p.policy", "drift",
                    "impact p.policy q.policy", "queues --policies p.policy", "snapshot",
                    "rebalance --policies p.policy",
                    "rollout history", "rollout status", "rollout undo",
                    *(f"canary {each} --config-map n/c" for each in ("list", "abort", "promote")),
                )
            ),
            *(
                f"policyctl {command} --config config.yaml"
                for command in (
                    "capacity --cluster cluster.yaml", "capture web --cluster cluster.yaml --policies p.policy",
                    "doctor --cluster cluster.yaml --policies p.policy", "drift --cluster cluster.yaml",
                    "impact p.policy q.policy --cluster cluster.yaml",
                    "queues --cluster cluster.yaml --policies p.policy",
                    "rebalance --cluster cluster.yaml --policies p.policy",
                    "simulate p.policy --cluster cluster.yaml", "canary list .", "canary abort .",
                    "canary promote .", "lsp", "eval node.ready --cluster cluster.yaml",
                )
            ),
            "policy-scheduler config config.yaml",
            "policy-scheduler --config config.yaml",
            "policy-scheduler webhook --certificate-file ca.pem --key-file key",
            "policy-scheduler webhook --config config.yaml --self-managed-certificate",
            "policy-scheduler fleet --config config.yaml",
        )
    ),
]  # fmt: skip
OF_EACH = [(asked, file) for asked in ASKED for file in asked if (FILES / file).is_file()]

WRITTEN = {
    "--output", "--html", "--shares", "--metrics-output", "--coverage-out", "--settings", "--address-file",
    "--http-address-file", "policyctl man folder", "policyctl tune --record",
}  # fmt: skip
"""Options whose files a command makes."""
ELSEWHERE = {
    "policyctl canary abort folder": "a folder",
    "policyctl canary list folder": "a folder",
    "policyctl canary promote folder": "a folder",
    "policyctl test --root": "a folder, which click checks",
    "policyctl lsp --kubeconfig": "read while the editor runs, which gets the same words in its log",
    "policy-scheduler --kubeconfig": "read by the reader of policyctl's, in a process of its own",
    "policy-scheduler webhook --kubeconfig": "read by the reader of policyctl's, in a process of its own",
    "policy-scheduler fleet --kubeconfig": "read by the reader of policyctl's, in a process of its own",
    "policy-scheduler fleet --policies": "looked for before the API server is, and read after",
    "policy-scheduler --policies": "looked for before the API server is, and read after",
    "policy-scheduler webhook --public-key-file": "read with the certificate, by the same reader",
}

PLACES = {
    "missing": r"{file} does not exist",
    "folder": r"cannot read (kubeconfig )?{file}: is a directory|{file} contains no \.(policy|test\.yaml) file",
    "empty": r"{file} is empty[;:] |{file}:1:1: error\[D\d+\]: the (file|table) is empty[,;] ",
    "not UTF-8": r"{file}:1(:4: error\[D0003\])?: byte 0xe9 is not UTF-8|{file}: byte 0xe9 is not UTF-8: expected"
    r"|kubeconfig {file} is not UTF-8",
    "UTF-16": r"{file}:1(:1: error\[D0003\])?: byte 0xff is not UTF-8|{file}: byte 0xff is not UTF-8: expected"
    r"|kubeconfig {file} is not UTF-8",
}
FINE = {
    "empty": re.compile(r".*\.policy|key|pods\.yaml|events\.yaml|shapes\.yaml|ca\.pem"),
    "not UTF-8": re.compile(r"key|ca\.pem"),
    "UTF-16": re.compile(r"key|ca\.pem"),
}
"""Files that may be so, or for which it is no matter of the text: keys are bytes, an empty policy is a policy."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All good files, in the working directory."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(asked: tuple[str, ...]) -> tuple[int, str]:
    """Return the exit code of a command line, and all that it printed."""
    program, *arguments = asked
    if program == "policy-scheduler":
        done = CliRunner().invoke(policy_scheduler, arguments)
        return done.exit_code, done.output
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = run(arguments)
    return code, printed.getvalue()


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_cannot_be_used_is_reported_in_the_same_words(folder: Path, place: str) -> None:
    found: dict[tuple[str, str], str] = {}
    for asked, file in OF_EACH:
        if place in FINE and FINE[place].fullmatch(file):
            continue
        path = folder / file
        path.unlink()
        match place:
            case "folder":
                path.mkdir()
            case "empty":
                path.touch()
            case "not UTF-8":
                path.write_bytes(b"a: \xe9\n")
            case "UTF-16":
                path.write_bytes("a: b\n".encode("utf-16"))
            case _:
                pass
        code, printed = said(asked)
        if code != 2 or not re.search(PLACES[place].replace("{file}", re.escape(file)), printed) or "Usage:" in printed:
            found[" ".join(asked), file] = f"exit code {code}\n{printed[:500]}"
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        shutil.copy(FILES / file, path)
    assert not found, "\n\n".join(f"{command} ({file}): {text}" for (command, file), text in found.items())


def read_by(group: click.Group, name: str) -> Iterator[str]:
    """Yield each option and argument of a command that names a file, with the command."""
    context = click.Context(group)
    for parameter in group.params:
        yield from _named(name, parameter)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from read_by(command, f"{name} {each}")
            continue
        for parameter in command.params:
            yield from _named(f"{name} {each}", parameter)


def _named(command: str, parameter: click.Parameter) -> Iterator[str]:
    if isinstance(parameter.type, click.Path):
        yield f"{command} {max(parameter.opts, key=len)}"


def asked_with(asked: tuple[str, ...]) -> Iterator[str]:
    """Yield the options and arguments for which a command line gives a file."""
    program, *rest = asked
    command: click.Command = PROGRAMS[program]
    name = program
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, asked
        command, name = found, f"{name} {rest.pop(0)}"
    context = command.make_context(name, list(rest), resilient_parsing=True)
    given, _, _ = command.make_parser(context).parse_args(list(rest))
    for parameter in command.params:
        if isinstance(parameter.type, click.Path) and given.get(str(parameter.name)):
            yield from _named(name, parameter)


def test_every_option_that_names_a_file_is_among_these() -> None:
    there = {each for name, group in PROGRAMS.items() for each in read_by(group, name)}
    read = {each for each in there if each not in WRITTEN and each.rpartition(" ")[2] not in WRITTEN}
    tried = {each for asked in ASKED for each in asked_with(asked)}

    assert ELSEWHERE.keys() <= read
    assert read - ELSEWHERE.keys() - tried == set()
