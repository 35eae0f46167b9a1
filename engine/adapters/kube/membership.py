"""The replicas that share the work, each with a Lease that it alone renews. Decides nothing about pods.

A replica that comes creates its Lease, then lists the others'. It does nothing before each of those has written into
its own Lease that it knows the newcomer, which each does only once everything that is the newcomer's now has come to
an end there. A replica that goes writes that into its Lease, with the last that it saw: the others take its part
when they have seen that too. One that dies, hangs or is cut off stops by its own clock before the others take its Lease
for expired. As in leader election no two clocks are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from engine.adapters.kube.errors import Conflict, KubeError, MalformedAnswer, NotFound
from engine.adapters.kube.lease import LeaseSettings
from engine.adapters.kube.transport import Transport

logger = logging.getLogger(__name__)

LABEL = "policy-scheduler/shard-of"
KNOWS = "policy-scheduler/knows"
"""Annotation: the members that the holder hands over to."""
PODS_SEEN = "policy-scheduler/pods-seen"
"""Annotation: the resource version of the last pod event that the holder had seen when it handed over."""
LEFT = "policy-scheduler/left"
"""Annotation: the holder does nothing any more, and nothing of it is under way."""
SETTLE_SECONDS = 2.0
"""From the unexpected end of a Lease until its holder's part is taken: bindings may be on the way to our watch."""
HURRY_SECONDS = 0.1
"""Between two looks while somebody waits."""
LEAVE_SECONDS = 3.0
"""How long our end may be delayed by what is on the way to our watch."""


@dataclass(frozen=True, slots=True)
class Member:
    """Another replica, as its Lease shows it."""

    identity: str
    knows: frozenset[str]
    pods_seen: int
    has_left: bool


