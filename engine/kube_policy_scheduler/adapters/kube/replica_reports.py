"""What each replica says of its policies: annotations of one Lease that all replicas share, as `kubectl get` shows it.

Each replica writes its own annotation alone, renews it, and takes it away at its end; those of replicas that died
are taken away by the others. Knows nothing of policies but hashes and texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.wording import shortened

logger = logging.getLogger(__name__)

PREFIX = "replica.policy-scheduler.dev/"
RENEW_SECONDS = 60.0
STALE_SECONDS = 3 * RENEW_SECONDS
"""A replica that has not renewed its report for this long is no longer shown."""
FORGET_SECONDS = 600.0
"""After this long without a renewal the others take the report away; clocks of nodes may differ by minutes."""
RETRY_SECONDS = 5.0
LEAVE_SECONDS = 2.0
PROBLEM_CHARACTERS = 500
OWNER_PROBLEM_CHARACTERS = 100
"""A hundred owners and three replicas share the 256 KiB of annotations."""


class SetReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one replica says of the policies of one owner. Times are Unix seconds by its own clock."""

    active: str = ""
    """Hash of the policies that decide; "" while there are none."""
    generation: int = 0
    since: float = 0.0
    """When they were taken over."""
    candidate: str = ""
    """Hash of the newest policies that came; "" where they cannot be read."""
    result: str = ""
    """What happened to the newest: accepted, refused, unreadable."""
    problem: str = ""
    """The first of what is wrong with the newest."""


class ReplicaReport(SetReport, frozen=True, kw_only=True, omit_defaults=True):
    """What one replica says of the administrator's policies, and of those of each owner."""

    replica: str
    """Its pod."""
    renewed: float
    owners: dict[str, SetReport] = {}


class _Lease(msgspec.Struct):
    metadata: ObjectMeta


_decode_lease = decoder_of(_Lease)


def decode_reports(lease: bytes) -> dict[str, ReplicaReport]:
    """Return the reports in a Lease by their annotations; what is no report is left out.

    Raises:
        msgspec.MsgspecError: it is no Lease.
    """
    found = {}
    for key, text in (_decode_lease(lease).metadata.annotations or {}).items():
        if key.startswith(PREFIX):
            with contextlib.suppress(msgspec.MsgspecError):
                found[key] = msgspec.json.decode(text, type=ReplicaReport)
    return found


class ReplicaReports:
    """Our report; `run` keeps it there."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        replica: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """name: of the Lease. identity: ours among all replicas. replica: how people know us."""
        self._transport = transport
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._key = PREFIX + blake2b(identity.encode(), digest_size=8).hexdigest()
        self._report = ReplicaReport(replica=replica, renewed=0.0)
        self._clock = clock
        self._stirred = asyncio.Event()
        self._dead: set[str] = set()
        """Annotations to be taken away."""

    def update(self, **changes: Any) -> None:
        """Change what we say; returns at once. Takes fields of ReplicaReport."""
        if "problem" in changes:
            changes["problem"] = shortened(changes["problem"], PROBLEM_CHARACTERS)
        self._report = msgspec.structs.replace(self._report, **changes)
        self._stirred.set()

    def update_of(self, owner: str, **changes: Any) -> None:
        """Change what we say of an owner's policies; returns at once. Takes fields of SetReport."""
        if "problem" in changes:
            changes["problem"] = shortened(changes["problem"], OWNER_PROBLEM_CHARACTERS)
        known = self._report.owners.get(owner, SetReport())
        self.update(owners={**self._report.owners, owner: msgspec.structs.replace(known, **changes)})

    async def run(self) -> None:
        """Write what we say for ever; when cancelled, take it away."""
        logged = ""
        try:
            while True:
                pause = RENEW_SECONDS
                try:
                    await self._write()
                    logged = ""
                except (KubeError, msgspec.MsgspecError) as error:
                    if str(error) != logged:
                        logger.warning("failed to report the active policies (lease %s): %s", self._name, error)
                    logged, pause = str(error), RETRY_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stirred.wait()
        except asyncio.CancelledError:
            await self._leave()
            raise

    async def _write(self) -> None:
        self._stirred.clear()
        now = self._clock()
        report = msgspec.structs.replace(self._report, renewed=round(now, 1))
        annotations = {**dict.fromkeys(self._dead), self._key: msgspec.json.encode(report).decode()}
        lease = await self._put(annotations)
        self._dead = {key for key, other in decode_reports(lease).items() if other.renewed < now - FORGET_SECONDS} - {
            self._key
        }

    async def _put(self, annotations: Mapping[str, str | None]) -> bytes:
        body = {"metadata": {"annotations": annotations}}
        try:
            return await self._ask("PATCH", f"{self._collection}/{self._name}", body, content_type=MERGE_PATCH)
        except NotFound:
            head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            given = {key: text for key, text in annotations.items() if text is not None}
            try:
                return await self._ask(
                    "POST", self._collection, {**head, "metadata": {"name": self._name, "annotations": given}}
                )
            except Conflict:  # another replica made it
                return await self._ask("PATCH", f"{self._collection}/{self._name}", body, content_type=MERGE_PATCH)

    async def _leave(self) -> None:
        """Take our report away; failing that, the others do."""
        body = {"metadata": {"annotations": {self._key: None}}}
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._ask("PATCH", f"{self._collection}/{self._name}", body, content_type=MERGE_PATCH)

    async def _ask(
        self, verb: str, path: str, body: Mapping[str, Any], *, content_type: str = "application/json"
    ) -> bytes:
        return await self._transport.request(
            verb, path, body=msgspec.json.encode(body), resource="leases", content_type=content_type
        )
