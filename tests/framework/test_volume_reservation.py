"""Reserve, PreBind and Unreserve of volumes: what is assumed, written and waited for."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import OutOfSyncError
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.volume_binding import NO_VOLUME, VolumeBinding
from kube_policy_scheduler.framework.reserve.volume_reservation import (
    Bound,
    Failed,
    VolumeReservation,
    Waiting,
    patches,
    progress,
    reserve,
    undo,
    written,
)
from tests.framework.clusters import HOST, Body, frame_of, make_cluster, pod_body, verdicts, zoned

SELECTED = "volume.kubernetes.io/selected-node"
PV, PVC = objects.PersistentVolume, objects.PersistentVolumeClaim


def claim(name: str = "c", *, version: str = "10", volume: str = "", **annotations: str) -> PVC:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    meta["annotations"] = {"keep": "me"} | {key.replace("__", "/"): value for key, value in annotations.items()}
    spec = {
        "storageClassName": "late",
        "volumeName": volume,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, PVC)


def bound(name: str = "c", *, volume: str, version: str = "30") -> PVC:
    found = claim(name, volume=volume, version=version)
    found.metadata.annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    return found


def volume(name: str = "v", *, version: str = "20", host: str = "a", claim_ref: Body | None = None) -> PV:
    expression = {"key": HOST, "operator": "In", "values": [host]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "claimRef": claim_ref,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    meta = {"name": name, "resourceVersion": version}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Available"}}, PV)


def late(provisioner: str = "csi.example.com") -> objects.StorageClass:
    body = {"metadata": {"name": "late"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return msgspec.convert(body, objects.StorageClass)


def using(*claims: str, name: str = "incoming") -> Body:
    return pod_body(name, volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims])


def cluster_with(*things: Any) -> Cluster:
    return make_cluster(zoned(a="a", b="b"), late(), *things)


def on(cluster: Cluster, node: str, body: Body) -> Frame:
    return frame_of(cluster, body).at(np.array([cluster.nodes.rows[node]]))


def reserved(cluster: Cluster, node: str = "a", *claims: str) -> VolumeReservation:
    found = reserve(on(cluster, node, using(*(claims or ("c",)))))
    assert isinstance(found, VolumeReservation)
    return found


def sent(reservation: VolumeReservation, version: int = 100) -> VolumeReservation:
    for number, patch in enumerate(patches(reservation)):
        reservation = written(reservation, patch, resource_version=str(version + number))
    return reservation


def test_an_existing_volume_is_taken_and_given_back() -> None:
    cluster = cluster_with(claim(), claim("d"), volume())
    cluster.set_object(late("kubernetes.io/no-provisioner"))
    reservation = reserved(cluster)
    assert cluster.get(PV, "v") is not None
    assert cluster.get(PV, "v").spec.claim_ref is None
    other = using("d", name="other")
    rejected = verdicts(VolumeBinding(), cluster, other)
    assert rejected == {"a": f"!{NO_VOLUME}", "b": f"!{NO_VOLUME}"}
    undo(reservation, cluster)
    undo(reservation, cluster)
    assert verdicts(VolumeBinding(), cluster, other)["a"] == ""


def test_a_volume_is_bound_with_a_patch_that_fails_if_it_changed() -> None:
    [patch] = patches(reserved(cluster_with(claim(), volume())))
    assert (patch.resource, patch.namespace, patch.name) == ("persistentvolumes", "", "v")
    assert patch.body == {
        "metadata": {"resourceVersion": "20", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "c",
                "uid": "uid-c",
                "resourceVersion": "10",
            }
        },
    }


def test_a_volume_that_a_person_reserved_stays_theirs_to_release() -> None:
    [patch] = patches(reserved(cluster_with(claim(), volume(claim_ref={"namespace": "default", "name": "c"}))))
    assert patch.body["metadata"] == {"resourceVersion": "20"}


def test_a_claim_to_provision_gets_the_selected_node() -> None:
    cluster = cluster_with(claim())
    reservation = reserved(cluster, "b")
    [patch] = patches(reservation)
    assert (patch.resource, patch.namespace, patch.name) == ("persistentvolumeclaims", "default", "c")
    assert patch.body == {"metadata": {"resourceVersion": "10", "annotations": {SELECTED: "b"}}}
    # another pod with the same claim has to follow
    assert verdicts(VolumeBinding(), cluster, using("c", name="other")) == {"a": f"!{NO_VOLUME}", "b": ""}
    undo(reservation, cluster)
    assert verdicts(VolumeBinding(), cluster, using("c", name="other")) == {"a": "", "b": ""}


@pytest.mark.parametrize("body", [pod_body(), using("c")], ids=["no volumes", "all bound"])
def test_pods_whose_claims_are_bound_have_nothing_to_wait_for(body: Body) -> None:
    cluster = cluster_with(bound(volume="v"), volume())
    reservation = reserve(on(cluster, "a", body))
    assert isinstance(reservation, VolumeReservation)
    assert reservation.empty
    assert patches(reservation) == []
    assert progress(reservation, cluster) == Bound()


def test_what_no_longer_fits_is_not_reserved() -> None:
    cluster = cluster_with(claim(), volume())
    cluster.set_object(late("kubernetes.io/no-provisioner"))
    assert reserve(on(cluster, "b", using("c"))) == NO_VOLUME
    assert reserve(on(cluster, "a", using("c", "gone"))) == 'persistentvolumeclaim "gone" not found'


# --- assumed objects ----------------------------------------------------------------------------------


def test_a_newer_object_from_the_api_server_ends_an_assumption() -> None:
    cluster = cluster_with(claim(), volume())
    reserved(cluster)
    cluster.set_object(volume())  # a resync of the same version
    assert cluster.store.expected(PV, "v").spec.claim_ref is not None
    cluster.set_object(volume(version="21"))
    assert cluster.store.expected(PV, "v").spec.claim_ref is None
    reserved(cluster)
    cluster.remove_object(volume(version="21"))
    assert cluster.store.expected(PV, "v") is None


def test_an_object_that_changed_meanwhile_cannot_be_assumed() -> None:
    cluster = cluster_with(claim(version="11"))
    with pytest.raises(OutOfSyncError, match=r"'default/c' is out of sync \(stored: 11, assume: 10\)"):
        cluster.store.assume(claim())
    with pytest.raises(OutOfSyncError, match="'default/d' is gone"):
        cluster.store.assume(claim("d"))


def test_giving_back_spares_what_was_written() -> None:
    cluster = cluster_with(claim(), claim("d"), volume())
    reservation = reserved(cluster, "a", "c", "d")
    first = patches(reservation)[0]
    undo(written(reservation, first, resource_version="100"), cluster)
    assert cluster.store.expected(PV, "v").spec.claim_ref is not None
    assert SELECTED not in cluster.store.expected(PVC, "default/d").metadata.annotations


# --- waiting ------------------------------------------------------------------------------------------

REFERENCE = {"namespace": "default", "name": "c", "uid": "uid-c"}


@pytest.mark.parametrize(
    ("what", "told", "expected"),
    [
        ("nothing yet", [], Waiting()),
        ("the volume, not the claim", [volume(version="100", claim_ref=REFERENCE)], Waiting()),
        ("the claim, not the volume", [bound(volume="v")], Waiting()),
        ("both", [volume(version="100", claim_ref=REFERENCE), bound(volume="v")], Bound()),
        ("the volume was let go", [volume(version="101")], Failed('ClaimRef got reset for pv "v"')),
        (
            "the volume moved",
            [volume(version="101", claim_ref=REFERENCE, host="b")],
            Failed('pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_binding_is_waited_for(what: str, told: list[Any], expected: object) -> None:
    cluster = cluster_with(claim(), volume())
    reservation = sent(reserved(cluster))
    for thing in told:
        cluster.set_object(thing)
    assert progress(reservation, cluster) == expected, what


@pytest.mark.parametrize(
    ("what", "told", "expected"),
    [
        ("nothing yet", [], Waiting()),
        ("our own write", [claim(version="100", **{SELECTED.replace("/", "__"): "a"})], Waiting()),
        ("the node was taken off", [claim(version="101")], Failed('provisioning failed for PVC "c"')),
        (
            "bound to a volume not seen yet",
            [claim(version="101", volume="new", **{SELECTED.replace("/", "__"): "a"})],
            Waiting(),
        ),
        (
            "bound to a volume elsewhere",
            [volume("new", host="b"), claim(version="101", volume="new", **{SELECTED.replace("/", "__"): "a"})],
            Failed('pv "new" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        ),
        (
            "done",
            [
                volume("new"),
                claim(
                    version="101",
                    volume="new",
                    **{SELECTED.replace("/", "__"): "a", "pv.kubernetes.io__bind-completed": "yes"},
                ),
            ],
            Bound(),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_provisioning_is_waited_for(what: str, told: list[Any], expected: object) -> None:
    cluster = cluster_with(claim())
    reservation = sent(reserved(cluster))
    for thing in told:
        cluster.set_object(thing)
    assert progress(reservation, cluster) == expected, what


def test_waiting_ends_when_the_node_or_the_claim_is_gone() -> None:
    cluster = cluster_with(claim())
    reservation = sent(reserved(cluster))
    cluster.remove_object(claim())
    assert progress(reservation, cluster) == Failed(
        'failed to check provisioning pvc: persistentvolumeclaim "c" not found'
    )
    cluster.remove_node("a")
    assert progress(reservation, cluster) == Failed('failed to get node "a": node "a" not found')
