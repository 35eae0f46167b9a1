"""The nominator: what is known of Kueue's manager cluster, and which Workload is to be nominated where next.

It does no I/O: its caller hands in what a watch shows, carries out the work that `next` hands out, and says how that
ended. All that it knows follows from the objects; after a restart, a new one goes on where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from math import floor
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile, with_profile
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Outcome
from kube_policy_scheduler.fleet.multikueue import reading
from kube_policy_scheduler.fleet.multikueue.nominating import Decide, fleet_of, nominate
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
)
from kube_policy_scheduler.fleet.multikueue.writes import MOST_NOMINATED
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Waiting, Wake
from kube_policy_scheduler.times import Steady

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a Workload."""


LOOKED_AT = 50
"""Workloads that are looked at in one look: each takes as long as a decision or two."""


class Nomination(msgspec.Struct, frozen=True, eq=False):
    """What is to be done about a Workload."""

    key: Key
    workload: KueueWorkload
    """As it was decided."""
    outcome: Outcome
    """Of the first round."""
    names: Sequence[str]
    """The clusters that it is to be nominated to, the best first."""
    again_seconds: float | None
    """After which it is to be nominated to more; None: it is nominated to all that there are."""

    @property
    def writes(self) -> bool:
        """Return whether it is nominated to other clusters than now; their order alone matters to nobody."""
        return set(self.names) != set(self.workload.status.nominated_cluster_names or ())


