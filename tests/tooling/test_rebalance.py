"""`policyctl rebalance`: moves that are proved before they are made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion
from kube_policy_scheduler.policy.answer import Answers
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.rebalancing import plan as plan_module
from kube_policy_scheduler.tooling.rebalancing import report
from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets
from kube_policy_scheduler.tooling.rebalancing.plan import Plan, RebalanceOptions, Stays, plan
from kube_policy_scheduler.tooling.text_table import Terminal
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.objects import node as api_node
from tests.integration.objects import pod as api_pod
from tests.tooling import random_moves
from tests.tooling.test_capacity import budget
from tests.tooling.worlds import ruleset, things_of

Json = dict[str, Any]
LEAST = "filter fits()\nscore least_allocated(cpu)\n"
MOST = "filter fits()\nscore most_allocated(cpu)\n"
SSD = "filter fits() and label disk=ssd\n"
PLENTY = MoveBudgets(100, 100, 100, 100)


def node(name: str, cpu: int = 4, **more: Any) -> Json:
    return {"name": name, "cpu": cpu, "mem": "64Gi", **more}


def on(name: str, cpu: Any, workload: str = "web", **more: Any) -> Json:
    return {"cpu": cpu, "node": name, "owner": f"ReplicaSet/{workload}", **more}


def planned(there: ClusterState, policy: str, **options: Any) -> Plan:
    given = {"margin": 10.0, "now": 1000.0, "budgets": PLENTY} | options
    return plan(there, RebalanceOptions(ruleset("a", policy), **given))


def world(nodes: Sequence[Json], pods: Sequence[Json], *more: Any) -> ClusterState:
    return cluster_state([*things_of(nodes, pods), *more])


def moves(found: Plan) -> list[tuple[str, str, str]]:
    return [(move.pod.removeprefix("default/"), move.source, move.target) for move in found.moves]


HDD_SSD = [node("a", labels={"disk": "hdd"}), node("b", labels={"disk": "ssd"})]
WEB_APART = {
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
                ]
            }
        }
    },
    "labels": {"app": "web"},
}


def test_a_refused_pod_goes_where_there_is_room() -> None:
    found = planned(world(HDD_SSD, [on("a", 1)]), SSD)
    assert moves(found) == [("p0", "a", "b")]
    assert found.moves[0].rejected
    assert (found.moves[0].margin, found.moves[0].place) == (None, "a.policy:1:1")


def test_a_refused_pod_without_a_place_stays() -> None:
    found = planned(world(HDD_SSD, [on("a", 1), on("b", 4)]), SSD)
    assert (moves(found), dict(found.stay)) == ([], {Stays.NOWHERE: 1})


def test_each_alone_would_gain_but_after_the_first_the_second_gains_nothing() -> None:
    found = planned(world([node("a"), node("b")], [on("a", 1), on("a", 1, "other")]), LEAST)
    assert len(found.moves) == 1
    assert found.moves[0].margin == 25


def test_an_overfull_node_is_no_reason_if_the_other_would_be_as_full() -> None:
    assert moves(planned(world([node("a"), node("b")], [on("a", 3)]), LEAST)) == []


def test_anti_affine_pods_stay_and_the_others_move_until_nothing_is_gained() -> None:
    pods = [on("a", 1, "web", **WEB_APART), on("a", 1, "db"), on("a", 1, "x"), on("b", 1, "web", **WEB_APART)]
    found = planned(world([node("a"), node("b")], pods), LEAST)
    assert [(source, target) for _, source, target in moves(found)] == [("a", "b")]
    assert moves(found)[0][0] in ("p1", "p2")
    assert found.moves[0].margin == 25


def test_a_replacement_that_returns_while_the_old_pod_terminates_is_not_moved() -> None:
    pods = [on("a", 2), on("b", "1500m", owner="DaemonSet/logs")]
    found = planned(world([node("a"), node("b")], pods), MOST)
    assert (moves(found), dict(found.stay)) == ([], {Stays.RETURNS: 1})


def test_it_returns_because_a_pod_that_terminates_counts_no_longer_where_it_spreads() -> None:
    """`spread` and its like leave out pods that terminate; a decision beside one that runs says otherwise."""
    zones = [node("a", zone="x"), node("b", zone="y")]
    pods = [on("a", 2, labels={"app": "web"}), on("b", 1, owner="DaemonSet/logs")]
    spreads = "filter fits()\nscore 100 * node.used_fraction.cpu\nspread by pod.label.app over zone\n"
    found = planned(world(zones, pods), spreads)
    assert (moves(found), dict(found.stay)) == ([], {Stays.RETURNS: 1})


@pytest.mark.parametrize(
    ("pending", "says"),
    [
        ([8], "1 pending pod has no place now"),
        ([8, 9], "2 pending pods have no place now"),
        ([1], "1 of 1 pending pod has a place, which stays free"),
        ([1, 8], "1 of 2 pending pods has a place, which stays free"),
        ([1, 1, 8], "2 of 3 pending pods have a place: these places stay free"),
    ],
)
def test_of_pending_pods_is_said_what_is_true(pending: list[int], says: str) -> None:
    found = planned(world([node("a"), node("b")], [{"cpu": cpu} for cpu in pending]), LEAST)
    assert says in list(report.lines(found, to=Terminal(), most=9))


def test_one_free_node_takes_one_of_ten_refused_pods() -> None:
    nodes = [*(node(f"a{at}", labels={"disk": "hdd"}) for at in range(10)), HDD_SSD[1]]
    found = planned(world(nodes, [on(f"a{at}", 3, f"w{at}") for at in range(10)]), SSD)
    assert len(found.moves) == 1
    assert dict(found.stay) == {Stays.NOWHERE: 9}


@pytest.mark.parametrize(("ties", "targets", "equally_good"), [("", {"b", "c"}, 2), ("ties by name\n", {"b"}, 1)])
def test_several_nodes_that_are_as_good_are_each_better_than_its_own(
    ties: str, targets: set[str], equally_good: int
) -> None:
    there = world([node("a"), node("b"), node("c")], [on("a", 1), on("a", 2, "other")])
    found = planned(there, ties + LEAST)
    assert len(found.moves) == 1
    assert found.moves[0].target in targets
    assert (found.moves[0].equally_good, found.moves[0].margin) == (equally_good, 50)


def test_nodes_that_are_as_good_as_its_own_are_no_reason() -> None:
    assert moves(planned(world([node("a"), node("b"), node("c")], [on("a", 1)]), LEAST, margin=0.0)) == []


# --- what else speaks against a move ---------------------------------------------------------------------


def test_pending_pods_are_seated_first() -> None:
    there = world(HDD_SSD, [on("a", 3), {"cpu": 3, "owner": "ReplicaSet/y"}])
    found = planned(there, SSD)
    assert (moves(found), found.pending, found.pending_placed) == ([], 1, 1)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "annotation karpenter.sh/do-not-disrupt=true"),
        ({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}, "local storage (tmp)"),
        ({"owner": "Node/a"}, None),
        ({"owner": "DaemonSet/x"}, None),
        ({"scheduler": "other"}, None),
    ],
)
def test_pods_that_stay(form: Json, why: str | None) -> None:
    found = planned(world(HDD_SSD, [on("a", 1, **form)] if "owner" not in form else [{**on("a", 1), **form}]), SSD)
    assert moves(found) == []
    assert list(found.stay) == ([why] if why else [])


def test_a_pod_without_a_controller_stays() -> None:
    found = planned(world(HDD_SSD, [{"cpu": 1, "node": "a"}]), SSD)
    assert list(found.stay) == ["no controller creates it again"]


def test_budgets_bound_a_pass() -> None:
    nodes = [node("a", 64, labels={"disk": "hdd"}), node("b", 64, labels={"disk": "ssd"})]
    pods = [on("a", 1, f"w{at // 4}", namespace=f"n{at // 8}") for at in range(16)]
    for limits, count in (
        (MoveBudgets(3, 99, 99, 99), 3),
        (MoveBudgets(99, 5, 99, 99), 5),
        (MoveBudgets(99, 99, 2, 99), 8),
        (MoveBudgets(99, 99, 99, 3), 6),
        (MoveBudgets(0, 99, 99, 99), 0),
    ):
        found = planned(world(nodes, pods), SSD, budgets=limits)
        assert len(found.moves) == count, limits
        assert sum(found.stay.values()) == 16 - count


@pytest.mark.parametrize(("allowed", "count"), [(0, 0), (1, 1), (2, 2), (9, 4)])
def test_disruption_budgets_bound_a_pass(allowed: int, count: int) -> None:
    nodes = [node("a", 64, labels={"disk": "hdd"}), node("b", 64, labels={"disk": "ssd"})]
    pods = [on("a", 1, labels={"app": "web"}) for _ in range(4)]
    assert len(planned(world(nodes, pods, budget("x", allowed, app="web")), SSD).moves) == count


def test_a_workload_rests_while_one_of_its_pods_is_young() -> None:
    pods = [on("a", 1, created="1970-01-01T00:00:10Z"), on("b", 1, created="1970-01-01T00:15:00Z")]
    assert list(planned(world(HDD_SSD, pods), SSD, rest_seconds=600).stay) == [Stays.RESTS]
    assert len(planned(world(HDD_SSD, pods), SSD, rest_seconds=60).moves) == 1


def test_a_pod_is_not_moved_back_to_a_node_that_its_workload_left() -> None:
    there = world(HDD_SSD, [on("a", 1)])
    found = planned(there, SSD, left={"default/ReplicaSet/web": frozenset({"b"})})
    assert list(found.stay) == [Stays.WAS_THERE]


def test_with_reserved_room_a_node_as_good_takes_the_place_of_one_that_its_workload_left() -> None:
    there = world([HDD_SSD[0], HDD_SSD[1], node("c", labels={"disk": "ssd"})], [on("a", 1)])
    left = {"default/ReplicaSet/web": frozenset({"b"})}
    assert list(planned(there, SSD, left=left).stay) == [Stays.WAS_THERE]
    assert moves(planned(there, SSD, left=left, reserves=True)) == [("p0", "a", "c")]


def test_members_of_a_gang_stay() -> None:
    pods = [on("a", 1, labels={"job": "x"}), on("a", 1, labels={"job": "x"})]
    found = planned(world(HDD_SSD, pods), SSD + "gang by pod.label.job size 2 if pod.label.job\n")
    assert dict(found.stay) == {Stays.IN_A_GANG: 2}


@pytest.mark.parametrize(("size", "moves_on"), [(1, True), (2, False)])
@pytest.mark.parametrize("minor", [36, 37])
def test_pods_of_a_podgroup_that_any_of_them_completes_are_moved(size: int, moves_on: bool, minor: int) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
    group = msgspec.convert({"metadata": {"name": "g", "namespace": "default"}, "spec": spec}, objects.PodGroup)
    pods = [on("a", 1, spec={"schedulingGroup": {"podGroupName": "g"}}) for _ in range(2)]
    rules = KubernetesRules(KubernetesVersion(minor))
    found = planned(cluster_state([*things_of(HDD_SSD, pods), group], rules), SSD)
    assert bool(found.moves) is moves_on


def test_the_work_can_be_stopped() -> None:
    found = plan(world(HDD_SSD, [on("a", 1)]), RebalanceOptions(ruleset("a", SSD), 10, 0.0), stop=lambda: True)
    assert (found.moves, found.complete) == ((), False)


def test_what_was_found_before_the_stop_is_kept() -> None:
    asked = iter([False] * 5)
    there = world(HDD_SSD, [on("a", 1, "w1"), on("a", 1, "w2"), on("a", 1, "w3")])
    options = RebalanceOptions(ruleset("a", SSD), 10, 0.0, budgets=PLENTY)
    found = plan(there, options, stop=lambda: next(asked, True))
    assert (moves(found), found.complete) == ([("p0", "a", "b"), ("p1", "a", "b")], False)


# --- laws ------------------------------------------------------------------------------------------------


POLICIES = [
    LEAST,
    MOST,
    "filter fits()\nspread by pod.label.app\n",
    "filter fits()\nscore 30 if label disk=ssd\nscore least_allocated(cpu)\n",
    'filter fits() and (label disk=ssd or pod.label.app != "a")\nscore most_allocated(cpu)\n',
]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    count = draw(st.integers(2, 5))
    nodes = [
        node(f"n{at}", draw(st.integers(2, 8)), labels={"disk": draw(st.sampled_from(["ssd", "hdd"]))})
        for at in range(count)
    ]
    free = [one["cpu"] for one in nodes]
    pods: list[Json] = []
    for at in range(draw(st.integers(0, 10))):
        where, cpu = draw(st.integers(0, count - 1)), draw(st.integers(1, 3))
        if free[where] >= cpu:
            free[where] -= cpu
            workload = draw(st.sampled_from("abc"))
            pods.append(on(f"n{where}", cpu, f"{workload}{at}", labels={"app": workload}))
    return nodes, pods


@given(made=clusters(), policy=st.sampled_from(POLICIES), margin=st.sampled_from([0.0, 5.0, 20.0]))
def test_no_move_is_undone_by_a_later_pass_and_the_passes_end(
    made: tuple[list[Json], list[Json]], policy: str, margin: float
) -> None:
    nodes, pods = made
    were: dict[str, list[str]] = {}
    left: dict[str, frozenset[str]] = {}
    for _ in range(60):
        there = world(nodes, pods)
        before = {uid: there.cluster.node_of(uid) for uid in there.cluster.pods}
        found = planned(there, policy, margin=margin, left=left)
        assert {uid: there.cluster.node_of(uid) for uid in there.cluster.pods} == before
        if not found.moves:
            return
        again = planned(world(nodes, pods), policy, margin=margin, left=left)
        assert again.moves == found.moves, "the same cluster gives the same plan"
        for move in found.moves:
            at = int(move.pod.removeprefix("default/p"))
            assert pods[at]["node"] == move.source != move.target
            were.setdefault(move.pod, [move.source])
            assert move.target not in were[move.pod], "it was there before"
            were[move.pod].append(move.target)
            left[move.workload] = left.get(move.workload, frozenset()) | {move.source}
            pods[at] = {**pods[at], "node": move.target}
    pytest.fail("the passes do not end")


@given(made=clusters(), policy=st.sampled_from(POLICIES), margin=st.sampled_from([0.0, 5.0]), seed=st.integers(0, 99))
def test_where_the_scheduler_puts_each_replacement_no_move_is_undone(
    made: tuple[list[Json], list[Json]], policy: str, margin: float, seed: int
) -> None:
    nodes, pods = made
    rules, were, left = ruleset("a", policy), dict[str, list[str]](), dict[str, frozenset[str]]()
    one = msgspec.structs.replace(PLENTY, total=1)
    for _ in range(60):
        found = planned(world(nodes, pods), policy, margin=margin, budgets=one, left=left)
        if not found.moves:
            return
        move = found.moves[0]
        at = int(move.pod.removeprefix("default/p"))
        waiting = {**{key: value for key, value in pods[at].items() if key != "node"}, "name": f"again-{seed}"}
        there = world(nodes, [*pods[:at], *pods[at + 1 :], waiting])
        pod = next(iter(there.pending()))
        governing = rules.rules(pod)
        assert governing is not None
        host = Answers(seed=seed).answer(DecisionInputs(pod, there.cluster, governing, now=1000.0)).host
        assert host is not None
        assert host == move.target or move.equally_good > 1
        were.setdefault(move.pod, [move.source])
        assert host not in were[move.pod], "it was there before"
        were[move.pod].append(host)
        left[move.workload] = left.get(move.workload, frozenset()) | {move.source}
        pods[at] = {**pods[at], "node": host}
    pytest.fail("the passes do not end")


@given(made=clusters(), policy=st.sampled_from(POLICIES))
def test_after_a_pass_its_moves_are_where_the_next_pass_leaves_them(
    made: tuple[list[Json], list[Json]], policy: str
) -> None:
    nodes, pods = made
    found = planned(world(nodes, pods), policy)
    for move in found.moves:
        at = int(move.pod.removeprefix("default/p"))
        pods[at] = {**pods[at], "node": move.target}
    moved = {move.pod for move in found.moves}
    following = planned(world(nodes, pods), policy, budgets=msgspec.structs.replace(PLENTY, total=1))
    assert following.moves[:1] == () or following.moves[0].pod not in moved


@pytest.mark.long
def test_on_random_clusters_no_move_is_undone() -> None:
    assert sum(random_moves.check(seed) for seed in range(200)) > 150


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    things = things_of(HDD_SSD, [on("a", 1), on("a", 1, "db")])
    kinds = {objects.Node: "Node", objects.Pod: "Pod"}
    items = [{"apiVersion": "v1", "kind": kinds[type(one)], **msgspec.to_builtins(one)} for one in things]
    Path("c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    Path("a.policy").write_text(SSD)
    Path("all.policy").write_text("filter fits()\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--policies", "a.policy"], 1),
        (["--policies", "a.policy", "--most", "0"], 0),
        (["--policies", "all.policy"], 1),
        (["--policies", "all.policy", "--margin", "99"], 0),
        (["--policies", "all.policy", "--refused-only"], 0),
        (["--policies", "a.policy", "-n", "shop"], 0),
        (["--policies", "a.policy", "--apply"], 2),
        (["--policies", "a.policy", "--rest", "soon"], 2),
        ([], 2),
    ],
)
def test_exit_codes(folder: Path, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rebalance", "--cluster", "c.json", *arguments]) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[tuple[SecureCluster, str]]:
    def owned(name: str, **labels: str) -> Json:
        made = api_pod(name, cpu="1", nodeName="a", labels=labels)
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        ]
        made["status"] = {"phase": "Running"}
        return made

    pdb: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "free", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0},
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 0,
                   "expectedPods": 1},
    }  # fmt: skip
    with SecureCluster(kubelets=None, controllers=None).in_thread() as cluster:
        cluster.load([api_node("a", labels={"disk": "hdd"}), api_node("b", labels={"disk": "ssd"})])
        cluster.load([owned("one", app="web"), owned("two", app="db"), pdb])
        path = tmp_path / "kubeconfig"
        cluster.kubeconfig(path)
        yield cluster, str(path)


def test_pods_are_evicted_only_with_apply(
    kubeconfig: tuple[SecureCluster, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, path = kubeconfig
    asked = ["rebalance", "--kubeconfig", path, "--policies", "a.policy", "--rest", "0s", "--format", "json"]
    assert run(asked) == 1
    dry = json.loads(capsys.readouterr().out)
    assert dry["dryRun"] is True
    assert {move["pod"] for move in dry["moves"]} == {"default/one", "default/two"}
    assert run([*asked, "--apply"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert {move["outcome"] for move in done["moves"]} == {"evicted"}
    assert run([*asked, "--apply"]) == 0
    assert json.loads(capsys.readouterr().out)["moves"] == []


def test_proofs_of_many_moves_of_one_kind_grow_with_their_number_not_its_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replacements that are alike, on one node, are asked about once."""
    decisions: list[int] = []
    ranked = Seats.ranked

    def counting(seats: Seats, pod: Any) -> Any:
        decisions[-1] += 1
        return ranked(seats, pod)

    monkeypatch.setattr(Seats, "ranked", counting)
    for count in (20, 40, 80):
        decisions.append(0)
        pods = [on("a", "100m") for _ in range(count)]
        there = world([node("a", 16, labels={"disk": "hdd"}), node("b", 16, labels={"disk": "ssd"})], pods)
        assert len(planned(there, SSD).moves) == count
    assert decisions[1] < 2.5 * decisions[0]
    assert decisions[2] < 2.5 * decisions[1]


def test_a_pass_proves_only_so_much_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "MOST_PROOFS", 4)
    pods = [on("a", "100m", f"w{at}") for at in range(6)]
    there = world([node("a", labels={"disk": "hdd"}), node("b", labels={"disk": "ssd"})], pods)
    found = planned(there, SSD)
    assert 1 < len(found.moves) < 6
    assert found.stay == {Stays.MANY_MOVES: 6 - len(found.moves)}
