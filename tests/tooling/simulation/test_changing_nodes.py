"""Nodes come and go in virtual time: by a file of events, by the times of a trace, and by an autoscaler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.trace import parse_nodes, parse_pods
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.tooling.simulation.autoscaling import parse_autoscaling
from kube_policy_scheduler.tooling.simulation.node_events import parse_node_events
from kube_policy_scheduler.tooling.simulation.run import Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from kube_policy_scheduler.tooling.simulation.trace import replayed
from kube_policy_scheduler.tooling.tuning.samples import by_time
from tests.tooling.simulation.scenarios import node, pod, variant

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}


def owned(made: objects.Pod, **owner: Any) -> objects.Pod:
    owners = [msgspec.convert({**OWNER, **owner}, objects.OwnerReference)]
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=owners))


def source(value: Any) -> Source:
    return Source("file.yaml", yaml.safe_dump(value))


def simulated(
    arrivals: list[Arrival],
    *,
    nodes: list[Any],
    by: str | None = None,
    events: list[dict[str, Any]] | None = None,
    bare_pods: str = "end",
    shapes: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Run:
    scenario = Scenario(nodes, arrivals)
    changes: dict[str, Any] = {}
    if events is not None:
        names = [each.metadata.name for each in nodes]
        changes["node_events"] = parse_node_events(source({"events": events, "bare_pods": bare_pods}), nodes=names)
    if shapes is not None:
        changes["autoscaling"] = parse_autoscaling(source({"shapes": shapes, **more}), things=nodes)
    who = variant(by) if by is not None else PolicyVariant("kubernetes")
    return run(Scenario(nodes, scenario.arrivals, **changes), who, seed=0, stopwatch=lambda: 0.0)


# --- events ----------------------------------------------------------------------------------------------


def test_a_pod_waits_until_a_node_comes() -> None:
    events = [{"at": "30s", "add": {"name": "b", "cpu": 8, "mem": "8Gi"}}]
    found = simulated([Arrival(0, "p", pod(cpu="8"), 10)], nodes=[node("a")], events=events)
    assert found.wait_seconds == (30,)
    assert (found.samples[0].nodes, found.last.nodes) == (1, 2)


@pytest.mark.parametrize(
    ("owner", "bare_pods", "expected"),
    [(True, "end", (2, 1, 0)), (False, "end", (1, 0, 1)), (False, "return", (2, 1, 0))],
)
def test_pods_of_a_node_that_goes_come_again_or_end(
    owner: bool, bare_pods: str, expected: tuple[int, int, int]
) -> None:
    wanted = owned(pod(cpu="3")) if owner else pod(cpu="3")
    events: list[dict[str, Any]] = [
        {"at": "20s", "remove": "a"},
        {"at": "50s", "add": {"name": "b", "cpu": 4, "mem": "8Gi"}},
    ]
    found = simulated([Arrival(0, "p", wanted, 60)], nodes=[node("a")], events=events, bare_pods=bare_pods)
    assert (found.placed, found.restarted, found.lost) == expected
    if expected[1]:
        assert found.wait_seconds == (0, 30)
        assert found.last.at == 110, "it starts from the beginning"


def test_pods_of_daemon_sets_go_with_their_node() -> None:
    own = owned(pod(nodeName="a"), kind="DaemonSet")
    found = simulated([Arrival(0, "p", pod(), 5)], nodes=[node("a"), own], events=[{"at": "20s", "remove": "a"}])
    assert (found.restarted, found.lost, found.last.running) == (0, 0, 0)


def test_members_of_a_gang_that_wait_on_a_node_that_goes_are_decided_again() -> None:
    by = "gang by pod.namespace size 2 within 10min"
    arrivals = [Arrival(0, "p", pod(cpu="3"), 60), Arrival(40, "q", pod(cpu="3"), 60)]
    events: list[dict[str, Any]] = [
        {"at": "20s", "remove": "a"},
        {"at": "30s", "add": {"name": "c", "cpu": 4, "mem": "8Gi"}},
    ]
    found = simulated(arrivals, nodes=[node("a"), node("b")], by=by, events=events)
    assert (found.placed, found.unplaced, found.restarted) == (2, 0, 0)


def test_cordoned_nodes_take_no_pods_and_changed_ones_others() -> None:
    events: list[dict[str, Any]] = [
        {"at": "0s", "cordon": ["a"]},
        {"at": "20s", "uncordon": "a"},
        {"at": "40s", "change": {"name": "a", "labels": {"disk": "ssd"}, "cpu": 8}},
    ]
    arrivals = [
        Arrival(1, "p", pod(), 5),
        Arrival(30, "q", pod(nodeSelector={"disk": "ssd"}, cpu="6"), 5),
    ]
    found = simulated(arrivals, nodes=[node("a")], events=events)
    assert found.wait_seconds == (19, 10)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([{"at": "1s", "remove": "x"}], "there is no node `x`"),
        ([{"at": "1s", "remove": "a"}, {"at": "2s", "cordon": "a"}], "the node `a` is not there at that time"),
        ([{"at": "1s", "add": {"name": "a"}}], "there is a node `a` already"),
        ([{"at": "1s"}], "expected one of add, remove, cordon, uncordon, change in each event, found 0"),
        ([{"at": "1s", "remove": "a", "cordon": "a"}], "found 2"),
        ([{"at": "soon", "remove": "a"}], "a duration such as"),
        ([{"at": "1s", "add": {"name": "b", "taints": ["x"]}}], "'x' is not a taint"),
        ([{"at": "1s", "add": {"name": "b", "cpu": "much"}}], "much"),
    ],
)
def test_events_that_cannot_happen_are_refused(events: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_node_events(source({"events": events}), nodes=["a"])
    assert message in caught.value.diagnostics[0].message


def test_windows_of_tuning_begin_with_the_nodes_that_are_there_then() -> None:
    events = parse_node_events(source({"events": [{"at": "100s", "remove": "a"}]}), nodes=["a", "b"])
    arrivals = [Arrival(10.0 * number, f"p{number}", pod(), 5) for number in range(40)]
    windows = by_time(Scenario([node("a"), node("b")], arrivals, node_events=events), [0])
    assert [each.scenario.node_events.events[0].at for each in windows[:4]] == [100, 60, 20, 0]


def test_nodes_of_a_trace_come_and_go_at_their_times() -> None:
    head = "name,cpu_milli,memory_mib,creation_time,deletion_time\n"
    nodes = parse_nodes(Source("nodes.csv", f"{head}a,4000,8192,,150\nb,4000,8192,130,\n"))
    pods = parse_pods(Source("pods.csv", f"{head}p,4000,8192,100,160\n"))
    found = run(replayed(nodes, pods.pods), PolicyVariant("kubernetes"), seed=0, stopwatch=lambda: 0.0)
    assert [(sample.at, sample.nodes) for sample in found.samples][-1] == (110, 1)
    assert (found.restarted, found.placed, found.most_nodes()) == (1, 2, 2)
    with pytest.raises(DocumentError, match="deleted before it is created"):
        parse_nodes(Source("n.csv", f"{head}a,1,1,5,4\n"))


# --- the autoscaler --------------------------------------------------------------------------------------

BIG = {"name": "big", "node": {"cpu": 8, "mem": "64Gi"}, "max": 3, "delay": "60s", "idle": "2min", "price": 0.5}


def test_a_node_comes_after_the_delay_and_goes_when_it_is_idle() -> None:
    found = simulated([Arrival(0, "p", pod(cpu="8"), 100)], nodes=[node("a")], shapes=[BIG])
    assert found.wait_seconds == (70,), "10 s until the autoscaler looks, 60 s until the node is there"
    assert (found.most_nodes(), found.last.nodes, found.last.at) == (2, 1, 70 + 100 + 120)
    assert found.cost == pytest.approx(0.5 * (60 + 100 + 120) / 3600), "from the order to the end"
    assert found.mean_price() == pytest.approx(found.cost / (found.last.at / 3600))


def test_pods_share_the_nodes_that_are_ordered() -> None:
    arrivals = [Arrival(number, f"p{number}", pod(cpu="2"), 500) for number in range(8)]
    found = simulated(arrivals, nodes=[node("a", cpu="100m")], shapes=[BIG])
    assert (found.most_nodes(), found.placed, found.unplaced) == (3, 8, 0)


def test_no_more_nodes_than_allowed_and_none_for_pods_that_they_do_not_help() -> None:
    arrivals = [Arrival(0, f"p{number}", pod(cpu="8")) for number in range(5)]
    found = simulated(arrivals, nodes=[node("a")], shapes=[BIG])
    assert (found.most_nodes(), found.placed, found.unplaced) == (4, 3, 2)
    for wanted in (pod(cpu="9"), pod(cpu="8", nodeSelector={"disk": "ssd"}), pod(cpu="8", priority=-11)):
        found = simulated([Arrival(0, "p", wanted)], nodes=[node("a")], shapes=[BIG])
        assert (found.most_nodes(), found.unplaced) == (1, 1)


@pytest.mark.parametrize(
    ("by", "nodes"),
    [
        ("filter true", 2),
        ("limit count() by pod.namespace to 1", 1),
        ("filter label disk=ssd", 1),
        ("limit count() by pod.namespace to 1 over node", 2),
    ],
)
def test_the_rules_of_policies_count(by: str, nodes: int) -> None:
    arrivals = [Arrival(number, f"p{number}", pod(cpu="3"), 1000) for number in range(2)]
    found = simulated(arrivals, nodes=[node("a", labels={"disk": "ssd"})], by=by, shapes=[BIG])
    assert found.most_nodes() == nodes


def test_the_first_shape_that_takes_the_pod_or_the_cheapest() -> None:
    small = {**BIG, "name": "small", "node": {"cpu": 4, "mem": "8Gi"}, "price": 0.2}
    arrivals = [Arrival(0, "p", pod(cpu="3"), 500)]
    dear = simulated(arrivals, nodes=[node("a", cpu="1")], shapes=[BIG, small])
    cheap = simulated(arrivals, nodes=[node("a", cpu="1")], shapes=[BIG, small], expander="price")
    assert max(sample.hourly for sample in dear.samples) == 0.5
    assert max(sample.hourly for sample in cheap.samples) == 0.2


def test_a_gang_gets_nodes_as_a_whole_or_not_at_all() -> None:
    by = "gang by pod.namespace size {} within 10min"
    for size, nodes in ((3, 4), (4, 1)):
        arrivals = [Arrival(number, f"p{number}", pod(cpu="8"), 100) for number in range(size)]
        found = simulated(arrivals, nodes=[node("a")], by=by.format(size), shapes=[BIG])
        assert found.most_nodes() == nodes
        assert found.placed == (3 if size == 3 else 0)


def test_nodes_are_ordered_for_what_a_gang_lacks_beside_free_room_and_for_its_surplus_once_it_runs() -> None:
    by = "gang by pod.namespace size 3 within 10min"
    arrivals = [Arrival(0, f"p{number}", pod(cpu="4"), 1000) for number in range(5)]
    shape = {**BIG, "node": {"cpu": 4, "mem": "64Gi"}, "max": 4, "delay": "30s"}
    found = simulated(arrivals, nodes=[node("a")], by=by, shapes=[shape])
    assert (found.placed, found.most_nodes()) == (5, 5)
    first, later = sorted(found.wait_seconds)[:3], sorted(found.wait_seconds)[3:]
    assert first == [40, 40, 40], "two nodes beside the one that is there, after the first scan"
    assert min(later) > 70, "those that the gang can do without ask when it runs"
    short = simulated(arrivals[:3], nodes=[node("a")], by=by, shapes=[shape])
    assert (short.placed, short.most_nodes()) == (3, 3)


@given(
    size=st.integers(2, 6),
    spare=st.integers(0, 3),
    cores=st.integers(1, 4),
    free=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    quota=st.none() | st.integers(0, 30),
)
def test_nodes_for_a_gang_are_as_many_as_what_it_lacks_needs_and_none_if_it_is_over_quota(
    size: int, spare: int, cores: int, free: list[int], quota: int | None
) -> None:
    """Its surplus asks for nodes once it runs, as far as the quota goes."""
    by = f"gang by pod.namespace size {size} within 10min" + (
        f"\nqueue all max cpu {quota}" if quota is not None else ""
    )
    arrivals = [Arrival(0, f"p{number}", pod(cpu=str(cores)), None) for number in range(size + spare)]
    there = [node(f"n{number}", cpu=str(cpus)) for number, cpus in enumerate(free)]
    shape = {"name": "new", "node": {"cpu": 4, "mem": "64Gi"}, "max": 20, "delay": "30s", "idle": "3h"}
    found = simulated(arrivals, nodes=there, by=by, shapes=[shape])
    first = next((sample.upcoming for sample in found.samples if sample.upcoming), 0)
    places, may_start = sum(each // cores for each in free), quota is None or size * cores <= quota
    running = size + (spare if quota is None else min(spare, quota // cores - size)) if may_start else 0
    assert found.placed == running
    assert found.most_nodes() - len(free) == max(0, -((places - running) // (4 // cores)))
    if running and size > places:
        assert first == -((places - size) // (4 // cores)), "the minimum alone asks first"


def test_members_that_differ_are_packed_into_the_fewest_nodes() -> None:
    by = "gang by pod.namespace size 4 within 10min if pod.priority == 0"
    members = [Arrival(0, f"p{number}", pod(cpu=cpu), 1000) for number, cpu in enumerate("1133")]
    arrivals = [Arrival(0, "first", pod(cpu="4", priority=1), 2000), *members]
    shape = {**BIG, "node": {"cpu": 4, "mem": "64Gi"}, "max": 4, "delay": "30s"}
    found = simulated(arrivals, nodes=[node("a")], by=by, shapes=[shape])
    assert (found.placed, found.most_nodes()) == (5, 3)


def test_the_minimum_is_there_from_the_beginning_and_stays() -> None:
    nodes = [node("a", labels={"pool": "big"}), node("b")]
    shape = {**BIG, "min": 2, "matching": {"pool": "big"}}
    found = simulated([Arrival(0, "p", pod(cpu="8"), 10)], nodes=nodes, shapes=[shape])
    assert found.wait_seconds == (0,)
    assert (found.samples[0].nodes, found.last.nodes) == (3, 3)


def test_nodes_that_are_like_another_start_with_the_pods_of_its_daemon_sets() -> None:
    own = owned(pod(nodeName="a", cpu="2"), kind="DaemonSet")
    shape = {"name": "more", "like": "a", "max": 2, "delay": "10s", "idle": "1min"}
    found = simulated([Arrival(0, f"p{n}", pod(cpu="2"), 50) for n in range(2)], nodes=[node("a"), own], shapes=[shape])
    assert (found.placed, found.most_nodes(), found.last.nodes) == (2, 2, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"shapes": [{**BIG, "min": 4}]}, "min is 4, more than max, 3"),
        ({"shapes": [BIG, BIG]}, "a second shape has the name `big`"),
        ({"shapes": [{"name": "x", "like": "q", "max": 1}]}, "the cluster has no node `q`"),
        ({"shapes": [{"name": "x", "max": 1}]}, "a shape with `name`, `max`, and `node` or `like`"),
        ({"shapes": [{**BIG, "price": -1}]}, "a price per hour above 0"),
        ({"shapes": [BIG], "scan": "10ms"}, "expected at least 1s"),
        ({"shapes": [BIG], "expandr": "price"}, "unknown key `expandr`"),
    ],
)
def test_strange_shapes_are_refused(value: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_autoscaling(source(value), things=[node("a")])
    assert message in caught.value.diagnostics[0].message
