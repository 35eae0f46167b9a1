"""Eight nodes that differ in all that a builtin could read of them, and a pod that wants something of everything.

What differs is written down by row, so that tests can say in plain Python what a builtin must return.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.framework.frame import Frame
from tests.lang.clusters import NOW, node, pod, signals

LABELS = ["7", "red", None, "blue-red", "Red", " 2.5 ", "1e3", "n1"]
OTHER = ["red", "red", "x", None, "R", "2.5", "1", "n"]
DURATIONS = ["90s", "1h30m", "10min", None, "5", "7d", "1.5h", "2w"]
TIMES = [
    "2026-11-22T12:53:00Z",
    "20261122T125300Z",
    None,
    "1795351980",
    "soon",
    "2026-11-22",
    "20261122T145300+0200",
    "12",
]
NUMA_MILLIS = [[60_000], [100, 60_000], [100, 200], [], [100], [60_000, 100, 100], [100] * 4, [90_000]]
"""What each NUMA node has available, before what the pods there take: the kubelet shows none of them."""
VOLUME_ROOM = {"a": 7, "b": 9}
"""GiB for volumes of the class `fast`, by zone."""
NEW_VOLUME = 2
"""GiB of such a volume for the wanted pod."""
PRICES = ["0.1", None, "0.4", "1", "0", "0.2", "dear", "0.3"]
"""As the nodes state them."""
CPUS = [2, 4, 6, 8, 10, 12, 16, 20]
SIZE = len(LABELS)
ZONES = ["abc"[row % 3] for row in range(SIZE)]
WEB_PODS = [row % 4 for row in range(SIZE)]
"""Pods with the label `app: web`, as the wanted one has it."""
PORT_TAKEN = [row in (1, 6) for row in range(SIZE)]
VOLUME_ZONES = ("a", "b")
"""Where the volume of the wanted pod can be used."""
MEBIBYTE = 1024 * 1024
IMAGES = {"registry.example/app:1": (600, {1, 2, 5}), "registry.example/setup:1": (900, {2, 3})}
"""The images of the wanted pod: MiB, and the rows that have them."""
SHARE = 460
SHARED_DEVICES = [[], [700], [1000, 1000], [], [700], [1000, 400], [], [400]]
"""What is free of each `amd.com/gpu`, in thousandths."""
CLAIM_DEVICES = [[], [(40, 0, False), (30, 0, False)], [(9, 1, False)], [(16, 0, True), (50, 0, False), (20, 1, False)],
                 [(5, 0, False), (6, 1, False), (7, 1, False)], [(80, 0, False), (90, 0, False)], [(8, 0, True)],
                 [(12, 3, False), (11, 2, True), (13, 3, False), (14, 4, False)]]  # fmt: skip
"""The devices of class `gpu`: memory in bytes, NUMA node, and whether a claim has it."""
CLAIMED = 2
"""Devices that the wanted pod claims."""


def machines() -> Cluster:
    """Return the nodes, with pods on them."""
    made = Cluster()
    for row in range(SIZE):
        labels = {key: value for key, value in (("k", LABELS[row]), ("l", OTHER[row])) if value is not None}
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if row % 3 == 0 else []
        taints += [{"key": "old", "value": "x", "effect": "PreferNoSchedule"}] * (row % 2)
        amounts = {"cpu": str(CPUS[row]), "memory": f"{4 + 3 * (row % 5)}Gi", "nvidia.com/gpu": str(row % 4)}
        shared = len(SHARED_DEVICES[row])
        amounts |= {"amd.com/gpu": str(shared), "amd.com/gpu-milli": str(1000 * shared)} if shared else {}
        written = {"duration": DURATIONS[row], "time": TIMES[row], PRICE_KEY: PRICES[row]}
        images = [{"names": [name], "sizeBytes": size * MEBIBYTE} for name, (size, on) in IMAGES.items() if row in on]
        made.set_node(
            node(
                f"n{row}",
                zone=ZONES[row],
                labels=labels,
                metadata={"annotations": {key: text for key, text in written.items() if text is not None}},
                spec={"taints": taints},
                allocatable=amounts,
                status={"images": images},
            )
        )
        for number in range(WEB_PODS[row]):
            made.place(pod(made, f"p{row}-{number}", cpu=f"{300 + 200 * row}m", labels={"app": "web"}), f"n{row}")
        if PORT_TAKEN[row]:
            made.place(pod(made, f"port{row}", spec={"containers": [{"name": "c", "ports": PORTS}]}), f"n{row}")
        for number, free in enumerate(SHARED_DEVICES[row]):
            if free < 1000:
                requests = {"amd.com/gpu-milli": str(1000 - free)}
                made.place(pod(made, f"share{row}-{number}", requests=requests), f"n{row}")
        _publish(made, row)
    for kind, thing in OBJECTS:
        made.set_object(msgspec.convert(thing, kind))
    for row, zones in enumerate(NUMA_MILLIS):
        resources = [[{"name": "cpu", "available": f"{millis}m"}] for millis in zones]
        body = {
            "metadata": {"name": f"n{row}"},
            "zones": [{"name": "z", "type": "Node", "resources": each} for each in resources],
        }
        made.set_object(msgspec.convert(body, objects.NodeResourceTopology))
    return made


PORTS = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
_VOLUME = {
    "capacity": {"storage": "5Gi"},
    "accessModes": ["ReadWriteMany"],
    "storageClassName": "late",
    "nodeAffinity": {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(VOLUME_ZONES)}
                    ]
                }
            ]
        }
    },
}
_CLAIM = {
    "volumeName": "v",
    "storageClassName": "late",
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "5Gi"}},
}
_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
_REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": CLAIMED}}
_SELECTOR = {"cel": {"expression": 'device.driver == "gpu"'}}
OBJECTS: list[tuple[type, dict[str, Any]]] = [
    (
        objects.StorageClass,
        {"metadata": {"name": "fast"}, "provisioner": "disks", "volumeBindingMode": "WaitForFirstConsumer"},
    ),
    (objects.CSIDriver, {"metadata": {"name": "disks"}, "spec": {"storageCapacity": True}}),
    *(
        (
            objects.CSIStorageCapacity,
            {
                "metadata": {"name": zone, "namespace": "default"},
                "storageClassName": "fast",
                "capacity": f"{gib}Gi",
                "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": zone}},
            },
        )
        for zone, gib in VOLUME_ROOM.items()
    ),
    (objects.StorageClass, {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}),
    (objects.PersistentVolume, {"metadata": {"name": "v"}, "spec": _VOLUME, "status": {"phase": "Bound"}}),
    (
        objects.PersistentVolumeClaim,
        {
            "metadata": {"name": "data", "namespace": "default", "uid": "data", "annotations": _BOUND},
            "spec": _CLAIM,
            "status": {"phase": "Bound"},
        },
    ),
    (
        objects.PersistentVolumeClaim,
        {
            "metadata": {"name": "scratch", "namespace": "default", "uid": "scratch"},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": f"{NEW_VOLUME}Gi"}}},
            "status": {"phase": "Pending"},
        },
    ),
    (objects.DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [_SELECTOR]}}),
    (
        objects.ResourceClaim,
        {
            "metadata": {"name": "gpus", "namespace": "default", "uid": "gpus"},
            "spec": {"devices": {"requests": [_REQUEST]}},
        },
    ),
]


def model_of(memory: int) -> str:
    """Return the model of a device, by its memory."""
    return "large" if memory >= 30 else "small"


def _publish(made: Cluster, row: int) -> None:
    """Publish the devices of a node, and the claims that have some of them."""
    devices = [
        {
            "name": f"d{at}",
            "attributes": {"numa": {"int": numa}, "model": {"string": model_of(memory)}},
            "capacity": {"memory": {"value": str(memory)}},
        }
        for at, (memory, numa, _) in enumerate(CLAIM_DEVICES[row])
    ]
    pool = {"name": f"n{row}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu", "nodeName": f"n{row}", "pool": pool, "devices": devices}
    made.set_object(msgspec.convert({"metadata": {"name": f"s{row}"}, "spec": spec}, objects.ResourceSlice))
    for at, (_, _, taken) in enumerate(CLAIM_DEVICES[row]):
        if taken:
            results = [{"request": "r", "driver": "gpu", "pool": f"n{row}", "device": f"d{at}"}]
            metadata = {"name": f"taken{row}-{at}", "namespace": "default", "uid": f"taken{row}-{at}"}
            status = {"allocation": {"devices": {"results": results}}}
            made.set_object(msgspec.convert({"metadata": metadata, "status": status}, objects.ResourceClaim))


_AFFINITY = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
        ],
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "l", "operator": "In", "values": ["red", "x"]}]}]
        },
    },
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 5,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    },
}
MAX_SKEW = 2


def _constraint(action: str) -> dict[str, Any]:
    return {
        "maxSkew": MAX_SKEW,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "web"}},
        "nodeAffinityPolicy": "Ignore",
    }


def frame_of(cluster: Cluster, rows: list[int] | None = None) -> Frame:
    """Return the decision on the pod that wants something of everything, on all nodes or on some."""
    requests = {"cpu": "2500m", "memory": "1Gi", "nvidia.com/gpu": "1", "amd.com/gpu-milli": str(SHARE)}
    app, setup = IMAGES
    spec = {
        "affinity": _AFFINITY,
        "containers": [{"name": "c", "image": app, "ports": PORTS, "resources": {"requests": requests}}],
        "initContainers": [{"name": "i", "image": setup}],
        "topologySpreadConstraints": [_constraint("DoNotSchedule"), _constraint("ScheduleAnyway")],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "scratch")],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}],
    }
    wanted = pod(cluster, "new", labels={"app": "web"}, spec=spec)
    measured = signals("cpu_usage", {f"n{row}": 10.0 * row + row * row for row in range(SIZE) if row != 5})
    given = {} if rows is None else {"rows": np.array(rows)}
    return Frame(wanted, cluster, NOW, signals=measured, **given)
