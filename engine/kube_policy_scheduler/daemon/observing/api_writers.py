"""What is written to the API server beside bindings: events, conditions, what happened to policies. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import LIMITS, OWNER_LIMITS, PolicySources
from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.outbox import Backlog
from kube_policy_scheduler.adapters.kube.pod_group_status import PodGroupStatusWriter
from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.adapters.kube.policy_history import PolicyHistory, RevisionsOf
from kube_policy_scheduler.adapters.kube.replica_reports import ReplicaReports
from kube_policy_scheduler.adapters.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.loops import Loop, Loops, Run
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.observing.reporter import ApiReporter
from kube_policy_scheduler.daemon.policies.config_map_events import ConfigMapEvents
from kube_policy_scheduler.daemon.policies.reload import FormerPolicies, ReloadRecord, report_of
from kube_policy_scheduler.policy.pod_groups import parents_of

logger = logging.getLogger(__name__)


def _loop(name: str, owner: str) -> str:
    return f"{name}-{owner}" if owner else name


class ApiWriters:
    """Everything that is written in the background."""

    def __init__(
        self,
        settings: Settings,
        *,
        transport: Transport,
        cluster: Cluster,
        identity: str,
        namespace: str,
        random: Random,
        busy: Callable[[], bool],
        fence: Fence,
    ) -> None:
        """Set up; nothing is sent before `start`.

        Args:
            settings: of the daemon.
            transport: to the API server.
            cluster: what is known of PodGroups.
            identity: of this replica.
            namespace: ours, where reports are kept.
            random: spreads retries.
            busy: while this holds, bindings go first.
            fence: for what only the leader may say of pods, or do with them.
        """
        self._settings = settings
        name = settings.scheduler_names[0]
        self.events = EventRecorder(
            transport,
            controller=name,
            instance=f"{name}-{identity}",
            random=random,
            defer_while=busy,
            fence=fence,
        )
        self.statuses = PodStatusWriter(transport, random=random, defer_while=busy, fence=fence)
        self._groups = PodGroupStatusWriter(
            transport, POD_GROUPS, find=partial(cluster.get, PodGroup), random=random, defer_while=busy, fence=fence
        )
        self._composites = PodGroupStatusWriter(
            transport,
            COMPOSITE_POD_GROUPS,
            find=partial(cluster.get, CompositePodGroup),
            random=random,
            defer_while=busy,
            fence=fence,
        )
        self.reporter = ApiReporter(
            self.events, self.statuses, self._groups, self._composites, parents=partial(_parents, cluster)
        )
        config_maps = {"": settings.policies.config_map} | {
            owner.name: owner.config_map for owner in settings.policies.owners
        }
        """The ConfigMap behind the policies of each owner; "": the administrator's."""
        self._reload_events: dict[str, ConfigMapEvents] = {}
        self._histories: dict[str, PolicyHistory] = {}
        self._reports: ReplicaReports | None = None
        for owner, named in config_maps.items():
            if named is not None:
                home, _, config_map = named.partition("/")
                self._reload_events[owner] = ConfigMapEvents(transport, self.events, namespace=home, name=config_map)
                limits = OWNER_LIMITS if owner else LIMITS
                self._histories[owner] = PolicyHistory(transport, RevisionsOf(home, config_map, limits=limits))
            elif owner and settings.mode not in ("shadow", "estimator"):  # which write nothing
                of = RevisionsOf.of_owner(namespace, owner)
                leads = fence if settings.mode == "scheduler" else OPEN
                self._histories[owner] = PolicyHistory(transport, of, fence=leads)
        if settings.policies.config_map is not None:
            self._reports = ReplicaReports(
                transport.dedicated(),
                namespace=namespace,
                name=f"{settings.leader_election.lease_name}-status",
                identity=identity,
                replica=identity.partition("_")[0],
            )

    def start(self, loops: Loops) -> list[Loop]:
        """Start to send; a mode that places no pods has no conditions to send, and only reloads as events."""
        places = self._settings.mode == "scheduler"
        works: dict[str, Run | None] = {
            "pod-status": self.statuses.run if places else None,
            "pod-group-status": self._groups.run if places else None,
            "composite-pod-group-status": self._composites.run if places else None,
            "events": self.events.run if places or self._reload_events else None,
            **{_loop("policy-events", owner): events.run for owner, events in self._reload_events.items()},
            **{_loop("policy-history", owner): history.run for owner, history in self._histories.items()},
            "policy-report": self._reports.run if self._reports is not None else None,
        }
        return [loops.start(name, run, restarts=True) for name, run in works.items() if run is not None]

    def backlogs(self) -> dict[str, Backlog]:
        """Return what is still to be written, by what it is."""
        return {
            "events": self.events.backlog,
            "pod-status": self.statuses.backlog,
            "pod-group-status": self._groups.backlog,
            "composite-pod-group-status": self._composites.backlog,
        }

    def reloaded(self, record: ReloadRecord) -> None:
        """Report the result of new policies."""
        owner = record.owner
        if (events := self._reload_events.get(owner)) is not None:
            events.report(record)
        if self._reports is not None and owner:
            self._reports.update_of(owner, **report_of(record))
        elif self._reports is not None:
            self._reports.update(**report_of(record))

    def store(self, sources: PolicySources, *, owner: str = "") -> None:
        """Store accepted policies, for a rollback and for the next start; returns at once."""
        if (history := self._histories.get(owner)) is not None:
            history.accepted(sources)

    async def former_policies(self, owner: str = "", *, proof: PolicyProof | None) -> Sequence[FormerPolicies]:
        """Return the policies that were accepted before, the newest first; none if no versions are stored.

        Args:
            owner: of the policies; "": the administrator.
            proof: what must vouch for them; None: nothing.
        """
        history = self._histories.get(owner)
        if history is None:
            return ()
        former = await history.accepted_before(proof=proof)
        return [FormerPolicies(sources, history.origin(revision)) for revision, sources in former]

    async def drain_conditions(self, *, timeout_seconds: float) -> None:
        """Send what waits of conditions and nominations, while we may."""
        writers = (self.statuses, self._groups, self._composites)
        await asyncio.gather(*(each.drain(timeout_seconds=timeout_seconds) for each in writers))

    async def drain(self, *, timeout_seconds: float) -> None:
        """Send what waits, before the process ends; what only who leads may say is dropped where we do not."""
        sent = await asyncio.gather(
            *(
                each.drain(timeout_seconds=timeout_seconds)
                for each in (self.statuses, self._groups, self._composites, self.events)
            )
        )
        if not all(sent):
            conditions = len(self.statuses) + len(self._groups) + len(self._composites)
            logger.warning("exiting with %d events and %d conditions unsent", len(self.events), conditions)


def _parents(cluster: Cluster, key: str) -> Sequence[str]:
    """Return the keys of the composite groups that a PodGroup belongs to."""
    group = cluster.get(PodGroup, key)
    return parents_of(cluster, group) if group is not None else ()
