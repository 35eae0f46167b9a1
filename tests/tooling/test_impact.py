"""`policyctl impact`: two sets of policies over the same pods, in sequence, and the clause that made the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, encode
from kube_policy_scheduler.tooling.impact.replay import Change, Reason, Replay, State, recorded_steps, replay, steps_of
from kube_policy_scheduler.tooling.impact.report import Impact, figures, headline
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from tests.tooling.worlds import POOL, SCHEDULER, SSD_AND_HDD, ruleset, things_of, things_with_devices


def replayed(
    pods: Sequence[dict[str, Any]], old: str, new: str, *, nodes: Sequence[dict[str, Any]] = SSD_AND_HDD
) -> Replay:
    things = things_of(nodes, pods)
    sides = (ruleset("old", old), ruleset("new", new))
    steps = steps_of(cluster_state(things), sides, now=0.0)
    return replay(things, *sides, steps=steps)


def only(found: Replay) -> Change:
    (change,) = found.changes
    return change


ON_A = "score 1 if label disk=ssd"
ON_B = "score 1 if label disk=hdd"


def test_the_same_policies_change_nothing() -> None:
    pods = [{"cpu": 1} for _ in range(9)]
    found = replayed(pods, "score 100 - node.requested.cpu", "score 100 - node.requested.cpu")
    assert found.decided == 9
    assert found.changes == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "clause", "place", "text"),
    [
        (ON_A, f"{ON_A}\nfilter not label disk=ssd as x", "filter", "filter not label disk=ssd as x",
         "new.policy:2:1", "rejects a"),
        (f"{ON_B}\nfilter not label disk=hdd", ON_B, "filter", "filter not label disk=hdd", "old.policy:2:1",
         "rejected b before"),
        (ON_A, f"{ON_A}\nscore 5 if label disk=hdd", "score", "score 5 if label disk=hdd", "new.policy:2:1",
         "+5 for b over a"),
        (f"{ON_B}\nscore 5 if label disk=ssd", ON_B, "score", "score 5 if label disk=ssd", "old.policy:2:1",
         "no longer favours a, by 5"),
        # of two that count alike the new one is named, whichever comes first by name
        (ON_A, "score 2 - 1 if label disk=hdd", "score", "score 2 - 1 if label disk=hdd", "new.policy:1:1",
         "+1 for b over a"),
        (ON_A, "score 0 + 1 if label disk=hdd", "score", "score 0 + 1 if label disk=hdd", "new.policy:1:1",
         "+1 for b over a"),
    ],
)  # fmt: skip
def test_the_clause_that_made_the_difference_is_named(
    old: str, new: str, kind: str, clause: str, place: str, text: str
) -> None:
    change = only(replayed([{"cpu": 1}], old, new))
    assert (change.kind, change.old.node, change.new.node) == ("moved", "a", "b")
    assert change.reason == Reason(kind, clause, place, text)


def test_ties_by_another_rule_are_named() -> None:
    change = next(change for change in replayed([{"cpu": 1}] * 9, "score 1", "score 1\nties by name").changes)
    assert (change.old.node, change.new.node) == ("b", "a")
    assert change.reason == Reason("tie", "ties by name", text="selects one of equally good nodes")
    assert replayed([{"cpu": 1}], "score 1\nties by name", "score 2\nties by name").changes == ()


def test_each_placement_changes_the_cluster_for_those_that_follow() -> None:
    """The first pod goes elsewhere by a clause about it alone; the second, which the clause is not about, follows."""
    old = "filter fits(cpu, mem)\nscore 1 if label disk=ssd"
    new = f"{old}\nscore 5 if label disk=hdd and pod.label.big"
    found = replayed(
        [{"cpu": 4}, {"cpu": 4, "labels": {"big": "yes"}}], old, new.replace("pod.label.big", 'pod.label.big == "yes"')
    )
    assert [change.pod for change in found.changes] == []
    found = replayed(
        [{"cpu": 4, "labels": {"big": "yes"}}, {"cpu": 4}], old, new.replace("pod.label.big", 'pod.label.big == "yes"')
    )
    assert [(change.pod, change.new.node, change.reason.kind) for change in found.changes] == [
        ("default/p0", "b", "score"),
        ("default/p1", "a", "earlier"),
    ]


def test_pods_that_lose_and_get_a_node() -> None:
    pods = [{"cpu": 1, "labels": {"tenant": "t"}}]
    lost = only(replayed(pods, "score 1", "filter label disk=nvme"))
    assert (lost.kind, lost.new.state, lost.reason.place) == ("lost", State.UNSCHEDULABLE, "new.policy:1:1")
    gained = only(replayed(pods, "require pod.label.team is not missing\nscore 1", ON_A))
    assert (gained.kind, gained.reason.place, gained.reason.text) == ("gained", "old.policy:1:1", "rejected a before")
    nowhere = "filter label disk=nvme"
    other = only(replayed(pods, nowhere, f'{nowhere}\nhold if pod.label.tenant == "t"'))
    assert (other.kind, other.reason.kind, other.reason.place) == ("other", "held", "new.policy:2:1")
    held = only(replayed(pods, ON_A, f'{ON_A}\nhold if pod.label.tenant == "t"'))
    assert (held.kind, held.new.state, held.reason.place) == ("lost", State.HELD, "new.policy:2:1")
    free = only(replayed(pods, f'{ON_A}\nhold if pod.label.tenant == "t"', ON_A))
    assert (free.kind, free.reason.place, free.reason.text) == ("gained", "old.policy:2:1", "held it back")
    ungoverned = only(replayed(pods, ON_A, f'for pods where pod.label.tenant == "u"\n{ON_A}'))
    assert (ungoverned.kind, ungoverned.new.state) == ("lost", State.UNGOVERNED)


def test_the_other_way_round_everything_is_the_other_way_round() -> None:
    pods = [{"cpu": 1 + at % 3, "labels": {"tenant": f"t{at % 2}"}} for at in range(6)]
    old = "filter fits(cpu, mem)\nspread by pod.label.tenant"
    new = "filter fits(cpu, mem) and not label disk=hdd\nscore 5 if label disk=ssd"
    there, back = replayed(pods, old, new), replayed(pods, new, old)
    mirrored = {"moved": "moved", "lost": "gained", "gained": "lost", "other": "other"}
    assert {(change.pod, change.old.node, change.new.node, change.kind) for change in there.changes} == {
        (change.pod, change.new.node, change.old.node, mirrored[change.kind]) for change in back.changes
    }
    assert {change.kind for change in there.changes} == {"moved", "lost"}


def test_replayed_pods_and_unchanged_pods() -> None:
    pods = [
        {"cpu": 1, "node": "a"},
        {"cpu": 1},
        {"cpu": 1, "node": "b", "scheduler": "default-scheduler"},
    ]
    things = things_of(SSD_AND_HDD, pods)
    daemon = things[2]
    owner = objects.OwnerReference(kind="DaemonSet", name="d", controller=True)
    daemon.metadata.owner_references = [owner]
    sides = (ruleset("old", "score 1"), ruleset("new", "score 1"))
    assert [step.key for step in steps_of(cluster_state(things), sides, now=0.0)] == ["default/p1"]
    found = replay(things, *sides, steps=steps_of(cluster_state(things), sides, now=0.0))
    assert found.left == 2


def test_bound_pods_go_first_by_age_then_the_others_by_priority() -> None:
    """The age of a pod on a node is since its start, as far as that is known."""
    pods = [{"cpu": 1}, {"cpu": 1, "priority": 5}, {"cpu": 1, "node": "a"}, {"cpu": 1, "node": "b"}, {"cpu": 1}]
    things = things_of(SSD_AND_HDD, pods)
    for pod, day in zip(things[2:], (2, 2, 2, 1, 1), strict=True):
        pod.metadata.creation_timestamp = f"2026-01-0{day}T00:00:00Z"
    things[5].status.start_time = "2026-01-03T00:00:00Z"
    sides = (ruleset("old", "score 1"),)
    order = [(step.key, step.was) for step in steps_of(cluster_state(things), sides, now=0.0)]
    assert order == [("default/p2", "a"), ("default/p3", "b")] + [(f"default/p{at}", "") for at in (1, 4, 0)]


@pytest.mark.parametrize("node", ["", "a"])
@pytest.mark.parametrize("what", ["is finished", "is being deleted"])
def test_a_pod_that_goes_is_left_alone(what: str, node: str) -> None:
    things = things_of(SSD_AND_HDD, [{"cpu": 1, "node": node} if node else {"cpu": 1}])
    if what == "is finished":
        things[-1].status.phase = "Succeeded"
    else:
        things[-1].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert steps_of(cluster_state(things), (ruleset("old", "score 1"),), now=0.0) == []


def test_room_kept_for_a_pod_that_is_decided_later_is_free_until_then() -> None:
    things = things_of(SSD_AND_HDD, [{"cpu": 4, "node": "a"}, {"cpu": 9}, {"cpu": 4, "priority": 9}])
    things[-1].status.nominated_node_name = "a"
    sides = (ruleset("old", f"filter fits(cpu, mem)\n{ON_A}"),) * 2
    steps = steps_of(cluster_state(things), sides, now=0.0)
    found = replay(things, *sides, steps=steps)
    assert (found.were, found.as_was, found.placed) == (1, 1, (2, 2))


def test_load_and_skew_are_those_of_the_cluster() -> None:
    nodes = [{**node, "zone": zone} for node, zone in zip(SSD_AND_HDD, ("z1", "z2"), strict=True)]
    found = replayed([{"cpu": 1}, {"cpu": 2}], ON_A, ON_B, nodes=nodes)
    for side, full in ((found.old, "a"), (found.new, "b")):
        made = figures(side.cluster, ["uid-0", "uid-1"])
        cpu = made.loads[0]
        assert (cpu.most, cpu.mean, cpu.deviation, cpu.empty) == (0.75, 0.375, 0.375, 1)
        assert made.skew == 2
        assert dict(made.zones)["z1" if full == "a" else "z2"] == 2
        assert [(spread.group, spread.nodes, spread.most) for spread in made.spreads] == [("default", 1, 2)]


def test_a_report_says_how_the_skew_over_zones_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads((folder / "c.json").read_text())
    for one, zone in zip(recorded["items"], ("z1", "z2"), strict=False):
        one["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone
    (folder / "zones.json").write_text(json.dumps(recorded))
    (folder / "even.policy").write_text("filter fits(cpu, mem)\nscore least_allocated(cpu)\n")
    assert run(["impact", "a.policy", "even.policy", "--cluster", "zones.json"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "skew over zones" in line]
    assert row.split()[-3:] == ["4", "0", "-4"]
    assert run(["impact", "a.policy", "even.policy", "--cluster", "c.json"]) == 0
    assert "skew over zones" not in capsys.readouterr().out


def test_of_a_decision_log_the_last_decision_about_each_pod_counts() -> None:
    """They come by time, those made at one time as they were written; pods of daemon sets are left out."""
    pods = things_of([], [{"cpu": 1}] * 4)
    pods[3].metadata.owner_references = [objects.OwnerReference(kind="DaemonSet", name="d", controller=True)]
    records = [
        DecisionRecord(time=5.0, pod=pods[2], outcome=Outcome.ASSIGNED, node="a"),
        DecisionRecord(time=1.0, pod=pods[0], outcome=Outcome.UNSCHEDULABLE),
        DecisionRecord(time=2.0, pod=pods[1], outcome=Outcome.ASSIGNED, node="a", queued=1.5),
        DecisionRecord(time=2.0, pod=pods[0], outcome=Outcome.ASSIGNED, node="b"),
        DecisionRecord(time=4.0, pod=pods[0], outcome=Outcome.FAILED),
        DecisionRecord(time=4.0, pod=pods[3], outcome=Outcome.ASSIGNED, node="a"),
    ]
    steps = recorded_steps(records, (ruleset("old", "score 1"),))
    assert [(step.key, step.now, step.queued, step.was) for step in steps] == [
        ("default/p1", 2.0, 1.5, "a"),
        ("default/p0", 2.0, None, "b"),
        ("default/p2", 5.0, None, "a"),
    ]


def test_pods_of_a_decision_log_without_a_uid_are_told_apart_by_name() -> None:
    pods = things_of([], [{"cpu": 1}] * 2)
    for pod in pods:
        pod.metadata.uid = ""
    records = [DecisionRecord(time=1.0, pod=pod, outcome=Outcome.UNSCHEDULABLE) for pod in pods]
    steps = recorded_steps(records, (ruleset("old", "score 1"),))
    assert [step.pod.metadata.uid for step in steps] == ["default/p0", "default/p1"]


@pytest.mark.parametrize(
    ("outcome", "node", "theirs", "was"),
    [
        (Outcome.ASSIGNED, "a", "", "a"),
        (Outcome.WAITING, "a", "", "a"),
        (Outcome.SHADOW, "a", "b", "b"),
        (Outcome.SHADOW, "a", "", ""),
        (Outcome.PREEMPTING, "a", "", ""),
        (Outcome.UNSCHEDULABLE, "", "", ""),
    ],
)
def test_of_a_recorded_decision_the_node_counts_that_the_pod_really_has(
    outcome: Outcome, node: str, theirs: str, was: str
) -> None:
    (pod,) = things_of([], [{"cpu": 1}])
    record = DecisionRecord(time=1.0, pod=pod, outcome=outcome, node=node, theirs=theirs)
    (step,) = recorded_steps([record], (ruleset("old", "score 1"),))
    assert step.was == was


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pods = [pod_object({"name": f"p{at}", "cpu": 1, "node": "a"}, name=f"p{at}", uid=f"uid-{at}") for at in range(4)]
    for pod in pods:
        pod["spec"]["schedulerName"] = SCHEDULER
    items = [*(node_object(node) for node in SSD_AND_HDD), *pods]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "a.policy").write_text(f"filter fits(cpu, mem)\n{ON_A}\n")
    (tmp_path / "b.policy").write_text(f"filter fits(cpu, mem)\n{ON_B}\n")
    (tmp_path / "none.policy").write_text("filter label disk=nvme\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["a.policy", "a.policy"], 0),
        (["a.policy", "b.policy"], 0),
        (["a.policy", "b.policy", "--max-moved", "3"], 1),
        (["a.policy", "b.policy", "--max-moved", "4"], 0),
        (["a.policy", "b.policy", "--max-moved", "99.9%"], 1),
        (["a.policy", "b.policy", "--max-moved", "100%"], 0),
        (["a.policy", "none.policy"], 1),
        (["a.policy", "none.policy", "--max-unschedulable", "4"], 0),
        (["none.policy", "a.policy"], 0),
        (["kubernetes", "a.policy"], 0),
        (["a.policy", "b.policy", "--max-moved", "few"], 2),
        (["a.policy", "missing.policy"], 2),
        (["c.json", "a.policy"], 2),
    ],
)
def test_limits_decide_the_exit_code(
    folder: Path, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["impact", *arguments, "--cluster", "c.json"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_nothing_to_compare_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.policy").write_text("scheduler other\nscore 1\n")
    assert run(["impact", "other.policy", "other.policy", "--cluster", "c.json"]) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_all_of_a_table_is_listed_though_no_pod_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queues = "".join(f'queue q{at} for pods where pod.label.q == "q{at}" min cpu 1\n' for at in range(21))
    (folder / "queues.policy").write_text(queues + (folder / "a.policy").read_text())
    assert run(["impact", "a.policy", "queues.policy", "--cluster", "c.json", "--all"]) == 0
    assert sum("declared" in line for line in capsys.readouterr().out.splitlines()) == 21


def test_a_config_map_is_a_set_of_policies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "b.policy").read_text()
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"b.policy": text}}
    (folder / "map.yaml").write_text(json.dumps(value))
    assert run(["impact", "a.policy", "map.yaml", "--cluster", "c.json", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["moved"] == 4
    assert found["causes"][0]["place"].startswith("map.yaml/b.policy:")


RESIZED = {
    "spec": {"containers": [{"name": f"c{n}", "resources": {"requests": {"cpu": f"{n}"}}} for n in (1, 2)]},
    "status": {
        "containerStatuses": [
            {"name": f"c{n}", "allocatedResources": {"cpu": f"{3 - n}"}, "resources": {"requests": {"cpu": f"{3 - n}"}}}
            for n in (1, 2)
        ]
    },
}
"""Counts for 3 cpu by the rules of Kubernetes 1.37, for 4 by those of 1.36."""


def impact_of_log(folder: Path, recorded: list[str], options: list[str]) -> int:
    """Decide a pod of a log, whose decisions were made by these Kubernetes, where it fits by the rules of 1.37 only."""
    there = {"metadata": {"name": "there", "namespace": "default", "uid": "there"}, **RESIZED}
    there["spec"] = {**RESIZED["spec"], "nodeName": "a", "schedulerName": "other"}
    node = node_object({"name": "a", "cpu": 4, "labels": {"disk": "ssd"}})
    items = [node, {"apiVersion": "v1", "kind": "Pod", **there}]
    (folder / "resized.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (pod,) = things_of([], [{"cpu": 1}])
    records = [DecisionRecord(time=1.0, pod=pod, outcome=Outcome.UNSCHEDULABLE, kubernetes=said) for said in recorded]
    (folder / "log.jsonl").write_bytes(b"".join(map(encode, records)))
    asked = ["impact", "a.policy", "a.policy", "--cluster", "resized.json", "--record", "log.jsonl", "--format=json"]
    return run([*asked, *options])


@pytest.mark.parametrize(
    ("recorded", "options", "placed"),
    [
        (["1.36.2"], [], 0),
        (["1.37.1"], [], 1),
        (["1.37.1"], ["--kubernetes", "1.36"], 0),
        (["1.36.2"], ["--kubernetes", "1.37"], 1),
        (["", "1.37.1,VolumeLimitScaling=false"], [], 1),
        (["1.37.1"], ["--feature-gates", "VolumeLimitScaling=false"], 1),
    ],
)
def test_a_decision_log_is_decided_by_the_kubernetes_that_it_says(
    folder: Path, recorded: list[str], options: list[str], placed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert impact_of_log(folder, recorded, options) == 0

    (row,) = (each for each in json.loads(capsys.readouterr().out)["figures"] if each["name"] == "pods with a node")
    assert row["new"] == str(placed)


def test_decisions_by_different_rules_need_a_version(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert impact_of_log(folder, ["1.36.2", "1.37.1"], []) == 2
    text = "the decisions were made by the rules of Kubernetes 1.36.2 and 1.37.1; use --kubernetes VERSION"
    assert text in capsys.readouterr().err


def test_a_decision_log_is_decided_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = things_of([], [{"cpu": 1}, {"cpu": 1}])
    log = b"".join(encode(DecisionRecord(time=1.0, pod=pod, outcome=Outcome.ASSIGNED, node="a")) for pod in pods)
    (folder / "log.jsonl").write_bytes(log + b'{"version": 1, "ti')
    code = run(["impact", "a.policy", "b.policy", "--cluster", "c.json", "--record", "log.jsonl", "--format=json"])
    shown = capsys.readouterr()
    assert code == 0
    assert "incomplete line" in shown.err
    found = json.loads(shown.out)
    assert (found["decided"], found["left"]) == (2, 2)
    (folder / "log.jsonl").write_bytes(b"what\n" + log)
    assert run(["impact", "a.policy", "b.policy", "--cluster", "c.json", "--record", "log.jsonl"]) == 2
    assert "log.jsonl:1" in capsys.readouterr().err


def test_the_summary_is_markdown_in_the_file_of_github(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert run(["impact", "a.policy", "none.policy", "--cluster", "c.json", "--summary"]) == 1
    text = (folder / "summary.md").read_text()
    assert "❌ policyctl impact: 4 pods decided again one after another: 4 become unschedulable" in text
    assert "| default/p0 | a | unschedulable |" in text
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert run(["impact", "a.policy", "a.policy", "--cluster", "c.json", "--summary"]) == 2
    capsys.readouterr()


IN_GANGS = "filter fits(cpu, mem)\ngang by pod.label.job size 3 within 60s if pod.label.job"


def test_a_gang_with_too_few_pods_gets_no_node() -> None:
    pods = [{"cpu": 1, "labels": {"job": "j"}} for _ in range(2)]
    found = replayed(pods, "filter fits(cpu, mem)", IN_GANGS)
    assert [(change.kind, change.new.state, change.reason.kind) for change in found.changes] == [
        ("lost", State.UNSCHEDULABLE, "gang")
    ] * 2
    assert "2 of 3 members have a node, 1 is missing" in found.changes[0].reason.text
    assert found.placed == (2, 0)
    assert replayed([*pods, pods[0]], "filter fits(cpu, mem)", IN_GANGS).changes == ()


def test_a_gang_that_fits_in_part_gets_no_node_and_others_get_its_room() -> None:
    pods = [{"cpu": 3, "labels": {"job": "j"}}, {"cpu": 4}, *[{"cpu": 3, "labels": {"job": "j"}}] * 2]
    found = replayed(pods, "filter fits(cpu, mem)", IN_GANGS)
    assert [(change.pod, change.kind, change.reason.kind) for change in found.changes] == [
        ("default/p0", "lost", "gang"),
        ("default/p2", "lost", "gang"),
        ("default/p1", "gained", "earlier"),
    ]
    assert found.placed == (2, 1)
    back = replayed(pods, IN_GANGS, "filter fits(cpu, mem)")
    assert [(change.pod, change.kind, change.reason.kind) for change in back.changes] == [
        ("default/p0", "gained", "gang"),
        ("default/p2", "gained", "gang"),
        ("default/p1", "lost", "earlier"),
    ]


@pytest.mark.parametrize("is_old", [True, False])
def test_a_member_whose_role_is_taken_comes_after_those_that_the_gang_needs(is_old: bool) -> None:
    roles = "filter fits(cpu, mem)\ngang by pod.label.job size 2 with 1 of role=driver within 60s if pod.label.job"
    pods = [{"cpu": 4, "labels": {"job": "j", "role": role}} for role in ("worker", "worker", "driver")]
    sides = (roles, "filter fits(cpu, mem)")
    found = replayed(pods, *(sides if is_old else sides[::-1]))
    assert found.placed == (2, 2)
    assert found.changes == ()


def test_of_several_gangs_of_a_pod_the_one_that_is_short_is_named() -> None:
    in_two = f"{IN_GANGS.replace('size 3', 'size 2')}\ngang by pod.label.team size 3 within 60s if pod.label.team"
    found = replayed([{"cpu": 1, "labels": {"job": "j", "team": "t"}}] * 2, "filter fits(cpu, mem)", in_two)
    assert {change.reason.clause.split(" size")[0] for change in found.changes} == {"gang by pod.label.team"}


@pytest.mark.parametrize("is_bound", [True, False])
def test_other_devices_of_the_same_node_are_a_change_of_their_own(is_bound: bool) -> None:
    """A pod that waits may have its claim allocated already; it is given back, too."""
    sides = (ruleset("old", "score 1"), ruleset("new", 'score 1\ndevices by device_value("memory") desc'))
    things = things_with_devices([*POOL], held={"p0": "a"})
    if not is_bound:
        things[-1].spec.node_name = ""
    there = cluster_state(things)
    steps = steps_of(there, sides, now=0.0)
    found = replay(things, *sides, steps=steps)
    change = only(found)
    assert (change.kind, change.old.node, change.old.devices, change.new.devices) == ("devices", "n", ("a",), ("c",))
    assert (change.reason.kind, change.reason.clause) == ("devices", 'devices by device_value("memory") desc')
    assert change.reason.text == "gets c instead of a"
    before, after = (figures(side.cluster, ["p0"]) for side in (found.old, found.new))
    impact = Impact("old", "new", found, before, after)
    assert headline(impact) == "1 pod decided again one after another: 1 gets other devices on its node"
    assert impact.broken == []
