"""MultiKueue: Workloads in, nominations out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.daemon.fleet.engine import FleetDecision, Shown, Surroundings
from kube_policy_scheduler.daemon.fleet.nomination_writer import NominationWriter
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile
from kube_policy_scheduler.fleet.multikueue.nominator import Nomination, Nominator
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
)
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady


class MultiKueueEngine:
    """Hands what is watched to the nominator, and its nominations to the writer."""

    lease_namespace = "kueue-system"
    """Where Kueue is installed."""

    def __init__(
        self,
        given: Surroundings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know nothing yet; without policies, all clusters are nominated.

        Args:
            given: settings and ways to the API server.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        settings = given.settings
        self.maker = Nominator(
            place,
            round_seconds=settings.fleet.nominate_more_after,
            namespace=settings.leader_election.lease_namespace or self.lease_namespace,
        )
        self._writer = NominationWriter(given.transport, self.maker, given.events, fence=given.fence)
        self._clock, self._steady = clock, steady
        self.shown: Mapping[str, Shown] = {"/debug/workloads": self._shown}

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Decide by these policies from now on."""
        self.maker.use(rules.decide, now)

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        maker, now = self.maker, self._now
        handlers: Mapping[type, Handler[Any]] = {
            KueueWorkload: Handler(
                lambda listed: maker.replace_workloads(listed, now()),
                lambda thing: maker.set_workload(thing, now()),
                lambda thing: maker.delete_workload((thing.metadata.namespace, thing.metadata.name)),
            ),
            MultiKueueCluster: Handler(
                lambda listed: maker.replace_clusters(listed, now()),
                lambda thing: maker.set_cluster(thing, now()),
                lambda thing: maker.delete_cluster(thing.metadata.name, now()),
            ),
            ClusterProfile: Handler(
                lambda listed: maker.replace_profiles(listed, now()),
                lambda thing: maker.set_profile(thing, now()),
                lambda thing: maker.delete_profile(thing, now()),
            ),
            MultiKueueConfig: Handler(
                lambda listed: maker.replace_configs(listed, now()),
                lambda thing: maker.set_config(thing, now()),
                lambda thing: maker.delete_config(thing.metadata.name),
            ),
            AdmissionCheck: Handler(
                lambda listed: maker.replace_checks(listed, now()),
                lambda thing: maker.set_check(thing, now()),
                lambda thing: maker.delete_check(thing.metadata.name, now()),
            ),
        }
        return handlers[kind]

    def next(self, now: Steady) -> Nomination | None:
        """Return the next nomination; None if there is none now."""
        return self.maker.next(now, self._clock())

    async def carry_out(self, work: Nomination) -> FleetDecision | None:
        """Write a nomination."""
        return await self._writer.carry_out(work)

    def broke(self, work: Nomination, now: Steady) -> None:
        """Take note that the work on a Workload broke through a fault of ours."""
        self.maker.refused(work, now)

    def look_again(self, now: Steady) -> None:
        """Look at some of the Workloads that wait."""
        self.maker.look_at_some(now)

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return the clusters to which each Workload is nominated; none has replicas there yet."""
        return (dict.fromkeys(names, 0) for names in self.maker.nominated())

    def _shown(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return how a Workload would be nominated now."""
        found = self.maker.nomination(key, self._clock())
        if found is None:
            return None
        return {
            "nominated": found.workload.status.nominated_cluster_names or [],
            "reason": found.outcome.reason.value,
            "message": found.outcome.message if not found.outcome.placed else "",
            "nominate": list(found.names),
            "more_in_seconds": found.again_seconds,
            "clusters": msgspec.to_builtins(dict(found.outcome.verdicts)),
        }

    def _now(self) -> Steady:
        return Steady(self._steady())