class Membership:
    """Keeps our Lease, and knows whose part is whose."""

    def __init__(
        self,
        transport: Transport,
        settings: LeaseSettings,
        *,
        on_members: Callable[[frozenset[str]], None],
        on_ready: Callable[[bool], None],
        has_handed_over: Callable[[], bool],
        has_settled: Callable[[], bool],
        pods_seen: Callable[[], int],
        pods_known: Callable[[], int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make one; it joins with `run`.

        Args:
            transport: to the API server.
            settings: `name` is what all replicas have in common; each Lease is named after it and its holder.
            on_members: told who shares the work, ourselves included. What is no longer ours must not be begun then.
            on_ready: told whether we may do anything.
            has_handed_over: whether nothing is under way any more that is no longer ours.
            has_settled: whether nothing at all is under way.
            pods_seen: the resource version of the last pod event, 0 where there was none.
            pods_known: the resource version up to which pods are known: of the last list, event or bookmark.
            clock: for the times shown in the Lease only.
        """
        self._transport = transport.aside()
        self._settings = settings
        self._on_members = on_members
        self._on_ready = on_ready
        self._has_handed_over = has_handed_over
        self._has_settled = has_settled
        self._pods_seen = pods_seen
        self._pods_known = pods_known
        self._clock = clock
        self._may_act_until = 0.0  # event loop's time
        self._seen: dict[str, tuple[Any, float]] = {}
        self._gone_at: dict[str, float] = {}
        self._elders: frozenset[str] | None = None
        """Those who were there before us and have not handed over yet; None before the first list."""
        self._published: frozenset[str] = frozenset((settings.identity,))
        self._handed_over_at = 0
        self.members: frozenset[str] = frozenset()
        self.is_ready = False
        self.waits_for: tuple[str, ...] = ()
        """Whose word is missing before we may do anything."""

    @property
    def may_act(self) -> bool:
        """The fence: turns false by itself when a renewal is overdue."""
        return self.is_ready and asyncio.get_running_loop().time() < self._may_act_until

    async def run(self) -> str:
        """Join and stay for as long as that goes well; return why it ended. When cancelled, leave."""
        try:
            await self._join()
            why = await self._stay()
        except BaseException:
            self._stop("shutting down")
            await self._leave()
            raise
        self._stop(why)
        return why

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._request("POST", self._settings.collection, self._lease(""))
            except Conflict:
                pass  # an answer was lost, the Lease is there
            except KubeError as error:
                logger.warning("lease %s was not created: %s", self._lease_name, error)
                await asyncio.sleep(self._settings.retry_seconds)
                continue
            self._may_act_until = began + self._settings.renew_deadline_seconds
            return

    async def _stay(self) -> str:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with asyncio.timeout_at(self._may_act_until):
                    while True:
                        try:
                            why = await self._look(began)
                        except KubeError as error:
                            logger.warning("lease %s was not renewed: %s", self._lease_name, error)
                            await asyncio.sleep(self._settings.retry_seconds)
                            began = loop.time()
                            continue
                        break
                    if why:
                        return why
            except TimeoutError:
                return f"the lease could not be renewed within {self._settings.renew_deadline_seconds:g} s"
            hurried = not self.is_ready or self._published != self.members or self._gone_at
            await asyncio.sleep(HURRY_SECONDS if hurried else self._settings.retry_seconds / 2)

    async def _look(self, began: float) -> str:
        """List all Leases, renew ours, and draw the conclusions; return why we must end, "" if we need not."""
        leases = await self._list()
        own = leases.pop(self._settings.identity, None)
        if own is None:
            return f"the lease {self._lease_name} was deleted"
        await self._take_note(leases)
        others = {identity: _member(lease) for identity, lease in leases.items()}
        self._elders = self._elders if self._elders is not None else frozenset(others)
        members = frozenset(others) | self._gone_at.keys() | {self._settings.identity}
        if members != self.members:
            self.members = members
            logger.info("the work is shared by %d replicas", len(members), extra={"members": sorted(members)})
            self._on_members(members)
        if self._published != members and self._has_handed_over():
            self._published, self._handed_over_at = members, self._pods_seen()
        version = own["metadata"].get("resourceVersion", "")
        acquired = own.get("spec", {}).get("acquireTime")
        try:
            await self._request("PUT", self._path(self._lease_name), self._lease(version, acquired=acquired))
        except NotFound:
            return f"the lease {self._lease_name} was deleted"
        self._may_act_until = began + self._settings.renew_deadline_seconds
        self._judge(others)
        return ""

    async def _take_note(self, leases: dict[str, dict[str, Any]]) -> None:
        """Leave expired Leases out, and delete them: their holders then find out for certain."""
        now = asyncio.get_running_loop().time()
        for identity in self._seen.keys() - leases.keys():
            del self._seen[identity]
            if identity in self.members:
                self._gone_at[identity] = now
        for identity, lease in list(leases.items()):
            spec = lease.get("spec", {})
            state = spec.get("renewTime")
            known = self._seen.get(identity)
            if known is None or known[0] != state:
                known = self._seen[identity] = (state, now)
            told = _member(lease)
            has_left = told.has_left and told.pods_seen <= self._pods_known()
            if has_left:
                del leases[identity]
            if now > known[1] + float(spec.get("leaseDurationSeconds") or self._settings.lease_seconds):
                if not has_left:
                    logger.warning("replica %s is gone, its lease has expired", identity)
                    del leases[identity]
                del self._seen[identity]
                await self._delete(lease)
        self._gone_at = {
            identity: at
            for identity, at in self._gone_at.items()
            if identity not in leases and now - at < SETTLE_SECONDS
        }

    async def _delete(self, lease: dict[str, Any]) -> None:
        metadata = lease["metadata"]
        conditions = {"resourceVersion": metadata.get("resourceVersion"), "uid": metadata.get("uid")}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        with contextlib.suppress(NotFound, Conflict):
            await self._request("DELETE", self._path(metadata["name"]), body)

    def _judge(self, others: dict[str, Member]) -> None:
        """Find out whether everybody who was there before us has handed over."""
        identity, known = self._settings.identity, self._pods_known()
        self._elders = frozenset(
            elder
            for elder in self._elders or ()
            if elder in others and (identity not in others[elder].knows or others[elder].pods_seen > known)
        )
        missing = self.waits_for = tuple(sorted(self._elders))
        if self.is_ready != (not missing):
            self.is_ready = not missing
            logger.info("takes part" if self.is_ready else "waits for a hand-over", extra={"identity": identity})
            self._on_ready(self.is_ready)

    def _stop(self, why: str) -> None:
        was_ready, self.is_ready = self.is_ready, False
        logger.warning("no longer takes part: %s", why, extra={"lease": self._lease_name})
        if was_ready:
            self._on_ready(False)

    async def _leave(self) -> None:
        """Say in our Lease that our part is free; failing that, it expires."""
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while not self._has_settled():  # noqa: ASYNC110 (what it waits for comes by the watch)
                    await asyncio.sleep(HURRY_SECONDS)
                self._handed_over_at = self._pods_seen()
                body = self._lease("")
                body["metadata"]["annotations"][LEFT] = "true"
                version = (await self._request("GET", self._path(self._lease_name)))["metadata"]["resourceVersion"]
                body["metadata"]["resourceVersion"] = version
                await self._request("PUT", self._path(self._lease_name), body)

    # --- the Leases ---------------------------------------------------------------------------------

    @property
    def _lease_name(self) -> str:
        holder = re.sub(r"[^a-z0-9-]+", "-", self._settings.identity.lower()).strip("-")
        return f"{self._settings.name}-shard-{holder}"[:253]

    def _path(self, name: str) -> str:
        return f"{self._settings.collection}/{name}"

    def _lease(self, version: str, *, acquired: str | None = None) -> dict[str, Any]:
        settings = self._settings
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: dict[str, Any] = {
            "name": self._lease_name,
            "namespace": settings.namespace,
            "labels": {LABEL: settings.name},
            "annotations": {KNOWS: ",".join(sorted(self._published)), PODS_SEEN: str(self._handed_over_at)},
        }
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": settings.identity,
                "leaseDurationSeconds": max(1, round(settings.lease_seconds)),
                "acquireTime": acquired or now,
                "renewTime": now,
            },
        }

    async def _list(self) -> dict[str, dict[str, Any]]:
        """Return all members' Leases by holder, as they are now."""
        query = urlencode({"labelSelector": f"{LABEL}={self._settings.name}"})
        found = await self._request("GET", f"{self._settings.collection}?{query}")
        items = found.get("items") or []
        try:
            return {str(item["spec"]["holderIdentity"]): item for item in items}
        except (KeyError, TypeError) as error:
            raise MalformedAnswer(f"a lease has no holder: {error}") from error

    async def _request(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await self._transport.request(
            verb,
            path,
            body=msgspec.json.encode(body) if body is not None else b"",
            resource="leases",
            timeout_seconds=self._settings.renew_deadline_seconds / 2,
        )
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"the lease is not an object: {error}") from error


def _member(lease: dict[str, Any]) -> Member:
    annotations = lease["metadata"].get("annotations") or {}
    seen = str(annotations.get(PODS_SEEN, "0"))
    return Member(
        lease["spec"]["holderIdentity"],
        frozenset(filter(None, str(annotations.get(KNOWS, "")).split(","))),
        int(seen) if seen.isdecimal() else 0,
        LEFT in annotations,
    )
