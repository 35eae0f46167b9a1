"""Writes the scores of managed clusters: one AddOnPlacementScore in the namespace of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import OCM_GROUP
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.fleet.ocm.hub import Hub
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster
from kube_policy_scheduler.fleet.ocm.scorer import SCORED, VALID_SECONDS, Scores
from kube_policy_scheduler.times import Steady, rfc3339

logger = logging.getLogger(__name__)

_SCORES = Resource("addonplacementscores", ManagedCluster, OCM_GROUP, "v1alpha1")
"""Written, never read."""


class ScoreWriter:
    """Writes the scores of one cluster at a time; those of several may be under way."""

    def __init__(
        self,
        transport: Transport,
        hub: Hub,
        *,
        name: str,
        fence: Fence,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server of the hub.
            hub: is told how each write ended.
            name: of the objects.
            fence: whether this replica may write.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        self._transport, self._hub, self._name, self._fence = transport, hub, name, fence
        self._clock, self._steady = clock, steady

    async def carry_out(self, work: Scores) -> None:
        """Write the scores of a cluster. Raises nothing of the API's."""
        try:
            try:
                await self._say(work)
            except NotFound:
                await self._make(work.cluster)
                await self._say(work)
        except KubeError as error:
            if not self._hub.waiting.attempts(work.key):
                fields = {"cluster": work.cluster, "why": str(error)}
                logger.warning("scores of a cluster cannot be written; trying again", extra=fields)
            self._hub.refused(work, self._now())
            return
        self._hub.done(work, self._now())

    async def _say(self, work: Scores) -> None:
        status = {
            "scores": [{"name": name, "value": value} for name, value in sorted(work.values.items())],
            "validUntil": rfc3339(self._clock() + VALID_SECONDS),
        }
        await self._transport.request(
            "PATCH",
            _SCORES.path(self._name, namespace=work.cluster, subresource="status"),
            body=msgspec.json.encode({"status": status}),
            content_type=MERGE_PATCH,
            resource=f"{_SCORES.label}/status",
            fence=self._fence,
        )

    async def _make(self, cluster: str) -> None:
        wanted = {
            "apiVersion": f"{OCM_GROUP}/{_SCORES.version}",
            "kind": SCORED,
            "metadata": {"name": self._name, "namespace": cluster},
        }
        try:
            await self._transport.request(
                "POST",
                _SCORES.collection(namespace=cluster),
                body=msgspec.json.encode(wanted),
                resource=_SCORES.label,
                fence=self._fence,
            )
        except Conflict:
            return  # another replica made it

    def _now(self) -> Steady:
        return Steady(self._steady())
