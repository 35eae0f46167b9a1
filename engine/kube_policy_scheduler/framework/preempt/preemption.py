"""DefaultPreemption: which pods of lower priority to evict so that a pod fits. Decides only; evicts nothing.

Semantics of kube-scheduler 1.36. Two choices that are random there are fixed here: the search over nodes starts
at a row that follows from the pod and the seed, and among equal nodes the first by name is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis, rejecting_clauses
from kube_policy_scheduler.framework.evaluate.evaluation import PreFiltered
from kube_policy_scheduler.framework.evaluate.nominations import REJECTED, Active
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimsAfter, Deallocation, DynamicResources
from kube_policy_scheduler.framework.preempt.gang_units import EvictableGangs, EvictedTogether
from kube_policy_scheduler.framework.preempt.reclaim import protected
from kube_policy_scheduler.framework.preempt.standing_rejections import StandingRejections
from kube_policy_scheduler.framework.preempt.trials import MOST_DISPLACED_ELSEWHERE, NO_VICTIMS, Trial
from kube_policy_scheduler.framework.preempt.victims import (
    Budgets,
    Candidates,
    KeptVictims,
    Victims,
)
from kube_policy_scheduler.framework.preempt.whole_groups import in_group_that_stays, with_whole_groups
from kube_policy_scheduler.framework.profile import PreemptionRule, Profile
from kube_policy_scheduler.framework.quota import QUOTA
from kube_policy_scheduler.framework.status import Code, Status, reason_histogram
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NOT_ALLOWED = "not eligible due to policy clause"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
MIN_CANDIDATES = 100
MIN_CANDIDATES_PERCENT = 10
_AT_ONCE = 64
"""Nodes that are tried together where only some of them may be needed."""


_CUT = (
    f"Of the gangs that would go, {MOST_DISPLACED_ELSEWHERE:,} members on other nodes were looked at; the rest counted"
    " as still there."
)


@dataclass(frozen=True, slots=True)
class Preemption:
    """The result of PostFilter."""

    nominated_node: str | None = None
    """The node to nominate for the pod."""
    victims: tuple[PodInfo, ...] = ()
    """The pods to evict from it, with the other members of their gangs, most important first."""
    message: str = ""
    """What to add to the pod's message."""
    candidates: Mapping[str, Victims] = field(default_factory=dict)
    """All candidate nodes, of those that were checked."""
    keeps_nomination: bool = False
    """Whether an earlier nomination remains: the pod was not eligible, so no node was checked."""
    reclaims: bool = False
    """Whether the victims are those of `reclaim`."""
    sharing: tuple[str, ...] = ()
    """The uids of those that get the room so that shares become fairer; nothing where it is guaranteed."""
    claims: Deallocation | None = None
    """Which claims must be deallocated, if that may help."""
    only_resources: bool = False
    """Whether nothing but free resources, and facts that no pod changes, says where the pod fits."""
    is_hopeless: bool = False
    """Whether no node was a possible candidate: evictions help nowhere."""
    work: int = field(default=0, compare=False)
    """Of the search in this turn, see `trial.NODE_WORK`."""

    @property
    def nomination(self) -> str | None:
        """Return to which node the pod is nominated now: "" to none any more, None as before."""
        return None if self.keeps_nomination else self.nominated_node or ""

    def in_order(self, now: float) -> Iterator[tuple[str, Victims]]:
        """Return the candidates but for the nominated node, the best first; `Candidates` only."""
        assert isinstance(self.candidates, Candidates)
        return (each for each in self.candidates.in_order(now) if each[0] != self.nominated_node)

    @property
    def ties(self) -> tuple[str, ...]:
        """Return the candidates as good as the nominated node, by name, itself included."""
        return self.candidates.ties if isinstance(self.candidates, Candidates) else ()


def nomination_after(found: Preemption | None, pod: PodInfo, cluster: Cluster) -> str | None:
    """Return to which node a pod is nominated once it was rejected: "" to none any more, None as before.

    found: the result of PostFilter; None: there was none. A nomination may then be what remains of a preemption.
    """
    if found is None:
        return None if _waits_for_evicted(pod, cluster) else ""
    return found.nomination


