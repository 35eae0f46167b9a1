"""Existing volumes for several claims on all nodes at once, against the same node by node and volume by volume."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.volumes.claims import requested_storage
from kube_policy_scheduler.framework.plugins.volume_matching import Matches, candidates, class_volumes, provisionable
from kube_policy_scheduler.quantities.quantity import units

HOST, ZONE, DISK = "kubernetes.io/hostname", "zone", "disk"
NODES = [
    ("n0", {HOST: "n0", ZONE: "a", DISK: "ssd"}),
    ("n1", {HOST: "n1", ZONE: "a"}),
    ("n2", {HOST: "n2", ZONE: "b", DISK: "ssd"}),
    ("n3", {HOST: "n3"}),
]
PLACES: list[list[dict[str, list[str]]] | None] = [
    None,
    [{HOST: ["n0"]}],
    [{HOST: ["n1"]}],
    [{HOST: ["gone"]}],
    [{ZONE: ["a"]}],
    [{ZONE: ["b"]}],
    [{ZONE: ["a", "b"]}],
    [{ZONE: ["a"], DISK: ["ssd"]}],
    [{ZONE: ["b"]}, {HOST: ["n3"]}],
]
SELECTORS: list[dict[str, Any] | None] = [
    None,
    {"matchLabels": {"tier": "gold"}},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "no", "operator": "In", "values": ["x"]}]},
]
VOLUMES = st.lists(
    st.fixed_dictionaries(
        {
            "place": st.sampled_from(PLACES),
            "size": st.sampled_from(["1Gi", "2Gi", "2Gi", "5Gi"]),
            "tier": st.sampled_from(["gold", "iron", None]),
            "modes": st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"]]),
            "mode": st.sampled_from(["Filesystem", "Filesystem", "Block"]),
            "phase": st.sampled_from(["Available", "Available", "Available", "Released"]),
            "claim": st.sampled_from([None, None, None, None, None, "c0", "c1", "stranger"]),
            "deleted": st.sampled_from([False, False, False, True]),
        }
    ),
    max_size=12,
)
CLAIMS = st.lists(
    st.fixed_dictionaries(
        {
            "size": st.sampled_from(["1Gi", "1Gi", "2Gi", "3Gi"]),
            "selector": st.sampled_from(SELECTORS),
            "modes": st.sampled_from([["ReadWriteOnce"], ["ReadOnlyMany"], []]),
            "mode": st.sampled_from([None, None, "Block"]),
        }
    ),
    max_size=7,
)


def make_volume(number: int, what: dict[str, Any]) -> objects.PersistentVolume:
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values} for key, values in term.items()]}
        for term in what["place"] or ()
    ]
    spec: dict[str, Any] = {
        "capacity": {"storage": what["size"]},
        "accessModes": what["modes"],
        "volumeMode": what["mode"],
        "storageClassName": "late",
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}} if what["place"] is not None else None,
        "claimRef": {"name": what["claim"], "namespace": "red"} if what["claim"] else None,
    }
    meta = {"name": f"v{number}", "labels": {"tier": what["tier"]} if what["tier"] else {}}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if what["deleted"] else {}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"phase": what["phase"]}}, objects.PersistentVolume
    )


def make_claim(number: int, what: dict[str, Any]) -> objects.PersistentVolumeClaim:
    spec = {
        "storageClassName": "late",
        "accessModes": what["modes"],
        "volumeMode": what["mode"],
        "selector": what["selector"],
        "resources": {"requests": {"storage": what["size"]}},
    }
    body = {"metadata": {"name": f"c{number}", "namespace": "red", "uid": f"c{number}"}, "spec": spec}
    return msgspec.convert(body, objects.PersistentVolumeClaim)


def does(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    spec = volume.spec
    return (
        units((spec.capacity or {})["storage"]) >= units(requested_storage(claim) or 0)
        and (spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and volume.metadata.deletion_timestamp is None
    )


def selected(volume: objects.PersistentVolume, claim: objects.PersistentVolumeClaim) -> bool:
    labels, selector = volume.metadata.labels or {}, claim.spec.selector
    if selector is None:
        return True
    tests = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, values: value is not None,
        "DoesNotExist": lambda value, values: value is None,
    }
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        tests[e.operator](labels.get(e.key), e.values or ()) for e in selector.match_expressions or ()
    )


def reaches(volume: objects.PersistentVolume, labels: dict[str, str]) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(labels.get(e.key) in (e.values or ()) for e in term.match_expressions or ())
        for term in affinity.required.node_selector_terms or ()
    )


def one_by_one(
    volumes: list[objects.PersistentVolume], claims: list[objects.PersistentVolumeClaim], labels: dict[str, str]
) -> list[str | None]:
    """Return the name of the volume for each claim on one node, as `FindMatchingVolume` finds them."""
    chosen: list[str | None] = []
    for claim in claims:
        mine = [v for v in volumes if does(v, claim) and (r := v.spec.claim_ref) and r.name == claim.metadata.name]
        open_to_all = [
            v
            for v in volumes
            if does(v, claim)
            and v.spec.claim_ref is None
            and v.status.phase == "Available"
            and set(claim.spec.access_modes or ()) <= set(v.spec.access_modes or ())
            and selected(v, claim)
        ]
        open_to_all.sort(key=lambda v: (units((v.spec.capacity or {})["storage"]), v.metadata.name))
        for volume in mine[:1] or open_to_all:
            if volume.metadata.name not in chosen and reaches(volume, labels):
                chosen.append(volume.metadata.name)
                break
        else:
            chosen.append(None)
    return chosen


@given(VOLUMES, CLAIMS)
def test_all_nodes_at_once_are_served_as_one_node_after_another(
    volumes: list[dict[str, Any]], claims: list[dict[str, Any]]
) -> None:
    cluster = Cluster()
    for name, labels in NODES:
        cluster.set_node(msgspec.convert({"metadata": {"name": name, "labels": labels}}, objects.Node))
    made = [make_volume(number, what) for number, what in enumerate(volumes)]
    for volume in made:
        cluster.set_object(volume)
    asked = [make_claim(number, what) for number, what in enumerate(claims)]
    asked += asked[:1]  # a pod may name a claim twice
    matches = Matches(cluster.nodes)
    found = [matches.choose(candidates(claim, class_volumes(cluster, "late"))) for claim in asked]
    for row, (_, labels) in enumerate(NODES):
        expected = one_by_one(made, asked, labels)
        names = [
            volume.metadata.name if (volume := matches.volume(claim=position, row=row)) is not None else None
            for position in range(len(asked))
        ]
        assert names == expected
        assert [bool(where[row]) for where in found] == [name is not None for name in expected]


def test_there_is_room_for_a_volume_where_any_capacity_says_so() -> None:
    cluster = Cluster()
    for name, labels in NODES:
        cluster.set_node(msgspec.convert({"metadata": {"name": name, "labels": labels}}, objects.Node))
    for kind, body in (
        (objects.StorageClass, {"metadata": {"name": "late"}, "provisioner": "x"}),
        (objects.CSIDriver, {"metadata": {"name": "x"}, "spec": {"storageCapacity": True}}),
        (objects.CSIStorageCapacity, capacity("a", "2Gi", {"matchLabels": {ZONE: "a"}})),
        (objects.CSIStorageCapacity, capacity("b", "1Gi", {"matchLabels": {HOST: "n0"}})),
        (objects.CSIStorageCapacity, capacity("c", "9Gi", {"matchLabels": {ZONE: "a", HOST: "n1"}})),
        (objects.CSIStorageCapacity, capacity("d", "0", {"matchExpressions": [{"key": DISK, "operator": "Exists"}]})),
    ):
        cluster.set_object(msgspec.convert(body, kind))

    def room(size: str) -> list[bool]:
        claim = make_claim(0, {"size": size, "selector": None, "modes": [], "mode": None})
        return provisionable("late", cluster).room(claim).tolist()

    assert room("0") == [True, True, True, False]
    assert room("1Gi") == [True, True, False, False]
    assert room("3Gi") == [False, True, False, False]
    assert room("10Gi") == [False] * 4


def test_where_each_of_many_classes_has_room_is_kept_within_the_bytes_for_all_that_is_kept() -> None:
    cluster = Cluster()
    for number in range(200):
        cluster.set_node(msgspec.convert({"metadata": {"name": f"n{number}"}}, objects.Node))
    for number in range(40):
        body = {"metadata": {"name": f"c{number}"}, "provisioner": "x"}
        cluster.set_object(msgspec.convert(body, objects.StorageClass))
    cluster.kept.given = 4_000
    cluster.kept.follow_nodes(200)

    rooms = [provisionable(f"c{number}", cluster) for number in range(40)]

    assert cluster.kept.taken <= 4_000 < sum(each.allowed.nbytes for each in rooms)
    assert provisionable("c39", cluster) is rooms[39], "the one used last stays"
    assert provisionable("c0", cluster) is not rooms[0]
    assert provisionable("c0", cluster).allowed.tolist() == rooms[0].allowed.tolist()


def capacity(name: str, size: str, topology: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "storageClassName": "late", "capacity": size, "nodeTopology": topology}
