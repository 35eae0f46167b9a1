"""`limit`: of some pods, of all pods together, and in each domain."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.preemption import nomination_after
from kube_policy_scheduler.lang.compiling.compiled import CompiledQuota
from kube_policy_scheduler.policy.clauses import DomainLimitClause
from tests.lang.clusters import NOW, cluster, decide, feasible, node, pod, policy

ZONE = "topology.kubernetes.io/zone"
BATCH, WEB = {"tier": "batch"}, {"tier": "web"}


def three_nodes():  # type: ignore[no-untyped-def]
    return cluster(
        node("a1", labels={ZONE: "a", "disk": "x"}), node("a2", labels={ZONE: "a"}), node("b1", labels={ZONE: "b"})
    )


def nodes_for(text: str, labels: dict[str, str], *there: tuple[str, dict[str, str]], **more: object) -> list[str]:
    """Return the nodes that a pod fits on, beside pods that are there: node and labels of each."""
    nodes = three_nodes()
    for number, (name, its) in enumerate(there):
        nodes.place(pod(nodes, f"there-{number}", labels=its), name)
    return feasible(decide(policy(text), pod(nodes, "new", labels=labels, **more), nodes), nodes)


ALL = ["a1", "a2", "b1"]


@pytest.mark.parametrize(
    ("there", "labels", "fits"),
    [
        ([("a1", BATCH)], BATCH, ALL),
        ([("a1", BATCH), ("b1", BATCH)], BATCH, []),
        ([("a1", WEB), ("a1", WEB), ("b1", BATCH)], BATCH, ALL),
        ([("a1", BATCH), ("b1", BATCH)], WEB, ALL),
    ],
)
@pytest.mark.parametrize(
    "condition",
    ['pod.label.tier == "batch"', 'label.tier == "batch"', "pod label tier=batch", 'not label.tier != "batch"'],
)
def test_only_pods_that_meet_the_condition_count_and_are_limited(
    condition: str, there: Sequence[tuple[str, dict[str, str]]], labels: dict[str, str], fits: list[str]
) -> None:
    assert nodes_for(f"limit count() to 2 of pods where {condition}", labels, *there) == fits
    assert nodes_for(f"limit count() by pod.namespace to 2 of pods where {condition}", labels, *there) == fits


def test_a_condition_can_compare_with_the_pods_of_the_same_key() -> None:
    text = 'limit count() by pod.label.team to 1 of pods where pod.label.tier == "batch"'
    red, blue = {**BATCH, "team": "red"}, {**BATCH, "team": "blue"}

    assert nodes_for(text, red, ("a1", red)) == []
    assert nodes_for(text, blue, ("a1", red)) == ALL


@pytest.mark.parametrize(
    ("text", "labels", "there", "fits"),
    [
        ("limit count() to 1 over node", WEB, ["a1"], ["a2", "b1"]),
        ("limit count() to 1 over zone", WEB, ["a1"], ["b1"]),
        ("limit count() to 2 over zone", WEB, ["a1"], ALL),
        ("limit count() to 1 over disk", WEB, ["a1", "a2"], ["a2", "b1"]),
        ("limit count() by pod.label.tier to 1 over zone", BATCH, ["a1"], ALL),
        ('limit count() to 1 over zone of pods where pod.label.tier == "batch"', BATCH, ["a1"], ALL),
        ('limit count() to 1 over zone if pod.label.tier == "batch"', WEB, ["a1", "b1"], ALL),
    ],
)
def test_each_domain_has_the_limit(text: str, labels: dict[str, str], there: list[str], fits: list[str]) -> None:
    assert nodes_for(text, labels, *((name, WEB) for name in there)) == fits


def test_a_sum_is_limited_in_each_domain() -> None:
    nodes = three_nodes()
    nodes.place(pod(nodes, "there", requests={"cpu": "600m"}), "a1")
    limited = policy("limit sum(request.cpu) to 1 over zone")

    assert feasible(decide(limited, pod(nodes, "p", requests={"cpu": "600m"}), nodes), nodes) == ["b1"]
    assert feasible(decide(limited, pod(nodes, "q", requests={"cpu": "400m"}), nodes), nodes) == ALL


@given(
    there=st.lists(st.tuples(st.integers(1, 900), st.booleans()), max_size=4),
    asked=st.integers(1, 900),
    too_many=st.sampled_from([0, 1]),
    over=st.sampled_from(["", " over node", " over zone"]),
)
@example(there=[(100, False)], asked=200, too_many=0, over="")
def test_a_sum_counts_to_the_last_thousandth(
    there: list[tuple[int, bool]], asked: int, too_many: int, over: str
) -> None:
    """Floating-point numbers do not: 0.1 + 0.2 is more than 0.3."""
    nodes = three_nodes()
    for number, (millis, nominated) in enumerate(there):
        other = pod(nodes, f"there-{number}", requests={"cpu": f"{millis}m"})
        nodes.nominate(other, "a1") if nominated else nodes.place(other, "a1")
    bound = sum(millis for millis, _ in there) + asked - too_many
    limited = policy(f"limit sum(request.cpu) to {bound / 1000:.3f}{over}")

    found = feasible(decide(limited, pod(nodes, "new", requests={"cpu": f"{asked}m"}), nodes), nodes)

    assert ("a1" in found) is (not too_many)


@given(
    there=st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from(["batch", "web"])), max_size=7),
    bound=st.integers(0, 4),
    over=st.sampled_from(["node", "zone", None]),
    tier=st.sampled_from(["batch", "web"]),
    selects=st.booleans(),
)
def test_a_limit_counts_what_plain_python_counts(
    there: list[tuple[str, str]], bound: int, over: str | None, tier: str, selects: bool
) -> None:
    text = f"limit count() to {bound}" + (f" over {over}" if over else "")
    text += ' of pods where pod.label.tier == "batch"' if selects else ""

    found = nodes_for(text, {"tier": tier}, *((name, {"tier": its}) for name, its in there))

    counted = [name for name, its in there if its == "batch" or not selects]
    zone = {"a1": "a", "a2": "a", "b1": "b"}
    domain = {"node": lambda name: name, "zone": zone.get, None: lambda name: ""}[over]
    limited = tier == "batch" or not selects
    room = {name: sum(domain(name) == domain(other) for other in counted) + 1 <= bound for name in ALL}
    assert found == [name for name in ALL if room[name] or not limited]


def test_a_limit_in_domains_wakes_the_pods_that_it_rejected_and_names_them_a_reason() -> None:
    limited = policy('limit count() to 0 over node as few else "the node is full"')
    nodes = three_nodes()

    result = decide(limited, pod(nodes, "p"), nodes)

    assert {result.diagnosis.status(row).reasons for row in range(3)} == {("the node is full",)}
    events = limited.profile.wakes["few"]
    assert events is not None
    assert ClusterEvent.POD_DELETE in events
    assert ClusterEvent.SIGNALS not in events
    (clause,) = limited.clauses
    assert isinstance(clause, CompiledQuota)


def test_a_sum_in_domains_follows_pods_that_come_and_go() -> None:
    nodes = three_nodes()
    limited = policy('limit sum(request.cpu) to 1 over zone of pods where pod.label.tier == "batch"')

    def fits() -> list[str]:
        new = pod(nodes, "p", labels=BATCH, requests={"cpu": "600m"})
        return feasible(decide(limited, new, nodes), nodes)

    assert fits() == ALL
    nodes.place(pod(nodes, "web", labels=WEB, requests={"cpu": "900m"}), "a1")
    assert fits() == ALL
    nodes.place(pod(nodes, "one", labels=BATCH, requests={"cpu": "300m"}), "a1")
    nodes.place(pod(nodes, "two", labels=BATCH, requests={"cpu": "300m"}), "a2")
    assert fits() == ["b1"]
    nodes.displace("two")
    assert fits() == ALL
    nodes.set_node(node("c1", labels={ZONE: "a"}))
    nodes.place(pod(nodes, "three", labels=BATCH, requests={"cpu": "300m"}), "c1")
    assert fits() == ["b1"]


@pytest.mark.parametrize(
    ("nominated", "fits"),
    [
        (("first", BATCH, 1), []),
        (("first", BATCH, 0), []),
        (("first", BATCH, -1), ALL),  # it loses what it was to get to pods of higher priority
        (("first", WEB, 1), ALL),
        (("new", BATCH, 0), ALL),  # nobody waits for himself
        (("there", BATCH, 1), ALL),  # it has its place, and counts once
    ],
)
@pytest.mark.parametrize(
    "text", ["limit count() by pod.label.tier to 2", "limit sum(request.cpu) by pod.label.tier to 0.2"]
)
def test_a_limit_keeps_what_it_leaves_for_nominated_pods(
    text: str, nominated: tuple[str, dict[str, str], int], fits: list[str]
) -> None:
    nodes, (name, labels, priority) = three_nodes(), nominated
    nodes.place(pod(nodes, "there", labels=BATCH, requests={"cpu": "100m"}), "a1")
    other = pod(nodes, name, labels=labels, priority=priority, requests={"cpu": "100m"})
    nodes.nominate(other, "b1")
    limited = policy(text)
    asks = pod(nodes, "new", labels=BATCH, requests={"cpu": "100m"})
    assert feasible(decide(limited, asks, nodes), nodes) == fits
    nodes.nominate(other, "")
    assert feasible(decide(limited, asks, nodes), nodes) == ALL


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("limit count() by pod.label.tier to 1 over zone", ["b1"]),
        ("limit count() by pod.label.tier to 2 over zone", ALL),
        ("limit sum(request.cpu) by pod.label.tier to 0.5 over zone", ["b1"]),
        ("limit count() to 1 over node", ["a2", "b1"]),
        ('limit count() to 1 of pods where pod.node.zone == "a"', ["b1"]),
        ('limit count() to 1 of pods where pod.node.zone == "b"', ALL),
        ('limit count() to 1 over zone of pods where pod.label.tier == "web"', ALL),
        ("limit count(distinct node) by pod.label.tier to 1 over zone", ["a1", "b1"]),
        ("limit count(distinct zone) to 1", ["a1", "a2"]),
        ("limit count(distinct node) to 1", ["a1"]),
    ],
)
def test_a_limit_keeps_what_it_leaves_in_a_domain_for_nominated_pods(text: str, fits: list[str]) -> None:
    nodes, limited = three_nodes(), policy(text)
    asks = pod(nodes, "new", labels=BATCH)
    nodes.nominate(pod(nodes, "lower", labels=BATCH, priority=-1), "b1")
    assert feasible(decide(limited, asks, nodes), nodes) == ALL
    nodes.nominate(pod(nodes, "gone", labels=BATCH), "nowhere")
    nodes.nominate(pod(nodes, "first", labels=BATCH), "a1")
    assert feasible(decide(limited, asks, nodes), nodes) == fits
    nodes.place(pod(nodes, "first", labels=BATCH), "a1")
    assert feasible(decide(limited, asks, nodes), nodes) == fits


@pytest.mark.parametrize(
    "text",
    [
        "limit count() by pod.label.tier to 1",
        "limit sum(request.cpu) by pod.label.tier to 0.5",
        'queue batch for pods where pod.label.tier == "batch" max cpu 0.5',
    ],
)
def test_pods_that_evict_nobody_do_not_wait_for_what_each_keeps_from_the_other(text: str) -> None:
    nodes, limited = three_nodes(), policy(text)
    one, other = (pod(nodes, name, labels=BATCH, spec={"preemptionPolicy": "Never"}) for name in ("one", "other"))
    nodes.nominate(one, "a1")
    nodes.nominate(other, "b1")
    one = msgspec.structs.replace(one, nominated_node="a1")
    other = msgspec.structs.replace(other, nominated_node="b1")
    rejected = Cycle().decide(Frame(one, nodes, NOW), limited.profile)
    assert rejected.host is None
    assert nomination_after(rejected.preemption, one, nodes) == ""
    nodes.nominate(one, "")
    assert Cycle().decide(Frame(other, nodes, NOW), limited.profile).host == "b1"


@pytest.mark.parametrize(
    ("text", "there", "fits"),
    [
        ("limit count(distinct node) by pod.label.tier to 2", ["a1"], ALL),
        ("limit count(distinct node) by pod.label.tier to 2", ["a1", "a1", "b1"], ["a1", "b1"]),
        ("limit count(distinct node.name) to 1", ["a2", "a2"], ["a2"]),
        ("limit count(distinct zone) to 1", ["a1"], ["a1", "a2"]),
        ("limit count(distinct node.zone) to 0", [], []),
        ("limit count(distinct node.label.disk) to 0", [], ["a2", "b1"]),
        ("limit count(distinct node) to 1 over zone", ["a1"], ["a1", "b1"]),
        ('limit count(distinct node) to 1 of pods where pod.label.tier == "web"', ["a1"], ALL),
        ('limit count(distinct node) to 1 of pods where pod.node.zone == "a"', ["a1"], ["a1", "b1"]),
        ('limit count(distinct node) by pod.label.tier to 1 if pod.label.tier == "web"', ["a1"], ALL),
    ],
)
def test_different_nodes_are_limited(text: str, there: list[str], fits: list[str]) -> None:
    assert nodes_for(text, BATCH, *((name, BATCH) for name in there)) == fits


@pytest.mark.parametrize(
    ("text", "there", "fits"),
    [
        ('limit count() to 1 of pods where pod.node.zone == "a"', ["a1"], ["b1"]),
        ('limit count() to 2 of pods where pod.node.zone == "a"', ["a1", "b1", "b1"], ALL),
        ('limit count() to 1 over node of pods where pod.node.zone == "a"', ["a1", "b1"], ["a2", "b1"]),
        ('limit count() to 1 of pods where pod.node.zone == "a" and pod.label.tier == "web"', ["a1", "a2"], ALL),
        ('limit sum(request.cpu) to 1 of pods where pod.node.zone == "a"', ["a1"], ALL),
        ('limit sum(request.cpu) to 1 of pods where pod.node.zone == "a"', ["a1", "a2"], ["b1"]),
        ('limit sum(request.cpu) to 1 over zone of pods where pod.node.label.disk == "x"', ["a1", "a2"], ALL),
    ],
)
def test_a_limit_counts_the_pods_on_some_nodes(text: str, there: list[str], fits: list[str]) -> None:
    assert nodes_for(text, BATCH, *((name, BATCH) for name in there)) == fits


@given(
    there=st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from(["batch", "web"])), max_size=7),
    bound=st.integers(0, 3),
    counted=st.sampled_from(["node", "zone", "node.label.disk"]),
    over=st.sampled_from(["node", "zone", None]),
    by=st.booleans(),
)
def test_different_domains_are_those_that_plain_python_counts(
    there: list[tuple[str, str]], bound: int, counted: str, over: str | None, by: bool
) -> None:
    text = f"limit count(distinct {counted})" + (" by pod.label.tier" if by else "") + f" to {bound}"
    text += f" over {over}" if over else ""

    found = nodes_for(text, BATCH, *((name, {"tier": its}) for name, its in there))

    zone, disk = {"a1": "a", "a2": "a", "b1": "b"}, {"a1": "x"}
    inner = {"node": lambda name: name, "zone": zone.get, "node.label.disk": disk.get}[counted]
    outer = {"node": lambda name: name, "zone": zone.get, None: lambda name: ""}[over]
    known = {(outer(name), inner(name)) for name, its in there if its == "batch" or not by}

    def fits(name: str) -> bool:
        if inner(name) is None or (outer(name), inner(name)) in known:
            return True
        return sum(where == outer(name) and what is not None for where, what in known) + 1 <= bound

    assert found == [name for name in ALL if fits(name)]


def test_new_nodes_do_not_help_who_has_all_nodes_that_he_may_have() -> None:
    nodes = three_nodes()
    nodes.place(pod(nodes, "there", labels=BATCH), "a1")
    frame = Frame(pod(nodes, "new", labels=BATCH), nodes, NOW)
    limits = {
        "limit count(distinct node) by pod.label.tier to 1": False,
        "limit count(distinct node) by pod.label.tier to 2": True,
        "limit count(distinct node) to 1 over zone": True,
        'limit count() to 1 of pods where pod.node.label.disk == "x"': True,
    }

    for text, helps in limits.items():
        (plugin,) = [each for each in policy(text).profile.filters if isinstance(each, DomainLimitClause)]
        assert (plugin.rejects_new_nodes(frame, 1, None) is None) is helps, text
