"""Open Cluster Management: managed clusters in, scores out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.fleet_resources import OCM_GROUP
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.daemon.fleet.engine import Surroundings
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster
from kube_policy_scheduler.fleet.ocm.scorer import SCORED, VALID_SECONDS, Scorer, Scores
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady, rfc3339

logger = logging.getLogger(__name__)

_SCORES = Resource("addonplacementscores", ManagedCluster, OCM_GROUP, "v1alpha1")
"""Written, never read."""


class OcmEngine:
    """Hands what is watched to the scorer, and writes its scores: one object in the namespace of each cluster."""

    lease_namespace = "open-cluster-management-hub"
    """Each hub has it."""
    shown_at = "/debug/scores"

    def __init__(
        self,
        given: Surroundings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know nothing yet; without policies, there are no scores.

        Args:
            given: settings and ways to the API server. The objects with the scores have the first scheduler name.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        self.maker = Scorer()
        self._name = given.settings.scheduler_names[0]
        self._transport, self._fence = given.transport, given.fence
        self._clock, self._steady = clock, steady
        self._told: set[str] = set()

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Score by these policies from now on."""
        self.maker.use(lambda fleet: rules.decide_each(SCORED, fleet), now)

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        assert kind is ManagedCluster
        return Handler(
            lambda listed: self.maker.replace_clusters(listed, self._now()),
            lambda thing: self.maker.set_cluster(thing, self._now()),
            lambda thing: self.maker.delete_cluster(thing.metadata.name),
        )

    def next(self, now: Steady) -> Scores | None:
        """Return the scores that are to be written next; None if there are none now."""
        return self.maker.next(now)

    async def carry_out(self, work: Scores) -> None:
        """Write the scores of a cluster. Raises nothing of the API's."""
        try:
            try:
                await self._say(work)
            except NotFound:
                await self._make(work.cluster)
                await self._say(work)
        except KubeError as error:
            if work.cluster not in self._told:
                self._told.add(work.cluster)
                fields = {"cluster": work.cluster, "why": str(error)}
                logger.warning("scores of a cluster cannot be written; trying again", extra=fields)
            self.maker.refused(work.key, self._now())
            return
        self._told.discard(work.cluster)
        self.maker.done(work.key, self._now())

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

    def broke(self, work: Scores, now: Steady) -> None:
        """Take note that the work on a cluster broke through a fault of ours."""
        self.maker.refused(work.key, now)

    def look_again(self, now: Steady) -> None:
        """Do nothing: all clusters are scored every minute."""

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return none: OCM decides which clusters a Placement gets."""
        return ()

    def shown(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return the scores of a cluster by its name."""
        values = self.maker.values(key[1], self._now())
        return None if values is None else {"scores": dict(values)}

    def _now(self) -> Steady:
        return Steady(self._steady())
