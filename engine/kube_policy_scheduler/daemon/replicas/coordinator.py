"""Whether this replica may act: as the only one, as the leader, or as one of several that share the work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NoReturn

from kube_policy_scheduler.adapters.kube.credentials import own_namespace
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lease import HeldLease, LeaderElector, LeaseSettings
from kube_policy_scheduler.adapters.kube.membership import ReplicaMembership
from kube_policy_scheduler.adapters.kube.reflector import Reflector
from kube_policy_scheduler.adapters.kube.rivals import Rival, find_rival
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.configuration.settings import LeaderElectionSettings, Settings
from kube_policy_scheduler.daemon.observing.live_metrics import LeaseState, ShardState
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler

logger = logging.getLogger(__name__)


SLEPT_SECONDS = 0.5
"""Less is how exactly two clocks can be read one after the other."""
RIVALS_EVERY_SECONDS = 300.0
"""Interval at which a replica in a pod looks for another leader under the same name."""


def slept() -> float:
    """Return for how long the machine has slept since it started: the clock of time-outs stands still meanwhile."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class ReplicaFence(Fence):
    """Open while this replica may act: as the only one, or by a Lease that was renewed since the machine last slept."""

    def __init__(self, settings: LeaderElectionSettings, *, shares: bool, slept: Callable[[], float] = slept) -> None:
        """Make one that is closed, if there may be other replicas.

        Args:
            settings: times of the Leases.
            shares: whether replicas share the work, instead of one of them doing it all.
            slept: seconds that the machine has slept so far.
        """
        super().__init__(self._look_whether_it_slept)
        self.is_needed = shares or settings.enabled
        """Whether there may be other replicas."""
        self.shares = shares
        self.held = HeldLease(renew_deadline_seconds=settings.renew_deadline)
        """What opens it; `ReplicaCoordinator` keeps it."""
        self._slept_so_far = slept
        self._slept = slept()
        self._woke_at = 0.0
        """Event loop's time at which it was last noticed that the machine had slept."""

    def _look_whether_it_slept(self) -> bool:
        """Return whether this replica may bind at this moment.

        After the machine has slept (a laptop's lid, a virtual machine that was suspended) only once the Lease was
        renewed: it may have ended meanwhile, and no time-out has noticed.
        """
        if not self.is_needed:
            return True
        slept = self._slept_so_far()
        if slept - self._slept > SLEPT_SECONDS:
            logger.warning(
                "the machine was suspended for %.0f s; no pods are bound until the lease is renewed",
                slept - self._slept,
            )
            self._slept, self._woke_at = slept, asyncio.get_running_loop().time()
        return self.held.is_valid and self.held.renewed_at >= self._woke_at


