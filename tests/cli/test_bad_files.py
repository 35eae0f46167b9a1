"""No file makes a command of policyctl fail otherwise than it says: no traceback, and the documented exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.documents import bounded_files
from tests.cli.bad_files import COMMANDS, FILES, asked, files_of, problem

EACH = [(command, file) for command in COMMANDS for file in files_of(command)]
CONTENTS = {
    "empty": b"",
    "NUL": b"a: \0\n",
    "not UTF-8": b"a: \xe9\n",
    "binary": bytes(range(256)) * 16,
    "UTF-16": "kind: Node\n".encode("utf-16"),
    "half a character": b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"\\ud800"}}',
    "a text": b"foo\n",
    "a number": b"5\n",
    "null": b"null\n",
    "a list": b"[1, [], {}]\n",
    "an unknown kind": b"apiVersion: x/v1\nkind: Foo\nmetadata: {name: a}\n",
    "odd items": b"apiVersion: v1\nkind: List\nitems: [1, null, {kind: Foo}, {apiVersion: v1, kind: Pod}]\n",
    "items that are none": b"apiVersion: v1\nkind: List\nitems: foo\n",
    "several documents": b"--- 1\n--- [a]\n--- {kind: Node}\n",
    "an alias in itself": b"a: &a [*a]\nb: *a\n",
    "a list in itself": b"apiVersion: v1\nkind: List\nitems: &i\n- kind: List\n  items: *i\n",
    "aliases of aliases": b"".join(
        b"%c: &%c [%s]\n" % (97 + at, 97 + at, b",".join([b"*%c" % (96 + at) if at else b"x"] * 9)) for at in range(9)
    ),
    "deep YAML": b"[" * 100_000,
    "deep JSON": b'{"a":' * 600 + b"1" + b"}" * 600,
    "deep in an object": b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":'
    + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}",
    "too large": b"a" * 5_000_000,
    "numbers without end": b"a: " + b"9" * 10_000 + b"\nb: .inf\nc: 1e999\n",
    "half packed": b"\x1f\x8b\x08\x00garbage",
    "a table": b"sn,cpu_milli,memory_mib,gpu,model\nn1,x,65536,2,T4\n,,,,\n",
    "lines of JSON": b'{"a":1}\n[1]\n',
    "merges": b"<<: 1\na: &x {<<: *x}\n",
    "a tag": b"!!python/object:os.system x\n",
    "a key twice": b"a: 1\na: 2\n",
    "an odd key": b"? [a]\n: b\n",
}  # fmt: skip
PLACES = ("folder", "no file", "/dev/zero", "/dev/null", "/proc/self/mem", "a link to itself", "a pipe", "a socket")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All good files, in the working directory."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bounded_files, "WRITER_SECONDS", 0.0)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_good_files_are_good(command: str) -> None:
    assert problem(command) == ""
    assert "error[D" not in asked(command)[1]


COMMANDS_OF = {file: [command for command, given in EACH if given == file] for _, file in EACH}


@pytest.mark.parametrize("file", COMMANDS_OF)
def test_a_file_that_is_something_else(folder: Path, file: str) -> None:
    """By turns for the commands that take the file: they read it with the same functions."""
    for content, command in zip(CONTENTS.values(), cycle(COMMANDS_OF[file]), strict=False):
        (folder / file).write_bytes(content)
        assert problem(command) == ""


@pytest.mark.long
@pytest.mark.parametrize(("command", "file"), EACH, ids=[f"{command}: {file}" for command, file in EACH])
def test_a_file_that_is_something_else_for_each_command(folder: Path, command: str, file: str) -> None:
    for content in CONTENTS.values():
        (folder / file).write_bytes(content)
        assert problem(command) == ""


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file(folder: Path, place: str) -> None:
    for command, file in EACH:
        path = folder / file
        path.unlink()
        match place:
            case "folder":
                path.mkdir()
            case "a pipe":
                os.mkfifo(path)
            case "a socket":
                code = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
                subprocess.run([sys.executable, "-c", code, file], check=True, cwd=folder)
            case "a link to itself":
                path.symlink_to(path)
            case "no file":
                pass
            case _:
                path.symlink_to(place)
        assert problem(command) == ""
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        shutil.copy(FILES / file, path)


WRONG = (
    "foo", "", -1, 0, 3.5, True, None, [], {}, ["c"], {"a": 1}, [None], [{}], 10**30, 1e308, "1e999", "9" * 400, "é",
    "10Ei", "2026-13-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", 2**63, "0.0000000000001",
)  # fmt: skip
"""What is written in each place in turn."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a document with something else in one place."""
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(copied[path[0]], path[1:], new)
    return copied


DOCUMENTS = sorted({file for _, file in EACH if file.endswith(".yaml")} | {"kubeconfig"})


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 7])
@pytest.mark.parametrize("file", DOCUMENTS)
def test_something_else_in_each_place(folder: Path, file: str, every: int) -> None:
    document = yaml.safe_load((FILES / file).read_text(encoding="utf-8"))
    # of another length: each place of a kind gets other values, asked about by another command
    cases = zip(places(document), cycle(WRONG), cycle(COMMANDS_OF[file]), strict=False)
    for path, new, command in islice(cases, 0, None, every):
        (folder / file).write_text(json.dumps(changed(document, path, new)), encoding="utf-8")
        assert problem(command) == "", f"{file}: {new!r} in {path}"


@pytest.mark.parametrize(
    ("before", "command", "said"),
    [
        (
            'allocatable: {cpu: "4", memory: 16Gi, pods: "110", nvidia',
            "why",
            "cluster.yaml:9:24: error[D0013]: Node a1: not a q",
        ),
        ('requests: {cpu: "1", memory: 1Gi, nvidia', "impact", "not a quantity: 'foo'"),
        ("spec: {capacity: {storage: 1Gi}", "doctor", "PersistentVolume pv: not a quantity"),
    ],
)
def test_an_amount_that_is_none_has_its_line(folder: Path, before: str, command: str, said: str) -> None:
    text = (FILES / "cluster.yaml").read_text(encoding="utf-8")
    assert before in text
    wrong = re.sub(r"(cpu|storage): [\w\"]+", r"\1: foo", before)
    (folder / "cluster.yaml").write_text(text.replace(before, wrong), encoding="utf-8")
    code, printed = asked(command)
    assert code == 2
    assert said in printed
