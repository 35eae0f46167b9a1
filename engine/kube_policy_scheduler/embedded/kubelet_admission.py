"""The check a kubelet makes of a pod that arrives on its node. Pure, and independent of every scheduler.

It is what makes a binding wrong: a pod that fails it is marked Failed and never runs. Rules and reasons follow
`pkg/kubelet/lifecycle/predicate.go`; spread, pod affinity and volumes are not looked at, there as here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.cluster.pod_defaults import aggregate_requests, containers
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.selectors import Requirement
from kube_policy_scheduler.quantities.quantity import scaled

Port = tuple[str, str, int]
"""Address (empty: all), protocol, number."""
_NODE_LEVEL = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a kubelet does not run a pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What one pod takes of a node."""

    requests: Mapping[str, int]
    """Thousandths of each resource, with one pod in `pods`."""
    ports: frozenset[Port]

    @classmethod
    def of(cls, pod: Json) -> Usage:
        """Return what a pod takes."""
        spec = pod["spec"]
        amounts = {name: scaled(amount, 3) for name, amount in aggregate_requests(spec).items()}
        for name, amount in ((spec.get("resources") or {}).get("requests") or {}).items():
            amounts[name] = scaled(amount, 3)
        for name, amount in (spec.get("overhead") or {}).items():
            amounts[name] = amounts.get(name, 0) + scaled(amount, 3)
        amounts["pods"] = 1000
        ports = frozenset(
            (_address(port), port.get("protocol") or "TCP", int(port["hostPort"]))
            for container in containers(spec)
            for port in container.get("ports") or ()
            if port.get("hostPort")
        )
        return cls(amounts, ports)


def _address(port: Json) -> str:
    address = str(port.get("hostIP") or "")
    return "" if address in ("0.0.0.0", "::") else address


@dataclass(slots=True)
class NodeUsage:
    """What the pods a kubelet has admitted take together."""

    totals: dict[str, int] = field(default_factory=dict)
    by_pod: dict[str, Usage] = field(default_factory=dict)

    def add(self, uid: str, usage: Usage) -> None:
        """Count a pod; a second time changes nothing."""
        if uid not in self.by_pod:
            self.by_pod[uid] = usage
            for name, amount in usage.requests.items():
                self.totals[name] = self.totals.get(name, 0) + amount

    def remove(self, uid: str) -> None:
        """Stop counting a pod."""
        usage = self.by_pod.pop(uid, None)
        if usage is not None:
            for name, amount in usage.requests.items():
                self.totals[name] -= amount


def check(pod: Json, node: Json, used: NodeUsage, usage: Usage) -> Rejection | None:
    """Return why the kubelet of a node would not run a pod, None when it would."""
    return (
        _check_resources(node, used, usage)
        or _check_affinity(pod, node)
        or _check_ports(used, usage)
        or _check_taints(pod, node)
    )


def _check_resources(node: Json, used: NodeUsage, usage: Usage) -> Rejection | None:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    for name, wanted in sorted(usage.requests.items()):
        if not wanted or (name not in allocatable and name not in _NODE_LEVEL):
            continue
        capacity, taken = scaled(allocatable.get(name, "0"), 3), used.totals.get(name, 0)
        if name == "pods" and name not in allocatable:
            continue
        if taken + wanted > capacity:
            shown = [amount if name == "cpu" else -(-amount // 1000) for amount in (wanted, taken, capacity)]
            return Rejection(
                f"OutOf{name}",
                f"Pod was rejected: Node didn't have enough resource: {name}, requested: {shown[0]}, used: {shown[1]}, "
                f"capacity: {shown[2]}",
            )
    return None


def _check_affinity(pod: Json, node: Json) -> Rejection | None:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    fits = all(labels.get(key) == value for key, value in selector.items())
    if fits and required is not None:
        fits = any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())
    if fits:
        return None
    return Rejection(
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    )


def _term_matches(term: Json, node: Json) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_requirement(item).matches(labels) for item in expressions) and all(
        _requirement(item).matches(names) for item in fields
    )


def _requirement(item: Mapping[str, Any]) -> Requirement:
    return Requirement(item["key"], item["operator"], frozenset(item.get("values") or ()))


def _check_ports(used: NodeUsage, usage: Usage) -> Rejection | None:
    if usage.ports:
        taken = {port for other in used.by_pod.values() for port in other.ports}
        if any(_collide(mine, other) for mine in usage.ports for other in taken):
            text = "node(s) didn't have free ports for the requested pod ports"
            return Rejection("NodePorts", f"Pod was rejected: Predicate NodePorts failed: {text}")
    return None


def _collide(one: Port, other: Port) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "" in (one[0], other[0]))


def _check_taints(pod: Json, node: Json) -> Rejection | None:
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "NoExecute" and not tolerated(taint, tolerations):
            text = "node(s) had taints that the pod didn't tolerate"
            return Rejection("TaintToleration", f"Pod was rejected: Predicate TaintToleration failed: {text}")
    return None


def tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    """Whether any toleration covers a taint."""
    return any(_covers(item, taint) for item in tolerations)


def _covers(item: Json, taint: Json) -> bool:
    if item.get("effect") not in (None, "", taint.get("effect")):
        return False
    if item.get("key") not in (None, "", taint.get("key")):
        return False
    if (item.get("operator") or "Equal") == "Exists":
        return True
    return bool(item.get("key")) and (item.get("value") or "") == (taint.get("value") or "")
