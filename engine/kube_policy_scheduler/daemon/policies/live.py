"""The policies in force, as the scheduler asks for them; compiling and deciding are done elsewhere."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker, load_tree
from kube_policy_scheduler.daemon.policies.reload import Accepted, Refused
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.devices.pod_claims import waits_for_claims
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, QueuePosition, gates
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.policy.decision_inputs import Rules
from kube_policy_scheduler.policy.policy_set import FrameOf, PolicySet, load
from kube_policy_scheduler.policy.preparation import preparing
from kube_policy_scheduler.policy.readings import missing_nodes, unusable
from kube_policy_scheduler.policy.units import PodUnits


class LivePolicies:
    """One policy set at work."""

    def __init__(
        self, policy_set: PolicySet, *, scheduler_names: frozenset[str], watched: frozenset[str] | None = None
    ) -> None:
        """Make one.

        Args:
            policy_set: the policies.
            scheduler_names: those that we serve whatever the policies say.
            watched: names of other schedulers whose pods we look at, instead of serving our own; None: none.
        """
        if watched is not None:
            policy_set = policy_set.standing_in_as(scheduler_names)
        self._scheduler_names = scheduler_names
        self._watched = watched
        self._set = policy_set
        self._units = PodUnits(policy_set)
        self._names = scheduler_names | policy_set.schedulers if watched is None else watched
        self.queries: Sequence[Query] = policy_set.queries

    @classmethod
    def together(cls, parts: Sequence[LivePolicies]) -> LivePolicies:
        """Return the policies of several owners as one; see `PolicySet.together`."""
        first = parts[0]
        if len(parts) == 1:
            return first
        policy_set = PolicySet.together([part.policy_set for part in parts])
        return cls(policy_set, scheduler_names=first._scheduler_names, watched=first._watched)

    @property
    def policy_set(self) -> PolicySet:
        """Return the policies themselves."""
        return self._set

    @property
    def served(self) -> Set[str]:
        """Return the names of schedulers whose pods these policies decide."""
        return self._names

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are."""
        return pod.scheduler_name in self._names

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        return self._set.profile_of(pod)

    def rules(self, pod: PodInfo) -> Rules | None:
        """Return the rules that decide the pod, for callers that try a decision; None if no policy governs it."""
        policy = self._set.governing(pod)
        return Rules(policy.profile, policy, policies=self._set) if policy is not None else None

    @property
    def profiles(self) -> Iterable[Profile]:
        """Return the profiles of all policies."""
        return [policy.profile for policy in self._set.policies]

    def preparing(self, cluster: Cluster) -> Iterator[None]:
        """Make in steps what the first decisions by these policies would make of all nodes and pods in one."""
        return preparing(self._set.policies, cluster)

    def hold(self, queued: QueuedPod, frame: FrameOf) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        waits = gates(queued)
        if waits is not None:
            return waits
        if queued.pod.template.spec.resource_claims:
            waits = waits_for_claims(queued.pod, frame(queued).cluster)
            if waits is not None:
                return waits
        held = self._set.holding(queued, frame)
        return held[0].held_by(held[1]) if held is not None else None

    def gang_requirements(self, queued: QueuedPod, frame: FrameOf) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; see `PolicySet.gang_requirements`."""
        return self._set.gang_requirements(queued, frame)

    def lay_out(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, int]:
        """Lay new readings over the nodes ahead of decisions; return by PromQL how many nodes have no value."""
        return missing_nodes(self.queries, nodes, signals=signals, now=now)

    def unusable(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, str]:
        """Return by PromQL why an answer has no value for any node."""
        return unusable(self.queries, nodes, signals=signals, now=now)

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the unit of pods that one replica decides alone, as `kube_policy_scheduler.policy.units` has it."""
        return self._units.unit(pod, by_pod=by_pod)

    def position(self, queued: QueuedPod, frame: FrameOf) -> QueuePosition:
        """Return the position of the pod in the queue: as its policy orders its pods, or as Kubernetes does."""
        return self._set.position(queued, frame)


class PolicyCompiler:
    """Compiles sources into a live policy set; of what is as it was in the last good one, nothing is done again."""

    def __init__(
        self,
        scheduler_names: frozenset[str],
        *,
        watched: frozenset[str] | None = None,
        checker: PolicyChecker,
        owner: Owner | None = None,
    ) -> None:
        """Note names, as for `LivePolicies`, of who checks sets first, and of who wrote them."""
        self._owner = owner
        self._scheduler_names = scheduler_names
        self._watched = watched
        self._checker = checker
        self._known: Mapping[Hashable, Any] = {}
        """Of the last good set: a bad edit that is taken back costs nothing."""

    def __call__(self, sources: PolicySources) -> Accepted[LivePolicies] | Refused:
        """Return the set, or what is wrong with the sources.

        Raises:
            WorkerLost: they could not be checked.
        """
        if self._owner is not None:
            sources = PolicySources.of({f"{self._owner.name}/{name}": text for name, text in sources.files})
        given = {name: Source(name, text) for name, text in sources.files}
        known = dict(self._known)
        trees = [name for name, source in given.items() if (parse, source) not in known]
        verdict = self._checker.check(sources, default_schedulers=self._scheduler_names, trees=trees, owner=self._owner)
        if verdict.problems:
            return Refused((*verdict.problems, *verdict.warnings))
        for name, tree in verdict.trees.items():
            known[parse, given[name]] = load_tree(tree, given[name]), ()
        memo = Memo(known)
        loaded = load(
            list(given.values()),
            default_schedulers=self._scheduler_names,
            memo=memo,
            rules=False,
            owner=self._owner,
        )
        if loaded.policy_set is None:
            raise ValueError("the checking process accepted them, but this process did not")
        self._known = memo.known
        live = LivePolicies(loaded.policy_set, scheduler_names=self._scheduler_names, watched=self._watched)
        return Accepted(live, verdict.warnings)
