"""What the demo does, step by step: a policy, pods, and where they must be for the step to count.

The checks know the fixture and what each policy says; they ask the scheduler nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TENANTS = ("red", "green", "blue", "gold")
SCHEDULER = "policy-scheduler"
ZONE = "topology.kubernetes.io/zone"
USAGE_ANNOTATION = "demo/cpu-usage-percent"

CARD = """\
filter node.ready and fits(cpu, mem)
score 2 * (100 - promql("cpu_usage"))
score -1 if label node=hello
spread by pod.label.tenant
"""

ONE_ZONE = """\
require pod label tenant else "pod missing tenant label"
filter node.ready and fits(cpu, mem)
filter label topology.kubernetes.io/zone=zone-b else "not in zone-b"
score 2 * (100 - promql("cpu_usage"))
spread by pod.label.tenant
"""

BROKEN = """\
filter node.redy and fits(cpu, mem)
"""

MENDED = """\
filter node.ready and fits(cpu, mem)
filter label topology.kubernetes.io/zone notin (zone-b) else "zone-b is being emptied"
score 2 * (100 - promql("cpu_usage"))
spread by pod.label.tenant
"""

PACKED = """\
filter node.ready and fits(cpu, mem)
score -class_devices_left("gpu")
"""


@dataclass(frozen=True, slots=True)
class Node:
    """What the checks need to know of a node, read from the fixture."""

    name: str
    zone: str
    usage_percent: float
    ready: bool
    labels: Mapping[str, str]


Nodes = Mapping[str, Node]
Placed = Mapping[str, str]
"""Node by pod name, for the pods of one step."""
Check = Callable[[Placed, Nodes], list[str]]
"""Returns what is wrong; nothing if all is as the policy says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the demo."""

    title: str
    policy: str
    pods: Sequence[dict[str, Any]]
    check: Check
    accepted: bool = True
    """Whether the daemon should take the policy; if not, the one before stays in force."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """Pods that must stay pending, with a part of the reason they are given."""


def nodes_of(items: Sequence[Mapping[str, Any]]) -> Nodes:
    """Return the fixture's nodes by name."""
    found = {}
    for item in items:
        meta = item["metadata"]
        conditions = {c["type"]: c["status"] for c in item["status"]["conditions"]}
        found[meta["name"]] = Node(
            name=meta["name"],
            zone=meta["labels"][ZONE],
            usage_percent=float(meta["annotations"][USAGE_ANNOTATION]),
            ready=conditions.get("Ready") == "True",
            labels=meta["labels"],
        )
    return found


