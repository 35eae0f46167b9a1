"""`policyctl capacity`: how much more fits, what could go, what pending pods need, and what if a zone is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cli.exact import solver
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.tooling.capacity.questions import (
    Loss,
    RemovableNodes,
    lose,
    more_copies,
    nodes_needed,
    pending_pods,
    removable_nodes,
)
from kube_policy_scheduler.tooling.capacity.report import Capacity, headline, mix_sentence
from kube_policy_scheduler.tooling.capacity.report import lines as report_lines
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.capacity.shapes import ZONE as ZONE_LABEL
from kube_policy_scheduler.tooling.capacity.shapes import node_shapes
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.short_forms import add_claims, add_devices
from kube_policy_scheduler.tooling.text_table import Terminal
from tests.tooling.worlds import ruleset, things_of

Json = dict[str, Any]
FITS = "filter fits(cpu, mem)\n"
PACK = FITS + "score most_allocated(cpu)\n"
OWNER = {"owner": "ReplicaSet/web"}


def seats(nodes: Sequence[Json], pods: Sequence[Json] = (), *, policy: str = FITS, more: Sequence[Any] = ()) -> Seats:
    rules = ruleset("a", policy) if policy else Ruleset("kubernetes")
    return Seats(cluster_state([*things_of(nodes, pods), *more]), rules, now=1000.0)


def node(name: str, cpu: int = 4, **more: Any) -> Json:
    return {"name": name, "cpu": cpu, "mem": "64Gi", **more}


def on(name: str, cpu: Any = 1, **more: Any) -> Json:
    return {"cpu": cpu, "node": name, **OWNER, **more}


def a_pod(there: Seats, **form: Any) -> PodInfo:
    (made,) = things_of((), [{"cpu": 1, **form}])
    made.metadata.uid = "new"
    return there.cluster.templates.pod(made)


def state(there: Seats) -> Any:
    nodes = there.cluster.nodes
    columns = nodes.requested("cpu"), nodes.pod_count, nodes.unschedulable
    return (
        {info.name: [column[info.row] for column in columns] for info in nodes.infos},
        {uid: there.cluster.node_of(uid) for uid in there.cluster.pods},
        {name: sorted(pods) for name, pods in there.cluster.nominated.items()},
    )  # fmt: skip


# --- how many more ---------------------------------------------------------------------------------------


def test_copies_fit_until_one_is_refused() -> None:
    there = seats([node("a"), node("b", 3)], [on("a")])
    before = state(there)
    found = more_copies(there, a_pod(there), most=100)
    assert (found.count, found.bound, found.complete) == (6, 6, True)
    assert found.nodes == {"a": 3, "b": 3}
    assert "Insufficient cpu" in found.stopped_by
    assert state(there) == before


def test_a_rule_of_the_policy_stops_them_below_the_bound() -> None:
    there = seats([node("a"), node("b")], policy='limit count() to 3 of pods where pod.label.app == "web"')
    found = more_copies(there, a_pod(there, labels={"app": "web"}), most=100)
    assert (found.count, found.bound) == (3, 8)
    assert "rejected by policy clause limit count() to 3" in found.stopped_by


def test_copies_that_must_be_apart() -> None:
    there = seats(
        [node("a"), node("b"), node("c", ready=False)],
        policy='filter node.ready\nfilter count(p in node.pods where p.label.app == "web") < 1',
    )
    found = more_copies(there, a_pod(there, labels={"app": "web"}), most=100)
    assert (found.count, found.bound, found.nodes) == (2, 8, {"a": 1, "b": 1})


def test_enough_is_enough() -> None:
    there = seats([node("a")])
    found = more_copies(there, a_pod(there), most=2)
    assert (found.count, found.complete, found.stopped_by) == (2, False, "")


def test_the_work_can_be_stopped() -> None:
    there = seats([node("a", 64)])
    before, asked = state(there), iter([False] * 5 + [True] * 9)
    found = more_copies(there, a_pod(there), most=100, stop=lambda: next(asked))
    assert (found.count, found.complete) == (5, False)
    assert state(there) == before


def test_copies_have_claims_of_their_own() -> None:
    there = seats([node("a")])
    add_devices(there.cluster, "a", {"gpu": 3})
    add_claims(there.cluster, "default", {"gpu": 1})
    (made,) = things_of((), [{"cpu": "100m", "claims": {"gpu": 1}}])
    there.there.create(made)
    found = more_copies(there, there.cluster.templates.pod(made), most=100)
    assert found.count == 3
    assert "cannot allocate all claims" in found.stopped_by


# --- which nodes could go --------------------------------------------------------------------------------


def names(found: RemovableNodes) -> list[str]:
    return [one.node for one in found.removable]


def test_a_node_can_go_if_its_pods_find_a_place() -> None:
    there = seats([node("a"), node("b"), node("c")], [on("a", 1), on("b", 3), on("c", 4)])
    before = state(there)
    found = removable_nodes(there)
    assert names(found) == ["a"]
    assert found.removable[0].moves == (("default/p0", "b"),)
    assert (found.bound, found.moves, found.complete) == (1, 1, True)
    (kept,) = found.kept
    assert sorted(kept.nodes) == ["b", "c"]
    assert state(there) == before


def test_the_policy_decides_whether_there_is_a_place() -> None:
    nodes = [node("a", labels={"disk": "ssd"}), node("b", labels={"disk": "hdd"}), node("c", labels={"disk": "ssd"})]
    found = removable_nodes(seats(nodes, [on("a"), on("b", 2)], policy="filter fits(cpu) and label disk=ssd"))
    assert names(found) == ["c", "b"]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, ""),
        ({"owner": None}, "no controller creates it again"),
        ({"owner": None, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, ""),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "safe-to-evict=false"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "do-not-disrupt=true"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "20m"}}, "do-not-disrupt=20m"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "5m"}}, ""),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "soon"}}, ""),
        ({"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}}, "prefer-no-eviction"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}, "local storage (tmp)"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}}, ""),
        ({"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/x"}}]}}, "local storage (x)"),
        ({"spec": {"volumes": [{"name": "x", "configMap": {"name": "x"}}]}}, ""),
        (
            {
                "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]},
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "logs, tmp"},
            },
            "",
        ),
    ],
)
def test_pods_that_keep_their_node(form: Json, reason: str) -> None:
    pod = {key: value for key, value in on("a", created="1970-01-01T00:06:00Z", **form).items() if value is not None}
    found = removable_nodes(seats([node("a"), node("b", labels={"full": "yes"})], [pod, on("b", 2)], policy=PACK))
    assert ("a" in names(found)) is (not reason)
    if reason:
        assert [one.reason for one in found.kept if "a" in one.nodes] == ["a pod on it must stay"]
        assert reason in found.kept[0].example


def test_local_storage_moves_if_that_is_wanted() -> None:
    pod = on("a", spec={"volumes": [{"name": "tmp", "emptyDir": {}}]})
    there = seats([node("a"), node("b")], [pod, on("b", 2)], policy=PACK)
    assert names(removable_nodes(there, local_storage=False)) == ["a"]


def budget(name: str, allowed: int, **labels: str) -> objects.PodDisruptionBudget:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        },
        objects.PodDisruptionBudget,
    )


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ([], ""),
        ([budget("x", 1, app="web")], ""),
        ([budget("x", 0, app="web")], "PodDisruptionBudget x allows no disruption"),
        ([budget("x", 0, app="db")], ""),
        ([budget("x", 1, app="web"), budget("y", 1, app="web")], "2 PodDisruptionBudgets match it"),
    ],
)
def test_budgets_keep_pods(budgets: list[objects.PodDisruptionBudget], reason: str) -> None:
    pods = [on("a", labels={"app": "web"}), on("b", 2)]
    found = removable_nodes(seats([node("a"), node("b")], pods, policy=PACK, more=budgets))
    assert ("a" in names(found)) is (not reason)
    assert not reason or reason in found.kept[0].example


def test_nodes_that_must_stay() -> None:
    marks = {
        "a": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
        "b": {"karpenter.sh/do-not-disrupt": "true"},
        "c": {"karpenter.sh/do-not-disrupt": "false"},
    }
    found = removable_nodes(seats([node(name, annotations=mark) for name, mark in marks.items()]))
    assert names(found) == ["c"]
    assert found.kept[0].nodes == ("a", "b")


def test_pods_of_the_node_go_with_it_and_pods_that_tolerate_everything_come_back() -> None:
    daemon = on("a", owner="DaemonSet/logs")
    everywhere = on("b", spec={"tolerations": [{"operator": "Exists"}]}, node_selector={"kubernetes.io/hostname": "b"})
    found = removable_nodes(seats([node("a"), node("b")], [daemon, everywhere]))
    assert names(found) == ["a"]
    assert "would come back" in found.kept[0].example


def test_a_gang_moves_whole_or_its_node_stays() -> None:
    gang = "gang by pod.label.job size 2 if pod.label.job\n"
    pods = [on("a", 2, labels={"job": "x"}), on("b", 2, labels={"job": "x"}), on("c", 1)]
    found = removable_nodes(seats([node("a"), node("b"), node("c", 3)], pods, policy=PACK + gang))
    assert names(found)
    assert found.moves == sum(one.pods for one in found.removable)


# --- how many nodes --------------------------------------------------------------------------------------


def waiting(there: Seats) -> list[PodInfo]:
    return there.there.pending()


def test_new_nodes_for_pending_pods() -> None:
    there = seats(
        [node("a"), node("b", 8)], [on("a", 4), on("b", 7), *({"cpu": 3} for _ in range(4)), {"cpu": 1}, {"cpu": 20}]
    )
    before = state(there)
    found = pending_pods(there, waiting(there), node_shapes(there.cluster, most=6), most=100)
    assert (found.pods, found.fit_now, found.complete) == (6, 1, True)
    large, small = found.needed
    assert (large.shape.like, large.nodes, large.seated, large.bound) == ("b", 2, 4, 2)
    assert (small.shape.like, small.nodes, small.seated, small.bound) == ("a", 4, 4, 4)
    assert [(one.pods, one.example) for one in large.without] == [(1, "default/p7")]
    assert state(there) == before


def test_daemon_sets_take_their_share_of_a_new_node() -> None:
    pods = [on("a", 2, owner="DaemonSet/logs"), on("a", 2), *({"cpu": 2} for _ in range(3))]
    there = seats([node("a")], pods)
    (found,) = pending_pods(there, waiting(there), node_shapes(there.cluster, most=6), most=100).needed
    assert (found.nodes, found.bound, found.seated) == (3, 3, 3)


def test_at_most_some_nodes() -> None:
    there = seats([node("a", 1)], [on("a"), {"cpu": 1}, {"cpu": 1}, {"cpu": 1}])
    (found,) = pending_pods(there, waiting(there), node_shapes(there.cluster, most=6), most=2).needed
    assert (found.nodes, found.seated) == (2, 2)
    assert "more than 2 new nodes" in found.without[0].message


def test_members_of_a_gang_that_wait_are_seated_together() -> None:
    """One by one, by their scores, the leader takes a node that a worker needs, and the first rack is too small."""
    rule = 'gang by pod.label.job size 3 within one rack if pod.label.job\nscore 100 if node.name == "b1"\n'
    racks = [node("a1", 3), node("a2", 3), node("b1", 3), node("b2", 3), node("b3", 2)]
    for each in racks:
        each["labels"] = {"rack": each["name"][0]}
    waiting = [{"cpu": cpu, "labels": {"job": "x"}} for cpu in (2, 3, 3)]
    there = seats(racks, waiting, policy=FITS + rule)
    found = there.seat_all(there.there.pending())
    assert found.rejected == {}
    assert sorted(found.placed.values()) == ["b1", "b2", "b3"]


def test_a_gang_that_does_not_fit_whole_gets_nothing() -> None:
    gang = FITS + "gang by pod.label.job size 2 if pod.label.job\n"
    there = seats(
        [node("a")], [{"cpu": 3, "labels": {"job": "x"}}, {"cpu": 30, "labels": {"job": "x"}}, {"cpu": 2}], policy=gang
    )
    found = pending_pods(there, waiting(there), node_shapes(there.cluster, most=6), most=5)
    assert [one.pods for one in found.rejected]
    assert found.needed[0].seated <= 1


def test_shapes_are_told_apart_by_shared_labels_only() -> None:
    nodes = [node(f"n{at}", labels={"pool": "x" if at < 4 else "y", "serial": f"s{at}"}) for at in range(6)]
    there = seats([*nodes, node("gone", unschedulable=True)])
    assert [(one.like, one.nodes) for one in node_shapes(there.cluster, most=6)] == [("n0", 4), ("n4", 2)]


# --- a zone is lost --------------------------------------------------------------------------------------


ZONES = [node("a", zone="x"), node("b", zone="y"), node("c", zone="z")]


def lost(there: Seats, zone: str, **more: Any) -> Loss:
    return lose(there, "topology.kubernetes.io/zone", zone, most=100, **more)


def test_all_pods_of_a_lost_zone_find_a_place() -> None:
    there = seats(ZONES, [on("a", 2), on("a", 1, owner="DaemonSet/x"), on("b", 3), on("c", 2)])
    before = state(there)
    found = lost(there, "x")
    assert (found.nodes, found.pods, found.placed, found.unplaced, found.bound, found.gone) == (1, 1, 1, 0, 0, 0)
    assert state(there) == before


@pytest.mark.parametrize(
    ("pods", "says", "problems"),
    [
        ([], "every pod finds a place", []),
        ([{"cpu": 1, "node": "a"}], "1 pod never comes back: no controller creates it again", ["without"]),
        ([on("a", 4)], "1 pod has no place", ["without"]),
        (
            [on("a", 3), {"cpu": 1, "node": "a"}],
            "1 pod has no place, and 1 pod never comes back: no controller creates it again",
            ["without"],
        ),
    ],
)
def test_no_report_says_that_every_pod_finds_a_place_if_some_are_gone(
    pods: list[Json], says: str, problems: list[str]
) -> None:
    there = seats(ZONES, [*pods, on("b", 3), on("c", 3)])
    found = Capacity(losses=(lost(there, "x"),))
    assert headline(found).endswith(f"the loss of topology.kubernetes.io/zone=x: {says}")
    assert [text.split()[0] for text in found.problems] == problems
    text = "\n".join(report_lines(found, to=Terminal(), most=9))
    assert (", every pod finds a place" in text) is (not problems)
    every = Capacity(losses=tuple(lost(there, zone) for zone in "xyz"))
    assert ("every pod finds a place" in headline(every)) is not any(loss.missing for loss in every.losses)


def test_no_report_says_that_every_pod_finds_a_place_if_not_all_were_decided() -> None:
    stopped = Capacity(losses=(lost(seats(ZONES, [on("a", 2)]), "x", stop=lambda: True),))
    assert stopped.losses[0].placed == 0
    assert "every pod finds a place" not in "\n".join(report_lines(stopped, to=Terminal(), most=9)) + headline(stopped)


@pytest.mark.parametrize(
    ("nodes", "pod", "policy"),
    [
        ([node("a", unschedulable=True)], {"tolerations": ["node.kubernetes.io/unschedulable:NoSchedule"]}, FITS),
        ([node("a", ready=False)], {}, ""),
        ([node("a", taints=["k=v:NoSchedule"]), node("b")], {"tolerations": ["k=v:NoSchedule"]}, FITS),
        ([node("a", taints=["k=v:NoSchedule"]), node("b")], {}, FITS),
    ],
)
def test_no_bound_is_below_what_is_placed(nodes: list[Json], pod: Json, policy: str) -> None:
    there = seats(nodes, policy=policy)
    found = more_copies(there, a_pod(there, **pod), most=100)
    assert found.count == found.bound > 0


def test_with_preemption_no_bound_is_above_what_has_no_place() -> None:
    pods = [on("a", 2, priority=9), on("a", 2, priority=9), on("b", 4, priority=0), on("c", 4, priority=9)]
    found = lost(seats(ZONES, pods), "x", preempts=True)
    assert (found.evicted, found.unplaced) == (1, 1)
    assert found.bound <= found.unplaced


def test_pods_without_a_place_and_the_nodes_that_they_need() -> None:
    there = seats(
        ZONES, [on("a", 2), on("a", 2), on("b", 4), on("c", 2), {"cpu": 1, "node": "a", "resources": {"cpu": "0"}}]
    )
    found = lost(there, "x", shapes=node_shapes(there.cluster, most=6))
    assert (found.placed, found.unplaced, found.bound, found.gone) == (1, 1, 1, 1)
    assert [one.shape.like for one in found.needed] == ["b", "c"]
    assert all(one.nodes == one.seated == 1 for one in found.needed)


def test_the_most_important_pods_come_first_and_may_preempt() -> None:
    pods = [on("a", 4, priority=10), on("a", 4, priority=5), on("b", 4, priority=0), on("c", 4, priority=7)]
    there = seats(ZONES, pods)
    before = state(there)
    plain, found = lost(there, "x"), lost(there, "x", preempts=True)
    assert (plain.unplaced, plain.evicted) == (2, 0)
    assert (found.unplaced, found.evicted) == (2, 1)
    assert [one.example for one in found.rejected] == ["default/p1"] or found.rejected[0].pods == 2
    assert state(there) == before


@given(
    cpus=st.lists(st.integers(1, 6), min_size=2, max_size=6),
    pods=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=14),
    pack=st.booleans(),
)
def test_answers_stay_within_their_bounds_and_leave_no_trace(
    cpus: list[int], pods: list[tuple[int, int]], pack: bool
) -> None:
    nodes = [node(f"n{at}", cpu, zone=f"z{at % 2}") for at, cpu in enumerate(cpus)]
    free = list(cpus)
    forms: list[Json] = []
    for at, cpu in pods:
        fits = at < len(free) and free[at] >= cpu
        if fits:
            free[at] -= cpu
        forms.append(on(f"n{at}", cpu) if fits else {"cpu": cpu, **OWNER})
    there = seats(nodes, forms, policy=PACK if pack else FITS)
    before = state(there)
    shapes = node_shapes(there.cluster, most=6)
    copies = more_copies(there, a_pod(there), most=1000)
    assert copies.count == copies.bound == sum(free)
    gone = removable_nodes(there)
    assert len(gone.removable) <= gone.bound
    need = pending_pods(there, waiting(there), shapes, most=100)
    assert need.fit_now + sum(one.pods for one in need.rejected) == need.pods
    for each in need.needed:
        assert each.bound <= each.nodes
        assert each.seated + sum(one.pods for one in each.without) == need.pods - need.fit_now
    loss = lost(there, "z0")
    assert loss.unplaced >= loss.bound
    assert loss.placed + loss.unplaced == loss.pods
    assert state(there) == before
    assert nodes_needed(there, [], shapes, most=5) == ()


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    things = things_of([node("a", zone="x"), node("b", zone="y")], [on("a"), on("b", 2)])
    kinds = {objects.Node: "Node", objects.Pod: "Pod"}
    items = [{"apiVersion": "v1", "kind": kinds[type(one)], **msgspec.to_builtins(one)} for one in things]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "pod.yaml").write_text("{name: web, cpu: 1}")
    (tmp_path / "a.policy").write_text(FITS)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--policies", "a.policy", "--removable"], 0),
        (["--pod", "pod.yaml"], 0),
        (["--pod", "pod.yaml", "--at-least", "5"], 0),
        (["--pod", "pod.yaml", "--at-least", "6"], 1),
        (["--pending", "--like", "c"], 2),
        (["--lose", "rack"], 2),
        (["--lose", "topology.kubernetes.io/zone=q"], 2),
        (["--at-least", "6"], 2),
        (["--pod", "none.yaml"], 2),
    ],
)
def test_exit_codes(folder: Path, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "--cluster", "c.json", *arguments]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_json_has_the_answers_that_were_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capacity", "--cluster", "c.json", "--removable", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["more"] is None
    assert found["complete"] is True
    assert found["removable"]["removable"] == [
        {"node": "a", "pods": 1, "moves": [{"pod": "default/p0", "to": "b"}], "hourly": None},
    ]


def test_the_cheapest_mix_of_shapes_is_proposed_and_placed() -> None:
    """Three small pods fit a small node for 1; one large pod needs a large node for 3: together 4, alone 6."""
    nodes = [priced("small", 3, "1"), priced("large", 8, "3")]
    full = [on("small", 3), on("large", 8)]
    there = seats(nodes, [*full, *({"cpu": 1} for _ in range(3)), {"cpu": 8}], policy=PACK)
    found = pending_pods(there, there.there.pending(), node_shapes(there.cluster, most=6), most=100, solve=solver())
    assert found.mix is not None
    assert {part.shape.like: part.nodes for part in found.mix.parts} == {"large": 1, "small": 1}
    assert (found.mix.seated, found.mix.hourly, round(found.mix.bound, 6)) == (4, 4.0, 4.0)
    assert mix_sentence(found.mix, 4, "USD").startswith("Cheapest mix found: 1 like large and 1 like small, 4.00 USD")
    assert pending_pods(there, there.there.pending(), [], most=100).mix is None


def priced(name: str, cpu: int, price: str) -> Json:
    return node(name, cpu, annotations={PRICE_KEY: price})


def test_the_bound_sees_that_pods_fill_nodes_badly() -> None:
    """Only two pods of 2 fit a node of 5: five pods need three nodes, though two have as much cpu."""
    there = seats([{"name": "a", "cpu": 5, "mem": "64Gi"}], [on("a", 5), *({"cpu": 2} for _ in range(5))], policy=PACK)
    shapes = node_shapes(there.cluster, most=6)
    (simple,) = pending_pods(there, there.there.pending(), shapes, most=100).needed
    (closer,) = pending_pods(there, there.there.pending(), shapes, most=100, solve=solver()).needed
    assert (simple.nodes, simple.bound, closer.bound) == (3, 2, 3)


@given(
    cpus=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    taken=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 8)), max_size=8),
    waiting=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8)), max_size=6),
)
def test_bounds_by_programs_are_closer_and_no_answer_beats_them(
    cpus: list[int], taken: list[tuple[int, int, int]], waiting: list[tuple[int, int]]
) -> None:
    nodes = [{"name": f"n{at}", "cpu": cpu, "mem": "12Gi", "zone": f"z{at % 2}"} for at, cpu in enumerate(cpus)]
    pods: list[Json] = [
        on(f"n{at % len(cpus)}", cpu, mem=f"{memory}Gi") for at, cpu, memory in taken if cpu <= cpus[at % len(cpus)]
    ]
    pods += [{"cpu": cpu, "mem": f"{memory}Gi"} for cpu, memory in waiting]
    there, solve = seats(nodes, pods), solver()
    before = state(there)
    plain, close = removable_nodes(there), removable_nodes(there, solve=solve)
    assert len(close.removable) <= close.bound <= plain.bound
    for value in ("z0", "z1"):
        loss, other = (lose(there, ZONE_LABEL, value, most=9, solve=one) for one in (solve, None))
        assert other.bound <= loss.bound <= loss.unplaced
    shapes = node_shapes(there.cluster, most=4)
    needs = [pending_pods(there, there.there.pending(), shapes, most=50, solve=one) for one in (solve, None)]
    for closer, simple in zip(*(one.needed for one in needs), strict=True):
        assert simple.bound <= closer.bound <= closer.nodes
    mix = needs[0].mix
    if mix is not None:
        assert mix.bound <= mix.cost + 1e-6
        assert mix.seated >= needs[0].needed[0].seated
        assert mix.seated > needs[0].needed[0].seated or mix.nodes <= needs[0].needed[0].nodes
    assert state(there) == before
