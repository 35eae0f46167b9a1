"""Volumes of the benchmarks: each pod has a claim, bound to a volume of an in-tree plugin or of a CSI driver."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from tests.benchmarks.manifests import NAMESPACE, Json, pod

DRIVER = "ebs.csi.aws.com"
_PER_NODE = 39
_BOUND = {"pv.kubernetes.io/bind-completed": "true"}


def using_pod(name: str) -> Json:
    """Return a pod that uses the claim of its own name."""
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])


def claim_and_volume(name: str, *, csi: bool) -> tuple[Any, ...]:
    """Return a claim and the volume that it is bound to, as objects of the cluster."""
    source = {"csi": {"driver": DRIVER, "volumeHandle": name}} if csi else {"awsElasticBlockStore": {"volumeID": name}}
    both = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    claim = {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"claim/{name}", "annotations": _BOUND},
        "spec": both | {"volumeName": f"pv-{name}", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    }
    volume = {
        "metadata": {"name": f"pv-{name}", "uid": f"volume/{name}"},
        "spec": both
        | source
        | {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"name": name, "namespace": NAMESPACE, "uid": f"claim/{name}"},
        },
        "status": {"phase": "Bound"},
    }
    return (
        msgspec.convert(claim, objects.PersistentVolumeClaim),
        msgspec.convert(volume, objects.PersistentVolume),
    )


def add_drivers(cluster: Cluster, nodes: int) -> None:
    """Install the CSI driver on each node, which has taken over from the in-tree plugin."""
    for number in range(nodes):
        node = {
            "metadata": {
                "name": f"node-{number}",
                "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
            },
            "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": _PER_NODE}}]},
        }
        cluster.set_object(msgspec.convert(node, objects.CSINode))
