"""Finds the node for one pod, by the rules and signals in force. Knows neither queue nor API; places nothing.

The daemon, and everything that simulates it, asks the scheduling cycle through this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Generator, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import Domain, GangTopology
from kube_policy_scheduler.framework.decide.gang_table import GangTable
from kube_policy_scheduler.framework.decide.member_run import MemberRun, change_own_rows
from kube_policy_scheduler.framework.decide.new_nodes import needs_of
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo, is_alike
from kube_policy_scheduler.framework.evaluate.evaluation import passes
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, may_evict_alone
from kube_policy_scheduler.framework.plugin import FilterPlugin, Scope
from kube_policy_scheduler.framework.preempt.trials import VERDICT_WORK
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.framework.quota import parts_of
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.times import Steady

NO_POLICY = "no policy governs this pod: none of the scheduler's policies has a matching `for pods where`"

_MOST_PROFILES = 256
"""Narrowed profiles that are kept."""
REMEMBERED_WORK, RUN_WORK = 1, 8
"""What it costs to return a rejection again, and to decide a member of a gang together with those before it. Another
decision costs as much as asking the filters once."""


class ScheduleAlgorithm(ABC):
    """Asks the cycle about pods, and remembers rejections until something changes."""

    def __init__(self, cluster: Cluster, cycle: Cycle | None, clock: Callable[[], Steady], *, seed: int = 0) -> None:
        """Make one.

        Args:
            cluster: where pods are placed.
            cycle: decides; None: one of its own, which breaks ties by `seed`.
            clock: the time.
            seed: see `cycle`.
        """
        self.signals = Signals.EMPTY
        """The readings that decisions rest on."""
        self.cycle = cycle or Cycle(seed=seed)
        self._cluster, self._ledger, self._clock = cluster, cluster.ledger, clock
        self._rejected = RejectionMemo(self.cycle.kept)
        self.decisions = 0
        """How many were asked for so far, remembered ones included."""
        self.work = 0
        """Of all decisions so far, see `trial.NODE_WORK`."""
        self.moves = 0
        """Pods that were placed or displaced, so far, where that is only tried out."""
        self.beside: Callable[[QueuedPod], FilterPlugin | None] = lambda queued: None
        """What keeps a pod from delaying one that room is reserved for; None: nothing."""
        self.differing_members: Callable[[QueuedPod, Group], Sequence[PodInfo]] = lambda queued, group: ()
        """The pending members of a group of a pod, in queue order; empty if all of them count as pods like it."""
        self.gangs = GangTable()
        """Where and how members of gangs are decided, and what came of it."""
        self._confined: KeptView[tuple[Profile, tuple[Domain, ...], DeviceOrder | None], Profile] = KeptView(
            most=_MOST_PROFILES
        )
        self._last_beside: tuple[Profile, FilterPlugin, Profile] | None = None
        """Of the last pod that must not delay another one: its profile, the filter that narrows it, and the result."""
        self._run: MemberRun | None = None
        """Of the gang whose member was decided last."""
        self._run_goes_on: tuple[int, str, str] | None = None
        """The state in which it goes on: that member, by uid, was placed on that node, and nothing else changed; the
        epoch and `moves` in one number, as the placement makes either of them one more."""
        self._decided_alone: tuple[PodTemplate, Profile] | None = None
        """The last template whose pods can't be decided in a run."""
        self._decided_last: PodTemplate | None = None
        """Of the last member that was decided: a run begins with the second one of a template."""

    @abstractmethod
    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""

    @abstractmethod
    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind.

        Raises:
            MissingGroupError: a group of the API is not there.
            ValueError: a size has no value.
        """

    def gangs_that_run(self, pod: PodInfo) -> tuple[GangRequirement, ...] | None:
        """Return the groups of a pod that runs, or ran; None where they are not known."""
        created = Steady(pod.created)
        try:
            return self.gang_requirements(QueuedPod(pod, queued=created, timestamp=created))
        except ValueError:
            return None

    def forget_domains(self) -> None:
        """Forget where and how groups are decided, and who was rejected: the rules have changed."""
        self.gangs.forget_rules()
        self._rejected.clear()
        self._confined.clear()
        self._run = self._decided_alone = None

    def keep_in_use(self, templates: Container[PodTemplate]) -> None:
        """Drop what is kept for pods of other templates than these: their pods are gone."""
        self.cycle.keep_in_use(templates)
        self._rejected.keep_in_use(templates)
        self._run = None
        if self._decided_alone is not None and self._decided_alone[0] not in templates:
            self._decided_alone = None

    def _profile_for(self, queued: QueuedPod) -> Profile | None:
        """Return the profile that places a pod, on the nodes where its groups are, with devices as these need it."""
        profile, beside = self.profile(queued.pod), self.beside(queued)
        if profile is not None and beside is not None:
            profile = self._beside(profile, beside)
        if profile is None or not queued.groups:
            return profile
        records = [record for group in queued.groups if (record := self.gangs.get(group)) is not None]
        domains = tuple(record.where for record in records if isinstance(record.where, Domain))
        order = next((record.device_order for record in records if record.device_order is not None), None)
        if not domains and order is None:
            return profile
        key = profile, domains, order
        found = self._confined.get(key)
        if found is None:
            found = profile.narrowed(GangTopology(domains)) if domains else profile
            found = found if order is None else found.ordered(order)
            self._confined.set(key, found)
        return found

    def filters_of(self, queued: QueuedPod) -> Sequence[FilterPlugin]:
        """Return the filters of the profile that places a pod; none if there is no profile."""
        profile = self.profile(queued.pod)
        return profile.filters if profile is not None else ()

    def _beside(self, profile: Profile, beside: FilterPlugin) -> Profile:
        """Return a profile without the nodes that a filter rejects, which looks at the pod itself."""
        before = self._last_beside
        if before is None or before[:2] != (profile, beside):
            narrowed = msgspec.structs.replace(profile.narrowed(beside), by_template=False)
            before = self._last_beside = (profile, beside, narrowed)
        return before[2]

    def feasible(self, queued: QueuedPod) -> BoolArray:
        """Return `bool[nodes]`: those that pass every filter for a pod, wherever its groups are. Read-only."""
        profile = self.profile(queued.pod)
        if profile is None or not self._cluster.nodes.size:
            return np.zeros(self._cluster.nodes.size, np.bool_)
        return self.cycle.passing(self.frame_with_gang(queued), profile)

    def frame(self, queued: QueuedPod) -> Frame:
        """Return what rules may look at for a pod, now."""
        return queued.frame(self._cluster, self._clock(), signals=self.signals, ahead=self._cluster.ahead)

    def frame_with_gang(self, queued: QueuedPod) -> Frame:
        """Return the frame of a pod with what of its gang needs room with it, where that may have a say.

        What was promised to a gang as a whole counts already. If members differ, it is an estimate in two cases:

        - More of them are pending than the gang needs: the first in queue order count, whatever their roles are.
        - Some are not there yet, or very many are pending: these count as pods like this one.
        """
        frame, cluster = self.frame(queued), self._cluster
        if not queued.groups or cluster.quota_usage is None:
            return frame
        if not cluster.nominated and self.beside(queued) is None:
            return frame
        if cluster.is_nominated(queued.pod.uid):
            return frame
        promised, size_of = cluster.quota_usage.promised_templates, cluster.counters.group_size

        def number_of(group_of: GroupOf, group: Group) -> int:
            nominated = sum(number for template, number in promised.items() if group_of(template) == group)
            return size_of(group_of, group) + nominated

        needs = needs_of(self.gang_requirements(queued), number_of)
        queue = cluster.quota_usage.quota_of(frame.template)
        if needs.gang is None or queue is None:
            return frame
        others = [
            other
            for other in self.differing_members(queued, needs.gang)
            if other.uid != queued.pod.uid and other.uid not in cluster.pods and not cluster.is_nominated(other.uid)
        ][: needs.together - 1]
        alike = needs.together - len(others)  # and members that are not there yet
        own = tuple((resource, alike * amount) for resource, amount in cluster.quota_usage.amounts(queued.pod))
        return msgspec.structs.replace(frame, together=((queue, own), *parts_of(cluster.quota_usage, others)))

    @property
    def state(self) -> int:
        """Return what is another value as soon as a pod may be decided otherwise."""
        return self._ledger.epoch

    def decide(
        self,
        queued: QueuedPod,
        *,
        preempts: bool = True,
        memo: RejectionMemo | None = None,
        in_run: bool = False,
    ) -> Decision:
        """Return the pod's node, or why there is none, at once; see `deciding`."""
        return now(self.deciding(queued, preempts=preempts, memo=memo, in_run=in_run))

    def deciding(
        self,
        queued: QueuedPod,
        *,
        preempts: bool = True,
        memo: RejectionMemo | None = None,
        in_run: bool = False,
    ) -> Generator[int, None, Decision]:
        """Return the pod's node, or why there is none; a rejection is remembered until something changes.

        Yields work as `Cycle.deciding`.

        Args:
            queued: the pod.
            preempts: whether to search for victims.
            memo: where rejections are remembered, for callers that try placements out.
            in_run: whether members of a gang may be decided together with those before them; for callers that count
                what they place in `moves`.
        """
        self.decisions += 1
        pod, memo = queued.pod, memo if memo is not None else self._rejected
        profile = self._profile_for(queued)
        if profile is None:
            return Decision(pod, None, total=self._cluster.nodes.size, message=NO_POLICY)
        preempts = preempts and self._may_evict(queued)
        known = memo.get(pod, profile, self.state, preempts=preempts)
        if known is not None:
            self.work += REMEMBERED_WORK
            self._note_entitled(queued, known)
            return msgspec.structs.replace(known, pod=pod)
        in_run = in_run or memo is self._rejected
        found = self._decide_in_run(queued, profile) if in_run and queued.groups else None
        if found is not None:
            self.work += RUN_WORK
            return found
        self.work += VERDICT_WORK
        told = 0
        steps = self.deciding_under(queued, profile, preempts=preempts)
        try:
            while True:
                try:
                    done = next(steps)
                except StopIteration as end:
                    decision: Decision = end.value
                    break
                told += done
                self.work += done
                yield done
        finally:
            steps.close()
        if decision.host is not None:
            return decision
        if decision.preemption is not None:
            self.work += decision.preemption.work - told
        memo.note(decision, profile, self.state, preempts=preempts)
        self._note_entitled(queued, decision)
        return decision

    def _may_evict(self, queued: QueuedPod) -> bool:
        """Return whether preemption makes room for a pod, which may be in a PodGroup that is complete without it."""
        is_grouped = queued.pod.template.spec.scheduling_group is not None
        if not is_grouped or Feature.WORKLOAD_AWARE_PREEMPTION not in self._cluster.rules:
            return True
        try:
            requirements = self.gang_requirements(queued)
        except ValueError:
            return True  # it is held for that
        return may_evict_alone(requirements, self._cluster.counters.group_size, self._cluster.rules)

    def _note_entitled(self, queued: QueuedPod, decision: Decision) -> None:
        """Note since when a pod has waited for what its queue could guarantee it."""
        if queued.entitled_since is None and decision.reclaim is not None and decision.reclaim.is_patient:
            queued.entitled_since = self._clock()

    def _decide_in_run(self, queued: QueuedPod, profile: Profile) -> Decision | None:
        """Decide a member of a gang together with those before it; None: it must be decided alone."""
        alone, template = self._decided_alone, queued.pod.template
        if not is_alike(queued.pod, profile) or (alone is not None and alone[0] is template and alone[1] is profile):
            return None
        frame, run, before = self.frame_with_gang(queued), self._run, self._run_goes_on
        goes_on = (
            run is not None
            and before is not None
            and run.template is template
            and run.profile is profile
            and before[0] == self.state + self.moves
            and self._cluster.node_of(before[1]) == before[2]
            and not self._cluster.nominated
            and run.follow(frame)
        )
        if not goes_on:
            if self._decided_last is not template:
                self._decided_last = template
                return None
            self.work += VERDICT_WORK
            run = self._run = self.begin_run(frame, profile)
            self._decided_alone = (template, profile) if run is None else None
        decision = self.cycle.decide_in_run(frame, run) if run is not None else None
        if decision is None or decision.host is None:
            self._run = None
            return None
        self._run_goes_on = self.state + self.moves + 1, queued.pod.uid, decision.host
        return decision

    def begin_run(self, frame: Frame, profile: Profile) -> MemberRun | None:
        """Return what decides pods like this one while only they are placed; None: they must be decided one by one."""
        return self.cycle.begin_run(frame, profile)

    def deciding_under(self, queued: QueuedPod, profile: Profile, *, preempts: bool) -> Generator[int, None, Decision]:
        """Return what becomes of a pod under a profile; nothing is remembered. Yields work as `Cycle.deciding`."""
        return self.cycle.deciding(self.frame_with_gang(queued), profile, preempts=preempts)

    def reclaim_for(self, queued: QueuedPod, rejected: Decision) -> Decision:
        """Return a rejection of one more member of a gang that has its size, with what `reclaim` does for it."""
        profile = self._profile_for(queued)
        if profile is None:
            return rejected
        decision = self.cycle.reclaim_for(self.frame_with_gang(queued), profile, rejected)
        self._note_entitled(queued, decision)
        return decision

    def deciding_allowed(self, queued: QueuedPod, verdict: ExtenderVerdict) -> Generator[int, None, Decision]:
        """Return the pod's node among those that extenders allowed, or why there is none; nothing is remembered.

        Yields work as `Cycle.deciding`.
        """
        profile = self._profile_for(queued)
        if profile is None:
            return Decision(queued.pod, None, total=self._cluster.nodes.size, message=NO_POLICY)
        frame = self.frame_with_gang(queued)
        return (yield from self.cycle.deciding(frame, self.on_own_nodes(profile), verdict=verdict))

    def best_nodes(self, queued: QueuedPod, *, most: int, without: Container[str] = ()) -> list[str]:
        """Return the feasible nodes with the highest scores, the best first; the nominated one alone if it is feasible.

        Args:
            queued: the pod.
            most: how many nodes.
            without: nodes to leave out.
        """
        profile = self._profile_for(queued)
        nodes, nominated = self._cluster.nodes, queued.pod.nominated_node
        if profile is None or not nodes.size:
            return []
        rows, totals = self.cycle.ranked(self.frame_with_gang(queued), self.on_own_nodes(profile))
        if without:
            kept = np.array([nodes.infos[row].name not in without for row in rows.tolist()], np.bool_)
            rows, totals = rows[kept], totals[kept]
        if nominated and nominated not in without and (rows == nodes.rows.get(nominated, -1)).any():
            return [nominated]
        if len(rows) > most:
            chosen = np.argpartition(-totals, most - 1)[:most]
            rows, totals = rows[chosen], totals[chosen]
        return [nodes.infos[row].name for row in rows[np.argsort(-totals, kind="stable")].tolist()]

    def by_fullness(self, queued: QueuedPod, *, most: int) -> list[int]:
        """Return the rows of feasible nodes, those first of whose resources the pod leaves the smallest share."""
        profile, nodes = self._profile_for(queued), self._cluster.nodes
        if profile is None or not nodes.size:
            return []
        rows = self.cycle.feasible(self.frame_with_gang(queued), self.on_own_nodes(profile))
        self.work += VERDICT_WORK
        left: FloatArray = np.zeros(len(rows), np.float64)
        for name, wanted in queued.pod.template.requests.items():
            offered = nodes.allocatable(name)[rows]
            free = offered - nodes.requested(name)[rows] - wanted
            left += np.where(offered > 0, free / np.maximum(offered, 1), 0.0)
        if len(rows) > most:
            chosen = np.argpartition(left, most - 1)[:most]
            rows, left = rows[chosen], left[chosen]
        found: list[int] = rows[np.argsort(left, kind="stable")].tolist()
        return found

    def on_row(self, queued: QueuedPod, row: int) -> Decision:
        """Return the decision that a pod gets the node of a row, which is feasible."""
        profile, nodes = self._profile_for(queued), self._cluster.nodes
        assert profile is not None
        return Decision(
            queued.pod,
            nodes.infos[row].name,
            feasible=1,
            total=nodes.size,
            devices=self.cycle.devices(self.frame_with_gang(queued), profile, row),
            device_order=profile.devices,
        )

    def on_own_nodes(self, profile: Profile) -> Profile:
        """Return a profile for the nodes on which this scheduler places pods."""
        return profile

    def looks_elsewhere(self, queued: QueuedPod) -> bool:
        """Return whether filters may look at more than a node and its pods to say whether a pod fits there."""
        profile = self._profile_for(queued)
        if profile is None:
            return True
        live = (plugin for plugin in profile.filters if plugin.scope is Scope.CLUSTER)
        return not change_own_rows(self.frame_with_gang(queued), live)

    def is_alike(self, queued: QueuedPod) -> bool:
        """Return whether a pod is decided as any other of its template."""
        profile = self.profile(queued.pod)
        return profile is not None and is_alike(queued.pod, profile)

    def still_fits(self, queued: QueuedPod, host: str, *, beside_nominated: bool = False) -> bool:
        """Return whether a pod that counts on a node would still be placed there; see `passes`."""
        if host not in self._cluster.nodes.rows:
            return False
        with self._ledger.silent():
            self._cluster.displace(queued.pod.uid)
            try:
                return self.passes(queued, host, beside_nominated=beside_nominated)
            finally:
                self._cluster.place(queued.pod, host)

    def passes(self, queued: QueuedPod, host: str, *, beside_nominated: bool = False) -> bool:
        """Return whether a node passes every filter for a pod, as the cluster stands.

        beside_nominated: and also with the pods there that are nominated to it and have precedence.
        """
        row, profile = self._cluster.nodes.rows.get(host), self._profile_for(queued)
        self.work += VERDICT_WORK
        if row is None or profile is None:
            return False
        return passes(self.frame_with_gang(queued), profile, row, beside_nominated=beside_nominated)
