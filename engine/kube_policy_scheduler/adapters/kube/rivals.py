"""Finds rival schedulers: they lead with a Lease of the same name that is not ours, for example in another namespace.

Two of them place pods on the same nodes, by two sets of policies, and neither sees the other. Whether a Lease is alive
is seen, not read: its holder renews it while we look. No two clocks are compared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from kube_policy_scheduler.adapters.kube.errors import ApiError, KubeError, MalformedAnswer
from kube_policy_scheduler.adapters.kube.shard_leases import LABEL
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta

logger = logging.getLogger(__name__)

GROUP = "/apis/coordination.k8s.io/v1"
USUAL_NAMESPACES = ("policy-scheduler", "kube-system")
"""Of Leases: as deploy/ has it, and of who runs outside a cluster."""
LOOK_EVERY_SECONDS = 1.0
MOST_SECONDS = 60.0
"""For so long a Lease is looked at, whatever it says that it lasts."""
MOST_LEASES = 20
"""Of one answer; anyone who may write Leases may write many."""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: float | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    items: list[_Lease] | None = None


class Rival(msgspec.Struct, frozen=True):
    """A scheduler that leads."""

    namespace: str
    lease: str
    holder: str


async def find_rival(
    transport: Transport, *, name: str, namespace: str, shares: bool | None, everywhere: bool
) -> Rival | None:
    """Return who leads under a lease of that name that is not ours; takes as long as such a lease lasts.

    Args:
        transport: to the API server.
        name: of our lease, or what the leases of replicas that share the work have in common.
        namespace: of our lease.
        shares: whether ours are those of replicas that share the work (True), or one that is held by a leader (False);
            None: none is ours.
        everywhere: whether to look for replicas that share the work, and in the usual namespaces where we may not look
            in all of them together.
    """
    looking = _Looking(transport, name, everywhere=everywhere)
    first: dict[tuple[str, str], _Lease] = {}
    loop = asyncio.get_running_loop()
    end = began = loop.time()
    while True:
        held = [lease for lease in await looking.leases() if lease.spec.holder_identity]
        for lease in held:
            key = lease.metadata.namespace, lease.metadata.name
            if shares is not None and key[0] == namespace and (key[1] != name) == shares:
                continue
            if key not in first:
                first[key] = lease
                logger.info(
                    "checking whether another scheduler leads",
                    extra={"lease": "/".join(key), "holder": lease.spec.holder_identity},
                )
                end = max(end, min(loop.time() + (lease.spec.lease_duration_seconds or 0.0), began + MOST_SECONDS))
            elif first[key].spec != lease.spec:
                return Rival(*key, lease.spec.holder_identity or "")
        if loop.time() >= end:
            return None
        await transport.pause(LOOK_EVERY_SECONDS)


class _Looking:
    """Asks for Leases wherever we may."""

    def __init__(self, transport: Transport, name: str, *, everywhere: bool) -> None:
        self._transport = transport
        self._name = name
        self._everywhere = everywhere

    async def leases(self) -> list[_Lease]:
        """Return all that can be seen; nothing where nothing can."""
        found: list[_Lease] = []
        for selector in self._selectors():
            try:
                found += await self._list(f"{GROUP}/leases", selector)
            except ApiError as error:
                logger.debug("cannot list leases of all namespaces: %s", error)
                if self._everywhere:
                    found += await self._in_usual_namespaces(selector)
            except KubeError as error:
                logger.debug("cannot list leases: %s", error)
        return found

    def _selectors(self) -> Iterator[dict[str, str]]:
        yield {"fieldSelector": f"metadata.name={self._name}"}
        if self._everywhere:
            yield {"labelSelector": f"{LABEL}={self._name}"}

    async def _in_usual_namespaces(self, selector: dict[str, str]) -> list[_Lease]:
        found: list[_Lease] = []
        for namespace in USUAL_NAMESPACES:
            try:
                found += await self._list(f"{GROUP}/namespaces/{namespace}/leases", selector)
            except KubeError as error:
                logger.debug("cannot list leases of %s: %s", namespace, error)
        return found

    async def _list(self, path: str, selector: dict[str, Any]) -> Collection[_Lease]:
        query = urlencode({**selector, "limit": MOST_LEASES})
        body = await self._transport.request("GET", f"{path}?{query}", resource="leases", timeout_seconds=5.0)
        try:
            return msgspec.json.decode(body, type=_List).items or ()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"the answer is not a list of leases: {error}") from error
