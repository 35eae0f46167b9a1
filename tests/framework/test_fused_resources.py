"""The compiled kernels: equal to the plugins bit by bit, whatever nodes offer and pods request."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ALL_ROWS
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCache, TemplateCaches
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Kernels
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima
from kube_policy_scheduler.framework.plugin import ScorePlugin, Weighted
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.image_locality import ImageLocality
from kube_policy_scheduler.framework.plugins.node_ports import NodePorts
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated, MostAllocated
from kube_policy_scheduler.framework.profile import Profile

GPU = "example.com/gpu"
AMOUNTS = {
    "cpu": ["0", "1m", "50m", "100m", "1", "4", "3500m", "35184372088831m", "35184372088832m", "9223372036854775807m"],
    "memory": ["0", "1", "200Mi", "1Gi", "32Gi", str(2**45 - 1), str(2**45), str(2**53 + 1), "4Ei", "8Ei"],
    GPU: ["1", "4"],
}
REQUESTS = st.fixed_dictionaries({}, optional={name: st.sampled_from(texts) for name, texts in AMOUNTS.items()})
WEIGHTS = st.integers(1, 100)
STRATEGIES = st.builds(
    lambda strategy, cpu, memory, swapped: strategy(
        (("memory", memory), ("cpu", cpu)) if swapped else (("cpu", cpu), ("memory", memory))
    ),
    st.sampled_from([LeastAllocated, MostAllocated]),
    WEIGHTS,
    WEIGHTS,
    st.booleans(),
)
OTHERS = st.sampled_from(
    [NodeResourcesBalancedAllocation(), NodeResourcesBalancedAllocation((("memory", 1), ("cpu", 1))), ImageLocality()]
)
NOT_FUSED = st.sampled_from([LeastAllocated((("cpu", 1), (GPU, 1))), NodeResourcesBalancedAllocation((("cpu", 1),))])


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    compiled = compile_kernels().kernels
    assert compiled is not None, "numba is one of the packages for developers"
    return compiled


def node(name: str, offered: dict[str, str]) -> objects.Node:
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": offered}}, objects.Node)


def pod(name: str, *requests: dict[str, str], **spec: Any) -> objects.Pod:
    containers = [{"name": f"c{i}", "resources": {"requests": each}} for i, each in enumerate(requests)]
    body = {"metadata": {"name": name, "uid": name, "namespace": "n"}, "spec": {"containers": containers} | spec}
    return msgspec.convert(body, objects.Pod)


def same_answers(cluster: Cluster, incoming: objects.Pod, profile: Profile, kernels: Kernels) -> None:
    """Fail where what is kept of a template with the kernels differs in one bit from what NumPy computes."""
    frame = Frame(cluster.templates.pod(incoming), cluster, 0.0)
    plain, caches = TemplateCaches().of(frame, profile), TemplateCaches(Accelerator(kernels))
    equal_answers(caches.of(frame, profile), plain)

    another = TemplateCaches(Accelerator(kernels))
    other = cluster.templates.pod(pod("other", {"cpu": "7m", "memory": "13Mi"}))
    another.of(Frame(other, cluster, 0.0), profile)  # what follows from anything but requests is known now
    for _ in ("looked at", "kept", "refreshed"):
        equal_answers(another.of(frame, profile), plain)


def equal_answers(fused: TemplateCache, plain: TemplateCache) -> None:
    assert fused.ok.tobytes() == plain.ok.tobytes()
    assert fused.count == plain.count
    rows = plain.ok.nonzero()[0]
    assert fused.base(rows).tobytes() == plain.base(rows).tobytes()
    if fused.is_in_full is not plain.is_in_full:  # a first look keeps totals without normalized scores
        return
    assert fused.maxima.totals(ALL_ROWS).tobytes() == plain.maxima.totals(ALL_ROWS).tobytes()
    assert fused.maxima.highest == plain.maxima.highest
    tied, wanted = fused.maxima.best(), plain.maxima.best()
    assert (len(tied), tied.rows().tolist()) == (len(wanted), wanted.rows().tolist())


@given(data=st.data())
def test_kernels_equal_the_plugins_bit_by_bit(data: st.DataObject, kernels: Kernels) -> None:
    cluster, profile, incoming = drawn_decision(data, fewest_nodes=1)

    same_answers(cluster, incoming, profile, kernels)


@given(data=st.data(), compiled=st.booleans())
def test_one_changed_row_equals_the_plugins_bit_by_bit(data: st.DataObject, compiled: bool, kernels: Kernels) -> None:
    cluster, profile, incoming = drawn_decision(data, fewest_nodes=4)
    frame, caches = Frame(cluster.templates.pod(incoming), cluster, 0.0), TemplateCaches()
    if compiled:
        caches = TemplateCaches(Accelerator(kernels))
        caches.of(frame, profile)  # a look; the next one is kept
    caches.of(frame, profile)
    for number in range(data.draw(st.integers(1, 5))):
        more = cluster.templates.pod(pod(f"more-{number}", data.draw(REQUESTS)))
        cluster.place(more, data.draw(st.sampled_from(cluster.nodes.names)))

        equal_answers(caches.of(frame, profile), TemplateCaches().of(frame, profile))


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"tolerations": [{"key": "spot", "operator": "Exists"}]},
    {"nodeSelector": {"disk": "ssd"}},
    {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
)


CHANGES = st.tuples(st.sampled_from(["spot", "ssd", "image", "cordon", "come", "go"]), st.integers(0, 4))


@given(
    shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2),
    steps=st.lists(st.tuples(st.integers(0, 1), REQUESTS, st.none() | CHANGES), min_size=4, max_size=20),
)
def test_what_a_shape_is_known_for_equals_what_plugins_say(
    shapes: list[dict[str, Any]], steps: list[tuple[int, Any, tuple[str, int] | None]], kernels: Kernels
) -> None:
    cluster, profile, kept = Cluster(), kubernetes_profile(), TemplateCaches(Accelerator(kernels))
    bodies: dict[str, dict[str, Any]] = {f"n{number}": {} for number in range(4)}

    def show(name: str) -> None:
        body = bodies[name]
        offered = {"cpu": "8", "memory": "32Gi", "pods": "9", GPU: "2"}
        images = [{"names": [image], "sizeBytes": 500 * 2**20} for image in body.get("images", [])]
        spec = {"taints": body.get("taints", []), "unschedulable": body.get("cordoned", False)}
        metadata = {"name": name, "labels": body.get("labels", {})}
        whole = {"metadata": metadata, "spec": spec, "status": {"allocatable": offered, "images": images}}
        cluster.set_node(msgspec.convert(whole, objects.Node))

    def change_a_node(change: tuple[str, int], serial: int) -> None:
        what, number = change
        name = sorted(bodies)[number % len(bodies)]
        match what:
            case "spot":
                bodies[name]["taints"] = [{"key": "spot", "value": "", "effect": ["NoSchedule", ""][serial % 2]}]
            case "ssd":
                bodies[name]["labels"] = {"disk": ["ssd", "hdd"][serial % 2]}
            case "image":
                bodies[name]["images"] = [["i:1"], ["other:1"]][serial % 2]
            case "cordon":
                bodies[name]["cordoned"] = not bodies[name].get("cordoned")
            case "come":
                name = f"n{serial + 10}"
                bodies[name] = {}
            case "go" if len(bodies) > 2:
                del bodies[name]
                cluster.remove_node(name)
                return
        show(name)

    for name in bodies:
        show(name)
    for serial, (shape, requests, change) in enumerate(steps):
        if change is not None:
            change_a_node(change, serial)
        containers = [{"name": "c", "image": "i:1", "resources": {"requests": requests}}]
        metadata = {"name": f"p{serial}", "uid": f"p{serial}", "namespace": "n"}
        body = {"metadata": metadata, "spec": {"containers": containers} | shapes[shape % len(shapes)]}
        incoming = cluster.templates.pod(msgspec.convert(body, objects.Pod))
        frame = Frame(incoming, cluster, 0.0)
        found, plain = kept.of(frame, profile), TemplateCaches().of(frame, profile)
        equal_answers(found, plain)
        assert found.rejected == plain.rejected
        for each in ("live_filters", "volume_filters", "live_scores", "row_filters"):
            assert getattr(found, each) == getattr(plain, each)
        cluster.place(incoming, sorted(bodies)[serial % len(bodies)])


def drawn_decision(data: st.DataObject, *, fewest_nodes: int) -> tuple[Cluster, Profile, objects.Pod]:
    cluster = Cluster()
    pods = st.sampled_from(["0", "1", "2", "110"])
    for number in range(data.draw(st.integers(fewest_nodes, 6))):
        cluster.set_node(node(f"n{number}", data.draw(REQUESTS) | {"pods": data.draw(pods)}))
    for number in range(data.draw(st.integers(0, 6))):
        held = cluster.templates.pod(pod(f"held-{number}", data.draw(REQUESTS)))
        cluster.place(held, f"n{number % cluster.nodes.size}")
    scores: list[ScorePlugin] = data.draw(
        st.one_of(
            st.tuples(STRATEGIES, OTHERS),
            st.tuples(OTHERS, STRATEGIES),
            st.tuples(STRATEGIES),
            st.tuples(NOT_FUSED, OTHERS),
            st.tuples(STRATEGIES, NOT_FUSED),
            st.just(()),
        ).map(list)
    )
    weights = st.sampled_from([1, 2, 0.1, 3.7, 100, 0, -1])
    profile = Profile(
        "p",
        filters=data.draw(st.sampled_from([(NodeResourcesFit(),), (NodePorts(), NodeResourcesFit()), (NodePorts(),)])),
        scores=tuple(Weighted(each, data.draw(weights)) for each in scores),
    )
    spec = data.draw(st.sampled_from([{}, {"overhead": {"cpu": "250m", "memory": "120Mi"}}]))
    incoming = pod("incoming", *data.draw(st.lists(REQUESTS, min_size=0, max_size=2)), **spec)
    return cluster, profile, incoming


@pytest.mark.parametrize("size", [127, 128, 129, 511, 512, 513, 1500])
def test_blocks_of_rows_equal_the_plugins(size: int, kernels: Kernels) -> None:
    rng, cluster = Random(size), Cluster()
    for number in range(size):
        huge = rng.random() < 1 / 600
        offered = {"cpu": rng.choice(["4", "8", "96"]), "memory": "8Ei" if huge else rng.choice(["8Gi", "512Gi"])}
        cluster.set_node(node(f"n{number}", offered | {"pods": "110"}))
        held = {"cpu": f"{rng.randrange(5000)}m", "memory": f"{rng.randrange(9000)}Mi"}
        cluster.place(cluster.templates.pod(pod(f"held-{number}", held)), f"n{number}")
    for requests in ({}, {"cpu": "1"}, {"cpu": "350m", "memory": "777Mi"}, {"cpu": "64", "memory": "1Gi"}):
        same_answers(cluster, pod("incoming", requests), kubernetes_profile(), kernels)


def test_rows_that_changed_together_equal_the_plugins(kernels: Kernels) -> None:
    rng, cluster, profile = Random(3), Cluster(), kubernetes_profile()
    for number in range(400):
        cluster.set_node(node(f"n{number}", {"cpu": rng.choice(["4", "8"]), "memory": "8Gi", "pods": "5", GPU: "2"}))
    incoming = [pod("a", {"cpu": "1", GPU: "1"}), pod("b", {"memory": "1Gi"})]
    plain, fused = TemplateCaches(), TemplateCaches(Accelerator(kernels))
    for serial in range(20):
        for each in incoming:
            frame = Frame(cluster.templates.pod(each), cluster, 0.0)
            one, other = plain.of(frame, profile), fused.of(frame, profile)
            equal_answers(other, one)
        for number in range(rng.choice([2, 5, 60])):
            held = {"cpu": f"{rng.randrange(1500)}m", "memory": f"{rng.randrange(3000)}Mi"}
            cluster.place(cluster.templates.pod(pod(f"held-{serial}-{number}", held)), f"n{rng.randrange(400)}")


@pytest.mark.parametrize("size", [50, 500])
def test_cycles_with_and_without_kernels_decide_the_same_while_the_cluster_changes(size: int, kernels: Kernels) -> None:
    rng, cluster, profile = Random(size), Cluster(), kubernetes_profile()
    accelerator = Accelerator()
    plain, fused = Cycle(), Cycle(accelerator=accelerator)
    for number in range(size):
        cluster.set_node(node(f"n{number}", {"cpu": rng.choice(["2", "4"]), "memory": "8Gi", "pods": "9"}))
    for serial in range(120):
        if serial == 20:
            accelerator.use(kernels)  # they may be ready at any time
        match rng.choice(["come", "go", "change", "leave", ""]):
            case "come":
                cluster.set_node(node(f"new-{serial}", {"cpu": "4", "memory": rng.choice(["0", "8Gi"]), "pods": "9"}))
            case "go":
                cluster.remove_node(rng.choice(cluster.nodes.names))
            case "change":
                name = rng.choice(cluster.nodes.names)
                cluster.set_node(node(name, {"cpu": rng.choice(["2", "4"]), "memory": "8Gi", "pods": "9"}))
            case "leave" if cluster.pods:
                cluster.displace(rng.choice(sorted(cluster.pods)))
        requests = {"cpu": f"{rng.choice([100, 150, 2500])}m", "memory": f"{rng.choice([100, 300, 500 + serial])}Mi"}
        incoming = cluster.templates.pod(pod(f"p{serial}", requests))
        frame = Frame(incoming, cluster, 0.0)
        decision, wanted = fused.decide(frame, profile), plain.decide(frame, profile)
        assert (decision.host, decision.score, decision.ties) == (wanted.host, wanted.score, wanted.ties)
        if decision.host is not None:
            assert decision.score == max(evaluate(frame, profile).totals.tolist())
            cluster.place(incoming, decision.host)


def test_a_template_with_new_requests_is_looked_at_once_and_kept_when_it_comes_again(kernels: Kernels) -> None:
    cluster, profile, caches = Cluster(), kubernetes_profile(), TemplateCaches(Accelerator(kernels))
    for number in range(300):
        cluster.set_node(node(f"n{number}", {"cpu": "4", "memory": "8Gi", "pods": "9"}))
    frames = [
        Frame(cluster.templates.pod(pod(f"p{number}", {"cpu": f"{number}m"})), cluster, 0.0) for number in range(1, 9)
    ]

    assert [caches.of(frame, profile).is_kept for frame in frames] == [False] * 8
    assert [caches.of(frame, profile).is_kept for frame in frames] == [True] * 8

    cluster.place(frames[0].pod, "n7")
    for frame in frames:
        equal_answers(caches.of(frame, profile), TemplateCaches().of(frame, profile))


@pytest.mark.parametrize("seed", range(4))
def test_templates_that_differ_in_everything_are_answered_as_by_the_plugins(seed: int, kernels: Kernels) -> None:
    rng, cluster, profile = Random(seed), Cluster(), kubernetes_profile()
    caches = TemplateCaches(Accelerator(kernels))
    operators = ["In", "NotIn", "Exists", "DoesNotExist"]

    def set_node(name: str) -> None:
        taints = [{"key": rng.choice("abc"), "effect": rng.choice(["NoSchedule", "PreferNoSchedule"])}]
        body = {
            "metadata": {"name": name, "labels": {"pool": rng.choice(["x", "y"])}},
            "spec": {"taints": taints if rng.random() < 0.4 else [], "unschedulable": rng.random() < 0.1},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
        }
        cluster.set_node(msgspec.convert(body, objects.Node))

    def own(number: int) -> objects.Pod:
        keys = rng.sample(["a", "b", "c", f"own-{number}"], rng.randint(0, 3))
        terms = []
        for _ in range(rng.randint(0, 2)):
            operator = rng.choice(operators)
            values = [rng.choice(["x", f"none-{number}"])] if operator in ("In", "NotIn") else []
            key = rng.choice(["pool", "pool", f"label-{number}"])
            requirement = {"key": key, "operator": operator, "values": values}
            terms.append({"weight": rng.randint(1, 100), "preference": {"matchExpressions": [requirement]}})
        preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
        return pod(
            f"p{number}",
            {"cpu": f"{rng.choice([100, 101 + number])}m", "memory": "100Mi"},
            tolerations=[{"key": key, "operator": "Exists"} for key in keys],
            affinity=preferred if terms else None,
        )

    for number in range(200):
        set_node(f"n{number}")
    looked_at = 0
    for number in range(150):
        if rng.random() < 0.1:
            set_node(f"n{rng.randrange(210)}")
        cluster.place(cluster.templates.pod(pod(f"held-{number}", {"cpu": "300m"})), f"n{rng.randrange(200)}")
        frame = Frame(cluster.templates.pod(own(number)), cluster, 0.0)
        found, plain = caches.of(frame, profile), TemplateCaches().of(frame, profile)
        looked_at += not found.is_kept
        equal_answers(found, plain)
        for one, other in zip(found.normalizing, plain.normalizing, strict=True):
            assert (one.plugin, one.weight, one.constant) == (other.plugin, other.weight, other.constant)
            if one.constant is None:
                assert one.raw.tolist() == other.raw.tolist()
    assert looked_at > 25


def decided(cycle: Cycle, frame: Frame, profile: Profile) -> tuple[str | None, float | None, int, int]:
    decision = cycle.decide(frame, profile)
    return decision.host, decision.score, decision.ties, decision.feasible


@given(data=st.data())
def test_a_first_look_by_bounds_decides_as_the_plugins(data: st.DataObject, kernels: Kernels) -> None:
    cluster, profile, incoming = drawn_decision(data, fewest_nodes=2)
    fused = Cycle(accelerator=Accelerator(kernels))
    fused.decide(Frame(cluster.templates.pod(pod("other", {"cpu": "7m"})), cluster, 0.0), profile)
    for number in range(data.draw(st.integers(0, 3))):
        if data.draw(st.booleans()):
            offered = data.draw(REQUESTS) | {"pods": "110"}
            cluster.set_node(node(f"n{data.draw(st.integers(0, 7))}", offered))
        else:
            more = cluster.templates.pod(pod(f"more-{number}", data.draw(REQUESTS)))
            cluster.place(more, data.draw(st.sampled_from(cluster.nodes.names)))
    frame = Frame(cluster.templates.pod(incoming), cluster, 0.0)

    assert decided(fused, frame, profile) == decided(Cycle(), frame, profile)


@given(
    seed=st.integers(0, 10_000),
    shapes=st.sampled_from([["8", "8"], ["4", "96"], ["3", "7", "100"]]),
    step=st.sampled_from([1, 7, 250]),
    spread=st.sampled_from([1, 4, 40]),
    profile=st.sampled_from(
        [
            kubernetes_profile(),
            Profile(
                "packs",
                filters=(NodeResourcesFit(),),
                scores=(Weighted(MostAllocated((("cpu", 3), ("memory", 1))), 0.1), Weighted(ImageLocality(), 1)),
            ),
        ]
    ),
)
def test_a_first_look_at_many_nodes_decides_as_the_plugins_while_pods_come_and_go(
    seed: int, shapes: list[str], step: int, spread: int, profile: Profile, kernels: Kernels
) -> None:
    """Equal nodes, percents without a rest, and full nodes: where bounds and totals come close."""
    rng, cluster, size = Random(seed), Cluster(), 300
    plain, fused = Cycle(), Cycle(accelerator=Accelerator(kernels))
    for number in range(size):
        huge = {"memory": "8Ei"} if rng.random() < 0.01 else {}
        offered = {"cpu": rng.choice(shapes), "memory": "16Gi", "pods": "3"} | huge
        cluster.set_node(node(f"n{number}", offered))
        held = {"cpu": f"{step * rng.randrange(spread)}m", "memory": f"{step * rng.randrange(spread)}Mi"}
        cluster.place(cluster.templates.pod(pod(f"held-{number}", held)), f"n{number}")
    for number in range(12):
        requests = {"cpu": f"{250 + step * number}m", "memory": f"{512 + step * number}Mi"}
        incoming = cluster.templates.pod(pod(f"p{number}", requests))
        frame = Frame(incoming, cluster, 0.0)
        found = decided(fused, frame, profile)
        assert found == decided(plain, frame, profile)
        if found[0] is not None:
            cluster.place(incoming, found[0])
        cluster.displace(f"held-{rng.randrange(size)}")
        if rng.random() < 0.2:
            cluster.remove_node(f"n{rng.choice(sorted(cluster.nodes.rows))[1:]}")


def test_first_looks_follow_the_cluster_again_after_more_changes_than_it_remembers(kernels: Kernels) -> None:
    derived: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(kernels, name)

        def derive_shares(self, rows: Any, *columns: Any) -> None:
            derived.append(len(rows))
            kernels.derive_shares(rows, *columns)

    cluster, cycle, profile = Cluster(), Cycle(accelerator=Accelerator(Counting())), kubernetes_profile()
    for number in range(40):
        cluster.set_node(node(f"n{number}", {"cpu": "64", "memory": "64Gi", "pods": "110"}))

    def decide(number: int) -> None:
        info = cluster.templates.pod(pod(f"p{number}", {"cpu": f"{number + 1}m"}))
        host = cycle.decide(Frame(info, cluster, 0.0), profile).host
        assert host is not None
        cluster.place(info, host)

    for number in range(3):
        decide(number)
    cluster.nodes.dynamic_changes.note_many([7] * 1_000_000)
    derived.clear()
    for number in range(3, 9):
        decide(number)
    assert derived.count(40) == 1
    assert sorted(derived)[:-1] == [1] * 5


def test_which_nodes_pass_stays_as_it_is_when_another_template_is_looked_at(kernels: Kernels) -> None:
    cluster, profile, cycle = Cluster(), kubernetes_profile(), Cycle(accelerator=Accelerator(kernels))
    for number in range(1, 9):
        cluster.set_node(node(f"n{number}", {"cpu": str(number), "memory": "8Gi", "pods": "9"}))
    frames = [
        Frame(cluster.templates.pod(pod(f"p{number}", {"cpu": str(number)})), cluster, 0.0) for number in range(1, 9)
    ]

    answers = [cycle.passing(frame, profile) for frame in frames]

    assert [int(answer.sum()) for answer in answers] == [8, 7, 6, 5, 4, 3, 2, 1]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 1.5, -2.0, np.nan, np.inf])), max_size=300)
)
def test_combined_totals_equal_sums(rows: list[tuple[bool, bool, float]]) -> None:
    kernels = compile_kernels().kernels
    assert kernels is not None
    first_ok, second_ok = (np.array([row[i] for row in rows], np.bool_) for i in (0, 1))
    totals = np.array([row[2] for row in rows], np.float64)
    ok = np.empty(len(rows), np.bool_)

    combined = BlockMaxima.room(len(rows), Accelerator(kernels))
    count = combined.combine((first_ok, totals), (second_ok, totals), ok=ok)

    wanted = BlockMaxima(np.where(first_ok & second_ok, totals + totals, -np.inf))
    assert ok.tolist() == (first_ok & second_ok).tolist()
    assert count == ok.sum()
    np.testing.assert_array_equal(combined.totals(ALL_ROWS), wanted.totals(ALL_ROWS))
    np.testing.assert_array_equal(combined.highest, wanted.highest)
    assert len(combined.best()) == len(wanted.best())
