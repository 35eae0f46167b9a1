"""AdmissionReview v1 of ConfigMaps and SchedulingPolicies: a request in, an answer out, as bytes. Decides nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.wording import shortened

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
CONFIG_MAP, SCHEDULING_POLICY = "ConfigMap", "SchedulingPolicy"
_KINDS = {("", CONFIG_MAP), ("policy-scheduler.dev", SCHEDULING_POLICY)}
WARNING_CHARACTERS = 250
"""Of one warning; API servers cut longer ones at 256."""
WARNINGS_CHARACTERS = 3800
"""Of all warnings together; API servers leave out what exceeds 4096."""


class ReviewError(Exception):
    """What was sent is no review that can be answered; the text says what was expected."""


class _Spec(msgspec.Struct):
    policy: str = ""


class _Holder(msgspec.Struct, rename="camel"):
    """A ConfigMap, or a SchedulingPolicy."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec | None = None
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class _Kind(msgspec.Struct):
    group: str = ""
    kind: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    kind: _Kind = msgspec.field(default_factory=_Kind)
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: _Holder | None = None
    old_object: _Holder | None = None


class _Review(msgspec.Struct, rename="camel"):
    request: _Request
    api_version: str = ""
    kind: str = ""


_decode = msgspec.json.Decoder(_Review).decode


@dataclass(frozen=True, slots=True)
class Entries:
    """The files of a ConfigMap."""

    data: Mapping[str, str]
    binary_data: Mapping[str, bytes]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all files."""
        return frozenset((*self.data, *self.binary_data))


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """Somebody is about to write policies."""

    uid: str
    operation: str
    """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""
    namespace: str
    name: str
    user: str
    new: Entries | None
    """None where it is deleted."""
    old: Entries | None
    """None where it is created."""
    kind: str = CONFIG_MAP
    """`ConfigMap` or `SchedulingPolicy`."""


def decode_review(body: bytes) -> AdmissionRequest:
    """Return the request of a review.

    Raises:
        ReviewError: it is no AdmissionReview of version v1 about a ConfigMap.
    """
    try:
        review = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewError(f"expected an {KIND} of {API_VERSION}: {str(error)[:200]}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise ReviewError(f"expected {KIND} of {API_VERSION}, got {review.kind[:40]} of {review.api_version[:40]}")
    request = review.request
    if (request.kind.group, request.kind.kind) not in _KINDS:
        raise ReviewError(f"expected a request for a ConfigMap or SchedulingPolicy, got {request.kind.kind[:40]}")
    metadata = request.object.metadata if request.object is not None else ObjectMeta()
    name = request.name or metadata.name
    return AdmissionRequest(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace or metadata.namespace,
        name=name,
        user=request.user_info.username,
        new=_entries(request.object, name),
        old=_entries(request.old_object, name),
        kind=request.kind.kind,
    )


def _entries(holder: _Holder | None, name: str) -> Entries | None:
    """Return the files of a ConfigMap; of a SchedulingPolicy the one file that it stands for."""
    if holder is None:
        return None
    if holder.spec is not None:
        return Entries({f"{name}.policy": holder.spec.policy}, {})
    try:
        binary = {name: base64.b64decode(text, validate=True) for name, text in (holder.binary_data or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise ReviewError("expected binaryData in base64") from error
    return Entries(holder.data or {}, binary)


def encode_answer(uid: str, *, refusal: str | None, warnings: Sequence[str] = ()) -> bytes:
    """Return the answer to a review.

    Args:
        uid: of the request.
        refusal: what kubectl shows, with line breaks; None: allowed.
        warnings: what kubectl shows before, a line each; cut to what API servers pass on.
    """
    response: dict[str, object] = {"uid": uid, "allowed": refusal is None}
    if refusal is not None:
        # without a reason of its own, kubectl shows the text as it is, behind the webhook's name
        response["status"] = {"message": refusal, "code": 422}
    if shown := _within_limits(warnings):
        response["warnings"] = shown
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _within_limits(warnings: Sequence[str]) -> list[str]:
    shown: list[str] = []
    room = WARNINGS_CHARACTERS
    for at, warning in enumerate(warnings):
        text = shortened(warning, WARNING_CHARACTERS)
        room -= len(text.encode())
        if room < 0:
            shown.append(f"and {len(warnings) - at} more")
            break
        shown.append(text)
    return shown
