"""The four volume plugins: the facts that are easily got wrong, one small cluster each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.volumes.claims import MOST_VOLUMES
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Ready
from kube_policy_scheduler.framework.plugins.node_volume_limits import TOO_MANY, NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.volume_binding import (
    NO_ROOM,
    NO_VOLUME,
    OUT_OF_REACH,
    UNBOUND,
    VOLUME_GONE,
    VolumeBinding,
)
from kube_policy_scheduler.framework.plugins.volume_restrictions import IN_USE, NO_DISK, VolumeRestrictions
from kube_policy_scheduler.framework.plugins.volume_zone import WRONG_ZONE, VolumeZone
from kube_policy_scheduler.framework.status import Status
from kube_policy_scheduler.kubernetes_rules import KubernetesRules, KubernetesVersion
from tests.framework.clusters import HOST, OK, ZONE, Body, add, make_cluster, make_node, pod_body, verdicts, zoned

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def claim(name: str = "c", *, volume: str = "", **more: Any) -> objects.PersistentVolumeClaim:
    spec = {"volumeName": volume, "storageClassName": "late", "accessModes": ["ReadWriteOnce"]}
    spec["resources"] = {"requests": {"storage": more.pop("size", "5Gi")}}
    meta = {"name": name, "namespace": more.pop("namespace", "default"), "uid": f"uid-{name}"}
    meta["annotations"] = more.pop("annotations", DONE if volume else {})
    meta |= more.pop("meta", {})
    status = {"phase": more.pop("phase", "Bound" if volume else "Pending")}
    return msgspec.convert({"metadata": meta, "spec": spec | more, "status": status}, objects.PersistentVolumeClaim)


def volume(name: str = "v", *, on: dict[str, list[str]] | None = None, **more: Any) -> objects.PersistentVolume:
    spec: Body = {"capacity": {"storage": more.pop("size", "5Gi")}, "accessModes": ["ReadWriteOnce"]}
    spec["storageClassName"] = "late"
    if on is not None:
        expressions = [{"key": key, "operator": "In", "values": values} for key, values in on.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    meta = {"name": name, "uid": f"uid-{name}", "labels": more.pop("labels", {})} | more.pop("meta", {})
    status = {"phase": more.pop("phase", "Available")}
    return msgspec.convert({"metadata": meta, "spec": spec | more, "status": status}, objects.PersistentVolume)


def storage_class(name: str = "late", **more: Any) -> objects.StorageClass:
    body = {"metadata": {"name": name}, "volumeBindingMode": "WaitForFirstConsumer", "provisioner": "csi.example.com"}
    return msgspec.convert(body | more, objects.StorageClass)


def csi_node(name: str, *, migrated: str = "", **limits: int | None) -> objects.CSINode:
    drivers = [
        {"name": driver.replace("__", "."), "allocatable": None if count is None else {"count": count}}
        for driver, count in limits.items()
    ]
    meta = {"name": name, "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": migrated}}
    return msgspec.convert({"metadata": meta, "spec": {"drivers": drivers}}, objects.CSINode)


def thing(kind: type, **body: Any) -> Any:
    return msgspec.convert(body, kind)


def using(*claims: str, name: str = "incoming", namespace: str = "default", **inline: Body) -> Body:
    volumes: list[Body] = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    volumes += [{"name": source.lower(), source: body} for source, body in inline.items()]
    return pod_body(name, namespace=namespace, volumes=volumes)


def with_ephemeral(name: str = "incoming") -> Body:
    return pod_body(name, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])


def made_for(pod: str, **more: Any) -> objects.PersistentVolumeClaim:
    owner = {"kind": "Pod", "name": pod, "uid": f"default-{pod}", "controller": True}
    return claim(f"{pod}-scratch", meta={"ownerReferences": [owner]}, **more)


# --- VolumeRestrictions -------------------------------------------------------------------------------

GCE, EBS = "gcePersistentDisk", "awsElasticBlockStore"


def rbd(image: str = "i", *monitors: str, **more: Any) -> Body:
    return {"image": image, "pool": "p", "monitors": list(monitors or ("m1", "m2"))} | more


@pytest.mark.parametrize(
    ("source", "wanted", "used", "conflict"),
    [
        (GCE, {"pdName": "d"}, {"pdName": "d"}, True),
        (GCE, {"pdName": "d"}, {"pdName": "e"}, False),
        (GCE, {"pdName": "d", "readOnly": True}, {"pdName": "d"}, True),
        (GCE, {"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, False),
        (EBS, {"volumeID": "v", "readOnly": True}, {"volumeID": "v", "readOnly": True}, True),
        (EBS, {"volumeID": "v"}, {"volumeID": "w"}, False),
        ("iscsi", {"iqn": "q", "targetPortal": "a", "lun": 0}, {"iqn": "q", "targetPortal": "b", "lun": 1}, True),
        ("iscsi", {"iqn": "q", "readOnly": True}, {"iqn": "q", "readOnly": True}, False),
        ("iscsi", {"iqn": "q"}, {"iqn": "r"}, False),
        ("rbd", rbd("i", "m1", "m2"), rbd("i", "m2", "m3"), True),
        ("rbd", rbd("i", "m1"), rbd("i", "m2"), False),
        ("rbd", rbd("i"), rbd("j"), False),
        ("rbd", rbd("i"), rbd("i", pool="q"), False),
        ("rbd", rbd("i", readOnly=True), rbd("i", readOnly=True), False),
    ],
)
def test_one_disk_on_one_node(source: str, wanted: Body, used: Body, conflict: bool) -> None:
    cluster = make_cluster(zoned(a="a", b="b"))
    add(cluster, using(name="other", namespace="other", **{source: used}), "a")
    found = verdicts(VolumeRestrictions(), cluster, using(**{source: wanted}))
    assert found == {"a": NO_DISK if conflict else OK, "b": OK}


def single(name: str = "c", **more: Any) -> objects.PersistentVolumeClaim:
    return claim(name, accessModes=["ReadWriteOncePod"], **more)


def test_a_claim_for_one_pod_in_use_anywhere_rejects_every_node() -> None:
    cluster = make_cluster(zoned(a="a", b="b"), single(), single(namespace="other"))
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == "skip"
    add(cluster, using("c", name="user", namespace="other"), "a")
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == "skip"
    user = add(cluster, using("c", name="user"), "a")
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == {"a": IN_USE, "b": IN_USE}
    cluster.displace(user.uid)
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == "skip"


def test_a_dry_run_frees_a_claim_by_its_name_alone() -> None:
    cluster = make_cluster(zoned(a="a", b="b"), single(), single(namespace="other"))
    add(cluster, using("c", name="user"), "a")
    stranger = add(cluster, using("c", name="stranger", namespace="other"), "b")
    with cluster.dry_run():
        cluster.displace(stranger.uid)  # kube-scheduler does not compare namespaces here
        assert verdicts(VolumeRestrictions(), cluster, using("c")) == "skip"
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == {"a": IN_USE, "b": IN_USE}


def nominated(cluster: Cluster, name: str, node: str, *, priority: int, created: float = 0.0) -> PodInfo:
    """Nominate a pod that wants the claim c."""
    body = using("c", name=name)
    body["spec"]["priority"] = priority
    pod = msgspec.structs.replace(cluster.templates.pod(msgspec.convert(body, objects.Pod)), created=created)
    cluster.nominate(pod, node)
    return pod


@pytest.mark.parametrize(
    ("priority", "namespace", "expected"),
    [
        (-1, "default", {"a": IN_USE, "b": IN_USE}),
        (5, "default", {"a": IN_USE, "b": IN_USE}),
        (6, "default", "skip"),
        (0, "other", "skip"),
    ],
)
def test_a_claim_for_one_pod_is_kept_for_a_nominated_pod_wherever_it_goes(
    priority: int, namespace: str, expected: Any
) -> None:
    """Somebody was evicted for it. kube-scheduler gives the claim to whoever comes first."""
    cluster = make_cluster(zoned(a="a", b="b"), single(), single(namespace="other"))
    high = nominated(cluster, "high", "a", priority=5)
    body = using("c", namespace=namespace)
    body["spec"]["priority"] = priority
    assert verdicts(VolumeRestrictions(), cluster, body) == expected
    cluster.nominate(high, "")
    assert verdicts(VolumeRestrictions(), cluster, body) == "skip"


def test_of_two_nominated_pods_that_want_a_claim_one_may_have_it() -> None:
    cluster = make_cluster(zoned(a="a", b="b"), single())
    pods = [
        nominated(cluster, name, node, priority=5, created=at)
        for name, node, at in (("younger", "a", 2.0), ("older", "b", 1.0))
    ]
    found = [VolumeRestrictions().pre_filter(Frame(pod, cluster, 0.0)) for pod in pods]
    assert isinstance(found[0], Ready)
    assert found[1] is SKIP


def test_a_disk_is_named_before_a_claim() -> None:
    cluster = make_cluster(zoned(a="a", b="b"), single())
    add(cluster, using("c", name="user", **{GCE: {"pdName": "d"}}), "a")
    found = verdicts(VolumeRestrictions(), cluster, using("c", **{GCE: {"pdName": "d"}}))
    assert found == {"a": NO_DISK, "b": IN_USE}


@pytest.mark.parametrize("plugin", [VolumeRestrictions(), NodeVolumeLimits(), VolumeBinding(), VolumeZone()])
@pytest.mark.parametrize(("number", "rejected"), [(MOST_VOLUMES, False), (MOST_VOLUMES + 1, True)])
def test_a_pod_with_too_many_volumes_is_rejected_at_once(plugin: Any, number: int, rejected: bool) -> None:
    cluster = make_cluster([make_node("a")], claim(volume="v"), volume(), storage_class())
    source = {"persistentVolumeClaim": {"claimName": "c"}}
    body = pod_body("p", volumes=[{"name": f"v{i}", **source} for i in range(number)])
    pod = cluster.templates.pod(msgspec.convert(body, objects.Pod))
    found = plugin.pre_filter(Frame(pod, cluster, 0.0))
    text = f"pod has {number} volumes of claims and disks, expected at most {MOST_VOLUMES}: use fewer"
    assert (isinstance(found, Status) and found.reasons == (text,)) is rejected


def test_a_missing_claim_rejects_the_pod() -> None:
    cluster = make_cluster(zoned(a="a"))
    assert verdicts(VolumeRestrictions(), cluster, using("c")) == '!persistentvolumeclaim "c" not found'


# --- VolumeZone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({ZONE: "a"}, {"a": OK, "b": f"!{WRONG_ZONE}", "none": OK}),
        ({ZONE: "a__b"}, {"a": OK, "b": OK, "none": OK}),
        ({ZONE: "a__"}, "skip"),  # not a list of zones: not looked at
        ({BETA_ZONE: "a"}, {"a": OK, "b": f"!{WRONG_ZONE}", "none": OK}),  # nodes answer with the newer label
        ({"topology.kubernetes.io/region": "r"}, {"a": f"!{WRONG_ZONE}", "b": f"!{WRONG_ZONE}", "none": OK}),
        ({"other": "x"}, "skip"),
    ],
)
def test_a_labelled_volume_is_for_its_zones(labels: dict[str, str], expected: Any) -> None:
    cluster = make_cluster(zoned(a="a", b="b", none=""), claim(volume="v"), volume(labels=labels))
    assert verdicts(VolumeZone(), cluster, using("c")) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        ([], '!persistentvolumeclaim "c" not found'),
        ([claim(volume="gone")], '!persistentvolume "gone" not found'),
        ([claim(storageClassName="")], "!PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim()], '!storageclass.storage.k8s.io "late" not found'),
        ([claim(), storage_class(volumeBindingMode=None)], '!VolumeBindingMode not set for StorageClass "late"'),
        ([claim(), storage_class(volumeBindingMode="Immediate")], "!PersistentVolume had no name"),
        ([claim(), storage_class()], "skip"),
        (
            [claim(annotations={"volume.beta.kubernetes.io/storage-class": "gone"}), storage_class()],
            '!storageclass.storage.k8s.io "gone" not found',
        ),
    ],
)
def test_zones_need_a_volume_to_look_at(things: list[Any], expected: str) -> None:
    assert verdicts(VolumeZone(), make_cluster(zoned(a="a"), *things), using("c")) == expected


# --- NodeVolumeLimits ---------------------------------------------------------------------------------


def csi(name: str, *, handle: str = "", driver: str = "csi.example.com") -> objects.PersistentVolume:
    return volume(name, csi={"driver": driver, "volumeHandle": handle or name})


def limited(limit: int | None, *things: Any) -> Cluster:
    """Return nodes a, with a limit for csi.example.com, and b, without a CSINode; claims c1 to c3 of v1 to v3."""
    numbers = (1, 2, 3)
    return make_cluster(
        zoned(a="a", b="b"),
        csi_node("a", csi__example__com=limit, ebs__csi__aws__com=1),
        storage_class(),
        *(claim(f"c{n}", volume=f"v{n}") for n in numbers),
        *(csi(f"v{n}") for n in numbers),
        *things,
    )


@pytest.mark.parametrize(
    ("what", "limit", "used", "wanted", "fits"),
    [
        ("room left", 2, ["c1"], ["c2"], True),
        ("full", 1, ["c1"], ["c2"], False),
        ("two at once", 2, ["c1"], ["c2", "c3"], False),
        ("a volume that is there already", 1, ["c1"], ["c1"], True),
        ("one there already and one more", 1, ["c1"], ["c1", "c2"], False),
        ("no limit given", None, ["c1"], ["c2", "c3"], True),
        ("limit 0", 0, [], ["c1"], False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_volumes_fit_up_to_the_limit(
    what: str, limit: int | None, used: list[str], wanted: list[str], fits: bool
) -> None:
    cluster = limited(limit)
    add(cluster, using(*used, name="user"), "a")
    found = verdicts(NodeVolumeLimits(), cluster, using(*wanted))
    assert found == {"a": OK if fits else TOO_MANY, "b": OK}, what


def test_pods_that_share_a_volume_use_it_once() -> None:
    cluster = limited(2)
    add(cluster, using("c1", name="one"), "a")
    other = add(cluster, using("c1", name="two"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c2"))["a"] == OK
    cluster.displace(other.uid)
    add(cluster, using("c3", name="three"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c2"))["a"] == TOO_MANY


def test_claims_without_a_volume_count_for_their_class() -> None:
    cluster = limited(1, claim("new"), claim("newer"))
    add(cluster, using("new", name="user"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("newer"))["a"] == TOO_MANY
    assert verdicts(NodeVolumeLimits(), cluster, using("new"))["a"] == OK


def test_claims_of_unknown_classes_and_volumes_of_no_driver_do_not_count() -> None:
    things = claim("odd", storageClassName="gone"), claim("local", volume="disk"), volume("disk")
    cluster = limited(0, *things)
    assert verdicts(NodeVolumeLimits(), cluster, using("odd", "local")) == "skip"


def attachment(name: str, *, volume: str, attacher: str = "csi.example.com") -> objects.VolumeAttachment:
    spec = {"attacher": attacher, "nodeName": "a", "source": {"persistentVolumeName": volume}}
    return thing(objects.VolumeAttachment, metadata={"name": name}, spec=spec)


def test_attachments_count_beside_pods_and_never_twice_with_them() -> None:
    cluster = limited(2, attachment("x", volume="v1"))
    assert verdicts(NodeVolumeLimits(), cluster, using("c2"))["a"] == OK
    assert verdicts(NodeVolumeLimits(), cluster, using("c2", "c3"))["a"] == TOO_MANY
    add(cluster, using("c1", name="user"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c1", "c2"))["a"] == OK


def test_a_volume_that_is_attached_already_is_no_further_one_for_the_pod_that_wants_it_back() -> None:
    """kube-scheduler counts it twice, so that the pod waits until the volume is detached."""
    mine = attachment("x", volume="v1")
    cluster = limited(1, mine)
    assert verdicts(NodeVolumeLimits(), cluster, using("c1"))["a"] == OK
    assert verdicts(NodeVolumeLimits(), cluster, using("c1", "c2"))["a"] == TOO_MANY
    before = add(cluster, using("c1", name="before"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c1"))["a"] == OK
    cluster.displace(before.uid)
    assert verdicts(NodeVolumeLimits(), cluster, using("c1"))["a"] == OK, "still attached"
    add(cluster, using("c2", name="other"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c3"))["a"] == TOO_MANY
    cluster.remove_object(mine)
    assert verdicts(NodeVolumeLimits(), cluster, using("c1"))["a"] == TOO_MANY, "it is used by nobody, and detached"
    assert verdicts(NodeVolumeLimits(), cluster, using("c2"))["a"] == OK


@pytest.mark.parametrize(
    "attached",
    [
        attachment("x", volume="gone"),
        attachment("x", volume="v1", attacher=""),
        attachment("x", volume="v1", attacher="y"),
    ],
)
def test_attachments_that_name_nothing_of_the_driver_do_not_count(attached: objects.VolumeAttachment) -> None:
    assert verdicts(NodeVolumeLimits(), limited(1, attached), using("c2"))["a"] == OK


def test_in_tree_volumes_count_for_the_driver_that_replaced_the_plugin() -> None:
    disk = claim("disk", volume="ebs"), volume("ebs", awsElasticBlockStore={"volumeID": "aws://zone/vol-1"})
    cluster = limited(9, *disk)
    user = add(cluster, using(name="user", **{EBS: {"volumeID": "vol-1"}}), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("disk"))["a"] == OK  # the same volume
    assert verdicts(NodeVolumeLimits(), cluster, using(**{EBS: {"volumeID": "vol-2"}}))["a"] == TOO_MANY
    cluster.displace(user.uid)
    assert verdicts(NodeVolumeLimits(), cluster, using(**{EBS: {"volumeID": "vol-2"}}))["a"] == OK


def test_a_volume_that_changes_is_counted_as_it_is_now() -> None:
    cluster = limited(2)
    add(cluster, using("c1", "c2", name="user"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, using("c3"))["a"] == TOO_MANY
    cluster.set_object(csi("v2", handle="v1"))  # now both claims are one volume
    assert verdicts(NodeVolumeLimits(), cluster, using("c3"))["a"] == OK
    cluster.set_object(claim("c2"))  # and now one of them has none yet
    assert verdicts(NodeVolumeLimits(), cluster, using("c3"))["a"] == TOO_MANY
    cluster.set_object(csi_node("a", csi__example__com=3))
    assert verdicts(NodeVolumeLimits(), cluster, using("c3"))["a"] == OK


def test_ephemeral_claims_count_if_they_are_the_pods_own() -> None:
    cluster = limited(1, made_for("incoming"), made_for("user", volume="v1"))
    add(cluster, with_ephemeral("user"), "a")
    assert verdicts(NodeVolumeLimits(), cluster, with_ephemeral())["a"] == TOO_MANY
    cluster.set_object(claim("incoming-scratch"))
    assert verdicts(NodeVolumeLimits(), cluster, with_ephemeral())["b"] == (
        "error: PVC default/incoming-scratch was not created for pod default/incoming (pod is not owner)"
    )


def csi_driver(name: str, *, must_be_there: bool = True) -> objects.CSIDriver:
    return thing(  # type: ignore[no-any-return]
        objects.CSIDriver, metadata={"name": name}, spec={"preventPodSchedulingIfMissing": must_be_there}
    )


def on_disk(name: str, **more: Any) -> objects.PersistentVolume:
    return volume(name, csi={"driver": "d.example.com", "volumeHandle": name}, phase="Bound", **more)


LACKS_D = "d.example.com CSI driver is not installed on the node"
LACKS_CSI = "csi.example.com CSI driver is not installed on the node"
GCE_VOLUME = {"gcePersistentDisk": {"pdName": "disk"}, "labels": {"topology.kubernetes.io/zone": "a"}}


@pytest.mark.parametrize(
    ("what", "things", "expected"),
    [
        ("nobody asks", [], {"has": OK, "other": OK, "none": OK}),
        ("the driver does not ask", [csi_driver("d.example.com", must_be_there=False)], {"other": OK, "none": OK}),
        ("bound", [csi_driver("d.example.com")], {"has": OK, "other": LACKS_D, "none": LACKS_D}),
        (
            "provisioned",
            [csi_driver("csi.example.com"), claim("c"), storage_class()],
            {"has": LACKS_CSI, "other": OK, "none": LACKS_CSI},
        ),
        (
            "in-tree, migrated where the node has a CSINode",
            [csi_driver("pd.csi.storage.gke.io"), volume("v", phase="Bound", **GCE_VOLUME)],
            {"other": "pd.csi.storage.gke.io CSI driver is not installed on the node", "none": OK},
        ),
        (
            "the driver that is missing is told before the limit of another",
            [csi_driver("d.example.com"), csi_node("other", csi__example__com=0), claim("e"), storage_class()],
            {"other": LACKS_D},
        ),
    ],
)
def test_since_1_37_drivers_may_ask_for_nodes_that_have_them(what: str, things: list[Any], expected: Body) -> None:
    first = [
        on_disk("v"),
        claim("c", volume="v"),
        csi_node("has", d__example__com=9),
        csi_node("other", csi__example__com=9),
    ]
    claims = (
        ["c", "e"]
        if any(isinstance(t, objects.PersistentVolumeClaim) and t.metadata.name == "e" for t in things)
        else ["c"]
    )
    found = {}
    for rules in (KubernetesRules(KubernetesVersion(36)), KubernetesRules(KubernetesVersion(37))):
        cluster = Cluster(rules)
        for name in ("has", "other", "none"):
            cluster.set_node(make_node(name))
        for each in (*first, *things):
            cluster.set_object(each)
        found[str(rules)] = verdicts(NodeVolumeLimits(), cluster, using(*claims))

    assert {name: found["1.37"][name] for name in expected} == expected, what
    assert LACKS_D not in found["1.36"].values()


def test_limits_of_a_missing_claim_cannot_be_judged() -> None:
    text = '!looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    assert verdicts(NodeVolumeLimits(), limited(9), using("gone")) == {"a": text, "b": text}


# --- VolumeBinding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("things", "body", "expected"),
    [
        ([], pod_body(), "skip"),
        ([], using("c"), '!persistentvolumeclaim "c" not found'),
        (
            [],
            with_ephemeral(),
            '!waiting for ephemeral volume controller to create the persistentvolumeclaim "incoming-scratch"',
        ),
        (
            [claim("incoming-scratch")],
            with_ephemeral(),
            "!PVC default/incoming-scratch was not created for pod default/incoming (pod is not owner)",
        ),
        (
            [claim(volume="v", phase="Lost")],
            using("c"),
            '!persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        (
            [claim(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            using("c"),
            '!persistentvolumeclaim "c" is being deleted',
        ),
        ([claim()], using("c"), f"!{UNBOUND}"),  # no such class: as if immediate
        ([claim(), storage_class(volumeBindingMode="Immediate")], using("c"), f"!{UNBOUND}"),
        ([claim(volume="v", annotations={}), storage_class()], using("c"), f"!{UNBOUND}"),  # prebound
        (
            [claim(), storage_class(volumeBindingMode=None)],
            using("c"),
            'error: VolumeBindingMode not set for StorageClass "late"',
        ),
    ],
)
def test_claims_that_nothing_can_be_done_about(things: list[Any], body: Body, expected: str) -> None:
    assert verdicts(VolumeBinding(), make_cluster(zoned(a="a"), *things), body) == expected


IN_A = {"a": OK, "b": f"!{OUT_OF_REACH}"}


@pytest.mark.parametrize(
    ("what", "things", "expected"),
    [
        ("within reach", [volume(on={ZONE: ["a"]})], IN_A),
        ("anywhere", [volume()], {"a": OK, "b": OK}),
        ("gone", [], dict.fromkeys("ab", f"!{VOLUME_GONE}")),
        ("an affinity without terms", [volume(nodeAffinity={"required": {}})], dict.fromkeys("ab", f"!{OUT_OF_REACH}")),
        (
            "fields are not looked at",
            [
                volume(
                    nodeAffinity={
                        "required": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["z"]}]}
                            ]
                        }
                    }
                )
            ],
            {"a": OK, "b": OK},
        ),
        (
            "an in-tree volume, not migrated",
            [volume(on={ZONE: ["a"]}, awsElasticBlockStore={"volumeID": "vol-1"}), csi_node("a")],
            IN_A,
        ),
        (
            "an in-tree volume, migrated on b",
            [
                volume(on={ZONE: ["a"]}, awsElasticBlockStore={"volumeID": "vol-1"}),
                csi_node("b", migrated="kubernetes.io/aws-ebs"),
            ],
            {"a": OK, "b": OK},  # b carries the driver's own label, see below
        ),
        (
            "an in-tree volume known by its labels, migrated on a and b",
            [
                volume(labels={ZONE: "a__c"}, awsElasticBlockStore={"volumeID": "vol-1"}),
                csi_node("a", migrated="kubernetes.io/aws-ebs"),
                csi_node("b", migrated="kubernetes.io/gce-pd,kubernetes.io/aws-ebs"),
            ],
            {"a": f"!{OUT_OF_REACH}", "b": OK},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bound_volumes_must_be_in_reach(what: str, things: list[Any], expected: Body) -> None:
    nodes = [make_node("a", {ZONE: "a"}), make_node("b", {ZONE: "b", "topology.ebs.csi.aws.com/zone": "a"})]
    assert verdicts(VolumeBinding(), make_cluster(nodes, claim(volume="v"), *things), using("c")) == expected, what


BY_HAND = storage_class(provisioner="kubernetes.io/no-provisioner")
NOTHING = f"!{NO_VOLUME}"


@pytest.mark.parametrize(
    ("what", "claims", "volumes", "expected"),
    [
        ("one that fits, on a", [claim()], [volume(on={HOST: ["a"]})], {"a": OK, "b": NOTHING}),
        ("too small", [claim(size="6Gi")], [volume()], dict.fromkeys("ab", NOTHING)),
        ("another class", [claim()], [volume(storageClassName="x")], dict.fromkeys("ab", NOTHING)),
        ("another mode", [claim(volumeMode="Block")], [volume()], dict.fromkeys("ab", NOTHING)),
        ("access it does not give", [claim(accessModes=["ReadWriteMany"])], [volume()], dict.fromkeys("ab", NOTHING)),
        ("other attributes", [claim(volumeAttributesClassName="gold")], [volume()], dict.fromkeys("ab", NOTHING)),
        ("not available", [claim()], [volume(phase="Released")], dict.fromkeys("ab", NOTHING)),
        (
            "going",
            [claim()],
            [volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            dict.fromkeys("ab", NOTHING),
        ),
        ("not selected", [claim(selector={"matchLabels": {"k": "v"}})], [volume()], dict.fromkeys("ab", NOTHING)),
        ("selected", [claim(selector={"matchLabels": {"k": "v"}})], [volume(labels={"k": "v"})], {"a": OK, "b": OK}),
        (
            "somebody else's",
            [claim()],
            [volume(claimRef={"namespace": "x", "name": "c"})],
            dict.fromkeys("ab", NOTHING),
        ),
        (
            "reserved, though not available and of another class",
            [claim()],
            [volume(claimRef={"namespace": "default", "name": "c"}, phase="Bound", storageClassName="late")],
            {"a": OK, "b": OK},
        ),
        (
            "reserved by another uid",
            [claim()],
            [volume(claimRef={"namespace": "default", "name": "c", "uid": "old"})],
            dict.fromkeys("ab", NOTHING),
        ),
        (
            "a reserved one out of reach is not replaced by another",
            [claim()],
            [volume(on={HOST: ["a"]}, claimRef={"namespace": "default", "name": "c"}), volume("w")],
            {"a": OK, "b": NOTHING},
        ),
        ("one volume for two claims", [claim(), claim("d")], [volume()], dict.fromkeys("ab", NOTHING)),
        (
            "the small claim leaves the large volume to the other",
            [claim(size="5Gi"), claim("d", size="1Gi")],
            [volume("large", size="5Gi"), volume("small", size="1Gi", on={HOST: ["a"]})],
            {"a": OK, "b": NOTHING},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_waiting_claims_find_existing_volumes(what: str, claims: list[Any], volumes: list[Any], expected: Body) -> None:
    cluster = make_cluster(zoned(a="a", b="b"), BY_HAND, *claims, *volumes)
    assert verdicts(VolumeBinding(), cluster, using(*(c.metadata.name for c in claims))) == expected, what


def room(size: str, *, zone: str | None = "a", **more: Any) -> objects.CSIStorageCapacity:
    topology = {"nodeTopology": {"matchLabels": {ZONE: zone}}} if zone else {}
    return thing(
        objects.CSIStorageCapacity,
        metadata={"name": f"{zone}-{size}", "namespace": "x"},
        storageClassName=more.pop("storageClassName", "late"),
        capacity=size,
        **topology,
        **more,
    )


DRIVER = thing(objects.CSIDriver, metadata={"name": "csi.example.com"}, spec={"storageCapacity": True})
FULL = f"!{NO_ROOM}"


def allowed(*terms: dict[str, list[str]]) -> objects.StorageClass:
    return storage_class(
        allowedTopologies=[
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in terms
        ]
    )


@pytest.mark.parametrize(
    ("what", "things", "expected"),
    [
        ("anywhere", [storage_class()], {"a": OK, "b": OK}),
        ("where the class allows", [allowed({ZONE: ["a", "c"]})], {"a": OK, "b": NOTHING}),
        ("any of its terms", [allowed({ZONE: ["a"], HOST: ["b"]}, {HOST: ["b"]})], {"a": NOTHING, "b": OK}),
        ("an empty term allows nothing", [allowed({})], dict.fromkeys("ab", NOTHING)),
        ("no provisioner", [BY_HAND], dict.fromkeys("ab", NOTHING)),
        ("room in a", [storage_class(), DRIVER, room("5Gi")], {"a": OK, "b": FULL}),
        ("too little room", [storage_class(), DRIVER, room("4Gi")], dict.fromkeys("ab", FULL)),
        (
            "a smaller maximum",
            [storage_class(), DRIVER, room("9Gi", maximumVolumeSize="1Gi")],
            dict.fromkeys("ab", FULL),
        ),
        ("a larger maximum", [storage_class(), DRIVER, room("1Gi", maximumVolumeSize="9Gi")], {"a": OK, "b": FULL}),
        (
            "room of another class",
            [storage_class(), DRIVER, room("9Gi", storageClassName="x")],
            dict.fromkeys("ab", FULL),
        ),
        ("room nobody reaches", [storage_class(), DRIVER, room("9Gi", zone=None)], dict.fromkeys("ab", FULL)),
        ("a driver that does not report", [storage_class(), room("1Gi")], {"a": OK, "b": OK}),
        ("topology before room", [allowed({ZONE: ["a"]}), DRIVER], {"a": FULL, "b": NOTHING}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_waiting_claims_without_a_volume_are_provisioned(what: str, things: list[Any], expected: Body) -> None:
    cluster = make_cluster(zoned(a="a", b="b"), claim(), *things)
    assert verdicts(VolumeBinding(), cluster, using("c")) == expected, what


def test_a_selected_node_stays_the_only_one() -> None:
    selected = claim(annotations={"volume.kubernetes.io/selected-node": "b"})
    cluster = make_cluster(zoned(a="a", b="b"), selected, storage_class())
    assert verdicts(VolumeBinding(), cluster, using("c")) == {"a": NOTHING, "b": OK}
    cluster.remove_node("b")
    assert verdicts(VolumeBinding(), cluster, using("c")) == {"a": NOTHING}


def test_bound_and_unbound_claims_both_have_reasons() -> None:
    cluster = make_cluster(
        zoned(a="a", b="b"), BY_HAND, claim("bound", volume="v"), volume(on={HOST: ["a"]}, phase="Bound"), claim("open")
    )
    found = verdicts(VolumeBinding(), cluster, using("bound", "open"))
    assert found == {"a": NOTHING, "b": f"!{NO_VOLUME}; {OUT_OF_REACH}"}
