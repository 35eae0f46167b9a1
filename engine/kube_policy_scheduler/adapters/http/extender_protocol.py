"""The messages of kube-scheduler's extender protocol, v1: bytes to structs and back. Knows no cluster and no policy.

Field names are Go's own, as kube-scheduler writes them (`NodeNames`, not `nodeNames`); those within pods and nodes are
the API's. A node that comes whole goes back as the bytes it came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from kube_policy_scheduler.cluster import objects

MAX_SCORE = 10
"""`MaxExtenderPriority`: kube-scheduler multiplies it with the extender's weight and with 10."""


class ProtocolError(ValueError):
    """A request is no message of the protocol; the text says where."""


class _Message(msgspec.Struct, rename="pascal", kw_only=True, gc=False):
    """Base of messages: `node_names` is `NodeNames`."""


class _RawList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class _NamedMetadata(msgspec.Struct, gc=False):
    name: str


class _Named(msgspec.Struct, gc=False):
    metadata: _NamedMetadata


class _Identity(msgspec.Struct, gc=False):
    uid: str


class _VictimPod(msgspec.Struct, gc=False):
    metadata: _Identity


class _FilterArguments(_Message):
    pod: objects.Pod
    nodes: _RawList | None = None
    node_names: list[str] | None = None


class MetaPod(msgspec.Struct, gc=False):
    """A pod by its identity."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(_Message):
    """Pods to be evicted from one node."""

    pods: list[MetaPod] | None = None
    number_of_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _Victims(_Message):
    pods: list[_VictimPod] | None = None
    number_of_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _PreemptionArguments(_Message):
    pod: objects.Pod
    node_name_to_victims: dict[str, _Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class BindingArguments(_Message):
    """What `bind` is asked: `ExtenderBindingArgs`."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """What `filter` and `prioritize` are asked: `ExtenderArgs`."""

    pod: objects.Pod
    names: Sequence[str]
    whole: Sequence[msgspec.Raw] | None = None
    """The nodes as they came, in the order of the names; None where only names came (`nodeCacheCapable`)."""


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """What `preempt` is asked: `ExtenderPreemptionArgs`."""

    pod: objects.Pod
    victims: Mapping[str, MetaVictims]
    """By node name."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """What happens to each node; or why nothing can be said."""

    passed: Sequence[int] = ()
    """Positions in the request."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By node name, why; evicting pods might help."""
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """By node name, why; evicting pods does not help."""
    error: str = ""


class _FilterResult(_Message):
    nodes: msgspec.Raw | None = None
    node_names: list[str] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class _HostPriority(_Message):
    host: str
    score: int


class _PreemptionResult(_Message):
    node_name_to_meta_victims: Mapping[str, MetaVictims]


class _BindingResult(_Message):
    error: str


_T = TypeVar("_T")

_filter_arguments = msgspec.json.Decoder(_FilterArguments)
_preemption_arguments = msgspec.json.Decoder(_PreemptionArguments)
_binding_arguments = msgspec.json.Decoder(BindingArguments)
_named = msgspec.json.Decoder(_Named)
_encode = msgspec.json.Encoder().encode


def read_nodes(body: bytes) -> NodesRequest:
    """Return the request of `filter` or `prioritize`.

    Raises:
        ProtocolError: it is none, or names no nodes at all.
    """
    found = _read(_filter_arguments, body, "ExtenderArgs")
    _check_pod(found.pod, "ExtenderArgs")
    if found.node_names is not None:
        return NodesRequest(found.pod, found.node_names)
    if found.nodes is None:
        raise ProtocolError("ExtenderArgs: expected NodeNames (nodeCacheCapable: true) or Nodes, got neither")
    whole = found.nodes.items or []
    return NodesRequest(found.pod, [_name(raw, at) for at, raw in enumerate(whole)], whole)


def read_preemption(body: bytes) -> PreemptionRequest:
    """Return the request of `preempt`.

    Raises:
        ProtocolError: it is none.
    """
    found = _read(_preemption_arguments, body, "ExtenderPreemptionArgs")
    _check_pod(found.pod, "ExtenderPreemptionArgs")
    if found.node_name_to_meta_victims is not None:
        return PreemptionRequest(found.pod, found.node_name_to_meta_victims)
    return PreemptionRequest(
        found.pod,
        {
            node: MetaVictims(
                pods=[MetaPod(pod.metadata.uid) for pod in victims.pods or ()],
                number_of_violations=victims.number_of_violations,
            )
            for node, victims in (found.node_name_to_victims or {}).items()
        },
    )


def read_binding(body: bytes) -> BindingArguments:
    """Return the request of `bind`.

    Raises:
        ProtocolError: it is none.
    """
    found = _read(_binding_arguments, body, "ExtenderBindingArgs")
    for part in ("pod_name", "pod_namespace", "pod_uid", "node"):
        if not getattr(found, part):
            raise ProtocolError(f"ExtenderBindingArgs: {part.replace('_', ' ')} is empty")
    return found


def write_filtered(request: NodesRequest, answer: Filtered) -> bytes:
    """Return an `ExtenderFilterResult`: names where names came, whole nodes where whole nodes came."""
    result = _FilterResult(
        failed_nodes=answer.failed, failed_and_unresolvable_nodes=answer.unresolvable, error=answer.error
    )
    if answer.error:
        return _encode(result)
    if request.whole is None:
        names = request.names
        everything = len(answer.passed) == len(names)
        result.node_names = list(names) if everything else [names[at] for at in answer.passed]
    else:
        items = b",".join(bytes(request.whole[at]) for at in answer.passed)
        result.nodes = msgspec.Raw(b'{"metadata":{},"items":[' + items + b"]}")
    return _encode(result)


def write_priorities(names: Sequence[str], scores: Iterable[int]) -> bytes:
    """Return a `HostPriorityList`."""
    return _encode([_HostPriority(host=name, score=score) for name, score in zip(names, scores, strict=True)])


def write_preemption(victims: Mapping[str, MetaVictims]) -> bytes:
    """Return an `ExtenderPreemptionResult`."""
    return _encode(_PreemptionResult(node_name_to_meta_victims=victims))


def write_binding(error: str = "") -> bytes:
    """Return an `ExtenderBindingResult`; "" for success."""
    return _encode(_BindingResult(error=error))


def write_error(error: str) -> bytes:
    """Return an `ExtenderFilterResult` that only says why there is none."""
    return write_filtered(_NO_REQUEST, Filtered(error=error))


_NO_REQUEST = NodesRequest(objects.Pod(metadata=objects.ObjectMeta()), ())


def _read(decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{what}: {error}") from error


def _check_pod(pod: objects.Pod, what: str) -> None:
    if not pod.metadata.name or not pod.metadata.uid:
        raise ProtocolError(f"{what}: Pod.metadata needs a name and a uid")


def _name(raw: msgspec.Raw, at: int) -> str:
    return _read(_named, raw, f"ExtenderArgs: Nodes.items[{at}]").metadata.name
