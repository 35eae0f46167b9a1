"""Writes ResourceClaims: reserves them for pods, gives them back, takes their devices away, creates and deletes them.

Every change of a status carries the version it was made for, so a request whose answer was lost can be sent again: if
it had worked, the API server refuses the repetition, and the claim says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Fenced,
    Invalid,
    KubeError,
    MalformedAnswer,
    NotFound,
    ServerError,
    TooManyRequests,
    UnknownOutcome,
)
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.protobuf_objects import CONTENT_TYPE as PROTOBUF
from kube_policy_scheduler.adapters.kube.protobuf_objects import ProtobufError, with_finalizer
from kube_policy_scheduler.adapters.kube.resources import PODS, RESOURCE_CLAIMS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.backoff import Backoff
from kube_policy_scheduler.cluster.devices.resource_claims import gives_the_same
from kube_policy_scheduler.cluster.objects import AllocationResult, ResourceClaim, ResourceClaimConsumerReference

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim that has devices from being deleted."""
MOST_CONFLICTS = 5
"""As in kube-scheduler: how often a claim is read again because another client has written to it."""
PATIENCE_SECONDS = 60.0
"""How long one claim is tried."""
LINGER_SECONDS = 75.0
"""A request that went out so long ago and was not carried out never will be: the API server gives one up after 60 s."""

_decode = decoder_of(ResourceClaim)
_encode = msgspec.json.Encoder().encode


class ClaimChanged(Exception):
    """A claim is not any more what the decision was made for; the text is for people."""