def pod(name: str, *, tenant: str | None, cpu: str = "1") -> dict[str, Any]:
    """Return a pod as one would `kubectl create` it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "demo", **({"tenant": tenant} if tenant else {})}},
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/demo:1",
                    "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
                }
            ],
        },
    }


DRIVER = "gpu.example.com"
GPUS_PER_NODE = 4


def devices_of(nodes: Nodes) -> list[dict[str, Any]]:
    """Return what a simulated driver publishes: four GPUs on each node of zone-c; a class; templates of claims."""
    kind = {"apiVersion": "resource.k8s.io/v1"}
    own = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    found: list[dict[str, Any]] = [
        {**kind, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": own}},
        _template("gpu", {}),
        _template("large-gpu", {"selectors": [{"cel": {"expression": _memory_of_at_least("80Gi")}}]}),
    ]
    for node in nodes.values():
        if node.zone == "zone-c":
            devices = [
                {
                    "name": f"gpu-{number}",
                    "attributes": {"model": {"string": "demo"}, "numa": {"int": number // 2}},
                    "capacity": {"memory": {"value": "40Gi"}},
                }
                for number in range(GPUS_PER_NODE)
            ]
            spec = {
                "driver": DRIVER,
                "nodeName": node.name,
                "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            }
            found.append({**kind, "kind": "ResourceSlice", "metadata": {"name": f"{node.name}-gpus"}, "spec": spec})
    return found


def _memory_of_at_least(amount: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{amount}")) >= 0'


def _template(name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", **more}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def claiming(name: str, *, template: str) -> dict[str, Any]:
    """Return a pod that claims a device by a template."""
    made = pod(name, tenant=_tenant_of(name))
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def _tenant_of(name: str) -> str:
    return name.split("-")[0]


def coolest_and_spread(placed: Placed, nodes: Nodes) -> list[str]:
    """Check the card: every tenant once on each ready node of least CPU, those labelled node=hello left alone.

    There are 12 such nodes, one of them labelled, and 11 pods of each tenant: a second pod of a tenant on a
    cool node, or one on a warmer node, or one on node=hello, would have scored less.
    """
    least = min(node.usage_percent for node in nodes.values() if node.ready)
    wanted = {
        n.name for n in nodes.values() if n.ready and n.usage_percent == least and n.labels.get("node") != "hello"
    }
    problems = []
    for tenant in TENANTS:
        mine = Counter(node for name, node in placed.items() if _tenant_of(name) == tenant)
        for node in sorted(wanted | mine.keys()):
            expected = int(node in wanted)
            if mine[node] != expected:
                problems.append(f"tenant {tenant} has {mine[node]} pods on {node}, expected {expected}")
    return problems


def only_zone_b(placed: Placed, nodes: Nodes) -> list[str]:
    """Check that every pod is on a ready node of zone-b."""
    return [
        f"{name} is on {node} in {nodes[node].zone}, expected a ready node of zone-b"
        for name, node in sorted(placed.items())
        if nodes[node].zone != "zone-b" or not nodes[node].ready
    ]


def anywhere_but_zone_b(placed: Placed, nodes: Nodes) -> list[str]:
    """Check that every pod is on a ready node outside zone-b."""
    return [
        f"{name} is on {node} in {nodes[node].zone}, expected a ready node outside zone-b"
        for name, node in sorted(placed.items())
        if nodes[node].zone == "zone-b" or not nodes[node].ready
    ]


def two_full_nodes(placed: Placed, nodes: Nodes) -> list[str]:
    """Check that the pods that claim GPUs fill nodes of zone-c, one after the other."""
    per_node = Counter(placed.values())
    wrong = [f"{name} is in {nodes[name].zone}, which has no GPUs" for name in per_node if nodes[name].zone != "zone-c"]
    if sorted(per_node.values()) != [GPUS_PER_NODE, GPUS_PER_NODE]:
        wrong.append(f"nodes hold {dict(per_node)}, expected {GPUS_PER_NODE} pods on each of two nodes")
    return wrong


STEPS = (
    Step(
        "four lines: ready nodes with enough room, low CPU usage first, tenants spread",
        CARD,
        [pod(f"{tenant}-{number:02d}", tenant=tenant) for number in range(1, 12) for tenant in TENANTS],
        coolest_and_spread,
    ),
    Step(
        "an edit while the scheduler runs: only zone-b, and a tenant label is required",
        ONE_ZONE,
        [
            *(pod(f"{tenant}-b{number}", tenant=tenant) for number in range(1, 4) for tenant in TENANTS),
            pod("nobody-1", tenant=None),
            pod("giant-1", tenant="red", cpu="500"),
        ],
        only_zone_b,
        pending={"nobody-1": "pod missing tenant label", "giant-1": "Insufficient cpu"},
    ),
    Step(
        "a broken edit changes nothing: the last good policy stays active",
        BROKEN,
        [pod(f"{tenant}-c1", tenant=tenant) for tenant in TENANTS],
        only_zone_b,
        accepted=False,
    ),
    Step(
        "a corrected edit: all zones except zone-b",
        MENDED,
        [pod(f"{tenant}-d1", tenant=tenant) for tenant in TENANTS],
        anywhere_but_zone_b,
    ),
    Step(
        "devices: each pod claims a GPU, and nodes with few GPUs left come first",
        PACKED,
        [
            *(claiming(f"{tenant}-gpu{number}", template="gpu") for number in (1, 2) for tenant in TENANTS),
            claiming("red-large", template="large-gpu"),
        ],
        two_full_nodes,
        pending={"red-large": "cannot allocate all claims"},
    ),
)
