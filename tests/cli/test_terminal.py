"""What strangers wrote is shown, and not obeyed: control characters in names and texts never reach a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli import terminal
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cli.terminal import say, say_json, say_lines

HARM = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\r\x1b[K\x08"
STYLES = re.compile(r"\x1b\[(0|1|2|32|33|1;3[1-6])m")


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in STYLES.sub("", text))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def node(name: str, zone: str) -> dict[str, Any]:
        labels = {"topology.kubernetes.io/zone": zone, f"k{HARM}": HARM, "disk": HARM}
        status = {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"},
            "conditions": [{"type": HARM, "status": HARM}],
        }
        taints = [{"key": f"t{HARM}", "value": HARM, "effect": "NoSchedule"}]
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": status}

    def pod(name: str, cpu: str, on: str = "") -> dict[str, Any]:
        metadata = {"name": name, "namespace": f"ns{HARM}", "uid": name, "labels": {"app": HARM, "tier": "web"}}
        container = {"name": f"c{HARM}", "image": HARM, "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"containers": [container], "schedulerName": "policy-scheduler", "nodeName": on}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    items = [node(f"a{HARM}", "z"), node(f"b{HARM}", f"z{HARM}"), pod(f"p{HARM}", "1"), pod("q", "99", f"a{HARM}")]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    (tmp_path / "c.json").write_text(text)
    (tmp_path / "a.policy").write_text("filter label disk=ssd\nscore node.free.cpu\n")
    comment = HARM.replace("\r", "").replace("\x08", "")
    (tmp_path / "b.policy").write_text(f"filter label disk=ssd # {comment}\nscore  node.free.cpu\n")
    (tmp_path / f"n{HARM}.policy").write_text("score nod.free\n")
    return tmp_path


COMMANDS = {
    "why a pod": ["why", f"p{HARM}", "--policies", "a.policy", "--cluster", "c.json"],
    "why by kubernetes": ["why", f"p{HARM}", "--cluster", "c.json"],
    "why on a node": ["why", "q", "--policies", "a.policy", "--cluster", "c.json"],
    "an unknown pod": ["why", f"x{HARM}", "--policies", "a.policy", "--cluster", "c.json"],
    "capacity": ["capacity", "--policies", "a.policy", "--cluster", "c.json"],
    "doctor": ["doctor", "--policies", "a.policy", "--cluster", "c.json"],
    "drift": ["drift", "--policies", "a.policy", "--cluster", "c.json"],
    "rebalance": ["rebalance", "--policies", "a.policy", "--cluster", "c.json", "--rest", "0s"],
    "impact": ["impact", "kubernetes", "a.policy", "--cluster", "c.json"],
    "simulate": ["simulate", "kubernetes", "a.policy", "--cluster", "c.json"],
    "capture": ["capture", f"p{HARM}", "--policies", "a.policy", "--cluster", "c.json", "-o", "x.test.yaml"],
    "a difference": ["fmt", "--diff", "b.policy"],
    "a file's name": ["lint", "."],
    "an unknown file": ["lint", f"{HARM}.policy"],
    "an unknown command": [f"x{HARM}"],
    "an unknown option": ["lint", f"--x{HARM}"],
    "a bug": ["lint", f"a\0{HARM}.policy"],
}


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_obeys_what_it_shows(
    command: str, colours: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "colour", lambda *, err=False: colours)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)

    run(COMMANDS[command])

    said = capsys.readouterr()
    assert said.out + said.err
    assert is_harmless(said.out)
    assert is_harmless(said.err)


@pytest.mark.parametrize(
    "command", ["why by kubernetes", "capacity", "doctor", "drift", "impact", "rebalance", "simulate"]
)
def test_reports_for_programs_have_the_same_texts_escaped(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*COMMANDS[command], "--format=json"])

    text = capsys.readouterr().out
    assert is_harmless(text)
    json.loads(text)


def test_styles_of_ours_pass_and_only_where_there_are_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    painted = "\x1b[1;31mred\x1b[0m \x1b[8mhidden"
    monkeypatch.setattr(terminal, "colour", lambda *, err=False: True)
    say(painted)
    assert capsys.readouterr().out == "\x1b[1;31mred\x1b[0m \ufffd[8mhidden\n"
    monkeypatch.setattr(terminal, "colour", lambda *, err=False: False)
    say(painted)
    assert capsys.readouterr().out == "\ufffd[1;31mred\ufffd[0m \ufffd[8mhidden\n"


def test_a_line_end_in_a_line_forges_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    say_lines(["one\nPASS two", "three"])
    say("a\nb\tc")
    assert capsys.readouterr().out == "one\ufffdPASS two\nthree\na\nb    c\n"


def test_json_is_what_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"name": HARM, "plain": "Zürich 東京", "more": ["\x9b", "\u2028", "\ud83d"]}
    say_json(given)
    text = capsys.readouterr().out
    assert json.loads(text) == given
    assert "Zürich 東京" in text
