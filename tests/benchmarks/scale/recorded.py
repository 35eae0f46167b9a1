"""Nodes and pods as bytes, of the size that API servers send: images, annotations, conditions, `managedFields`.

A node with ten images takes about 9 kB, a pod about 5 kB. Both are templates that are filled in, so that a page of 500
objects takes a few milliseconds to make.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.benchmarks.manifests import Json

TEMPLATES = 50
"""Workloads that the pods belong to, in turn."""
ZONES = 3
CPUS = 16
IMAGES_PER_NODE = 10
_IMAGES = 120
"""Different images on all nodes."""
NODE_STATES = 5
"""States that a static change puts a node in, by number; 0 is the first one."""
PAGE = b'{"kind":"%bList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":"%b"%b},"items":[%b]}'

_FIELDS = (
    '{"manager":"%s","operation":"Update","apiVersion":"v1","time":"2026-11-20T08:00:00Z","fieldsType":"FieldsV1",'
    '"fieldsV1":{"f:metadata":{"f:annotations":{".":{},%s}},"f:status":{%s}}}'
)


def _managed(manager: str, fields: int) -> str:
    names = ",".join(f'"f:field-{number}-of-{manager}":{{".":{{}},"f:value":{{}}}}' for number in range(fields))
    return _FIELDS % (manager, names, names)


def _image(number: int) -> str:
    name = f"registry.example.com/team-{number % 12}/service-{number}"
    return json.dumps({"names": [f"{name}@sha256:{number:064x}", f"{name}:v1.{number}"], "sizeBytes": 10**7 * number})


_IMAGE_TEXTS = [_image(number + 1) for number in range(_IMAGES)]
_IMAGE_LISTS = [
    ",".join(_IMAGE_TEXTS[(start + 7 * step) % _IMAGES] for step in range(IMAGES_PER_NODE)).encode()
    for start in range(_IMAGES)
]


def _slots(manifest: Json) -> bytes:
    """Return a manifest as JSON where `@name@` stands for a value that is filled in by `%`."""
    text = json.dumps(manifest, separators=(",", ":")).replace("%", "%%")
    for name in ("n", "image", "beat", "version", "zone", "state", "node", "t", "at"):
        text = text.replace(f'"@#{name}@"', f"%({name})b").replace(f"@{name}@", f"%({name})b")
    return text.encode()


def _condition(kind: str, status: str, reason: str) -> Json:
    times = {"lastHeartbeatTime": "2026-11-22T10:@beat@Z", "lastTransitionTime": "2026-11-20T08:00:00Z"}
    return {"type": kind, "status": status, **times, "reason": reason, "message": f"kubelet says: {reason}"}


def _node_template(state: int) -> bytes:
    """Return a node in one of its states: as it began, or with another label, taint, condition or image."""
    labels: Json = {
        "kubernetes.io/hostname": "node-@n@",
        "topology.kubernetes.io/zone": "moon-@zone@",
        "topology.kubernetes.io/region": "moon",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m7.4xlarge",
        "pool": "pool-@zone@",
        "disk": "ssd" if state != 1 else "hdd",
        "example.com/nodepool": "general",
        "example.com/capacity-type": "on-demand",
    }
    taints = [{"key": "maintenance", "value": "soon", "effect": "PreferNoSchedule"}] if state == 2 else []
    resources = {
        "cpu": str(CPUS),
        "memory": "65536000Ki",
        "ephemeral-storage": "94477937300",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": "110",
    }
    pressure = "True" if state == 3 else "False"
    images = ["@#image@"] + ([{"names": ["registry.example.com/new:v1"], "sizeBytes": 52428800}] if state == 4 else [])
    return _slots(
        {
            "metadata": {
                "name": "node-@n@",
                "uid": "6f1de2c4-0000-4000-8000-@n@",
                "resourceVersion": "@version@",
                "creationTimestamp": "2026-11-20T08:00:00Z",
                "labels": labels,
                "annotations": {
                    "csi.volume.kubernetes.io/nodeid": '{"disk.csi.example.com":"i-@n@","file.csi.example.com":"@n@"}',
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
                    "network.example.com/ipv4-address": "10.0.0.1/16",
                    "network.example.com/tunnel": "192.168.0.1",
                },
                "managedFields": [json.loads(_managed("kubelet", 24)), json.loads(_managed("controller", 8))],
            },
            "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "moon:///i-@n@"}
            | ({"taints": taints} if taints else {}),
            "status": {
                "capacity": resources,
                "allocatable": resources | {"memory": "64512000Ki"},
                "conditions": [
                    _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    _condition("DiskPressure", pressure, "KubeletHasDiskPressure"),
                    _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                    _condition("Ready", "True", "KubeletReady"),
                ],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "Hostname", "address": "node-@n@"},
                    {"type": "InternalDNS", "address": "node-@n@.moon.internal"},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": "ec2a@n@",
                    "systemUUID": "ec2a-@n@",
                    "bootID": "b00t-@n@",
                    "kernelVersion": "6.12.40-63.114.amzn2023.x86_64",
                    "osImage": "Amazon Linux 2023",
                    "containerRuntimeVersion": "containerd://2.1.4",
                    "kubeletVersion": "v1.36.2",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
                "images": images,
            },
        }
    )


_NODES = [_node_template(state) for state in range(NODE_STATES)]


def _pod_template(number: int) -> bytes:
    """Return a pod of one of the workloads: a Deployment's, with one container and a token."""
    app = f"app-{number}"
    labels = {"app": app, "pod-template-hash": f"5d8f{number:04}", "tenant": f"tenant-{number % 10}"}
    mount = {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    tolerations = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    conditions: list[Any] = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-11-21T09:@at@Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    image = f"registry.example.com/team-{number % 12}/service-{number % _IMAGES}:v1.{number}"
    return _slots(
        {
            "metadata": {
                "name": f"{app}-5d8f{number:04}-@n@",
                "generateName": f"{app}-5d8f{number:04}-",
                "namespace": f"team-{number % 10}",
                "uid": "c0ffee00-0000-4000-8000-@n@",
                "resourceVersion": "@version@",
                "creationTimestamp": "2026-11-21T09:@at@Z",
                "labels": labels,
                "annotations": {"checksum/config": f"{number:064x}", "prometheus.io/scrape": "true"},
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": f"{app}-5d8f{number:04}",
                        "uid": f"0e0e0e0e-0000-4000-8000-{number:012}",
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
                "managedFields": [json.loads(_managed("kubelet", 12)), json.loads(_managed("controller", 12))],
            },
            "spec": {
                "volumes": [
                    {"name": "kube-api-access", "projected": {"sources": [{"configMap": {"name": "root-ca"}}]}}
                ],
                "containers": [
                    {
                        "name": "main",
                        "image": image,
                        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                        "env": [{"name": f"SETTING_{each}", "value": f"value of {each}"} for each in range(8)],
                        "resources": {
                            "requests": {"cpu": "500m", "memory": f"{256 + 16 * (number % 8)}Mi"},
                            "limits": {"memory": "1Gi"},
                        },
                        "volumeMounts": [mount],
                        "livenessProbe": probe,
                        "readinessProbe": probe,
                        "terminationMessagePath": "/dev/termination-log",
                        "imagePullPolicy": "IfNotPresent",
                    }
                ],
                "restartPolicy": "Always",
                "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "default",
                "nodeName": "@node@",
                "schedulerName": "policy-scheduler",
                "tolerations": tolerations,
                "priority": 0,
                "enableServiceLinks": True,
                "preemptionPolicy": "PreemptLowerPriority",
            },
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "hostIP": "10.0.0.1",
                "podIP": "10.1.0.9",
                "podIPs": [{"ip": "10.1.0.9"}],
                "startTime": "2026-11-21T09:@at@Z",
                "containerStatuses": [
                    {
                        "name": "main",
                        "state": {"running": {"startedAt": "2026-11-21T09:@at@Z"}},
                        "ready": True,
                        "restartCount": 0,
                        "image": image,
                        "imageID": f"registry.example.com/service@sha256:{number:064x}",
                        "containerID": "containerd://8f0e@n@",
                        "started": True,
                    }
                ],
                "qosClass": "Burstable",
            },
        }
    )


