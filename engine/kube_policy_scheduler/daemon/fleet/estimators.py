"""Asks the estimators of clusters for room: each on its own, and what one said last counts while it does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.documents.estimator_settings import EstimatorsSettings
from kube_policy_scheduler.fleet.karmada.decision_maker import Room
from kube_policy_scheduler.fleet.karmada.estimates import Question, question_about
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding

logger = logging.getLogger(__name__)

LAST_GOOD_SECONDS = 60.0
"""For so long the last answer of a cluster counts while it gives none."""
PAUSE_SECONDS = 10.0
"""A server that gave no answer is not asked for so long: each decision would wait for it."""
MOST_KEPT = 20_000
"""Answers."""
MOST_CLIENTS = 2_000
"""Connections, one for each cluster; the one that was not used for the longest time is closed."""
MOST_CALLS = 256
"""At a time."""


class Said(Protocol):
    """What a server says."""

    @property
    def room(self) -> int:
        """Of replicas, or of sets; -1: it has no opinion."""
        ...

    @property
    def source(self) -> str:
        """How it was found."""
        ...


class Client(Protocol):
    """Asks the server of one cluster."""

    def ask(self, question: Question, *, seconds: float) -> Awaitable[Said]:
        """Return what it says; raises ConnectionError if it gives no answer in time."""
        ...

    async def close(self) -> None:
        """Give the connection back."""
        ...


class Estimators:
    """Asks those of many clusters at once."""

    def __init__(
        self,
        connect: Callable[[str], Client],
        *,
        timeout: float,
        count: Callable[[str], None] = lambda answer: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet.

        Args:
            connect: returns what asks the server of a cluster.
            timeout: seconds for an answer.
            count: called after each question with its result: room, none, last or failed.
            steady: seconds on a clock that nobody sets.
        """
        self._connect, self._timeout, self._count, self._steady = connect, timeout, count, steady
        self._closing: set[asyncio.Task[None]] = set()
        self._clients: KeptView[str, Client] = KeptView(most=MOST_CLIENTS, dropped=self._dropped)
        self._kept: KeptView[bytes, tuple[float, str, int]] = KeptView(most=MOST_KEPT)
        self._silent: KeptView[str, float] = KeptView(most=MOST_CLIENTS)
        """By cluster: since when its server gives no answer."""
        self._calls = asyncio.Semaphore(MOST_CALLS)

    async def ask(self, binding: ResourceBinding, clusters: Sequence[str]) -> Room:
        """Return what the clusters say about a binding, by source; those that say nothing are absent."""
        answers = await asyncio.gather(*(self._ask(binding, name) for name in clusters))
        return {name: answer for name, answer in zip(clusters, answers, strict=True) if answer}

    async def _ask(self, binding: ResourceBinding, cluster: str) -> dict[str, int]:
        question = question_about(binding, cluster)
        if question is None:
            return {}
        key = blake2b(msgspec.json.encode(question, order="deterministic"), digest_size=16).digest()
        failed = self._silent.get(cluster)
        if failed is not None and self._steady() - failed < PAUSE_SECONDS:
            return self._last(key)
        async with self._calls:
            try:
                found = await self._client(cluster).ask(question, seconds=self._timeout)
            except ConnectionError as error:
                if failed is None:
                    logger.warning("an estimator gives no answer", extra={"cluster": cluster, "why": str(error)})
                self._silent.set(cluster, self._steady())
                return self._last(key)
        if failed is not None:
            self._silent.pop(cluster)
            logger.info("an estimator answers again", extra={"cluster": cluster})
        self._count("room" if found.room >= 0 else "none")
        if found.room < 0:
            return {}
        self._kept.set(key, (self._steady(), found.source, found.room))
        return {found.source: found.room}

    def _last(self, key: bytes) -> dict[str, int]:
        known = self._kept.get(key)
        if known is None or self._steady() - known[0] >= LAST_GOOD_SECONDS:
            self._count("failed")
            return {}
        self._count("last")
        return {known[1]: known[2]}

    def _client(self, cluster: str) -> Client:
        known = self._clients.get(cluster)
        if known is None:
            known = self._connect(cluster)
            self._clients.set(cluster, known)
        return known

    def _dropped(self, _: str, client: Client) -> None:
        task = asyncio.create_task(client.close(), name="close-estimator")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def make_estimators(settings: EstimatorsSettings, *, count: Callable[[str], None]) -> Estimators:
    """Return what asks the servers that the settings say. count: as for `Estimators`.

    Raises:
        ServerError: gRPC is not installed.
        CertificateError: a file of certificates cannot be used.
    """
    from kube_policy_scheduler.adapters.grpc.available import require_grpc

    require_grpc()
    from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient
    from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles

    files = TlsFiles(settings.certificate_file, settings.key_file, settings.ca_file)
    certificates = Renewed(files) if settings.ca_file is not None else None

    def connect(cluster: str) -> EstimatorClient:
        return EstimatorClient(settings.address_of(cluster), certificates=certificates)

    return Estimators(connect, timeout=settings.timeout, count=count)
