"""Asks clusters for their room: their estimators, each on its own. What one said last counts while it does not answer.

A cluster without an estimator that answers is counted from what was read of it, if the settings say so.
"""

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
from kube_policy_scheduler.fleet.karmada.estimates import MEMBER, Question, question_about
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.tallies import Tallies

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


class CountsMembers(Protocol):
    """Counts the room of clusters that it reads."""

    async def ask(self, question: Question, *, seconds: float) -> int | None:
        """Return how many more replicas or sets fit, None if that is not known in time."""
        ...


class Estimators:
    """Asks those of many clusters at once."""

    def __init__(
        self,
        connect: Callable[[str], Client] | None,
        *,
        timeout: float,
        members: CountsMembers | None = None,
        count: Callable[[str], None] = lambda answer: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet.

        Args:
            connect: returns what asks the server of a cluster; None: there are no servers.
            timeout: seconds for an answer.
            members: is asked about a cluster whose server gives no answer; None: nobody is.
            count: called after each question with its result: room, none, last, member or failed.
            steady: seconds on a clock that nobody sets.
        """
        self._connect, self._timeout, self._members = connect, timeout, members
        self._count, self._steady = count, steady
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
        if self._connect is not None:
            said = await self._of_server(question, self._connect)
            if said is not None:
                return said
        if self._members is not None:
            room = await self._members.ask(question, seconds=self._timeout)
            if room is not None:
                self._count("member")
                return {MEMBER: room}
        self._count("failed")
        return {}

    async def _of_server(self, question: Question, connect: Callable[[str], Client]) -> dict[str, int] | None:
        """Return what the server of a cluster says, or said a short time ago; None: it gives no answer."""
        cluster = question.cluster
        key = blake2b(msgspec.json.encode(question, order="deterministic"), digest_size=16).digest()
        failed = self._silent.get(cluster)
        if failed is not None and self._steady() - failed < PAUSE_SECONDS:
            return self._last(key)
        async with self._calls:
            try:
                found = await self._client(cluster, connect).ask(question, seconds=self._timeout)
            except ConnectionError as error:
                if failed is None:
                    logger.warning("an estimator gives no answer", extra={"cluster": cluster, "why": str(error)})
                self._silent.set(cluster, self._steady())
                return self._last(key)
        if failed is not None:
            self._silent.pop(cluster)
            logger.info("an estimator answers again", extra={"cluster": cluster})
        if found.room < 0:
            if self._members is not None:
                return None
            self._count("none")
            return {}
        self._count("room")
        self._kept.set(key, (self._steady(), found.source, found.room))
        return {found.source: found.room}

    def _last(self, key: bytes) -> dict[str, int] | None:
        known = self._kept.get(key)
        if known is None or self._steady() - known[0] >= LAST_GOOD_SECONDS:
            return None
        self._count("last")
        return {known[1]: known[2]}

    def _client(self, cluster: str, connect: Callable[[str], Client]) -> Client:
        known = self._clients.get(cluster)
        if known is None:
            known = connect(cluster)
            self._clients.set(cluster, known)
        return known

    def _dropped(self, _: str, client: Client) -> None:
        task = asyncio.create_task(client.close(), name="close-estimator")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def make_estimators(settings: EstimatorsSettings, tallies: Tallies, members: CountsMembers | None) -> Estimators:
    """Return what asks the servers and clusters that the settings say.

    Args:
        settings: whom to ask.
        tallies: where answers are counted.
        members: counts room where `settings.members` says so.

    Raises:
        ServerError: gRPC is not installed.
        CertificateError: a file of certificates cannot be used.
    """
    connect = _connecting(settings) if settings.address is not None else None
    asked = members if settings.members else None
    return Estimators(connect, timeout=settings.timeout, members=asked, count=tallies.estimated)


def _connecting(settings: EstimatorsSettings) -> Callable[[str], Client]:
    """Return what connects to the server of a cluster."""
    from kube_policy_scheduler.adapters.grpc.available import require_grpc

    require_grpc()
    from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient
    from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles

    files = TlsFiles(settings.certificate_file, settings.key_file, settings.ca_file)
    certificates = Renewed(files) if settings.ca_file is not None else None
    return lambda cluster: EstimatorClient(settings.address_of(cluster), certificates=certificates)