class ResourceClaimWriter:
    """Sends changes of claims. Behind the fence nothing is sent."""

    def __init__(self, transport: Transport, *, random: Random, fence: Fence = OPEN) -> None:
        """fence: asked right before each request goes out."""
        self._transport = transport
        self._random = random
        self._fence = fence

    async def create(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        """Create a claim and return it.

        Raises:
            KubeError: it was not created, or perhaps.
        """
        path = RESOURCE_CLAIMS.collection(namespace=namespace)
        return await self._send("POST", path, body, content_type=JSON)

    async def reserve(
        self,
        claim: ResourceClaim,
        *,
        user: ResourceClaimConsumerReference,
        allocation: AllocationResult | None,
    ) -> ResourceClaim:
        """Add a user to a claim, together with its devices where it has none; return the claim as it is then.

        When it raises, it is certain that the claim does not have these devices by us.

        Args:
            claim: as it was seen last.
            user: the pod.
            allocation: its devices; None where it has some already.

        Raises:
            ClaimChanged: the claim is gone, or has lost its devices, or has got others.
            KubeError: the API server refused it or could not be reached, or the fence is closed.
        """
        key, loop = f"{claim.metadata.namespace}/{claim.metadata.name}", asyncio.get_running_loop()
        backoff = Backoff(initial_seconds=0.01, limit_seconds=5.0, random=self._random)
        until = loop.time() + PATIENCE_SECONDS
        conflicts, in_doubt, now = 0, False, claim
        failure: KubeError | None = None
        while True:
            try:
                if failure is not None:
                    now = await self._read(claim)
                if _is_done(now, user, allocation):
                    return now
                _check(now, key, brings=allocation is not None)
                if failure is not None and conflicts > MOST_CONFLICTS:
                    break
                return await self._reserve(now, user, allocation)
            except Conflict as error:  # whatever was in doubt is decided: the claim has another version by now
                conflicts, failure = conflicts + 1, error
            except KubeError as error:
                in_doubt = in_doubt or isinstance(error, UnknownOutcome | ServerError)
                if not _is_passing(error) or loop.time() > until:
                    if in_doubt:
                        await asyncio.sleep(LINGER_SECONDS)
                    raise
                failure = error
            await self._transport.pause(backoff.next_seconds())
        raise failure

    async def _reserve(
        self, claim: ResourceClaim, user: ResourceClaimConsumerReference, allocation: AllocationResult | None
    ) -> ResourceClaim:
        if allocation is not None and FINALIZER not in (claim.metadata.finalizers or ()):
            claim = await self._add_finalizer(claim)
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins([*(claim.status.reserved_for or ()), user])}
        if allocation is not None:
            status["allocation"] = msgspec.to_builtins(allocation)
        return await self._patch_status(claim, status)

    async def release(self, claim: ResourceClaim, *, uid: str) -> None:
        """Remove the pod with this uid from a claim's users; a claim that is gone is fine.

        Raises:
            KubeError: it could not be done.
        """
        gone = {"$patch": "delete", "uid": uid}
        body = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": [gone]}}
        try:
            await self._send("PATCH", _path(claim, "status"), body, content_type=STRATEGIC_MERGE_PATCH, part="status")
        except NotFound:
            return

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Take a claim's devices and users away.

        Raises:
            KubeError: it could not be done; a conflict if the claim has changed since it was seen.
        """
        await self._patch_status(claim, {"allocation": None, "reservedFor": None, "devices": None})

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that protects itself against that; one that is gone is fine.

        Raises:
            KubeError: it could not be done.
        """
        preconditions = {"uid": claim.metadata.uid}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        try:
            finalizers = claim.metadata.finalizers or []
            if FINALIZER in finalizers:
                await self._set_finalizers(claim, [one for one in finalizers if one != FINALIZER], versioned=False)
            await self._transport.request(
                "DELETE", _path(claim), body=_encode(body), resource=RESOURCE_CLAIMS.plural, fence=self._fence
            )
        except NotFound:
            return

    async def patch_pod_status(self, *, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        """Write to a pod's status which claim serves its extended resources.

        Raises:
            KubeError: it could not be done.
        """
        await self._transport.request(
            "PATCH",
            PODS.path(name, namespace=namespace, subresource="status"),
            body=_encode(body),
            content_type=STRATEGIC_MERGE_PATCH,
            resource="pods/status",
            fence=self._fence,
        )

    async def _add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        try:
            return await self._set_finalizers(claim, [*(claim.metadata.finalizers or ()), FINALIZER])
        except Invalid as error:
            if error.status != 422:
                raise
        # the claim has parameters for its driver whose bytes JSON does not show, so a patch counts as a change of them
        resource = RESOURCE_CLAIMS.plural
        stored = await self._transport.request("GET", _path(claim), resource=resource, accept=PROTOBUF)
        try:
            body = with_finalizer(stored, FINALIZER)
        except ProtobufError as error:
            raise MalformedAnswer(f"an answer about a ResourceClaim cannot be read: {error}") from error
        answer = await self._transport.request(
            "PUT", _path(claim), body=body, content_type=PROTOBUF, resource=resource, fence=self._fence
        )
        now = _decoded(answer)
        _check(now, f"{now.metadata.namespace}/{now.metadata.name}", brings=True)  # it was read again
        return now

    async def _set_finalizers(
        self, claim: ResourceClaim, finalizers: list[str], *, versioned: bool = True
    ) -> ResourceClaim:
        meta: dict[str, Any] = {"uid": claim.metadata.uid, "finalizers": finalizers}
        if versioned:
            meta["resourceVersion"] = claim.metadata.resource_version
        return await self._send("PATCH", _path(claim), {"metadata": meta}, content_type=MERGE_PATCH)

    async def _patch_status(self, claim: ResourceClaim, status: Mapping[str, Any]) -> ResourceClaim:
        meta = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        body = {"metadata": meta, "status": status}
        return await self._send("PATCH", _path(claim, "status"), body, content_type=MERGE_PATCH, part="status")

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        meta = claim.metadata
        try:
            found = _decoded(await self._transport.request("GET", _path(claim), resource=RESOURCE_CLAIMS.plural))
        except NotFound:
            found = None
        if found is None or found.metadata.uid != meta.uid:
            raise ClaimChanged(f"claim {meta.namespace}/{meta.name} got deleted in the meantime")
        return found

    async def _send(
        self, verb: str, path: str, body: Mapping[str, Any], *, content_type: str, part: str = ""
    ) -> ResourceClaim:
        resource = RESOURCE_CLAIMS.plural
        answer = await self._transport.request(
            verb,
            path,
            body=_encode(body),
            content_type=content_type,
            resource=f"{resource}/{part}" if part else resource,
            fence=self._fence,
        )
        return _decoded(answer)


def _is_passing(error: KubeError) -> bool:
    """Return whether the same request may work a little later."""
    if isinstance(error, CredentialsError | Fenced):
        return False
    return not isinstance(error, ApiError) or isinstance(error, TooManyRequests | ServerError)


def _path(claim: ResourceClaim, subresource: str = "") -> str:
    meta = claim.metadata
    return RESOURCE_CLAIMS.path(meta.name, namespace=meta.namespace, subresource=subresource)


def _decoded(answer: bytes) -> ResourceClaim:
    try:
        return _decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedAnswer(f"an answer about a ResourceClaim cannot be read: {error}") from error


def _check(claim: ResourceClaim, key: str, *, brings: bool) -> None:
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimChanged(f"claim {key} got deleted in the meantime")
    if brings and claim.status.allocation is not None:
        raise ClaimChanged(f"claim {key} got allocated elsewhere in the meantime")
    if not brings and claim.status.allocation is None:
        raise ClaimChanged(f"claim {key} got deallocated elsewhere in the meantime")


def _is_done(claim: ResourceClaim, user: ResourceClaimConsumerReference, allocation: AllocationResult | None) -> bool:
    """Return whether a claim has the user, and these devices: an earlier request has worked."""
    stored = claim.status.allocation
    if stored is None or not any(one.uid == user.uid for one in claim.status.reserved_for or ()):
        return False
    return allocation is None or gives_the_same(stored, allocation)
