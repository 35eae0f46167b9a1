"""What `make demo ARGS='--fleet'` expects is what its policies say: each step decided without a process."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from kube_policy_scheduler.demo.fleet.manager import Seen
from kube_policy_scheduler.demo.fleet.screen import FleetLines, FleetPicture
from kube_policy_scheduler.demo.fleet.story import CLUSTERS, STEPS, WORKLOADS, Decision, Targets, problems
from tests.cli.transcript import command


def suites(folder: Path) -> None:
    """Write a test of policies for each workload and step: where it was before, and where it ends."""
    policies: dict[str, str] = {}
    before: dict[str, Targets] = {}
    clusters = [
        {"name": each.name, "region": each.region, "provider": each.provider, "price": each.price, "cpu": each.cores}
        for each in CLUSTERS
    ]
    for number, step in enumerate(STEPS):
        policies |= step.policies
        for workload in WORKLOADS:
            policy = policies[f"{workload.tier}.policy"]
            (folder / f"{workload.name}-{number}.policy").write_text(policy)
            lost = {each.name: {"evicting": True} for each in CLUSTERS if each.region == step.lost}
            has = {name: count for name, count in before.get(workload.name, {}).items() if name not in lost}
            asked = {"replicas": workload.replicas, "cpu": 1, "labels": {"tier": workload.tier}, "has": has}
            case: dict[str, Any] = {
                "name": step.title,
                "workload": asked,
                "expect": {"clusters": dict(step.targets[workload.name])},
            }
            if lost:
                case["clusters"] = lost
            if step.paced:
                case["passes"] = workload.replicas
            suite = {"policy": f"{workload.name}-{number}.policy", "clusters": clusters, "cases": [case]}
            (folder / f"{workload.name}-{number}.test.yaml").write_text(yaml.safe_dump(suite))
        before |= step.targets


def test_each_step_ends_as_its_policies_say(tmp_path: Path) -> None:
    suites(tmp_path)
    printed, code = command(f"policyctl test {tmp_path}", tmp_path)
    assert code == 0, printed
    assert f"{len(STEPS) * len(WORKLOADS)} passed" in printed


def test_its_policies_have_no_findings(tmp_path: Path) -> None:
    for number, step in enumerate(STEPS):
        for name, text in step.policies.items():
            (tmp_path / f"{number}-{name}").write_text(text)
    printed, code = command(f"policyctl lint {tmp_path}", tmp_path)
    assert code == 0, printed


@pytest.mark.parametrize(
    ("placed", "decisions", "found"),
    [
        ({}, [], ()),
        ({"web": {"berlin": 5, "iowa": 1}}, [], ("web is on berlin 5, iowa 1, expected berlin 6",)),
        ({}, [Decision("web", {"iowa": 6}, {"iowa": 4, "berlin": 2})], ()),
        (
            {},
            [Decision("web", {"iowa": 6}, {"iowa": 3, "berlin": 3})],
            ("web moved 3 replicas at a time, expected 2 at most",),
        ),
    ],
)
def test_a_step_that_does_not_come_true_says_what_is_wrong(
    placed: dict[str, Targets], decisions: list[Decision], found: tuple[str, ...]
) -> None:
    paced = next(each for each in STEPS if each.paced)
    assert tuple(problems(paced, {**paced.targets, **placed}, decisions)) == found


def test_plain_lines_tell_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = FleetLines(closed=lambda: None)
    here = Seen(placed={"web": {"berlin": 6}}, running={"web": {"berlin": 2}})
    lost = Seen(frozenset({"berlin"}), {"web": {"iowa": 6}}, waiting={"web": "no room"})
    for seen in (here, here, lost, lost, Seen(placed={"web": {"iowa": 6}})):
        lines.show(seen)
    told = [line.partition("s  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "placed   web      -> berlin 6",
        "lost     berlin",
        "placed   web      -> iowa 6",
        "waiting  web         no room",
        "back     berlin",
    ]


@pytest.mark.parametrize(("height", "width"), [(40, 110), (24, 80), (14, 80)])
def test_the_picture_shows_each_replica_and_fits_the_screen(height: int, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    picture = FleetPicture(console)
    picture.policy(STEPS[0].policies["web.policy"])
    picture.show(Seen(frozenset({"berlin"}), {"web": {"iowa": 6}}, {"web": {"iowa": 4}}, {"web": 6}))
    for number in range(20):
        picture.say(f"line {number}")
    picture.keep("press Ctrl-C to stop everything")
    with console.capture() as captured:
        console.print(picture.picture())
    lines = captured.get().splitlines()
    assert len(lines) <= height
    rows = {line.split()[0]: line.split() for line in lines[: 1 + len(CLUSTERS)]}
    assert rows["berlin"][4:] == ["lost"]
    assert rows["iowa"][4:] == ["4/16", "●●●●○○"]
    assert "line 19" in [line.strip() for line in lines]
    assert lines[-1].startswith("press Ctrl-C")


def test_the_picture_says_once_why_a_workload_waits() -> None:
    console = Console(file=io.StringIO(), width=80, height=40, color_system=None)
    picture = FleetPicture(console)
    for _ in range(2):
        picture.show(Seen(waiting={"web": "there is room for 10 of 12 replicas"}))
    with console.capture() as captured:
        console.print(picture.picture())
    assert captured.get().count("web waits: there is room for 10 of 12 replicas") == 1
