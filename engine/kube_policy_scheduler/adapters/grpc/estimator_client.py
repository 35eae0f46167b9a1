"""Asks the estimators of member clusters: each on its own, so that one that fails says nothing about the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.adapters.grpc.estimator_messages import (
    MOST_BYTES,
    REPLICAS,
    SERVICE,
    SETS,
    SOURCE,
    VERSION,
    metadata_of,
    replicas_request,
    sets_request,
)
from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, channel_credentials
from kube_policy_scheduler.fleet.karmada.estimates import CAPACITY, ESTIMATOR, Question, ReplicasQuestion

logger = logging.getLogger(__name__)

ANSWER_BYTES = 4096
"""Of an answer: it is one number."""


class EstimatorError(ConnectionError):
    """A server gave no answer; the text says why."""


class Estimate(NamedTuple):
    """What a server says."""

    room: int
    """Of replicas, or of sets; -1: it has no opinion."""
    source: str
    """`capacity` or `estimator`."""
    version: str = ""
    """Of the server; "" if it does not say it."""


class EstimatorClient:
    """Asks one server. The connection is made when it is needed, and again when certificates change."""

    def __init__(self, address: str, *, certificates: Renewed | None) -> None:
        """Connect to nothing yet.

        Args:
            address: `HOST:PORT`.
            certificates: None: the connection is not encrypted.
        """
        self.address = address
        self._certificates = certificates
        self._channel: Any = None
        self._made_with: Any = None

    async def ask(self, question: Question, *, seconds: float) -> Estimate:
        """Return how many more replicas, or sets, fit.

        Raises:
            EstimatorError: there is no answer within so many seconds.
        """
        if isinstance(question, ReplicasQuestion):
            method, body, read = REPLICAS, replicas_request(question), _replicas
        else:
            method, body, read = SETS, sets_request(question), _sets
        call = (await self._connected()).unary_unary(f"/{SERVICE}/{method}")
        try:
            calling = call(body, timeout=seconds, metadata=metadata_of(question.template))
            count = read(await calling)
            said = dict(await calling.trailing_metadata() or ())
            source = CAPACITY if said.get(SOURCE) == CAPACITY else ESTIMATOR
            return Estimate(count, source, str(said.get(VERSION, ""))[:40])
        except grpc.aio.AioRpcError as error:
            raise EstimatorError(f"{error.code().name}: {(error.details() or '')[:200]}") from None
        except ValueError:
            raise EstimatorError("the answer is not a message of the protocol") from None

    async def _connected(self) -> Any:
        if self._certificates is not None:
            self._certificates.look()
        pem = self._certificates.pem if self._certificates is not None else None
        if self._channel is None or self._made_with is not pem:
            await self.close()
            options = [("grpc.max_receive_message_length", ANSWER_BYTES), ("grpc.max_send_message_length", MOST_BYTES)]
            # names of our own process stay out of the way of proxies that are meant for the API server
            options.append(("grpc.enable_http_proxy", 0))
            target = f"dns:///{self.address}"  # whatever is in it, it is no other kind of address
            self._channel = (
                grpc.aio.insecure_channel(target, options=options)
                if pem is None
                else grpc.aio.secure_channel(target, channel_credentials(pem), options=options)
            )
            self._made_with = pem
        return self._channel

    async def close(self) -> None:
        """Give the connection back."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()


def _replicas(body: bytes) -> int:
    found: int = _message(messages.MaxAvailableReplicasResponse, body).max_replicas
    return found


def _sets(body: bytes) -> int:
    found: int = _message(messages.MaxAvailableComponentSetsResponse, body).max_sets
    return found


def _message(kind: Callable[[], Any], body: bytes) -> Any:
    made = kind()
    try:
        made.ParseFromString(body)
    except Exception as error:
        raise ValueError("not a message") from error
    return made
