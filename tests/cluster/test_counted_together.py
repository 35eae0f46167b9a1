"""Pods that are counted together count as one by one; equal pods and nodes share what they have in common."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import FEWEST_TOGETHER, Cluster
from kube_policy_scheduler.cluster.images import ImageTable
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate, Templates

NODES = ("a", "b", "c", "gone")
AMOUNTS = ("0", "100m", "1", "3Gi", "8Ei", str(2**63 - 1))
EVENT = st.fixed_dictionaries(
    {
        "node": st.sampled_from(NODES),
        "cpu": st.sampled_from(AMOUNTS),
        "gpu": st.sampled_from(("0", "1", "8Ei")),
        "priority": st.sampled_from((-5, 0, 1_000)),
        "app": st.sampled_from(("x", "y")),
        "port": st.sampled_from((0, 0, 80)),
        "claim": st.sampled_from(("", "", "data")),
        "leaving": st.booleans(),
    }
)


def _node(name: str) -> objects.Node:
    offered = {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "2"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": offered}}, objects.Node)


def _pod(uid: str, case: dict[str, Any]) -> objects.Pod:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": case["claim"]}}
    ports = [{"containerPort": case["port"], "hostPort": case["port"]}] if case["port"] else []
    requests = {"cpu": case["cpu"], "example.com/gpu": case["gpu"]}
    container = {"name": "c", "ports": ports, "resources": {"requests": requests}}
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "labels": {"app": case["app"]}}
            | ({"deletionTimestamp": "2026-11-22T10:00:00Z"} if case["leaving"] else {}),
            "spec": {
                "nodeName": case["node"],
                "priority": case["priority"],
                "containers": [container],
                "volumes": [claim] if case["claim"] else [],
            },
        },
        objects.Pod,
    )


def _cluster() -> Cluster:
    cluster = Cluster()
    for name in NODES[:3]:
        cluster.set_node(_node(name))
    return cluster


def _state(cluster: Cluster) -> dict[str, Any]:
    """Return everything that is counted."""
    nodes = cluster.nodes
    resources = nodes.resources()
    return {
        "requested": {name: nodes.requested(name).tolist() for name in resources},
        "overflowing": {name: sorted(nodes.overflowing(name)) for name in resources},
        "scoring": (nodes.nonzero_cpu.tolist(), nodes.nonzero_memory.tolist(), nodes.pod_count.tolist()),
        "priorities": {
            (priority, name): cluster.priorities.below(priority, name, nodes.size).tolist()
            for priority in (-5, 0, 1, 2_000)
            for name in (*resources, "pods")
        },
        "below": {priority: cluster.priorities.has_below(priority) for priority in (-5, 0, 1, 2_000)},
        "held": {name: cluster.held_from(0, name).tolist() for name in resources},
        "placed": {
            leaving: sorted(
                (each.labels["app"], tuple(sorted(cluster.counters.pods_by_row(each, terminating=leaving).items())))
                for each in cluster.counters.placed_templates
            )
            for leaving in (False, True)
        },
        "pods": {name: sorted(there) for name, there in cluster.on_node.items()},
        "nodes": {uid: cluster.node_of(uid) for uid in cluster.pods},
        "claims": {key: sorted(users) for key, users in cluster.claim_users.items()},
        "unknown": sorted(cluster.on_unknown_nodes),
    }


@given(st.lists(EVENT, min_size=FEWEST_TOGETHER, max_size=90), st.lists(EVENT, max_size=4))
def test_pods_placed_together_count_as_one_by_one(cases: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    together, apart = _cluster(), _cluster()
    for cluster in (together, apart):
        for number, case in enumerate(before):
            info = cluster.templates.pod(_pod(f"before-{number}", case))
            cluster.place(info, info.node_name)
    infos = [
        [cluster.templates.pod(_pod(f"u{n}", case)) for n, case in enumerate(cases)] for cluster in (together, apart)
    ]

    together.place_many(infos[0])
    for info in infos[1]:
        apart.place(info, info.node_name)

    assert _state(together) == _state(apart)
    for uid in [info.uid for info in infos[0]]:
        together.displace(uid)
        apart.displace(uid)
    assert _state(together) == _state(apart)


def _by_app(template: PodTemplate) -> str | None:
    return template.labels["app"] if template.priority else None


@given(
    st.lists(st.tuples(EVENT, st.sampled_from(NODES)), min_size=FEWEST_TOGETHER, max_size=90),
    st.lists(EVENT, max_size=4),
    st.sets(st.integers(0, 40), min_size=FEWEST_TOGETHER),
    st.booleans(),
    st.booleans(),
)
def test_pods_placed_and_displaced_together_elsewhere_count_as_one_by_one(
    cases: list[tuple[dict[str, Any], str]],
    before: list[dict[str, Any]],
    gone: set[int],
    in_groups: bool,
    is_known: bool,
) -> None:
    together, apart = _cluster(), _cluster()
    infos = []
    for cluster in (together, apart):
        for number, case in enumerate(before):
            info = cluster.templates.pod(_pod(f"before-{number}", case))
            cluster.place(info, info.node_name)
        infos.append([cluster.templates.pod(_pod(f"u{n}", case)) for n, (case, _) in enumerate(cases)])
        if in_groups:
            cluster.counters.group_size(_by_app, "x")
        if is_known:
            cluster.place(infos[-1][0], "c")
    names = [name for _, name in cases]

    def all_is_the_same() -> None:
        assert _state(together) == _state(apart)
        assert [together.node_of(pod.uid) for pod in infos[0]] == [apart.node_of(pod.uid) for pod in infos[1]]
        for app in ("x", "y"):
            sizes = [cluster.counters.group_size(_by_app, app) for cluster in (together, apart) if in_groups]
            assert len(set(sizes)) <= 1

    together.place_together(infos[0], names)
    for info, name in zip(infos[1], names, strict=True):
        apart.place(info, name)
    all_is_the_same()
    uids = [f"u{number}" for number in range(len(cases)) if number in gone]
    together.displace_together(uids)
    for uid in uids:
        apart.displace(uid)
    all_is_the_same()


NEW_NODE = st.fixed_dictionaries(
    {
        "offers": st.dictionaries(
            st.sampled_from(("cpu", "pods", "example.com/gpu", "example.com/nic", "hugepages-2Mi")),
            st.sampled_from(("0", "2", "8Ei")),
        ),
        "labels": st.dictionaries(st.sampled_from(("zone", "disk", "pool")), st.sampled_from("ab")),
        "notes": st.dictionaries(st.sampled_from(("id", "team")), st.sampled_from("ab")),
        "taints": st.lists(st.sampled_from("ab"), max_size=1),
        "ready": st.sampled_from(("True", "False", "")),
        "images": st.lists(st.sampled_from("xyz"), max_size=2),
        "cordoned": st.booleans(),
    }
)
NEW_NODES = st.dictionaries(st.sampled_from(("gone", *"defghi")), NEW_NODE, max_size=7)


def _new_node(name: str, case: dict[str, Any]) -> objects.Node:
    conditions = [{"type": "Ready", "status": case["ready"]}] if case["ready"] else []
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": case["labels"], "annotations": case["notes"]},
            "spec": {"taints": [{"key": key} for key in case["taints"]], "unschedulable": case["cordoned"]},
            "status": {
                "allocatable": case["offers"],
                "conditions": conditions,
                "images": [{"names": [each], "sizeBytes": 1} for each in case["images"]],
            },
        },
        objects.Node,
    )


def _columns(cluster: Cluster, since: tuple[int, ...]) -> dict[str, Any]:
    """Return what is known of the nodes, and which rows changed since positions of the journals."""
    nodes = cluster.nodes
    journals = (nodes.static_changes, nodes.image_changes, nodes.dynamic_changes, nodes.identity_changes)
    changed = [journal.since(at) for journal, at in zip(journals, since, strict=True)] if since else []
    return {
        "names": (nodes.names, dict(nodes.rows), [(info.name, info.row) for info in nodes.infos]),
        "parts": [(i.labels, i.taints, i.conditions, i.allocatable, i.node.metadata.annotations) for i in nodes.infos],
        "offered": {name: nodes.allocatable(name).tolist() for name in nodes.resources()},
        "labels": {key: (nodes.label(key).equal("a").tolist(), nodes.known_label(key)) for key in ("zone", "disk")},
        "conditions": (nodes.ready.tolist(), nodes.unschedulable.tolist()),
        "images": {
            name: (found.count, found.row_array().tolist()) for name in "xyz" if (found := nodes.images.get(name))
        },
        "versions": (nodes.label_keys_version, nodes.offers_version),
        "hashes": (nodes.by_hash.hashes.tolist(), nodes.by_hash.groups.tolist()),
        "changed": [rows if rows is None else set(rows) for rows in changed],
    }


@given(NEW_NODES, st.lists(EVENT, max_size=8), st.booleans(), st.lists(st.sampled_from((*NODES, *"defghi"))))
def test_nodes_added_together_are_as_if_added_one_by_one(
    new: dict[str, Any], pods: list[dict[str, Any]], is_read: bool, removed: list[str]
) -> None:
    together, apart = _cluster(), _cluster()
    before: tuple[int, ...] = ()
    for cluster in (together, apart):
        for number, case in enumerate(pods):
            info = cluster.templates.pod(_pod(f"before-{number}", case))
            cluster.place(info, info.node_name)
        if is_read:
            _columns(cluster, ())
        nodes = cluster.nodes
        before = (nodes.version, nodes.images_version, nodes.dynamic_changes.end, nodes.identity_version)

    together.add_nodes([together.nodes.interpret(_new_node(name, case)) for name, case in new.items()])
    for name, case in new.items():
        apart.set_node(_new_node(name, case))

    assert _state(together) == _state(apart)
    found = _columns(together, before)
    assert found == _columns(apart, before)
    rows = {together.nodes.rows[name] for name in new}
    assert all(changed is None or changed >= rows for changed in found["changed"])
    for name in removed:
        together.remove_node(name)
        apart.remove_node(name)
    assert _state(together) == _state(apart)
    assert _columns(together, ()) == _columns(apart, ())


def _of_controller(uid: str, **spec: Any) -> objects.Pod:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    more = {"metadata": spec.pop("metadata", {})}
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "ownerReferences": [owner]} | more["metadata"],
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": f"token-{uid}"}],
            }
            | spec,
        },
        objects.Pod,
    )


def test_pods_of_a_controller_share_a_template_whatever_differs_from_pod_to_pod() -> None:
    templates = Templates()
    first, second = (templates.pod(_of_controller(uid, nodeName=f"node-{uid}")) for uid in "ab")

    assert first.template is second.template
    assert (first.node_name, second.node_name) == ("node-a", "node-b")


def test_pods_of_a_controller_that_differ_have_templates_of_their_own() -> None:
    templates = Templates()
    same = templates.pod(_of_controller("a"))
    others = [
        templates.pod(_of_controller("b", priority=7)),
        templates.pod(_of_controller("c", metadata={"labels": {"a": "b"}})),
        templates.pod(_of_controller("d", containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}])),
        templates.pod(_of_controller("e", volumes=[{"name": "m", "image": {"reference": "model:v1"}}])),
    ]

    assert len({id(pod.template) for pod in (same, *others)}) == 5
    assert templates.pod(_of_controller("f")).template is same.template


def test_reading_a_pod_leaves_it_as_it_was() -> None:
    templates, pod = Templates(), _of_controller("a", nodeName="n")
    before = msgspec.json.encode(pod)
    for _ in range(2):
        templates.pod(pod)

    assert msgspec.json.encode(pod) == before


def _with_images(*images: list[str], **more: Any) -> objects.Node:
    status = {"images": [{"names": names, "sizeBytes": 7} for names in images], "allocatable": {"cpu": "1"}}
    return msgspec.convert({"metadata": {"name": "n"} | more, "status": status}, objects.Node)


def test_a_heartbeat_keeps_what_is_known_of_a_node_and_takes_its_version() -> None:
    nodes = Cluster().nodes
    nodes.set(_with_images(["a", "b"], [], resourceVersion="1"))
    known = nodes.infos[0]

    assert nodes.set(_with_images(["a", "b"], [], resourceVersion="2")) == set()
    assert nodes.infos[0] is known
    assert known.node.metadata.resource_version == "2"
    assert nodes.set(_with_images(["a"], [], resourceVersion="3")) == {"images"}


def test_a_node_that_was_changed_in_place_is_looked_at() -> None:
    nodes, node = Cluster().nodes, _with_images(["a"])
    nodes.set(node)
    node.metadata.labels = {"pool": "x"}

    assert nodes.set(node) == {"labels"}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.sampled_from("abc")), max_size=300))
def test_rows_of_images_are_those_of_a_plain_set(steps: list[tuple[bool, int, str]]) -> None:
    table, plain = ImageTable(), dict[str, set[int]]()
    for present, row, name in steps:
        rows = plain.setdefault(name, set())
        if present:
            rows.add(row)
            table.add(row, [objects.ContainerImage(names=[name], size_bytes=5)])
        else:
            rows.discard(row)
            table.discard(row, [name])
    for name, rows in plain.items():
        image = table.get(name)
        assert (image is not None) == bool(rows)
        if image is not None:
            assert (set(image.row_array().tolist()), image.count) == (rows, len(rows))
            assert {row for row in range(201) if image.has(row)} == rows


@given(
    st.lists(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(1, 3)), max_size=4), max_size=150),
    st.sets(st.integers(0, 150)),
)
def test_images_that_are_taken_in_together_are_as_if_read_after_each_node(
    nodes: list[list[tuple[set[str], int]]], reads: set[int]
) -> None:
    together, one_by_one = ImageTable(), ImageTable()
    shared = {(name, size): objects.ContainerImage(names=[name], size_bytes=size) for name in "abc" for size in (1, 2)}
    for row, images in enumerate(nodes):
        listed = [
            shared.get((*names, size), objects.ContainerImage(names=sorted(names), size_bytes=size))
            for names, size in images
        ]
        for table in (together, one_by_one):
            table.add(row, listed)
        if row in reads:
            together.get("a")
        one_by_one.get("a")
    for name in "abc":
        found, expected = together.get(name), one_by_one.get(name)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert (found.size_bytes, found.count) == (expected.size_bytes, expected.count)
            assert found.row_array().tolist() == expected.row_array().tolist()


def test_images_on_many_rows_move_with_their_row() -> None:
    table = ImageTable()
    for row in range(500):
        table.add(row, [objects.ContainerImage(names=["everywhere"], size_bytes=1)])
    table.discard(3, ["everywhere"])
    table.move(499, 3, ["everywhere"])

    image = table.get("everywhere")
    assert image is not None
    assert image.row_array().tolist() == list(range(499))
    assert np.array_equal([image.has(row) for row in (3, 498, 499, 10_000)], [True, True, False, False])


def test_pods_and_nodes_are_not_looked_at_by_the_garbage_collector() -> None:
    cluster = _cluster()
    pod: PodInfo = cluster.templates.pod(_of_controller("a"))

    assert not gc.is_tracked(pod)
    assert not gc.is_tracked(cluster.nodes.infos[0])