class Nominator:
    """Knows the worker clusters, and the Workloads that wait for a nomination."""

    def __init__(self, decide: Decide, *, round_seconds: float, namespace: str = "kueue-system") -> None:
        """Know nothing yet.

        Args:
            decide: answers where a workload is to run.
            round_seconds: after which a Workload that no cluster has admitted is nominated to the next best, too.
            namespace: of Kueue: there are the profiles that worker clusters name.
        """
        self._decide = decide
        self._namespace = namespace
        self._round_seconds = round_seconds
        self._written: dict[str, MultiKueueCluster] = {}
        self._profiles: dict[str, ClusterProfile] = {}
        self._clusters: dict[str, FleetCluster] = {}
        self._configs: dict[str, MultiKueueConfig] = {}
        self._checks: dict[str, AdmissionCheck] = {}
        self._known: dict[Key, KueueWorkload] = {}
        self._fleets: dict[str, Fleet] = {}
        """By configuration; made when they are asked for."""
        self._served_by: dict[Key, str] = {}
        """The configuration of each Workload that waits."""
        self._served: dict[str, dict[Key, None]] = {}
        """The Workloads that wait, by their configuration."""
        self._to_look_at: list[Key] = []
        self.waiting: Waiting[Key] = Waiting()
        """The Workloads that wait for a nomination, or for a cluster that admits them."""
        self.tallies = Tallies()

    def use(self, decide: Decide, now: Steady) -> None:
        """Decide by other rules from now on; all Workloads that wait are looked at again."""
        self._decide = decide
        self.look_again(now)

    def look_again(self, now: Steady) -> None:
        """Look at all Workloads that wait: what decides them may have changed."""
        self._look_at_configs([*self._served], now)

    def look_at_some(self, now: Steady) -> None:
        """Look at some Workloads that wait, the next ones each time: metrics may have changed."""
        if not self._to_look_at:
            self._to_look_at = [*reversed(self._served_by)]
        for _ in range(min(LOOKED_AT, len(self._to_look_at))):
            key = self._to_look_at.pop()
            if key in self._served_by:
                self.waiting.wake(key, Wake.SPEC, now)

    def _look_at_configs(self, names: Iterable[str], now: Steady) -> None:
        """Look at the Workloads that wait for a cluster of these configurations."""
        for name in names:
            self._fleets.pop(name, None)
            for key in self._served.get(name, ()):
                self.waiting.wake(key, Wake.SPEC, now)

    def _look_at_clusters(self, names: Set[str], now: Steady) -> None:
        """Look at the Workloads that wait for one of these clusters."""
        asked = [name for name, config in self._configs.items() if not names.isdisjoint(config.spec.clusters or ())]
        self._look_at_configs(asked, now)

    @property
    def fleet(self) -> Fleet:
        """Return all worker clusters as they are now."""
        return fleet_of([self._clusters[name] for name in sorted(self._clusters)])

    # --- what is there ------------------------------------------------------------------------------

    def replace_clusters(self, listed: Sequence[MultiKueueCluster], now: Steady) -> None:
        """Take all worker clusters."""
        self._written = {each.metadata.name: each for each in listed}
        before, self._clusters = self._clusters, {name: self._row(each) for name, each in self._written.items()}
        names = before.keys() | self._clusters.keys()
        self._look_at_clusters({name for name in names if before.get(name) != self._clusters.get(name)}, now)

    def _row(self, written: MultiKueueCluster) -> FleetCluster:
        """Return a worker cluster, with what its profile says if it names one."""
        cluster, source = reading.cluster(written), written.spec.cluster_source.cluster_profile_ref
        profile = self._profiles.get(source.name) if source is not None else None
        return with_profile(cluster, profile) if profile is not None else cluster

    def set_cluster(self, written: MultiKueueCluster, now: Steady) -> None:
        """Take a worker cluster that is new or has changed."""
        self._written[written.metadata.name] = written
        after = self._row(written)
        if self._clusters.get(after.name) != after:
            self._clusters[after.name] = after
            self._look_at_clusters({after.name}, now)

    def delete_cluster(self, name: str, now: Steady) -> None:
        """Take note that a worker cluster is gone."""
        self._written.pop(name, None)
        if self._clusters.pop(name, None) is not None:
            self._look_at_clusters({name}, now)

    def replace_profiles(self, listed: Sequence[ClusterProfile], now: Steady) -> None:
        """Take all profiles of clusters."""
        self._profiles = {each.metadata.name: each for each in listed if self._is_ours(each)}
        self.replace_clusters(list(self._written.values()), now)

    def set_profile(self, profile: ClusterProfile, now: Steady) -> None:
        """Take a profile that is new or has changed."""
        if self._is_ours(profile):
            self._profiles[profile.metadata.name] = profile
            self._look_at_profiled(profile.metadata.name, now)

    def delete_profile(self, profile: ClusterProfile, now: Steady) -> None:
        """Take note that a profile is gone."""
        if self._is_ours(profile) and self._profiles.pop(profile.metadata.name, None) is not None:
            self._look_at_profiled(profile.metadata.name, now)

    def _is_ours(self, profile: ClusterProfile) -> bool:
        return profile.metadata.namespace == self._namespace

    def _look_at_profiled(self, name: str, now: Steady) -> None:
        for each in self._written.values():
            source = each.spec.cluster_source.cluster_profile_ref
            if source is not None and source.name == name:
                self.set_cluster(each, now)

    def replace_configs(self, listed: Sequence[MultiKueueConfig], now: Steady) -> None:
        """Take all configurations."""
        found = {each.metadata.name: each for each in listed}
        for name in self._configs.keys() - found.keys():
            self.delete_config(name)
        for each in listed:
            self.set_config(each, now)

    def set_config(self, config: MultiKueueConfig, now: Steady) -> None:
        """Take a configuration that is new or has changed."""
        known = self._configs.get(config.metadata.name)
        self._configs[config.metadata.name] = config
        if known is None or known.spec != config.spec:
            self._look_at_configs((config.metadata.name,), now)

    def delete_config(self, name: str) -> None:
        """Take note that a configuration is gone: nothing is changed until there is one again."""
        self._configs.pop(name, None)
        self._fleets.pop(name, None)

    def replace_checks(self, listed: Sequence[AdmissionCheck], now: Steady) -> None:
        """Take all admission checks."""
        found = {each.metadata.name: each for each in listed}
        for name in self._checks.keys() - found.keys():
            self.delete_check(name, now)
        for each in listed:
            self.set_check(each, now)

    def set_check(self, check: AdmissionCheck, now: Steady) -> None:
        """Take an admission check that is new or has changed."""
        known = self._checks.get(check.metadata.name)
        self._checks[check.metadata.name] = check
        if known is None or known.spec != check.spec:
            self._sort_checked(check.metadata.name, now)

    def delete_check(self, name: str, now: Steady) -> None:
        """Take note that an admission check is gone."""
        if self._checks.pop(name, None) is not None:
            self._sort_checked(name, now)

    def _sort_checked(self, name: str, now: Steady) -> None:
        """Look at all Workloads that have this admission check."""
        for key, each in self._known.items():
            if any(state.name == name for state in each.status.admission_checks or ()):
                self._sort(key, now)

    def replace_workloads(self, listed: Sequence[KueueWorkload], now: Steady) -> None:
        """Take all Workloads."""
        names = {_key(each) for each in listed}
        for key in [key for key in self._known if key not in names]:
            self.delete_workload(key)
        for each in listed:
            self.set_workload(each, now)

    def set_workload(self, written: KueueWorkload, now: Steady) -> None:
        """Take a Workload that is new or has changed; what is older than what we know is not taken."""
        key = _key(written)
        known = self._known.get(key)
        if known is not None and known.metadata.uid == written.metadata.uid:
            mine, theirs = known.metadata.resource_version, written.metadata.resource_version
            if version_number(theirs) and version_number(theirs) < version_number(mine):
                return
        self._known[key] = written
        if known is None or (known.spec, known.status) != (written.spec, written.status):
            self._sort(key, now)

    def delete_workload(self, key: Key) -> None:
        """Take note that a Workload is gone."""
        self._known.pop(key, None)
        self._serve(key, None)

    def _check(self, key: Key) -> AdmissionCheck | None:
        return reading.waits_for_nomination(self._known[key], self._checks)

    def _sort(self, key: Key, now: Steady) -> None:
        """Have a Workload nominated, or forget it if it needs no nomination."""
        check = self._check(key)
        self._serve(key, reading.config_name(check) if check is not None else None)
        if check is not None:
            self.waiting.wake(key, Wake.OWN, now, priority=self._known[key].spec.priority or 0)

    def _serve(self, key: Key, config: str | None) -> None:
        """Note by which configuration a Workload is nominated; None: it waits for no nomination."""
        known = self._served_by.pop(key, None)
        if known is not None:
            self._served[known].pop(key)
            if not self._served[known]:
                del self._served[known]
        if config is None:
            self.waiting.forget(key)
        else:
            self._served_by[key] = config
            self._served.setdefault(config, {})[key] = None

    def nominated(self) -> list[Sequence[str]]:
        """Return the clusters to which each known Workload is nominated."""
        return [each.status.nominated_cluster_names or () for each in self._known.values()]

    # --- what is to be done -------------------------------------------------------------------------

    def next(self, now: Steady, wall: float) -> Nomination | None:
        """Decide the next Workload whose turn it is; None if there is none now.

        Who gets one says how it ended: `done`, `conflicted` or `refused`.

        Args:
            now: on the steady clock.
            wall: Unix seconds.
        """
        while (key := self.waiting.next(now)) is not None:
            found = self.nomination(key, wall)
            if found is None:
                self.waiting.settled(key, now)
                continue
            if found.writes or not found.outcome.placed:
                self.tallies.decided(found.outcome.reason.value)
            return found
        return None

    def nomination(self, key: Key, wall: float) -> Nomination | None:
        """Return how a Workload is to be nominated now; None if it needs no nomination, or its check no clusters.

        wall: Unix seconds.
        """
        written = self._known.get(key)
        check = self._check(key) if written is not None else None
        config = self._configs.get(reading.config_name(check)) if check is not None else None
        if written is None or config is None:
            return None
        fleet = self._fleets.get(config.metadata.name)
        if fleet is None:
            fleet = fleet_of(reading.clusters_of(config, self._clusters))
            self._fleets[config.metadata.name] = fleet
        passed = max(0.0, wall - (reading.reserved_since(written) or wall))
        rounds = min(MOST_NOMINATED, 1 + floor(passed / self._round_seconds))
        nominated = written.status.nominated_cluster_names or ()
        asked = reading.workload(written, has={}, attempts=self.waiting.attempts(key))
        outcome, names = nominate(asked, fleet, self._decide, nominated, rounds=rounds, most=MOST_NOMINATED)
        is_all = len(names) >= min(MOST_NOMINATED, len(fleet.clusters))
        again = None if is_all else self._round_seconds - passed % self._round_seconds
        return Nomination(key, written, outcome, names, again)

    # --- how it ended -------------------------------------------------------------------------------

    def done(self, work: Nomination, now: Steady, after: KueueWorkload | None = None) -> None:
        """Take note that it is nominated so. after: the Workload as it was written."""
        if after is not None and work.key in self._known:
            self.set_workload(after, now)
        if work.outcome.placed:
            self.waiting.settled(work.key, now, again_seconds=work.again_seconds)
        else:
            self.waiting.parked(work.key, now)

    def conflicted(self, work: Nomination, now: Steady) -> None:
        """Take note that the Workload had changed: it is decided again, once the watch shows how."""
        self.tallies.conflicts += 1
        self.waiting.refused(work.key, now)

    def refused(self, work: Nomination, now: Steady) -> None:
        """Take note that a write failed; it is decided and tried again after a pause."""
        self.tallies.failed_writes += 1
        self.waiting.refused(work.key, now)


def _key(written: KueueWorkload) -> Key:
    return written.metadata.namespace, written.metadata.name
