"""Open Cluster Management: managed clusters and Placements in, scores and decisions out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kube_policy_scheduler.daemon.fleet.decision_writer import DecisionWriter
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision, Shown, Surroundings, shown_choice
from kube_policy_scheduler.daemon.fleet.score_writer import ScoreWriter
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.ocm.hub import Hub
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    PlacementDecision,
)
from kube_policy_scheduler.fleet.ocm.placer import Decided
from kube_policy_scheduler.fleet.ocm.scorer import SCORED, Scores
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady


class OcmEngine:
    """Hands what is watched to the hub, and its scores and decisions to their writers."""

    lease_namespace = "open-cluster-management-hub"
    """Each hub has it."""

    def __init__(
        self,
        given: Surroundings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know nothing yet; without policies, there are no scores, and Placements decide themselves.

        Args:
            given: settings and ways to the API server. The objects with the scores have the first scheduler name.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        names = given.settings.scheduler_names
        self.maker = Hub(names)
        self._scores = ScoreWriter(given.transport, self.maker, name=names[0], fence=given.fence, clock=clock)
        self._decisions = DecisionWriter(given.transport, self.maker, given.events, fence=given.fence)
        self._clock, self._steady = clock, steady
        self.shown: Mapping[str, Shown] = {
            "/debug/scores": self._shown_scores,
            "/debug/placements": self._shown_placement,
        }

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Score and decide by these policies from now on."""
        self.maker.use(
            lambda fleet: rules.decide_each(SCORED, fleet),
            rules.decide,
            now,
            reads=rules.fields,
            looks=rules.reads_templates,
        )

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        hub, now = self.maker, self._now
        handlers: Mapping[type, Handler[Any]] = {
            ManagedCluster: Handler(
                lambda listed: hub.replace_clusters(listed, now()),
                lambda thing: hub.set_cluster(thing, now()),
                lambda thing: hub.delete_cluster(thing.metadata.name, now()),
            ),
            ManagedClusterSet: Handler(
                lambda listed: hub.replace_sets(listed, now()),
                lambda thing: hub.set_set(thing, now()),
                lambda thing: hub.delete_set(thing.metadata.name, now()),
            ),
            ManagedClusterSetBinding: Handler(
                lambda listed: hub.replace_bindings(listed, now()),
                lambda thing: hub.set_binding(thing, now()),
                lambda thing: hub.delete_binding(thing, now()),
            ),
            PlacementDecision: Handler(
                lambda listed: hub.replace_decisions(listed, now()),
                lambda thing: hub.set_decision(thing, now()),
                lambda thing: hub.delete_decision(thing, now()),
            ),
            ClusterPlacement: Handler(
                lambda listed: hub.replace_placements(listed, now()),
                lambda thing: hub.set_placement(thing, now()),
                lambda thing: hub.delete_placement((thing.metadata.namespace, thing.metadata.name), now()),
            ),
        }
        return handlers[kind]

    def next(self, now: Steady) -> Scores | Decided | None:
        """Return what is to be written next; None if there is nothing now."""
        return self.maker.next(now, self._clock())

    async def carry_out(self, work: Scores | Decided) -> FleetDecision | None:
        """Write scores, or a decision."""
        if not isinstance(work, Scores):
            return await self._decisions.carry_out(work)
        await self._scores.carry_out(work)
        return None

    def broke(self, work: Scores | Decided, now: Steady) -> None:
        """Take note that the work broke through a fault of ours."""
        self.maker.refused(work, now)

    def look_again(self, now: Steady) -> None:
        """Look at some Placements; all clusters are scored every minute anyway."""
        self.maker.look_at_some(now)

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return the clusters of each Placement that is decided here; OCM knows no replicas."""
        return (dict.fromkeys(names, 0) for names in list(self.maker.selected()))

    def _shown_scores(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return the scores of a cluster by its name."""
        values = self.maker.values(key[1], self._now())
        return None if values is None else {"scores": dict(values)}

    def _shown_placement(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return how a Placement would be decided now."""
        found = self.maker.decided(key, self._clock())
        if found is None:
            return None
        return shown_choice(found.before, found.chosen, found.outcome)

    def _now(self) -> Steady:
        return Steady(self._steady())
