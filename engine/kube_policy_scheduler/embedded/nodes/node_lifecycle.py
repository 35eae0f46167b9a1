"""What kubelets and the node lifecycle controller write into nodes. Pure: objects are changed in place."""

from __future__ import annotations

import zlib

from kube_policy_scheduler.embedded.errors import Json

_PREFIX = "node.kubernetes.io/"
_CONDITION_TAINTS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
_EVICTING = frozenset({"not-ready", "unreachable"})
"""Taints that come with effect NoExecute too."""
_MANAGED = frozenset({*_CONDITION_TAINTS.values(), "unschedulable"})
_NODE_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_INFO = {
    "kubeletVersion": "v1.36.2",
    "osImage": "Embedded",
    "kernelVersion": "0",
    "containerRuntimeVersion": "embedded://1",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def condition(node: Json, name: str) -> str:
    """Return the status of a condition, empty where the node does not have it."""
    for item in (node.get("status") or {}).get("conditions") or ():
        if item.get("type") == name:
            return str(item.get("status", ""))
    return ""


def node_address(name: str) -> str:
    """Return an address for a node, always the same for one name."""
    code = zlib.crc32(name.encode())
    return f"172.{16 + (code >> 16) % 16}.{(code >> 8) % 256}.{1 + code % 254}"


def make_ready(node: Json, *, now: str) -> bool:
    """Give a node that says nothing about its condition Ready all a kubelet reports; whether anything changed."""
    if condition(node, "Ready"):
        return False
    name = node["metadata"]["name"]
    status = node.setdefault("status", {})
    given = {item.get("type") for item in status.get("conditions") or ()}
    reported = [
        {
            "type": kind,
            "status": state,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, state, reason, message in _HEALTHY
        if kind not in given
    ]
    status["conditions"] = [*(status.get("conditions") or ()), *reported]
    if not status.get("addresses"):
        status["addresses"] = [
            {"type": "InternalIP", "address": node_address(name)},
            {"type": "Hostname", "address": name},
        ]
    status["nodeInfo"] = {**_INFO, **{key: value for key, value in (status.get("nodeInfo") or {}).items() if value}}
    labels = node["metadata"].get("labels") or {}
    node["metadata"]["labels"] = {"kubernetes.io/hostname": name, **_NODE_LABELS, **labels}
    return True


def settle_taints(node: Json, *, now: str) -> bool:
    """Bring the taints that follow from conditions and cordoning up to date; whether anything changed."""
    spec = node.setdefault("spec", {})
    before = spec.get("taints") or []
    wanted = {text for (name, state), text in _CONDITION_TAINTS.items() if condition(node, name) == state}
    if not condition(node, "Ready"):
        wanted |= {"not-ready"} & {str(item.get("key", "")).removeprefix(_PREFIX) for item in before}
    if spec.get("unschedulable"):
        wanted.add("unschedulable")
    pairs = {(_PREFIX + name, "NoSchedule") for name in wanted}
    if condition(node, "Ready"):
        pairs |= {(_PREFIX + name, "NoExecute") for name in wanted & _EVICTING}
    kept = [item for item in before if not _managed(item) or (item.get("key"), item.get("effect")) in pairs]
    present = {(item.get("key"), item.get("effect")) for item in kept}
    added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(pairs - present)]
    after = kept + added
    if after == before:
        return False
    if after:
        spec["taints"] = after
    else:
        spec.pop("taints", None)
    return True


def _managed(taint: Json) -> bool:
    key = str(taint.get("key", ""))
    return key.startswith(_PREFIX) and key.removeprefix(_PREFIX) in _MANAGED
