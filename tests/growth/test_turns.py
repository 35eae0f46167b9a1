"""No turn of the event loop takes very long, whatever is written: what grows with it is done in turns, or cheap.

Lines of Python are counted where it is Python that runs. Where C copies, CPU time is compared: a square shows.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from kube_policy_scheduler.cluster import node_lookup, objects
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.framework.plugins.volume_matching import (
    CandidateVolumes,
    ClassVolumes,
    Matches,
    VolumeFacts,
    VolumePlace,
)
from tests.growth.axes import HOST, IN_A_POD, ZONE, Axis, node_terms, required, term, volume
from tests.growth.device_axes import DEVICES
from tests.growth.scenes import SCENES
from tests.growth.stage import POLICY, Json, Lines, Stage, _compiled, container

NODES = 400
FEW, MANY = 2_048, 6_144
LINES_EACH = 12
"""Of one thing, in the longest turn: what asks whether there is more to do. Without turns these are 40 to 60."""
CHEAP = {
    "affinity terms": 40,
    "bound claims": 30,
    "claims to provision": 30,
    "claims to bind to local volumes": 60,
    "claims to bind to volumes": 30,
    "capacities of a class": 60,
}
"""The same where a part is done in one turn, as it is cheap: at most 40 ms for as many as the API server takes."""
IN_TURNS = [
    axis
    for axis in (*IN_A_POD, *DEVICES, *SCENES)
    if axis.name
    in (
        "anti-affinity terms",
        "anti-affinity terms that match all",
        "anti-affinity terms by namespace labels",
        "affinity terms",
        "preferred affinity terms",
        "bound claims",
        "claims to provision",
        "claims to bind to local volumes",
        "claims to bind to volumes",
        "terms of a bound volume",
        "terms of an unbound volume",
        "capacities of a class",
        "slices for some nodes",
        "node selectors",
        "node affinity terms",
        "node affinity numbers",
        "preferred nodes",
        "different terms of node affinity",
        "requirements of a term of node affinity",
        "different preferred nodes",
    )
]


class _Stage(Stage):
    longest = 0.0
    total = 0.0

    def decide(self) -> None:
        while self.scheduler.queue.has_active() or self.scheduler.is_searching:
            self.turn(self.scheduler.schedule_batch)

    def turn(self, run: Callable[[], object]) -> None:
        meter = Lines()
        meter.step("turn", run)
        self.longest = max(self.longest, meter.taken["turn"])
        self.total += meter.taken["turn"]


def _longest(axis: Axis, n: int) -> float:
    async def run() -> float:
        stage = _Stage(nodes=NODES)
        assert axis.pod is not None
        if axis.world is not None:
            axis.world(stage, n)
        waiting, placed = (stage.pod("tenant", axis.pod(n)) for _ in range(2))
        stage.turn(lambda: stage.event_handlers.pod_changed(waiting))
        stage.decide()
        await stage.scheduler.drained()
        stage.turn(lambda: stage.place(placed))
        neighbour = stage.pod("neighbour", {"metadata": {"labels": {"app": "web"}}})
        stage.event_handlers.pod_changed(neighbour)
        stage.decide()
        assert stage.node_of(neighbour) is not None or axis.name.startswith("anti-affinity")
        for pod in (waiting, placed):
            stage.turn(lambda pod=pod: stage.event_handlers.pod_deleted(pod))
        return stage.longest

    return asyncio.run(run())


@pytest.mark.parametrize("axis", IN_TURNS, ids=lambda axis: axis.name)
def test_a_turn_hardly_grows(axis: Axis) -> None:
    few, many = _longest(axis, FEW), _longest(axis, MANY)
    assert (many - few) / (MANY - FEW) < CHEAP.get(axis.name, LINES_EACH), (few, many)


@pytest.mark.parametrize("turns", [1, 100])
def test_what_is_found_in_turns_follows_the_nodes(turns: int) -> None:
    """A node whose label changes between two turns, or after the last one."""

    async def run() -> str | None:
        stage = Stage(nodes=8)
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"x{i}"]}]} for i in range(2_000)]
        terms.append({"matchExpressions": [{"key": "fresh", "operator": "In", "values": ["yes"]}]})
        pod = stage.pod("tenant", node_terms(terms))
        stage.event_handlers.pod_changed(pod)
        for _ in range(turns):
            stage.scheduler.schedule_batch()
        assert stage.node_of(pod) is None
        stage.event_handlers.node_changed(stage.node(3, fresh="yes"))
        stage.now += 60
        stage.move_pods()
        await stage.settle()
        return stage.node_of(pod)

    assert asyncio.run(run()) == "n3"


@pytest.mark.parametrize("turns", [1, 4, 100])
def test_what_is_found_in_turns_follows_the_pods(turns: int) -> None:
    """A pod that comes or goes between two turns, or after the last one; it has another template than those before."""

    async def run() -> tuple[str | None, str | None]:
        stage = Stage(nodes=3)
        selects = [{"matchLabels": {"own": f"x{i}"}} for i in range(4_000)]
        huge = {"spec": {"containers": [container(cpu="100000")]}}
        pod = stage.pod("tenant", huge, required("podAntiAffinity", [term(0, HOST, selector=s) for s in selects]))
        gone = stage.pod("neighbour", {"metadata": {"labels": {"own": "x3"}}})
        stage.place(gone, 1)
        stage.event_handlers.pod_changed(pod)
        for _ in range(turns):
            stage.scheduler.schedule_batch()
        stage.place(stage.pod("neighbour", {"metadata": {"labels": {"own": "x3999"}}}), 0)
        stage.event_handlers.pod_deleted(gone)
        stage.place(stage.pod("neighbour", {"metadata": {"labels": {"own": "y"}}}), 2)
        await stage.settle()
        small = stage.pod("tenant", required("podAntiAffinity", [term(0, HOST, selector=s) for s in selects]))
        stage.event_handlers.pod_changed(small)
        await stage.settle()
        found = stage.pod("neighbour", {"metadata": {"labels": {"own": "x77"}}})
        stage.event_handlers.pod_changed(found)
        await stage.settle()
        return stage.node_of(small), stage.node_of(found)

    first, other = asyncio.run(run())
    assert first in ("n1", "n2")
    assert other not in (first, None), "the terms of the pod that is placed keep others away"


def test_a_pod_whose_terms_are_read_in_turns_holds_nobody_up() -> None:
    async def run() -> int:
        stage = Stage(nodes=3)
        for i in range(200):
            stage.place(stage.pod("neighbour", {"metadata": {"labels": {"own": f"{i}"}}}), i)
        terms = [term(i, ZONE) for i in range(4_000)]
        heavy = stage.pod("tenant", required("podAntiAffinity", terms))
        stage.event_handlers.pod_changed(heavy)
        stage.scheduler.schedule_batch()
        other = stage.pod("neighbour", {"metadata": {"labels": {"app": "web"}}})
        stage.event_handlers.pod_changed(other)
        turns = 0
        while stage.node_of(other) is None:
            stage.scheduler.schedule_batch()
            turns += 1
        await stage.scheduler.drained()
        return turns

    assert asyncio.run(run()) <= 3


def _ratio(run: Callable[[int], Callable[[], object]], n: int) -> float:
    """Return how many times the CPU it takes with 4 n."""

    def taken(size: int) -> float:
        best = float("inf")
        for _ in range(3):
            prepared = run(size)
            began = time.process_time()
            prepared()
            best = min(best, time.process_time() - began)
        return best

    gc.collect()
    gc.disable()
    try:
        return taken(4 * n) / taken(n)
    finally:
        gc.enable()


LINEAR = 8.0
"""Where 4 is linear, and 16 a square."""


def test_volumes_of_a_pod_are_read_in_linear_time() -> None:
    def run(n: int) -> Callable[[], object]:
        stage = Stage(nodes=1)
        body: Json = {"spec": {"volumes": [{"name": f"v{i}", "hostPath": {}} for i in range(n)]}}
        claims: Json = {
            "spec": {"volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(n)]}
        }
        pods = [stage.pod("tenant", each) for each in (body, claims)]
        return lambda: [stage.scheduler.cluster.templates.pod(pod) for pod in pods]

    assert _ratio(run, 8_192) < LINEAR


def test_reserved_volumes_are_chosen_in_linear_time() -> None:
    def run(n: int) -> Callable[[], object]:
        every = [msgspec.convert(volume(f"v{i}"), objects.PersistentVolume) for i in range(n)]
        facts = [
            VolumeFacts(each, 1, "Filesystem", "", frozenset(), available=True, place=VolumePlace()) for each in every
        ]
        found = [CandidateVolumes(ClassVolumes(()), each, np.zeros(0, np.bool_)) for each in facts]
        matches = Matches(NodeTable())
        return lambda: [matches.choose(each) for each in found]

    assert _ratio(run, 2_048) < LINEAR


def test_claims_to_be_provisioned_take_no_column_each() -> None:
    """8,192 claims on 2,000 nodes would take 64 MB, and as long as it takes to write them."""
    matches = Matches(Stage(nodes=4).scheduler.cluster.nodes)
    nothing = CandidateVolumes(ClassVolumes(()), None, np.zeros(0, np.bool_))
    found = [matches.choose(nothing) for _ in range(3)]
    assert all(each is found[0] for each in found)
    assert not found[0].any()
    assert matches.volume(claim=2, row=3) is None


def test_terms_that_pods_carry_are_counted_once_one_is_placed() -> None:
    """Of a pod that waits, and of those on unknown nodes where there is none, none is counted; together, they are one.

    Neither a placement nor an end looks at each.
    """

    async def run() -> None:
        stage = Stage(nodes=4)
        terms = [{"labelSelector": {"matchLabels": {"app": f"x{i}"}}, "topologyKey": HOST} for i in range(64)]
        affinity: Json = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        pod = stage.pod("tenant", {"spec": {"affinity": affinity, "containers": [container(cpu="100000")]}})
        stage.event_handlers.pod_changed(pod)
        stage.decide()
        cluster = stage.scheduler.cluster
        assert [len(each._carriers) for each in (cluster.counters, cluster.counters_on_unknown_nodes)] == [0, 0]
        stage.place(pod)
        assert [len(each._carriers) for each in (cluster.counters, cluster.counters_on_unknown_nodes)] == [1, 0]

    asyncio.run(run())


def test_the_terms_of_a_large_volume_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    compile_term = node_lookup.node_term
    monkeypatch.setattr(node_lookup, "node_term", lambda term: (read.append(term), compile_term(term))[1])
    stage = Stage(nodes=6)
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"n{i}", "n2"]}]} for i in range(50, 90)]
    required = msgspec.convert({"nodeSelectorTerms": terms}, objects.NodeSelector)
    nodes = stage.scheduler.cluster.nodes
    assert [node_lookup.rows_of_volume(required, nodes).tolist() for _ in range(3)] == [[2]] * 3
    assert len(read) == len(terms)
    stage.event_handlers.node_changed(stage.node(60))
    assert [node_lookup.rows_of_volume(required, nodes).tolist() for _ in range(3)] == [[2, 6]] * 3
    assert len(read) == len(terms)


STATEMENTS = {
    "a pattern": 'filter not (node.name matches "x{}-.*")',
    "a pattern of a label": 'score if node.label["kubernetes.io/hostname"] matches "x{}-.*" then 1 else 0',
    "a pattern of what is made of a text": 'filter not (lower(node.name) matches "x{}-.*")',
    "a part": 'filter split(node.name, "-")[0] != "x{}"',
    "a version": 'filter (version(node.name) ?? version("0")) < version("1.{}")',
    "a duration": "score (duration(node.name) ?? 0s) / {}s",
    "a pattern, or the pod": 'filter not (node.name matches "x{0}-.*") or pod.label.x == "x{0}"',
}
LINES_EACH_STATEMENT = NODES // 2
"""At a decision. It takes as many as there are nodes, and more, to look at the text of each."""


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_what_statements_make_of_texts_of_nodes_is_made_in_steps_and_kept(statement: str) -> None:
    """Nor is it made again of the nodes that are as they were when one changes, or comes."""

    def longest(n: int) -> float:
        stage = _Stage("\n".join(statement.format(number + 1) for number in range(n)), nodes=NODES)
        steps = stage.scheduler.columns_in_steps()
        more = True
        while more:
            meter = Lines()
            meter.step("turn", lambda: next(steps, "end"))
            stage.longest = max(stage.longest, meter.taken["turn"])
            more = steps.gi_frame is not None  # type: ignore[attr-defined]
        for happens in (
            lambda: None,
            lambda: stage.event_handlers.node_changed(stage.node(3, fresh="yes")),
            lambda: stage.event_handlers.node_changed(stage.node(NODES)),
        ):
            happens()
            pod = stage.pod("tenant", {})
            stage.event_handlers.pod_changed(pod)
            stage.decide()
            assert stage.node_of(pod) is not None
        return stage.longest

    async def run() -> None:
        few, many = longest(8), longest(32)
        assert (many - few) / 24 < LINES_EACH_STATEMENT, (few, many)

    asyncio.run(run())


LINES_EACH_LIMIT = 400
"""At a decision, of which each looks at what is held; to count 300 templates for the first time takes 10,000."""


def test_limits_count_the_pods_of_a_new_key_in_turns() -> None:
    async def longest(n: int) -> float:
        stage = _Stage(nodes=4)
        for number in range(300):
            stage.place(stage.pod("tenant", {"metadata": {"labels": {f"k{number % 8}": str(number)}}}), number)
        limits = [f"limit sum(request.cpu * {i + 1}) by pod.label.k{i % 8} to 1000000000" for i in range(n)]
        policies = _compiled(POLICY + "\n".join(limits))
        steps = stage.scheduler.preparing(policies)
        more = True
        while more:
            meter = Lines()
            meter.step("turn", lambda: next(steps, "end"))
            assert meter.taken["turn"] < 20_000, "of the templates that are placed"
            more = steps.gi_frame is not None  # type: ignore[attr-defined]
        stage.scheduler.use_policies(policies)
        for labels in ({}, {f"k{i}": "new" for i in range(8)}):
            pod = stage.pod("neighbour", {"metadata": {"labels": labels}})
            stage.event_handlers.pod_changed(pod)
            stage.decide()
            assert stage.node_of(pod) is not None
        await stage.scheduler.drained()
        return stage.longest

    few, many = asyncio.run(longest(32)), asyncio.run(longest(96))
    assert (many - few) / 64 < LINES_EACH_LIMIT, (few, many)


def test_which_nodes_queues_share_is_found_in_turns() -> None:
    def longest(nodes: int) -> int:
        stage, meter = Stage(nodes=nodes), Lines()
        policies = _compiled(POLICY + "queue a for pods where pod.label.q min cpu 1\n")
        steps = stage.scheduler.preparing(policies)
        taken = []
        while steps.gi_frame is not None:  # type: ignore[attr-defined]
            meter.step("turn", lambda: next(steps, None))
            taken.append(meter.taken.pop("turn"))
        meter.step("use", lambda: stage.scheduler.use_policies(policies))
        return max(*taken, meter.taken["use"])

    few, many = longest(3_000), longest(9_000)
    assert many - few < 1_000, (few, many)


def test_limits_by_the_same_key_find_templates_by_one_index() -> None:
    stage = Stage(nodes=2)
    limits = [f"limit sum(request.cpu * {i + 1}) by pod.label.app to 1000000000" for i in range(16)]
    policies = _compiled("\n".join(limits))
    for _ in stage.scheduler.preparing(policies):
        pass
    assert len(stage.scheduler.cluster.counters._families) == 1


def test_templates_whose_pods_are_all_gone_are_let_go_a_few_at_a_time() -> None:
    stage = Stage(nodes=2)
    in_use, templates = stage.scheduler.cluster.templates_in_use, stage.scheduler.cluster.templates
    kept = [
        templates.pod(stage.pod("tenant", {"metadata": {"labels": {"own": str(i)}}})).template for i in range(3_000)
    ]
    for template in kept:
        in_use.asked(template)
    meter = Lines()
    meter.step("turn", in_use.let_go)
    assert meter.taken["turn"] < 10_000
    for _ in range(20):
        in_use.let_go()
    assert sum(template in in_use for template in kept) <= 32
