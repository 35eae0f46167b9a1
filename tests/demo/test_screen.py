"""The demo's terminal output: names as in kubectl, and the next steps also on a small screen."""

from __future__ import annotations

import io
from importlib.resources import files

import pytest
import yaml
from rich.console import Console

from kube_policy_scheduler.demo.screen import LivePicture
from kube_policy_scheduler.demo.story import STEPS, Nodes, nodes_of


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    text = (files("kube_policy_scheduler.demo") / "nodes.yaml").read_text(encoding="utf-8")
    return nodes_of(yaml.safe_load(text)["items"])


def shown(nodes: Nodes, *, height: int, width: int = 100) -> list[str]:
    """Return the last picture of a demo in which everything was said."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    picture = LivePicture(nodes, console)
    for number, name in enumerate(nodes):
        picture.placed(f"red-{number}", "red", name)
    picture.policy(STEPS[0].policy)
    for number in range(20):
        picture.say(f"line {number}")
    picture.keep("status page: http://127.0.0.1:1")
    picture.keep("press Ctrl-C to stop everything")
    with console.capture() as captured:
        console.print(picture.picture())
    return captured.get().splitlines()


@pytest.mark.parametrize(("height", "policy", "lines"), [(60, True, 8), (30, True, 7), (24, True, 1), (18, False, 1)])
def test_what_to_do_next_stays_in_sight(nodes: Nodes, height: int, policy: bool, lines: int) -> None:
    found = shown(nodes, height=height)
    assert len(found) <= height
    assert any("status page: http://127.0.0.1:1" in line for line in found)
    assert any("press Ctrl-C to stop everything" in line for line in found)
    assert any("demo.policy" in line for line in found) is policy
    assert [line.strip() for line in found if line.startswith("line ")] == [f"line {n}" for n in range(20 - lines, 20)]
