"""Binds pods to nodes and finds out what became of it. Knows no policy; decides nothing.

A POST whose answer was lost may have worked. So after anything uncertain the pod itself is asked, and only a pod
that is certainly still unbound is tried again, on the same node: the API server's refusal to bind twice makes
the repetition safe.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import msgspec

from engine.adapters.kube.backoff import Backoff
from engine.adapters.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
    Withheld,
)
from engine.adapters.kube.resources import PODS
from engine.adapters.kube.transport import Transport
from engine.cluster.objects import Pod

logger = logging.getLogger(__name__)

CONCURRENCY = 32  # requests in flight; the API server's throughput is flat from here on
TIMEOUT_SECONDS = 15.0  # per request
PATIENCE_SECONDS = 120.0  # how long one binding is tried and asked after


class Reason(enum.Enum):
    """Why a pod was not bound; in every case it is certain that this binding will not happen any more."""

    GONE = "gone"  # deleted, finished, or another pod by now has its name
    DELETING = "deleting"
    BOUND_ELSEWHERE = "bound elsewhere"
    GATED = "gated"  # has scheduling gates
    FORBIDDEN = "forbidden"
    INVALID = "invalid"
    CONFLICT = "conflict"  # refused without a reason that could be found in the pod
    UNAVAILABLE = "unavailable"  # the API server took no request for PATIENCE_SECONDS
    NOT_LEADER = "not leader"  # the fence was closed before it was sent


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod is bound to the node that was wanted."""

    node: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod is not bound by this; its reservation may be released."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The truth could not be had in time: keep the reservation until the pod's watch tells, or bind again."""

    message: str


Outcome: TypeAlias = Bound | Refused | Unknown


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None


class _Target(msgspec.Struct):
    name: str
    kind: str = "Node"
    apiVersion: str = "v1"  # noqa: N815


class _Binding(msgspec.Struct):
    metadata: _Metadata
    target: _Target
    kind: str = "Binding"
    apiVersion: str = "v1"  # noqa: N815


_encode = msgspec.json.Encoder().encode
_decode_pod = msgspec.json.Decoder(Pod).decode


class Binder:
    """Sends bindings, at most `concurrency` requests at a time."""

    def __init__(
        self,
        transport: Transport,
        *,
        random: Random,
        concurrency: int = CONCURRENCY,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        may_bind: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_bind: the fence of leader election, asked right before a binding's bytes go out."""
        self._transport = transport
        self._random = random
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._may_bind = may_bind
        self._unfinished = 0

    @property
    def unfinished(self) -> int:
        """Bindings in flight or waiting; others should hold back while there are some."""
        return self._unfinished

    async def bind(
        self, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> Outcome:
        """Bind the pod of that UID to node and return what became of it. Raises nothing but cancellation.

        annotations: what the API server adds to the pod in the same step.
        """
        self._unfinished += 1
        metadata = _Metadata(name, namespace, uid, dict(annotations) if annotations else None)
        try:
            return await _Attempt(self, metadata, node=node).run()
        finally:
            self._unfinished -= 1

    async def _request(
        self,
        verb: str,
        path: str,
        *,
        resource: str,
        body: bytes = b"",
        may_send: Callable[[], bool] | None = None,
    ) -> bytes:
        async with self._slots:  # for the request alone: a binding that pauses holds nobody up
            return await self._transport.request(
                verb, path, body=body, resource=resource, timeout_seconds=self._timeout_seconds, may_send=may_send
            )


class _Attempt:
    """One binding with all its retries."""

    def __init__(self, binder: Binder, metadata: _Metadata, *, node: str) -> None:
        self._binder, self._metadata, self._node = binder, metadata, node
        self._namespace, self._name, self._uid = metadata.namespace, metadata.name, metadata.uid
        self._may_have_worked = False  # until the pod was asked
        self._was_uncertain = False  # ever: a request that timed out may still be waiting inside the server
        self._unexplained_conflicts = 0

    async def run(self) -> Outcome:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._binder._patience_seconds
        backoff: Backoff | None = None  # seldom needed
        while True:
            problem: KubeError
            try:
                if self._may_have_worked:
                    known = await self._look()
                    if known is not None:
                        return known
                    self._may_have_worked = False
                    continue
                await self._post()
                return Bound(self._node)
            except Withheld:
                return self._fenced()
            except NotFound as error:
                return Refused(Reason.GONE, str(error))
            except Conflict as error:
                # Known to have been refused, but why? Perhaps an earlier try of ours had worked.
                self._may_have_worked, problem = True, error
                self._unexplained_conflicts += 1
                if self._unexplained_conflicts > 2:
                    return Refused(Reason.CONFLICT, error.message)
                if self._unexplained_conflicts == 1:
                    continue
            except (ServerError, UnknownOutcome) as error:
                self._may_have_worked, self._was_uncertain, problem = True, True, error
            except (Unreachable, TooManyRequests, Unauthorized) as error:
                problem = error
            except ApiError as error:
                if not self._may_have_worked:
                    reason = Reason.FORBIDDEN if isinstance(error, Forbidden) else Reason.INVALID
                    return Refused(reason, error.message)
                problem = error
            except KubeError as error:
                problem = error

            backoff = backoff or Backoff(initial_seconds=0.1, limit_seconds=5.0, random=self._binder._random)
            wish = problem.retry_after_seconds if isinstance(problem, ApiError) else None
            pause_seconds = backoff.next_seconds(at_least=wish)
            if loop.time() + pause_seconds > deadline:
                return self._given_up(problem)
            logger.debug("binding %s/%s: %s, again in %.1f s", self._namespace, self._name, problem, pause_seconds)
            await self._binder._transport.pause(pause_seconds)

    def _fenced(self) -> Outcome:
        text = "no longer the leader"
        return Unknown(text) if self._was_uncertain else Refused(Reason.NOT_LEADER, text)

    def _given_up(self, problem: KubeError) -> Outcome:
        if self._may_have_worked or self._was_uncertain:
            return Unknown(str(problem))
        return Refused(Reason.UNAVAILABLE, str(problem))

    async def _post(self) -> None:
        body = _encode(_Binding(self._metadata, _Target(self._node)))
        path = PODS.path(self._name, namespace=self._namespace, subresource="binding")
        await self._binder._request("POST", path, body=body, resource="pods/binding", may_send=self._binder._may_bind)

    async def _look(self) -> Outcome | None:
        """Ask the pod; None if it is there and unbound."""
        path = PODS.path(self._name, namespace=self._namespace)
        body = await self._binder._request("GET", path, resource="pods")
        try:
            pod = _decode_pod(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnknownOutcome(f"the pod cannot be decoded: {error}") from error
        if pod.metadata.uid != self._uid:
            return Refused(Reason.GONE, "another pod has this name now")
        if pod.spec.node_name == self._node:
            return Bound(self._node)
        if pod.spec.node_name:
            return Refused(Reason.BOUND_ELSEWHERE, f"bound to {pod.spec.node_name}")
        if pod.status.phase in ("Succeeded", "Failed"):
            return Refused(Reason.GONE, f"phase is {pod.status.phase}")
        if pod.metadata.deletion_timestamp:
            return Refused(Reason.DELETING, "being deleted")
        if pod.spec.scheduling_gates:
            return Refused(Reason.GATED, "has scheduling gates")
        return None