_PODS = [_pod_template(number) for number in range(TEMPLATES)]


def _clock(number: int) -> bytes:
    return b"%02d:%02d" % (number // 60 % 60, number % 60)


def node(number: int, *, state: int = 0, beat: int = 0, version: int = 1) -> bytes:
    """Return the node `node-NUMBER`.

    Args:
        number: of the node.
        state: one of `NODE_STATES`.
        beat: seconds of its last heartbeat.
        version: its resource version.
    """
    return _NODES[state] % {
        b"n": b"%d" % number,
        b"zone": b"%d" % (1 + number % ZONES),
        b"image": _IMAGE_LISTS[number % _IMAGES],
        b"beat": _clock(beat),
        b"version": b"%d" % version,
    }


def pod(number: int, *, node_name: str = "", version: int = 1) -> bytes:
    """Return a pod of template `number % TEMPLATES`, bound unless `node_name` is ""."""
    return _PODS[number % TEMPLATES] % {
        b"n": b"%012d" % number,
        b"node": node_name.encode(),
        b"version": b"%d" % version,
        b"at": _clock(number),
    }


def page(kind: str, items: Iterable[bytes], *, version: int, token: str = "", remaining: int | None = None) -> bytes:
    """Return one page of a list; `token` continues it, and `remaining` objects are in later pages."""
    more = b"" if remaining is None else b',"remainingItemCount":%d' % remaining
    return PAGE % (kind.encode(), version, token.encode(), more, b",".join(items))


def line(kind: str, thing: bytes) -> bytes:
    """Return a line of a watch: ADDED, MODIFIED or DELETED."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), thing)


def series(nodes: int, *, promql: str, at: float, offset: int = 0) -> bytes:
    """Return an answer of Prometheus with a value for each node, other ones for another offset."""
    values = (
        b'{"metric":{"__name__":"%b","instance":"10.0.0.1:9100","job":"node","node":"node-%d"},"value":[%.3f,"%d.5"]}'
        % (promql.encode(), number, at, 5 + (number * 7919 + offset) % 55)
        for number in range(nodes)
    )
    return b'{"status":"success","data":{"resultType":"vector","result":[%b]}}' % b",".join(values)
