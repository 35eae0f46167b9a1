"""What is known of a cluster inventory, and which clusters each policy chooses. It does no I/O.

No object asks for a decision: each policy is one, with its name. What it chose before is in the objects, so a restart
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile, profile_cluster
from kube_policy_scheduler.fleet.inventory.objects import ProfileDecision
from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Outcome, Reason, Workload
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Waiting, Wake
from kube_policy_scheduler.times import Steady

DecideBy: TypeAlias = Callable[[Workload, Fleet], Outcome]
"""Returns what the policy that is named like a workload says of it."""
ChoiceKey: TypeAlias = tuple[str]
"""The name of a policy."""
CHOSEN = "PlacementDecision"
"""The kind of workload that policies see."""
KEY_LABEL, INDEX_LABEL = "multicluster.x-k8s.io/decision-key", "multicluster.x-k8s.io/decision-index"
_OBJECT = "-decision-"
"""Between the name of a policy and the number of its object."""
MOST_CHOICES = 100
"""Of one object."""
LOOKED_AT = 20
"""Policies that are asked again in one look: metrics may have changed."""
WITHOUT = frozenset(("APIEnablement",))
"""Filters of Karmada that ask for what a ClusterProfile does not say."""


class Slice(msgspec.Struct, frozen=True):
    """A PlacementDecision that there is to be."""

    name: str
    index: int
    clusters: tuple[str, ...]
    """The best first."""

    def labels(self, policy: str) -> dict[str, str]:
        """Return its labels."""
        return {KEY_LABEL: policy, INDEX_LABEL: str(self.index)}


class Choice(msgspec.Struct, frozen=True, eq=False):
    """What a policy chose."""

    key: ChoiceKey
    outcome: Outcome
    chosen: tuple[str, ...]
    """The best first."""
    before: tuple[str, ...]
    slices: tuple[Slice, ...]
    """Those that are not as they should be."""
    known: Mapping[str, ProfileDecision]
    """Those that there are, by name."""
    superfluous: tuple[str, ...]

    @property
    def policy(self) -> str:
        """Return the name of the policy."""
        return self.key[0]

    @property
    def writes(self) -> bool:
        """Return whether there is anything to be written."""
        return bool(self.slices or self.superfluous)


class Inventory:
    """Knows the ClusterProfiles of a namespace, and what each policy chose of them."""

    def __init__(self, namespace: str, scheduler: str) -> None:
        """Know nothing yet, and no policies.

        Args:
            namespace: of the profiles and the decisions.
            scheduler: our name, which our decisions have.
        """
        self.namespace, self.scheduler = namespace, scheduler
        self._decide: DecideBy | None = None
        self._names: tuple[str, ...] = ()
        self._clusters: dict[str, FleetCluster] = {}
        self._fleet: Fleet | None = None
        self._decisions: dict[str, dict[str, ProfileDecision]] = {}
        """By policy and name."""
        self._filed: dict[str, str] = {}
        """The policy of each decision by its name: labels may change."""
        self._foreign: dict[str, ProfileDecision] = {}
        """Decisions of other schedulers by name: one may have a name that we need."""
        self._to_look_at: list[str] = []
        self.waiting: Waiting[ChoiceKey] = Waiting()
        self.tallies = Tallies()

    def use(self, names: Iterable[str], decide: DecideBy, now: Steady) -> None:
        """Choose by these policies from now on; what a policy chose that is gone stays as it is."""
        self._decide = decide
        before, self._names = self._names, tuple(names)
        for name in before:
            if name not in self._names:
                self.waiting.forget((name,))
        self._wake(self._names, Wake.OWN, now)

    @property
    def fleet(self) -> Fleet:
        """Return the clusters as they are now."""
        if self._fleet is None:
            clusters = tuple(self._clusters[name] for name in sorted(self._clusters))
            self._fleet = Fleet(clusters, without=WITHOUT, whole=True, keep_empty=True)
        return self._fleet

    # --- what is there ------------------------------------------------------------------------------

    def replace_profiles(self, listed: Sequence[ClusterProfile], now: Steady) -> None:
        """Take all profiles."""
        there = {each.metadata.name for each in listed if each.metadata.namespace == self.namespace}
        for name in self._clusters.keys() - there:
            self._drop(name, now)
        for each in listed:
            self.set_profile(each, now)

    def set_profile(self, profile: ClusterProfile, now: Steady) -> None:
        """Take a profile that is new or has changed."""
        if profile.metadata.namespace != self.namespace:
            return
        after = profile_cluster(profile)
        before = self._clusters.get(after.name)
        if after.deleting:
            self._drop(after.name, now)
        elif before != after:
            self._clusters[after.name], self._fleet = after, None
            is_place = before is None or (before.labels, before.taints) != (after.labels, after.taints)
            self._wake(self._names, Wake.SPEC if is_place else Wake.STATUS, now)

    def delete_profile(self, profile: ClusterProfile, now: Steady) -> None:
        """Take note that a profile is gone."""
        if profile.metadata.namespace == self.namespace:
            self._drop(profile.metadata.name, now)

    def _drop(self, name: str, now: Steady) -> None:
        if self._clusters.pop(name, None) is not None:
            self._fleet = None
            self._wake(self._names, Wake.SPEC, now)

    def replace_decisions(self, listed: Sequence[ProfileDecision], now: Steady) -> None:
        """Take all decisions."""
        self._decisions.clear()
        self._filed.clear()
        self._foreign.clear()
        for each in listed:
            self.set_decision(each, now)
        self._wake(self._names, Wake.OWN, now)

    def set_decision(self, written: ProfileDecision, now: Steady) -> None:
        """Take a decision that is new or has changed; one of another scheduler matters only by its name."""
        if written.metadata.namespace != self.namespace:
            return
        name, policy, before = written.metadata.name, self._policy_of(written), self._filed.get(written.metadata.name)
        known = self._decisions[before][name] if before is not None else None
        if known is not None and known.metadata.uid == written.metadata.uid:
            theirs, mine = (version_number(each.metadata.resource_version) for each in (written, known))
            if theirs and theirs < mine:
                return
        if known is not None and before != policy:
            self.delete_decision(known, now)
        if policy is None:
            is_new = name not in self._foreign
            self._foreign[name] = written
            self._wake(self._named_for(name) if is_new else (), Wake.STATUS, now)
            return
        self._foreign.pop(name, None)
        self._decisions.setdefault(policy, {})[name] = written
        self._filed[name] = policy
        if policy in self._names and (before != policy or known is None or _facts(known) != _facts(written)):
            self._wake((policy,), Wake.OWN, now)

    def delete_decision(self, written: ProfileDecision, now: Steady) -> None:
        """Take note that a decision is gone."""
        is_here = written.metadata.namespace == self.namespace
        if is_here and self._foreign.pop(written.metadata.name, None) is not None:
            self._wake(self._named_for(written.metadata.name), Wake.OWN, now)
        policy = self._filed.pop(written.metadata.name, None) if is_here else None
        if policy is None:
            return
        del self._decisions[policy][written.metadata.name]
        if not self._decisions[policy]:
            del self._decisions[policy]
        self._wake((policy,) if policy in self._names else (), Wake.OWN, now)

    def _policy_of(self, written: ProfileDecision) -> str | None:
        """Return the policy that a decision is of: by its name if somebody took the label away, so that it is written
        again."""
        if written.scheduler_name != self.scheduler:
            return None
        label = (written.metadata.labels or {}).get(KEY_LABEL)
        return label or written.metadata.name.rpartition(_OBJECT)[0] or None

    def _named_for(self, name: str) -> tuple[str, ...]:
        """Return the policy that needs an object of a name, if there is one."""
        policy = name.rpartition(_OBJECT)[0]
        return (policy,) if policy in self._names else ()

    def _wake(self, names: Iterable[str], why: Wake, now: Steady) -> None:
        for name in names:
            self.waiting.wake((name,), why, now)

    def look_at_some(self, now: Steady) -> None:
        """Ask some policies again, the next ones each time: metrics may have changed."""
        if not self._to_look_at:
            self._to_look_at = [*self._names]
        some, self._to_look_at = self._to_look_at[:LOOKED_AT], self._to_look_at[LOOKED_AT:]
        self._wake([name for name in some if name in self._names], Wake.STATUS, now)

    # --- what is to be done -------------------------------------------------------------------------

    def next(self, now: Steady) -> Choice | None:
        """Return the next choice; None if there is none now. Who gets one says how it ended."""
        while (key := self.waiting.next(now)) is not None:
            found = self.choice(key[0])
            if found is None:
                self.waiting.settled(key, now)
                continue
            if found.writes or not found.outcome.placed:
                self.tallies.decided(found.outcome.reason.value)
            return found
        return None

    def choice(self, name: str) -> Choice | None:
        """Return what a policy chooses now; None if there is no such policy."""
        if self._decide is None or name not in self._names:
            return None
        known = self._decisions.get(name, {})
        ordered = sorted(known.values(), key=lambda each: each.metadata.name)
        before = tuple(one.cluster_profile_ref.name for each in ordered for one in each.decisions or ())
        has = {each: 1 for each in before if each in self._clusters}
        attempts = self.waiting.attempts((name,))
        asked = Workload(kind=CHOSEN, name=name, namespace=self.namespace, replicas=1, has=has, attempts=attempts)
        outcome = self._decide(asked, self.fleet)
        # without an answer, what was chosen stays, but for clusters that are gone
        chosen = list(outcome.targets) if outcome.placed or outcome.write else list(has)
        verdicts = outcome.verdicts
        chosen.sort(key=lambda each: (-verdicts[each].score if each in verdicts else 0.0, each))
        slices = _slices(name, chosen)
        taken = next((each.name for each in slices if each.name in self._foreign), None)
        if taken is not None:
            why = _taken(self._foreign[taken])
            failed = Outcome(Reason.ERROR, why, has, verdicts=outcome.verdicts, policy=outcome.policy)
            return Choice((name,), failed, tuple(has), before, (), known, ())
        wanted = {each.name for each in slices}
        return Choice(
            (name,),
            outcome,
            tuple(chosen),
            before,
            tuple(each for each in slices if not self._is_written(each, known.get(each.name), name)),
            known,
            tuple(each for each in known if each not in wanted),
        )

    def _is_written(self, wanted: Slice, known: ProfileDecision | None, policy: str) -> bool:
        """Return whether an object has these clusters; their order alone matters to nobody as long as they stay."""
        if known is None:
            return False
        labels, there = known.metadata.labels or {}, known.decisions or ()
        names = [each.cluster_profile_ref.name for each in there]
        is_ours = all(each.cluster_profile_ref.namespace == self.namespace for each in there)
        same = all(labels.get(key) == value for key, value in wanted.labels(policy).items())
        return same and is_ours and len(names) == len(wanted.clusters) and set(names) == set(wanted.clusters)

    def selected(self) -> Iterator[list[str]]:
        """Yield the clusters that each policy chose."""
        for name in self._names:
            known = self._decisions.get(name, {}).values()
            yield [one.cluster_profile_ref.name for each in known for one in each.decisions or ()]

    # --- how it ended -------------------------------------------------------------------------------

    def done(self, work: Choice, now: Steady) -> None:
        """Take note that it is written."""
        if work.outcome.placed:
            self.waiting.settled(work.key, now)
        else:
            self.waiting.parked(work.key, now)

    def conflicted(self, work: Choice, now: Steady) -> None:
        """Take note that an object had changed: it is decided again, once the watch shows how."""
        self.tallies.conflicts += 1
        self.waiting.refused(work.key, now)

    def refused(self, work: Choice, now: Steady) -> None:
        """Take note that a write failed; it is tried again after a pause."""
        self.tallies.failed_writes += 1
        self.waiting.refused(work.key, now)


def _slices(policy: str, chosen: Sequence[str]) -> tuple[Slice, ...]:
    """Return the objects for clusters, at most 100 in each; without clusters, one empty object."""
    starts = range(0, max(1, len(chosen)), MOST_CHOICES)
    return tuple(
        Slice(f"{policy}{_OBJECT}{index + 1}", index, tuple(chosen[at : at + MOST_CHOICES]))
        for index, at in enumerate(starts)
    )


def _taken(other: ProfileDecision) -> str:
    """Return why nothing is written: another scheduler has an object of a name that is needed."""
    whose = f"is of the scheduler {other.scheduler_name[:63]!r}" if other.scheduler_name else "names no scheduler"
    return f"PlacementDecision {other.metadata.name} {whose}, not of this one: delete it, or rename the policy"


def _facts(written: ProfileDecision) -> tuple[object, ...]:
    return written.metadata.uid, written.metadata.labels, written.decisions
