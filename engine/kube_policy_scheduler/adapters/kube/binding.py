"""Binds pods to nodes, and resolves unknown outcomes of bindings. Decides nothing.

A POST whose answer was lost may have worked, or may still be carried out. So after anything uncertain the pod itself is
asked, and only a pod that is unbound is tried again, on the same node: the API server's refusal to bind twice makes
the repetition safe. That a pod is not bound by it is said only once that is certain.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, TypeAlias

import msgspec

from kube_policy_scheduler.adapters.kube.client import Request
from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
)
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.resources import PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.backoff import Backoff
from kube_policy_scheduler.cluster.objects import ObjectMeta, Pod

logger = logging.getLogger(__name__)

CONCURRENCY = 32  # requests in flight; the API server's throughput is flat from here on
TIMEOUT_SECONDS = 15.0  # per request
PATIENCE_SECONDS = 120.0  # how long one binding is tried
LINGER_SECONDS = 75.0
"""A request that went out so long ago and was not carried out never will be: the API server gives one up after 60 s
(`--request-timeout`)."""
MOST_CONFLICTS = 2
"""Refusals with 409 that the pod does not explain, after which it is not tried again."""
MOST_FAULTS = 3
"""Unexpected errors in one binding, after which it is not retried."""


class Reason(enum.Enum):
    """Why a pod was not bound; in every case it is certain that this binding will not happen any more."""

    GONE = "gone"  # deleted, finished, or another pod by now has its name
    DELETING = "deleting"
    BOUND_ELSEWHERE = "bound elsewhere"
    GATED = "gated"  # has scheduling gates
    FORBIDDEN = "forbidden"
    INVALID = "invalid"
    DENIED = "denied"  # by an admission webhook, or because it did not answer
    INTERNAL_ERROR = "internal error"
    CONFLICT = "conflict"  # refused without a reason that could be found in the pod
    UNAVAILABLE = "unavailable"  # the API server took no request for PATIENCE_SECONDS
    NOT_LEADER = "not leader"  # the fence was closed before it was sent


class Bound(msgspec.Struct, frozen=True):
    """The pod is bound to the node that was wanted."""

    node: str
    by_us: bool = True
    """False: this replica sent nothing that can have done it; another replica or scheduler chose the same node."""


class Refused(msgspec.Struct, frozen=True):
    """The pod is not bound by this; its reservation may be released."""

    reason: Reason
    message: str


class Unknown(msgspec.Struct, frozen=True):
    """The outcome is unknown: keep the pod assumed until the watch shows it, or ask again with this value."""

    message: str
    since: float
    """Event loop's time at which the last request went out that may have worked, or may still be carried out."""


class Outdated(msgspec.Struct, frozen=True):
    """Nothing was sent: what the binding rests on may have changed since it was decided."""

    message: str = "its preconditions may have changed"


Outcome: TypeAlias = Bound | Refused | Unknown | Outdated


class _Target(msgspec.Struct):
    name: str
    kind: str = "Node"
    apiVersion: str = "v1"  # noqa: N815


class _Binding(msgspec.Struct):
    metadata: ObjectMeta
    target: _Target
    kind: str = "Binding"
    apiVersion: str = "v1"  # noqa: N815