class ReplicaCoordinator:
    """Keeps the fence of a replica open while it should be: by leader election, or by sharing the work."""

    def __init__(
        self,
        settings: LeaderElectionSettings,
        *,
        namespace: str = "kube-system",
        identity: str,
        fence: ReplicaFence,
        scheduler: Scheduler,
        views: Sequence[Reflector[Any]],
        transport: Transport,
        random: Random,
    ) -> None:
        """Make one that competes for nothing yet.

        Args:
            settings: names and times of the Leases.
            namespace: of the Leases; see `lease_namespace`.
            identity: of this replica.
            fence: of this replica.
            scheduler: starts and stops with the lease; learns which pods are its own.
            views: all that decisions rest on; nodes and pods first.
            transport: to the API server.
            random: spreads the tries of candidates.
        """
        self._settings = settings
        self._identity = identity
        self._fence = fence
        self._scheduler = scheduler
        self._views = views
        self._transport = transport
        self._lease = LeaseSettings(
            namespace=namespace,
            name=settings.lease_name,
            identity=identity,
            lease_seconds=settings.lease_duration,
            renew_deadline_seconds=settings.renew_deadline,
            retry_seconds=settings.retry_period,
        )
        self._membership: ReplicaMembership | None = None
        """Set while replicas share the work."""
        self._elector: LeaderElector | None = None
        if fence.shares:
            self._membership = ReplicaMembership(
                transport,
                self._lease,
                held=fence.held,
                on_members=self._share_with,
                on_ready=scheduler.lead,
                hand_over=scheduler.hand_over,
                pods_seen=lambda: scheduler.event_handlers.pods_seen,
                pods_known=lambda: views[1].position,
            )
        elif fence.is_needed:
            self._elector = LeaderElector(
                transport,
                self._lease,
                held=fence.held,
                random=random,
                on_started=self._begin,
                on_stopped=lambda _: scheduler.lead(False),
                on_silence=self._get_ready,
                vouch=self._vouch,
            )

    @property
    def leader(self) -> str:
        """Return who leads as far as is known, "" where nobody does or there is no election."""
        return self._elector.leader if self._elector is not None else ""

    def lease_state(self) -> LeaseState | None:
        """Return what is known of the lease; None where there is no election."""
        elector = self._elector
        if elector is None:
            return None
        return LeaseState(self._lease.name, self._fence.allows(), holder=elector.leader, trouble=elector.trouble)

    def shard_state(self) -> ShardState | None:
        """Return what this replica has of the work, None where it is not shared."""
        membership, scheduler = self._membership, self._scheduler
        if membership is None or (sharding := scheduler.context.sharding) is None:
            return None
        hand_over = scheduler.hand_over
        return ShardState(
            identity=self._identity,
            members=tuple(sorted(membership.members)),
            takes_part=membership.is_ready,
            waits_for=membership.waits_for,
            nodes=sharding.count_nodes(scheduler.cluster.nodes) if membership.members else 0,
            pods=len(scheduler.queue),
            passed_on=hand_over.passed_on,
            given_back=hand_over.given_back,
            failed=hand_over.failed,
        )

    def _get_ready(self) -> None:
        """Let the views be proved while the lease of a leader that vanished runs out."""
        for view in self._views:
            view.prove()

    def _begin(self) -> None:
        """Decide from now on; after another replica only by views that have everything that it did."""
        elector = self._elector
        assert elector is not None
        if not elector.follows_nobody:
            for view in self._views:
                view.prove(elector.vouched.get(str(view.resource)), at=elector.silent_since)
        self._scheduler.lead(True)

    def _share_with(self, members: frozenset[str], lost: frozenset[str]) -> None:
        """Share the work with these. lost: those whose work is part of what we decide by now."""
        if lost:
            for view in self._views:
                view.prove()
        self._scheduler.hand_over.share_with(members)

    def _vouch(self) -> Mapping[str, int]:
        """Return the last change that each view shows; nothing where one may lack something."""
        if self._scheduler.cluster.assumed or not all(view.is_current for view in self._views):
            return {}
        return {str(view.resource): view.last_change for view in self._views if view.last_change}

    async def find_rival(self) -> Rival | None:
        """Return which other scheduler leads under the name of our lease, and not under our lease."""
        return await find_rival(
            self._transport,
            name=self._lease.name,
            namespace=self._lease.namespace,
            shares=self._fence.shares if self._fence.is_needed else None,
            everywhere=own_namespace() is None and self._settings.lease_namespace is None,
        )

    async def warn_of_rivals(self) -> NoReturn:
        """Look for other schedulers that lead, for ever, and log them.

        For replicas in a pod: anyone who may write leases in any namespace could keep one from its work that did more.
        """
        known: Rival | None = None
        while True:
            rival = await self.find_rival()
            if rival is not None and rival != known:
                fields = {"lease": f"{rival.namespace}/{rival.lease}", "holder": rival.holder}
                logger.error("another scheduler leads, both may place pods on the same nodes", extra=fields)
            known = rival
            await asyncio.sleep(RIVALS_EVERY_SECONDS)

    def dial_ahead(self) -> None:
        """Open the connection for the Lease, which is competed for once all lists are there."""
        if self._elector is not None:
            self._elector.dial_ahead()

    async def run(self) -> str:
        """Lead for as long as that goes well; return why it does no longer. When cancelled, step down.

        With nobody to compete with, lead for ever.
        """
        if self._membership is not None:
            return await self._membership.run()
        if self._elector is not None:
            return await self._elector.run()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def problem(self) -> str | None:
        """Return why this replica does nothing though it should, for a readiness probe; None where it does."""
        if self._elector is not None and self._elector.trouble:
            return f"failed to acquire the lease {self._lease.full_name}: {self._elector.trouble}"
        if self._membership is None or self._membership.is_ready:
            return None
        waits = ", ".join(self._membership.waits_for)
        if waits:
            return f"waiting for a hand-over from {waits}"
        why = self._membership.trouble
        return f"has not joined the other replicas yet{f': {why}' if why else ''}"


def lease_namespace(settings: Settings) -> str:
    """Return where the Leases of a scheduler are.

    Outside a pod: where its ConfigMap is, since `deploy/` puts both in one namespace. Then a scheduler that is started
    by hand with the settings of a deployment competes with it, rather than beside it.
    """
    home, _, _ = (settings.policies.config_map or "").partition("/")
    return settings.leader_election.lease_namespace or own_namespace() or home or "kube-system"