class RejectedPod(msgspec.Struct, frozen=True):
    """A pod that no node takes, with what rejects it."""

    frame: Frame
    profile: Profile
    prepared: PreFiltered
    diagnosis: Diagnosis
    standing: StandingRejections | None = None
    """The rejections that the diagnosis is of, if they are kept."""


class DefaultPreemption:
    """Finds victims for pods that no node takes."""

    def __init__(self, *, seed: int = 0, every_node: bool = False, kept: KeptVictims | None = None) -> None:
        """Make it.

        Args:
            seed: says where a search over many nodes starts.
            every_node: whether to look at all nodes, instead of until a tenth of them (and at least 100) are suitable.
            kept: what earlier pods found, and the searches that go on in another turn; None: nothing is kept.
        """
        self._seed, self._every_node, self._kept = seed, every_node, kept

    def post_filter(self, rejection: RejectedPod) -> Generator[int, None, Preemption]:
        """Return what evictions would make room for a pod that fits nowhere, or why none would.

        If a policy contributes to the rejection, the message omits what was not searched. Yields the work of the search
        (see `trials.NODE_WORK`). If it ends there, the next one for this pod goes on from what it found.
        """
        frame, diagnosis = rejection.frame, rejection.diagnosis
        claims = _post_filter_claims(frame, rejection.profile, rejection.prepared, diagnosis)
        by_policy = bool(rejecting_clauses(diagnosis, rejection.profile)) or QUOTA in diagnosis.rejectors()
        # what queues and limits leave is kept on all nodes: two nominated pods could keep it from each other for ever
        is_whole = by_policy and rejection.prepared.rejection is not None
        may_keep = not is_whole or _waits_for_evicted(frame.pod, frame.cluster)
        if claims is not None and claims.result is ClaimsAfter.NOT_FOUND:
            return Preemption(message="" if by_policy else claims.result.value, keeps_nomination=may_keep)
        found = yield from self._preempt(rejection, may_keep=may_keep)
        if found.nominated_node is not None:
            return replace(found, claims=claims, message=_success(found, frame.cluster.rules))
        parts = []
        if claims is not None and (claims.result is not ClaimsAfter.NO_CLAIMS or not by_policy):
            parts.append(claims.result.value)
        if not by_policy or not found.is_hopeless:
            parts.append(f"preemption: {found.message}")
        return Preemption(
            message=", ".join(parts),
            candidates=found.candidates,
            keeps_nomination=found.keeps_nomination,
            claims=claims,
            work=found.work,
        )

    def _preempt(self, rejection: RejectedPod, *, may_keep: bool) -> Generator[int, None, Preemption]:
        """Return the best node and its victims, or why there is none.

        may_keep: whether a pod that may never evict others keeps its nomination.
        """
        frame, profile, standing = rejection.frame, rejection.profile, rejection.standing
        ineligible = _ineligible(frame, profile, rejection.diagnosis, may_keep=may_keep)
        if ineligible is not None:
            return Preemption(message=ineligible.text, keeps_nomination=ineligible.keeps_nomination)
        potential = potential_rows(rejection.diagnosis) if standing is None else standing.potential
        size, nodes = len(potential), frame.cluster.nodes
        if not frame.cluster.priorities.has_below(frame.pod.priority):
            return _nobody(Counter({NO_VICTIMS: size} if size else {}), possible=size, nodes=nodes.size)
        if standing is not None and not len(standing.hopeful):
            return _nobody(standing.why_not(), possible=size, nodes=nodes.size)
        spares, kept = _all_spared(frame, profile), self._kept
        key = frame.pod.uid, frame.template, profile
        search = kept.search(nodes, key) if kept is not None else None
        trial = Trial(
            frame,
            _active(frame, profile, rejection.prepared),
            Budgets(frame.cluster),
            potential,
            spares=spares,
            kept=kept,
            gangs=evictable_gangs(frame, profile, spares),
            search=search,
        )
        enough = size if self._every_node else max(size * MIN_CANDIDATES_PERCENT // 100, min(MIN_CANDIDATES, size))
        if standing is None:
            hopeless, why_not = trial.hopeless()
            hopeful = potential[~hopeless]
        else:
            hopeful, why_not = standing.hopeful, standing.why_not()
        start = int(hopeful.searchsorted(potential[_offset(frame.pod, self._seed, size)])) if size else 0
        try:
            candidates, why_not = yield from _search(trial, hopeful, why_not, now=frame.now, start=start, enough=enough)
        except BaseException:
            if kept is not None and search is not None:
                kept.pause(key, search)
            raise
        if candidates is None:
            return _nobody(why_not, possible=size, nodes=nodes.size, work=trial.work, cut=_CUT if trial.is_cut else "")
        name, victims = candidates.first()
        only_resources = trial.only_resources and not victims.has_gangs
        return Preemption(name, victims.pods, candidates=candidates, only_resources=only_resources, work=trial.work)


def _success(found: Preemption, rules: KubernetesRules) -> str:
    """Return what the message of the pod says of a node that was found (1.37: what PostFilter of the others said goes).

    Its text has no full stop.
    """
    if Feature.PREEMPTION_MESSAGE not in rules:
        return ""
    place = f"found a potential placement for pod on node {found.nominated_node}"
    return f"preemption: {place}, preempting {len(found.victims)} victims"


def _post_filter_claims(
    frame: Frame, profile: Profile, prepared: PreFiltered, diagnosis: Diagnosis
) -> Deallocation | None:
    """Return what the DynamicResources plugin does, which PostFilter calls first; None if it is not called."""
    for plugin, state in prepared.active:
        if isinstance(plugin, DynamicResources):
            return plugin.post_filter(frame.at(diagnosis.rejected_by(plugin.name)), state)
    rejection, is_early = prepared.rejection, False
    for plugin in profile.filters:
        if isinstance(plugin, DynamicResources):
            return Deallocation(ClaimsAfter.NOT_FOUND if is_early else ClaimsAfter.NO_CLAIMS)
        if rejection is not None and plugin.name == rejection.plugin:
            is_early = rejection.code is not Code.UNSCHEDULABLE
    return None


def _nobody(why_not: Counter[str], *, possible: int, nodes: int, work: int = 0, cut: str = "") -> Preemption:
    """Return the result if no node is a candidate.

    Args:
        why_not: of the possible ones, how many were rejected for each reason.
        possible: how many these are.
        nodes: how many there are in all.
        work: that was done.
        cut: what was left out of the search, for people; "": nothing.
    """
    if nodes > possible:
        why_not[NOT_HELPFUL] += nodes - possible
    text = reason_histogram(why_not)
    message = " ".join(filter(None, (f"0/{nodes} nodes are available: {text}." if text else "", cut)))
    return Preemption(message=message, is_hopeless=nodes > 0 and not possible, work=work)


def why_never(frame: Frame, profile: Profile) -> str:
    """Return why a pod may evict nobody, whatever runs; "" if it may."""
    if frame.template.spec.preemption_policy == "Never":
        return NEVER
    if not profile.preempts:
        return NOT_ALLOWED
    rule = profile.preemption
    return f"{NOT_ALLOWED} {rule.text}." if rule is not None and not rule.allows(frame) else ""


class EvictionRules:
    """Which pods one pod may evict on the cluster as it is now, and which only together."""

    def __init__(self, frame: Frame, profile: Profile) -> None:
        self._frame, self._spares = frame, _all_spared(frame, profile)
        self._gangs = evictable_gangs(frame, profile, self._spares)

    def allow(self, victim: PodInfo) -> bool:
        """Return whether a pod may be evicted: policies, quotas, PodGroups and the members of its gangs spare none."""
        return self._may_go(victim) and (self._gangs is None or bool(self._gangs.unit(victim)))

    def _may_go(self, victim: PodInfo) -> bool:
        is_lower = victim.priority < self._frame.pod.priority
        return is_lower and (self._spares is None or not self._spares(self._frame, victim))

    def going_with(self, victims: Sequence[PodInfo]) -> tuple[PodInfo, ...]:
        """Return some pods, on any node, and what cannot stay without them; none if one of all these must stay."""
        if not all(map(self._may_go, victims)):
            return ()
        return self._gangs.going_with(victims) if self._gangs is not None else tuple(victims)

    def units(self, victims: Iterable[PodInfo]) -> list[EvictedTogether]:
        """Return allowed victims by what is evicted together, with those on other nodes that cannot stay then."""
        if self._gangs is None:
            return [EvictedTogether((victim,)) for victim in victims]
        return list(self._gangs.units(victims))


def _all_spared(frame: Frame, profile: Profile) -> Callable[[Frame, PodInfo], bool] | None:
    spares = spares_of(frame.cluster, profile.preemption)
    if profile.queues is None:
        return spares
    return _sparing(spares, protected(frame, profile.queues))


def spares_of(cluster: Cluster, rule: PreemptionRule | None) -> Callable[[Frame, PodInfo], bool] | None:
    """Return which pods must stay at any priority, by a policy or because of their PodGroup; None: none must."""
    by_policy, its_group_stays = rule.spares if rule is not None else None, in_group_that_stays(cluster)
    if its_group_stays is None:
        return by_policy

    def spares(frame: Frame, victim: PodInfo) -> bool:
        return its_group_stays(victim) or (by_policy is not None and by_policy(frame, victim))

    return spares


def evictable_gangs(
    frame: Frame, profile: Profile, spares: Callable[[Frame, PodInfo], bool] | None
) -> EvictableGangs | None:
    """Return the gangs of which a pod may evict members; None: there are none. spares: as `spares_of`."""
    gangs_of = with_whole_groups(profile.gangs_of, frame.cluster)
    if gangs_of is None:
        return None
    priority = frame.pod.priority

    def stays(pod: PodInfo) -> bool:
        return pod.priority >= priority or (spares is not None and spares(frame, pod))

    return EvictableGangs(frame, gangs_of, stays=stays)


def _sparing(
    spares: Callable[[Frame, PodInfo], bool] | None, protected: Callable[[PodInfo], bool]
) -> Callable[[Frame, PodInfo], bool]:
    return lambda frame, victim: protected(victim) or (spares is not None and spares(frame, victim))


def _active(frame: Frame, profile: Profile, prepared: PreFiltered) -> Active:
    """Return the filters to run in a dry run: also those that rejected the pod as a whole, but not permanently."""
    if prepared.rejection is None:
        return prepared.active
    kept = {id(plugin): state for plugin, state in prepared.active}
    asked: list[tuple[FilterPlugin, Any]] = []
    for plugin in profile.filters:
        if id(plugin) in kept:
            asked.append((plugin, kept[id(plugin)]))
        elif isinstance(plugin.pre_filter(frame), Status):
            asked.append((plugin, REJECTED))
    return asked


def potential_rows(diagnosis: Diagnosis) -> IntArray:
    """Return the rows whose rejection preemption might lift, ascending."""
    rejected = diagnosis.first >= 0
    if diagnosis.rejection is not None:
        rejected = np.ones(diagnosis.size, np.bool_)
    return np.flatnonzero(rejected & ~diagnosis.unresolvable)


class _Ineligible(msgspec.Struct, frozen=True):
    """Why a pod may not preempt others now."""

    text: str
    keeps_nomination: bool = True


_TERMINATING = _Ineligible(TERMINATING)


def _ineligible(frame: Frame, profile: Profile, diagnosis: Diagnosis, *, may_keep: bool) -> _Ineligible | None:
    """Return why the pod may not preempt others now, None if it may; may_keep: as for `_preempt`."""
    pod, cluster = frame.pod, frame.cluster
    if why := why_never(frame, profile):
        return _Ineligible(why, keeps_nomination=may_keep and pod.template.spec.preemption_policy == "Never")
    row = cluster.nodes.rows.get(pod.nominated_node) if pod.nominated_node else None
    if row is None or diagnosis.status(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return None
    for other in cluster.pods_on(pod.nominated_node).values():
        ends = _evicted_by_scheduler(other) if other.terminating else cluster.is_going(other, frame.steady)
        if ends and other.priority < pod.priority:
            return _TERMINATING
    return None


def _waits_for_evicted(pod: PodInfo, cluster: Cluster) -> bool:
    """Return whether pods end on the nominated node."""
    node_name = pod.nominated_node
    return bool(node_name) and any(other.terminating for other in cluster.pods_on(node_name).values())


def _evicted_by_scheduler(pod: PodInfo) -> bool:
    if not pod.terminating:
        return False
    target = next((c for c in pod.conditions if c.type == "DisruptionTarget"), None)
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"


def _offset(pod: PodInfo, seed: int, size: int) -> int:
    """Return where the search starts: it only matters if it may end before all nodes were checked."""
    if size <= MIN_CANDIDATES:
        return 0
    return int.from_bytes(blake2b(f"{seed}/{pod.uid}".encode(), digest_size=8).digest()) % size


def _search(
    trial: Trial, hopeful: IntArray, why_not: Counter[str], *, now: float, start: int, enough: int
) -> Generator[int, None, tuple[Candidates | None, Counter[str]]]:
    """Return the candidates, if any, and of the other checked nodes, how many were rejected for each reason.

    Yields the work that was done.

    Args:
        trial: on the nodes.
        hopeful: the rows that are tried, ascending.
        why_not: of the other ones.
        now: Unix seconds.
        start: the position among the hopeful rows where the search starts.
        enough: candidates.
    """
    while True:
        checked = yield from _tried(trial, hopeful, start=start, enough=enough)
        rows = checked[trial.with_victims(checked)]
        if not len(rows):
            if trial.forget_dated():
                continue
            why_not.update(trial.reasons(checked))
            return None, why_not
        candidates = trial.candidates(rows) or _compared(trial, rows.tolist(), now)
        if (yield from trial.confirms(*candidates.first())):
            return candidates, why_not
        yield trial.step()


def _tried(trial: Trial, hopeful: IntArray, *, start: int, enough: int) -> Generator[int, None, IntArray]:
    """Try rows in order until there are enough candidates, one of them without a violated budget.

    Return the rows that this takes: all of them, if that is never so. Yields the work that was done.
    """
    # the first of these are all needed
    order = hopeful[start : start + enough]
    if (more := min(enough - len(order), start)) > 0:
        order = np.concatenate((order, hopeful[:more]))
    begin, end, candidates, is_harmless = 0, len(order), 0, False
    while begin < end:
        rows = order[begin:end]
        yield from trial.try_all(rows)
        here = trial.with_victims(rows)
        numbers = candidates + np.cumsum(here)
        safe = is_harmless | np.logical_or.accumulate(here & trial.harmless(rows))
        done = (safe & (numbers >= enough)).nonzero()[0]
        if len(done):
            return order[: begin + done.item(0) + 1]
        if not begin:
            order = np.concatenate((hopeful[start:], hopeful[:start]))
        # then a few at a time, and between them those that are known
        begin, candidates, is_harmless = end, int(numbers[-1]), bool(safe[-1])
        unknown = trial.open(order[begin:]).nonzero()[0]
        end = begin + unknown.item(_AT_ONCE) if len(unknown) > _AT_ONCE else len(order)
    return order


def _compared(trial: Trial, rows: Sequence[int], now: float) -> Candidates:
    """Return rows as candidates that are not kept as columns."""
    names, victims = [trial.name_at(row) for row in rows], [trial.victims(row) for row in rows]
    best = _best(victims, now)
    by_name = min((names[place], number) for number, place in enumerate(best.tolist()))[1]
    return Candidates(names, np.arange(len(names)), victims, best, first=by_name)


def preferred(victims_on: Mapping[str, Victims], now: float) -> str:
    """Return the node with the best victims, of several the first by name. now: Unix seconds."""
    names = sorted(victims_on)
    return names[int(_best([victims_on[name] for name in names], now)[0])]


def _best(victims: list[Victims], now: float) -> IntArray:
    """Return the positions of the best: fewest violated budgets, least important victims, fewest, youngest."""
    least = min([each.rank for each in victims])
    keys = {place: each.order(now) for place, each in enumerate(victims) if each.rank == least}
    best = min(keys.values())
    return np.array([place for place, key in keys.items() if key == best])