_encode = msgspec.json.Encoder().encode
_decode_pod = decoder_of(Pod)


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
        linger_seconds: float = LINGER_SECONDS,
        fence: Fence = OPEN,
    ) -> None:
        """Set up.

        Args:
            transport: to the API server.
            random: spreads retries.
            concurrency: requests at a time.
            timeout_seconds: how long an answer is waited for.
            patience_seconds: how long one binding is tried.
            linger_seconds: how long the API server may take to carry out what it was sent.
            fence: of leader election, asked right before a binding's bytes go out.
        """
        self._transport = transport
        self._random = random
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._linger_seconds = linger_seconds
        self._fence = fence
        self._unfinished = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running one, once something was sent: to ask which one runs is a call of the kernel."""

    @property
    def unfinished(self) -> int:
        """Bindings in flight or waiting; others should hold back while there are some."""
        return self._unfinished

    async def bind(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        after: Unknown | None = None,
        still_holds: Callable[[], bool] = lambda: True,
    ) -> Outcome:
        """Bind the pod of that UID to node and return what happened to it. Raises nothing but cancellation.

        Args:
            namespace: of the pod.
            name: of the pod.
            uid: of the pod.
            node: where it goes.
            annotations: what the API server adds to the pod in the same step.
            after: what is known from before.
            still_holds: asked together with the fence; False: nothing is sent, and the outcome is `Outdated`, or
                `Unknown` where something was sent before.
        """
        written = dict(annotations) if annotations else None
        metadata = ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=written)
        return await self._run(_Attempt(self, metadata, node=node, after=after, still_holds=still_holds))

    def begin(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        still_holds: Callable[[], bool],
        done: Callable[[Bound | Begun], None],
    ) -> bool:
        """Send a binding without a task, where nothing stands in its way; return whether.

        done: told that the pod is bound, or what `finish` goes on with, in a later turn of the event loop.
        """
        if not self._transport.may_begin:  # first, because most of what follows costs more
            return False
        attempt = _Attempt(
            self,
            ObjectMeta(name=name, namespace=namespace, uid=uid),
            node=node,
            after=None,
            still_holds=still_holds,
        )

        def settle(outcome: bytes | KubeError) -> None:
            self._unfinished -= 1
            done(Bound(node) if isinstance(outcome, bytes) else Begun(attempt, outcome))

        is_sent = self._transport.begin(attempt.request(), settle)
        self._unfinished += is_sent
        return is_sent

    async def finish(self, begun: Begun) -> Outcome:
        """Go on with a binding that `begin` has sent until its outcome is known. Raises nothing but cancellation."""
        return await self._run(begun.attempt, begun.error)

    async def settle(self, *, namespace: str, name: str, uid: str, node: str, after: Unknown) -> Outcome:
        """Find out what happened to a binding, without trying it again. Raises nothing but cancellation."""
        attempt = _Attempt(self, ObjectMeta(name=name, namespace=namespace, uid=uid), node=node, after=after)
        attempt.refusal = Refused(Reason.UNAVAILABLE, after.message)
        return await self._run(attempt)

    async def _run(self, attempt: _Attempt, error: KubeError | None = None) -> Outcome:
        self._unfinished += 1
        try:
            return await attempt.run(error)
        finally:
            self._unfinished -= 1

    async def _send(self, request: Request) -> bytes:
        async with self._slots:  # for the request alone: a binding that pauses delays no other
            return await self._transport.request(
                request.verb,
                request.path,
                body=request.body,
                resource=request.resource,
                timeout_seconds=request.timeout_seconds,
                fence=request.fence,
            )


class Begun(NamedTuple):
    """A binding that was sent, and was not answered with success."""

    attempt: _Attempt
    error: KubeError


class _Attempt:
    """One binding with all its retries."""

    def __init__(
        self,
        binder: Binder,
        metadata: ObjectMeta,
        *,
        node: str,
        after: Unknown | None,
        still_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._binder, self._metadata, self._node = binder, metadata, node
        self._still_holds = still_holds
        self._namespace, self._name, self._uid = metadata.namespace, metadata.name, metadata.uid
        self._doubt_since = after.since if after is not None else None
        """Event loop's time at which the last request went out that may have worked; None where none did."""
        self._must_look = after is not None
        """Whether the pod has to be asked before anything else."""
        self.refusal: Refused | None = None
        """Why it is not tried again; it is the outcome once it is certain that no earlier request has worked."""
        self._conflicts = self._faults = 0

    async def run(self, error: KubeError | None) -> Outcome:
        """Try until the outcome is known. error: of a first try, where there was one."""
        loop = asyncio.get_running_loop()
        try_until = loop.time() + self._binder._patience_seconds
        ask_until = try_until + self._binder._linger_seconds
        backoff: Backoff | None = None  # seldom needed
        found = self._failed(error, before=None) if error is not None else None
        while True:
            if found is None:
                found = await (self._ask() if self._must_look else self._try())
            if found is None:
                continue
            if not isinstance(found, KubeError):
                return found
            backoff = backoff or Backoff(initial_seconds=0.1, limit_seconds=5.0, random=self._binder._random)
            wish = found.retry_after_seconds if isinstance(found, ApiError) else None
            pause_seconds = backoff.next_seconds(at_least=wish)
            is_late = loop.time() + pause_seconds > try_until and self.refusal is None
            if is_late and (refused := self._refused(Reason.UNAVAILABLE, str(found))) is not None:
                return refused
            if loop.time() + pause_seconds > ask_until:
                return Unknown(str(found), since=self._doubt_since or loop.time())
            logger.debug("binding %s/%s: %s, again in %.1f s", self._namespace, self._name, found, pause_seconds)
            await self._binder._transport.pause(pause_seconds)
            found = None

    async def _try(self) -> Outcome | KubeError | None:
        """Send the binding; where that has not settled it, return what to pause for, or None."""
        before = self._doubt_since
        try:
            await self._binder._send(self.request())
        except Exception as error:
            return self._failed(error, before=before)
        return Bound(self._node)

    def _failed(self, error: Exception, *, before: float | None) -> Outcome | KubeError | None:
        """Return what follows from a try that failed. before: what was in doubt before it."""
        is_known = isinstance(error, KubeError) and not isinstance(error, UnknownOutcome | ServerError)
        if is_known or (isinstance(error, ApiError) and error.is_denial):
            self._doubt_since = before  # this one has certainly not worked
        return self._weigh(error)

    def _weigh(self, error: Exception) -> Outcome | KubeError | None:
        """Return what follows from a binding that was not answered with success, as `_try` does."""
        match error:
            case ApiError(is_denial=True):
                return self._refused(Reason.DENIED, error.message)
            case NotFound():
                return Refused(Reason.GONE, str(error))
            case Conflict():  # but why? Perhaps an earlier try had worked
                self._must_look = True
                self._conflicts += 1
                if self._conflicts > MOST_CONFLICTS:
                    return self._refused(Reason.CONFLICT, error.message)
                return error if self._conflicts > 1 else None
            case UnknownOutcome() | ServerError():
                self._must_look = True
                return error
            case Fenced() if not self._binder._fence.allows():
                return self._refused(Reason.NOT_LEADER, "no longer the leader")
            case Fenced():
                return Unknown(Outdated().message, self._doubt_since) if self._doubt_since is not None else Outdated()
            case ApiError() if not isinstance(error, TooManyRequests | Unauthorized):
                return self._refused(
                    Reason.FORBIDDEN if isinstance(error, Forbidden) else Reason.INVALID, error.message
                )
            case KubeError():
                return error
            case _:
                return self._broke(error)

    def _broke(self, error: Exception) -> Outcome | KubeError | None:
        """Note an unexpected error."""
        logger.error("unexpected error while %s/%s was bound", self._namespace, self._name, exc_info=error)
        self._faults += 1
        if self._doubt_since is None or self._faults > MOST_FAULTS:
            return self._refused(Reason.INTERNAL_ERROR, f"internal error: {error!r}; see the scheduler's log")
        self._must_look = True
        return UnknownOutcome(f"internal error: {error!r}")

    def _refused(self, reason: Reason, message: str) -> Refused | None:
        """Try no more; return that as the outcome if no earlier request can have worked."""
        refusal = Refused(reason, message)
        if self._doubt_since is None and not self._must_look:
            return refusal
        self.refusal, self._must_look = refusal, True
        return None

    def _allows(self) -> bool:
        """Return whether to send it, right before the bytes go out: from here on it may have worked."""
        if not (self._binder._fence.allows() and self._still_holds()):
            return False
        binder = self._binder
        loop = binder._loop = binder._loop or asyncio.get_running_loop()
        self._doubt_since = loop.time()
        return True

    def request(self) -> Request:
        """Return the request that binds it."""
        return Request(
            "POST",
            PODS.path(self._name, namespace=self._namespace, subresource="binding"),
            _encode(_Binding(self._metadata, _Target(self._node))),
            resource="pods/binding",
            timeout_seconds=self._binder._timeout_seconds,
            fence=Fence(self._allows),
        )

    async def _ask(self) -> Outcome | KubeError | None:
        """Ask the pod what happened to it; return what to pause for, None where it may be tried again at once."""
        try:
            if (known := await self._look()) is not None:
                return known
        except NotFound as error:
            return Refused(Reason.GONE, str(error))
        except KubeError as error:
            return error
        except Exception as error:
            logger.exception("unexpected error while %s/%s was asked for", self._namespace, self._name)
            return UnknownOutcome(f"internal error: {error!r}")
        if self.refusal is None:
            self._must_look = False
            return None
        now = asyncio.get_running_loop().time()
        if self._doubt_since is None or now - self._doubt_since >= self._binder._linger_seconds:
            return self.refusal
        return UnknownOutcome(f"{self.refusal.message}; an earlier request may still succeed")

    async def _look(self) -> Outcome | None:
        """Ask the pod; None if it is there and unbound."""
        path = PODS.path(self._name, namespace=self._namespace)
        timeout_seconds = self._binder._timeout_seconds
        body = await self._binder._send(Request("GET", path, resource="pods", timeout_seconds=timeout_seconds))
        try:
            pod = _decode_pod(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnknownOutcome(f"the pod cannot be decoded: {error}") from error
        if pod.metadata.uid != self._uid:
            return Refused(Reason.GONE, "another pod has this name now")
        if pod.spec.node_name == self._node:
            return Bound(self._node, by_us=self._doubt_since is not None)
        if pod.spec.node_name:
            return Refused(Reason.BOUND_ELSEWHERE, f"bound to {pod.spec.node_name}")
        if pod.status.phase in ("Succeeded", "Failed"):
            return Refused(Reason.GONE, f"phase is {pod.status.phase}")
        if pod.metadata.deletion_timestamp:
            return Refused(Reason.DELETING, "being deleted")
        if pod.spec.scheduling_gates:
            return Refused(Reason.GATED, "has scheduling gates")
        return None
