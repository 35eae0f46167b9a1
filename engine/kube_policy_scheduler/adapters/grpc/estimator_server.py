"""The port of an estimator: Karmada's protocol by gRPC. What to answer is handed in."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import metadata
from typing import Any, Protocol, Self

import grpc
import grpc.aio

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.adapters.grpc.estimator_messages import (
    MOST_BYTES,
    OBJECT,
    REPLICAS,
    SERVICE,
    SETS,
    SOURCE,
    UNSCHEDULABLE,
    VERSION,
    WrongRequest,
    replicas_question,
    sets_question,
    unschedulable_question,
)
from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, server_credentials
from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.fleet.karmada.estimates import (
    CAPACITY,
    ReplicasQuestion,
    SetsQuestion,
    UnschedulableQuestion,
)
from kube_policy_scheduler.installation import PACKAGE

logger = logging.getLogger(__name__)

MOST_CALLS = 256
"""At a time; more are refused at once."""
DEADLINE_SECONDS = 2.5
"""For an answer, if the client gives more: Karmada waits 3 s for all clusters, and drops all answers if one is late."""
_SPARE_SECONDS = 0.2
"""Of the time that a client gives, for the way back."""


class Answers(Protocol):
    """What an estimator says."""

    async def replicas(self, question: ReplicasQuestion, *, seconds: float) -> int:
        """Return how many more replicas fit, -1 for no opinion, within so many seconds."""
        ...

    async def sets(self, question: SetsQuestion, *, seconds: float) -> int:
        """Return how many more whole sets fit, -1 for no opinion, within so many seconds."""
        ...


class CountsPods(Protocol):
    """Counts pods that have no node."""

    async def unschedulable(self, question: UnschedulableQuestion, *, seconds: float) -> int:
        """Return how many pods of a workload have no node, -1 for no opinion, within so many seconds."""
        ...


class EstimatorServer:
    """A context manager: the port is served while it lasts."""

    def __init__(
        self, answers: Answers, pods: CountsPods, *, host: str, port: int, certificates: Renewed | None
    ) -> None:
        """Listen to nothing yet.

        Args:
            answers: what to answer about room.
            pods: what to answer about pods that have no node.
            host: address to listen at.
            port: 0 takes a free one, see `address`.
            certificates: None: plain, for everybody who can connect.
        """
        self._answers, self._pods, self._certificates = answers, pods, certificates
        self._host, self._port = host, port
        self._server: Any = None

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ServerError: the address is taken or not ours.
        """
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", MOST_BYTES),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.max_concurrent_streams", MOST_CALLS),
                ("grpc.so_reuseport", 0),
                # a client that is gone without a word holds a connection for so long
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
            ],
        )
        methods = {REPLICAS: self._replicas, SETS: self._sets, UNSCHEDULABLE: self._unschedulable}
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        address, certificates = f"{host}:{self._port}", self._certificates
        try:
            if certificates is None:
                self._port = self._server.add_insecure_port(address)
            else:
                self._port = self._server.add_secure_port(address, server_credentials(certificates))
        except RuntimeError as error:
            raise ServerError(f"cannot listen at {address}: the address is taken or not ours") from error
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; calls under way get a second."""
        await self._server.stop(1.0)

    @property
    def address(self) -> str:
        """`HOST:PORT`, with the real port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def _replicas(self, body: bytes, context: Any) -> bytes:
        found = await _answered(body, context, replicas_question, self._answers.replicas)
        answer: bytes = messages.MaxAvailableReplicasResponse(max_replicas=found).SerializeToString()
        return answer

    async def _sets(self, body: bytes, context: Any) -> bytes:
        found = await _answered(body, context, sets_question, self._answers.sets)
        answer: bytes = messages.MaxAvailableComponentSetsResponse(max_sets=found).SerializeToString()
        return answer

    async def _unschedulable(self, body: bytes, context: Any) -> bytes:
        def read(request: bytes, _: str) -> UnschedulableQuestion:
            return unschedulable_question(request)

        found = await _answered(body, context, read, self._pods.unschedulable)
        answer: bytes = messages.UnschedulableReplicasResponse(unschedulable_replicas=found).SerializeToString()
        return answer


@cache
def _version() -> str:
    return metadata.version(PACKAGE)


class _Ask(Protocol):
    def __call__(self, question: Any, /, *, seconds: float) -> Awaitable[int]: ...


async def _answered(body: bytes, context: Any, read: Callable[[bytes, str], Any], ask: _Ask) -> int:
    """Answer a call; a request that is wrong is refused."""
    try:
        question = read(body, _template(context))
    except WrongRequest as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    context.set_trailing_metadata(((SOURCE, CAPACITY), (VERSION, _version())))
    left = context.time_remaining()
    seconds = DEADLINE_SECONDS if left is None else min(DEADLINE_SECONDS, left - _SPARE_SECONDS)
    return await ask(question, seconds=max(0.0, seconds))


def _template(context: Any) -> str:
    """Return what the metadata says of the template, "" if nothing."""
    for key, value in context.invocation_metadata() or ():
        if key == OBJECT and isinstance(value, str):
            return value
    return ""
