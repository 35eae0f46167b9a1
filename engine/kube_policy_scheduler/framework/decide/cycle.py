"""The scheduling cycle: one pod in, one decision out.

What happens, in order, and what is kept of it for the next pod:

1. Prepare: PreFilter and PreScore of the plugins that read the template and nodes alone, and their results on all nodes
   (`template_cache`, updated row by row).
2. Filter: the plugins that read more run for the pod (`_passes`); what nominated pods take is left out.
3. If no node passes: why (`standing_rejections`), then reclaim, then preemption (`KeptVictims`).
4. Score and combine: the kept sums, and scores that compare nodes on top of them (`ranked_totals`, else `_totals`).
5. Choose: the best total; of equal ones by hash or by name (`choice`).

The daemon, tests, simulations and the extender use the same cycle. It always evaluates all nodes. `evaluate.evaluation`
is the plain form without caches.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import Chosen
from kube_policy_scheduler.cluster.kept_views import KeptBytes
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.search_work import most_steps, search_work
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.choice import TieBreak, Ties, best, choose_devices, smallest_name
from kube_policy_scheduler.framework.deadlines import Deadlines
from kube_policy_scheduler.framework.decide.member_run import MemberRun, can_run
from kube_policy_scheduler.framework.decide.new_nodes import NewNodes
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis, rejection_message, with_rejections
from kube_policy_scheduler.framework.evaluate.evaluation import diagnose, named_nodes, pre_filter
from kube_policy_scheduler.framework.evaluate.extender_verdict import EXTENDER, ExtenderVerdict
from kube_policy_scheduler.framework.evaluate.nominations import taken_by_nominated
from kube_policy_scheduler.framework.evaluate.ranked_totals import best_ranked, may_be_kept
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCache, TemplateCaches
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Kernels
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima, TiedRows
from kube_policy_scheduler.framework.plugin import ComparesDomains, FilterPlugin, Ready, Scope, ScorePlugin
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.preempt.preemption import DefaultPreemption, Preemption, RejectedPod
from kube_policy_scheduler.framework.preempt.reclaim import (
    NOTHING_RECLAIMED,
    RETRY_SECONDS,
    NotReclaimed,
    OneNode,
    Reclaimed,
    reclaim,
)
from kube_policy_scheduler.framework.preempt.standing_rejections import standing_rejections
from kube_policy_scheduler.framework.preempt.victims import KeptVictims
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.quota import RECLAIM
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

NO_NODES = "no nodes available to schedule pods"
NOBODY = "nobody"
"""The rejector of pods that no plugin evaluated. No plugin has this name, so every event moves them."""
_LARGEST_BYTES = 16 * 1024 * 1024
"""Larger than any column that a decision makes: one of 2,000,000 nodes."""
_NO_DEVICES: Mapping[str, Chosen] = {}


class Decision(msgspec.Struct, frozen=True):
    """The decision about one pod, with the data to explain it."""

    pod: PodInfo
    host: str | None
    """The node to bind to; None if the pod is unschedulable."""
    score: float | None = None
    """The total score of the host; None if it was the only feasible node, so that nothing was scored."""
    feasible: int = 0
    """Number of feasible nodes."""
    ties: int = 1
    """Number of nodes with the same total as the host."""
    total: int = 0
    """Nodes in the cluster."""
    diagnosis: Diagnosis | None = None
    preemption: Preemption | None = None
    """The result of preemption if no node is feasible."""
    reclaim: Reclaimed | None = None
    """The result of `reclaim`, if it was tried."""
    devices: Mapping[str, Chosen] = msgspec.field(default_factory=dict)
    """The devices of the host for the pod, by resource; written with the binding."""
    new_nodes: NewNodes | None = None
    """Whether new nodes would help, if no node is feasible; None: nobody asked."""
    device_order: DeviceOrder | None = None
    """In which the pod's claims are allocated on the host."""
    message: str = ""
    """Why not, in kube-scheduler's words."""
    error: str = ""
    """An error on some node, which ended the attempt; the pod is retried after backoff."""

    rejected_by: frozenset[str] = frozenset()
    """Rejectors besides the plugins of the diagnosis."""
    asks_again: bool = False
    """Whether extenders must be asked once more: no node that they allowed is left, but there are others by now."""
    verdict: ExtenderVerdict | None = None
    """What extenders said, if they were asked."""

    @property
    def rejectors(self) -> frozenset[str]:
        """Return the plugins that rejected the pod."""
        if self.rejected_by:
            return self.rejected_by | (self.diagnosis.rejectors() if self.diagnosis is not None else frozenset())
        return self.diagnosis.rejectors() if self.diagnosis is not None else frozenset((NOBODY,))


class Cycle:
    """Decides pods over one cluster. Does not change the cluster, except within dry runs."""

    def __init__(self, *, seed: int = 0, accelerator: Accelerator | None = None, kept: KeptBytes | None = None) -> None:
        """Start without anything kept.

        Args:
            seed: breaks ties.
            accelerator: has compiled loops; None: there are none.
            kept: bounds what is kept from one pod to the next: the answers of plugins for each template, and ranked
                totals; None: nothing else counts with them.
        """
        _keep_freed_memory()
        self._seed = seed
        self._accelerator = accelerator or Accelerator()
        self.kept = KeptBytes() if kept is None else kept
        """Bounds what is kept from one pod to the next."""
        self._kept = TemplateCaches(self._accelerator, kept=self.kept)
        self._victims = KeptVictims()
        self._preemption = DefaultPreemption(seed=seed, kept=self._victims)
        self._reclaims_paused = Deadlines[tuple[PodTemplate, Profile]]()
        """Nobody is evicted for pods of these templates now, because an attempt found nobody."""

    def keep_only(self, profiles: Iterable[Profile]) -> None:
        """Drop what is kept for pods under other profiles, whose policies are gone."""
        self._kept.keep_only({profile.whole for profile in profiles})
        self._reclaims_paused.clear()

    def keep_in_use(self, templates: Container[PodTemplate]) -> None:
        """Drop what is kept for pods of other templates than these: their pods are gone."""
        self._kept.keep_in_use(templates)

    def decide(
        self,
        frame: Frame,
        profile: Profile,
        *,
        preempts: bool = True,
        verdict: ExtenderVerdict | None = None,
    ) -> Decision:
        """Decide a pod at once; see `deciding`."""
        return now(self.deciding(frame, profile, preempts=preempts, verdict=verdict))

    def deciding(
        self,
        frame: Frame,
        profile: Profile,
        *,
        preempts: bool = True,
        verdict: ExtenderVerdict | None = None,
    ) -> Generator[int, None, Decision]:
        """Decide a pod: return its node, or the reasons why no node is feasible.

        Yields the work of a search for victims (see `trials.NODE_WORK`). If it ends there, there is no decision, and
        the next one for the pod goes on from what was found.

        Args:
            frame: of the pod.
            profile: the plugins.
            preempts: whether to search for victims, if the profile preempts.
            verdict: what extenders said, so that only nodes that they allowed are taken; None: there are none.

        Raises:
            OutOfTurn: the search for devices took its turn of the attempt that is under way; call again.
        """
        steps = self._deciding(frame, profile, preempts=preempts, verdict=verdict)
        return _searching_devices(frame, steps) if has_claims(frame.template, frame.cluster) else steps

    def _deciding(
        self,
        frame: Frame,
        profile: Profile,
        *,
        preempts: bool,
        verdict: ExtenderVerdict | None,
    ) -> Generator[int, None, Decision]:
        """Prepare, filter, score and choose; see the head of this module."""
        nodes = frame.cluster.nodes
        if not nodes.size:
            return Decision(frame.pod, None, message=NO_NODES)
        frame.cluster.counters.make_room()
        cache = self._kept.of(frame, profile.whole)
        passing = self._passing(frame, profile, cache)
        if verdict is not None:
            ok = cache.ok if passing is None else passing
            passing = ok & verdict.passing(nodes)
            if not passing.any() and (ok & ~verdict.asked(nodes)).any():
                return Decision(frame.pod, None, total=nodes.size, asks_again=True, verdict=verdict)
        count = cache.count if passing is None else int(np.count_nonzero(passing))
        if not count:
            no_fit = self._no_fit(frame, profile, cache=cache, preempts=preempts, verdict=verdict)
            rejected = yield from self._beside_searches(frame.cluster, no_fit)
            return rejected if verdict is None else msgspec.structs.replace(rejected, verdict=verdict)
        # most pods have no nomination and several nodes: nobody asks then which nodes pass
        only = _only(frame, cache, passing, count) if count == 1 or frame.pod.nominated_node else None
        if only is not None:
            row, score, ties = only, None, 1
        else:
            row, score, ties = self._choice(frame, profile, cache, passing, verdict=verdict)
        return Decision(
            frame.pod,
            nodes.infos[row].name,
            score=score,
            feasible=count,
            ties=ties,
            total=nodes.size,
            devices=self.devices(frame, profile, row),
            device_order=profile.devices,
            verdict=verdict,
        )

    def _passing(self, frame: Frame, profile: Profile, cache: TemplateCache) -> BoolArray | None:
        """Return `bool[nodes]`, as `_passes`. For searches, nominated pods that are tried change nothing."""
        if not (frame.cluster.nominated and self._victims.are_searched):
            return _passes(frame, profile, cache)
        self.take_in_changes(frame.cluster)
        try:
            return _passes(frame, profile, cache)
        finally:
            self.pass_over_changes()

    def _beside_searches(
        self, cluster: Cluster, steps: Generator[int, None, Decision]
    ) -> Generator[int, None, Decision]:
        """Carry out steps that try something for a pod and undo it, without a change for searches that are under way.

        Otherwise two pods that search for victims in turns would set each other back for ever, and nominated pods that
        are tried would set back all of them.
        """
        if not self._victims.are_searched:
            return (yield from steps)
        self.take_in_changes(cluster)
        try:
            return (yield from steps)
        finally:
            self.pass_over_changes()

    def _choice(
        self,
        frame: Frame,
        profile: Profile,
        cache: TemplateCache,
        passing: BoolArray | None,
        *,
        verdict: ExtenderVerdict | None = None,
    ) -> tuple[int, float, int]:
        """Return the best row, its total, and how many rows have that total.

        Args:
            frame: of the pod.
            profile: the plugins.
            cache: of the template.
            passing: `bool[nodes]`, the nodes to choose from; None: all that pass the kept filters.
            verdict: what extenders said, whose scores are added; None: there are none.
        """
        by_name, nodes = profile.ties is Ties.NAME, frame.cluster.nodes
        tie_break = None if by_name else TieBreak(nodes, uid=frame.pod.uid, seed=self._seed)
        kernels = self._accelerator.kernels
        kept = self._best_kept(frame, cache) if passing is None else None
        if kept is not None:
            found, constant = kept
            if found is None and cache.bounded is not None and tie_break is not None and kernels is not None:
                bounded = tie_break.choose(cache.bounded, kernels)
                if bounded is not None:
                    return bounded.row, bounded.total + constant, bounded.ties
            if found is None and not cache.is_bounded_in_full:
                found = cache.maxima
            if isinstance(found, BlockMaxima) and tie_break is not None:
                chosen = tie_break.first_of_best(found, self._accelerator)
                return chosen.row, chosen.total + constant, chosen.ties
            if found is not None:
                tied = found.best() if isinstance(found, BlockMaxima) else found
                row = smallest_name(tied.rows(), nodes) if tie_break is None else tie_break.first_of_many(tied)
                return row, tied.total + constant, len(tied)
        if verdict is None and tie_break is not None and kernels is not None:
            compared = _compared_totals(frame, cache, passing, kernels)
            if compared is not None:
                of_all = tie_break.first_of_top(*compared, kernels)
            else:
                whole = _whole_totals(frame, cache, passing)
                of_all = tie_break.first_of_all(whole, kernels) if whole is not None else None
            if of_all is not None:
                return of_all.row, of_all.total, of_all.ties
        if passing is not None:
            rows = passing.nonzero()[0]
            totals = _totals(frame.at(rows), cache)
            if verdict is not None:
                totals = totals + verdict.scores(nodes, rows)
        else:
            rows = cache.passing()
            all_rows = ALL_ROWS if cache.count == nodes.size else rows
            totals = _totals(frame.at(all_rows), cache, all_passing=True)
        top = best(totals)
        row = smallest_name(rows[top], nodes) if tie_break is None else tie_break.first(rows[top])
        return row, float(totals[top[0]]), len(top)

    def _best_kept(self, frame: Frame, cache: TemplateCache) -> tuple[BlockMaxima | TiedRows | None, float] | None:
        """Return the rows with the highest total, or where they are found, and a number to add to that total.

        None instead of the rows: they are those of the cache. None: totals are not kept.
        """
        constant = 0.0
        for kept in () if cache.is_in_full or cache.is_bounded_in_full else cache.normalizing:
            if kept.constant is None:
                return None
            constant += kept.constant
        if cache.live_scores_added:
            return None  # as in the template's last decision; `_totals` finds out when that ends
        active: list[tuple[ScorePlugin, float, Ready]] = []
        for score in cache.volume_scores if frame.pod.volumes else cache.live_scores:
            prepared = score.plugin.pre_score(frame)
            if isinstance(prepared, Ready) and prepared.adds:
                active.append((score.plugin, score.weight, prepared))
        if not active:
            return None, constant
        if cache.is_bounded_in_full:
            return None
        found = best_ranked(frame, cache, active, constant=constant, caches=self._kept)
        return None if found is None else (found, 0.0)

    def begin_run(self, frame: Frame, profile: Profile) -> MemberRun | None:
        """Return what decides pods like this one while only they are placed; None: they must be decided one by one.

        Nothing but their templates tells them apart, see `is_alike`.
        """
        if not frame.cluster.nodes.size:
            return None
        cache = self._kept.of(frame, profile.whole)
        if not can_run(frame, cache):
            return None
        ok = _passes(frame, profile, cache)
        ok = cache.ok if ok is None else ok
        return MemberRun(frame, profile, cache, ok=ok, seed=self._seed, accelerator=self._accelerator)

    def decide_in_run(self, frame: Frame, run: MemberRun) -> Decision | None:
        """Decide a pod as `decide`; None if no node is feasible."""
        found, nodes = run.pick(frame), frame.cluster.nodes
        if found is None:
            return None
        return Decision(
            frame.pod,
            nodes.infos[found.row].name,
            score=found.score,
            feasible=found.feasible,
            ties=found.ties,
            total=nodes.size,
            device_order=run.profile.devices,
        )

    def feasible(self, frame: Frame, profile: Profile) -> IntArray:
        """Return the rows that pass every filter, ascending, for callers that choose the host themselves."""
        cache = self._kept.of(frame, profile.whole)
        ok = _passes(frame, profile, cache)
        return cache.passing() if ok is None else ok.nonzero()[0]

    def passing(self, frame: Frame, profile: Profile) -> BoolArray:
        """Return `bool[nodes]`: which pass every filter. Read-only, valid until the cluster changes."""
        cache = self._kept.of(frame, profile.whole)
        ok = _passes(frame, profile, cache)
        ok = cache.ok if ok is None else ok
        return ok if cache.is_kept else ok.copy()

    def totals(self, frame: Frame, profile: Profile, rows: IntArray) -> FloatArray:
        """Return `float64[rows]`: the weighted sum of all scores, as if just these rows were feasible."""
        return _totals(frame.at(rows), self._kept.of(frame, profile.whole))

    def ranked(self, frame: Frame, profile: Profile) -> tuple[IntArray, FloatArray]:
        """Return the rows that pass every filter, ascending, and `float64[rows]`: their totals, as `decide` has them.

        Kept columns answer as far as they go: after a pod came to a node or left it, one row is evaluated again.
        """
        cache = self._kept.of(frame, profile.whole)
        ok = _passes(frame, profile, cache)
        rows = cache.passing() if ok is None else ok.nonzero()[0]
        return rows, _totals(frame.at(rows), cache, all_passing=ok is None) if len(rows) else np.zeros(0)

    def take_in_changes(self, cluster: Cluster) -> None:
        """Let searches for victims that are under way forget what they found on nodes that have changed."""
        self._victims.take_in_changes(cluster.nodes)

    def pass_over_changes(self) -> None:
        """Let these keep what they found: nodes are again as they were when they were last asked about them."""
        self._victims.pass_over_changes()

    def devices(self, frame: Frame, profile: Profile, row: int) -> Mapping[str, Chosen]:
        """Return which devices of a node the pod gets, by resource."""
        if not frame.cluster.devices.tables:
            return _NO_DEVICES
        return choose_devices(frame, row, profile.devices, seed=self._seed)

    def _no_fit(
        self,
        frame: Frame,
        profile: Profile,
        *,
        cache: TemplateCache,
        preempts: bool,
        verdict: ExtenderVerdict | None,
    ) -> Generator[int, None, Decision]:
        preempts = preempts and profile.preempts
        standing = standing_rejections(frame, profile, cache, caches=self._kept) if verdict is None else None
        if standing is not None:
            prepared, diagnosis = standing.prepared, standing.diagnosis()
        else:
            prepared = pre_filter(frame, profile.filters)
            diagnosis = diagnose(frame, prepared)
        if verdict is not None:
            diagnosis = with_rejections(diagnosis, EXTENDER, verdict.rejections(frame.cluster.nodes))
        if diagnosis.errors:
            error, total = diagnosis.errors[0], frame.cluster.nodes.size
            return Decision(frame.pod, None, total=total, diagnosis=diagnosis, message=error, error=error)
        reclaimed = self._reclaim(frame, profile) if preempts and not frame.groups else NOTHING_RECLAIMED
        if reclaimed.victims or reclaimed.waits:
            rejected = Decision(frame.pod, None, total=frame.cluster.nodes.size, diagnosis=diagnosis)
            message = rejection_message(diagnosis, profile, after=reclaimed.message)
            return _evicting(rejected, reclaimed, message)
        preemption = None
        if preempts:
            rejection = RejectedPod(frame, profile, prepared, diagnosis, standing)
            self.pass_over_changes()  # those of `reclaim`, which were undone
            preemption = yield from self._preemption.post_filter(rejection)
        after = (preemption.message if preemption is not None else "", reclaimed.message)
        return Decision(
            frame.pod,
            None,
            total=frame.cluster.nodes.size,
            diagnosis=diagnosis,
            preemption=preemption,
            reclaim=reclaimed,
            message=rejection_message(diagnosis, profile, after=" ".join(filter(None, after))),
            rejected_by=frozenset((RECLAIM,)) if reclaimed.look_later else frozenset(),
        )

    def reclaim_for(self, frame: Frame, profile: Profile, rejected: Decision) -> Decision:
        """Return a rejection of one more member of a gang that has its size, with what `reclaim` does for it."""
        reclaimed = self._reclaim(frame, profile)
        message = " ".join(filter(None, (rejected.message, reclaimed.message)))
        if reclaimed.victims or reclaimed.waits:
            return _evicting(rejected, reclaimed, message)
        rejected_by = rejected.rejected_by | {RECLAIM} if reclaimed.look_later else rejected.rejected_by
        return msgspec.structs.replace(rejected, reclaim=reclaimed, message=message, rejected_by=rejected_by)

    def _reclaim(self, frame: Frame, profile: Profile) -> Reclaimed:
        """Return which pods of other queues to evict for a pod."""
        rules = profile.queues
        if rules is None or not rules.reclaims:
            return NOTHING_RECLAIMED
        key = frame.template, profile
        # one that is nominated may wait for pods that end, whatever came of others that are alike
        if not frame.cluster.is_nominated(frame.pod.uid) and self._reclaims_paused.pauses(key, frame.steady):
            return Reclaimed(why=NotReclaimed.NO_VICTIMS, look_later=True)

        def places() -> dict[str, str] | None:
            host = self.decide(frame, profile, preempts=False).host if len(self.feasible(frame, profile)) else None
            return {frame.pod.uid: host} if host is not None else None

        own = frozenset(each.group for each in rules.gangs_of(frame)) | frozenset(frame.groups)
        alone = OneNode(_static_rows(frame, profile), partial(self.ranked, frame, profile))
        found = reclaim(frame, rules, (frame.pod,), places, own=own, alone=alone)
        if found.found_nobody:
            self._reclaims_paused.pause(key, frame.steady, seconds=RETRY_SECONDS)
        return found


def _static_rows(frame: Frame, profile: Profile) -> IntArray:
    """Return the rows that no static fact rejects, ascending."""
    prepared = pre_filter(frame, [plugin for plugin in profile.filters if plugin.scope is Scope.TEMPLATE])
    passing = np.full(frame.size, prepared.rejection is None, np.bool_)
    if prepared.nodes is not None:
        passing &= named_nodes(frame, prepared.nodes)
    for plugin, state in prepared.active:
        passing &= plugin.filter(frame, state)
    return passing.nonzero()[0]


def _evicting(rejected: Decision, reclaimed: Reclaimed, message: str) -> Decision:
    """Return the rejection of a pod for which others are evicted, or end already."""
    evictions = Preemption(
        reclaimed.places.get(rejected.pod.uid),
        reclaimed.victims,
        keeps_nomination=reclaimed.waits,
        reclaims=bool(reclaimed.victims),
        sharing=reclaimed.sharing,
    )
    return msgspec.structs.replace(rejected, preemption=evictions, reclaim=reclaimed, message=message)


def _searching_devices(frame: Frame, steps: Generator[int, None, Decision]) -> Generator[int, None, Decision]:
    """Take the steps of a decision for a pod with claims: its search for devices is one attempt."""
    most = most_steps(frame.cluster.nodes.size)
    with search_work(frame.cluster.store).attempt(frame.pod.uid, most=most):
        return (yield from steps)


def _only(frame: Frame, cache: TemplateCache, passing: BoolArray | None, count: int) -> int | None:
    """Return the row that is taken without scoring, as in kube-scheduler; None: nodes are scored.

    That is a nominated node that still fits, or the only node that does.

    Args:
        frame: of the pod.
        cache: of its template.
        passing: `bool[nodes]`: which pass every filter; None: those that pass the kept ones.
        count: how many these are.
    """
    nominated = frame.cluster.nodes.rows.get(frame.pod.nominated_node) if frame.pod.nominated_node else None
    if count > 1 and nominated is None:
        return None
    ok = cache.ok if passing is None else passing
    if nominated is not None and ok[nominated]:
        return nominated
    return int(ok.argmax()) if count == 1 else None


def _passes(frame: Frame, profile: Profile, cache: TemplateCache) -> BoolArray | None:
    """Return `bool[nodes]`: which pass every filter; None: those that pass the kept ones.

    None passes where an error on one of them ends the attempt.
    """
    if cache.rejected:
        return np.zeros(frame.size, np.bool_)
    plugins = cache.volume_filters if frame.pod.volumes else cache.live_filters
    live = pre_filter(frame, (*profile.narrowing, *plugins) if profile.narrowing else plugins)
    if live.rejection is not None:
        return np.zeros(frame.size, np.bool_)
    ok: BoolArray | None = None
    if live.nodes is not None:
        ok = cache.ok & named_nodes(frame, live.nodes)
    for plugin, state in live.active:
        before = cache.ok if ok is None else ok
        if isinstance(plugin, DynamicResources):
            found = _with_devices(frame, profile, cache, plugin, state, before)
            if found is None:
                return np.zeros(frame.size, np.bool_)
            passing = found
        else:
            passing = before & plugin.filter(frame, state)
        if np.count_nonzero(passing) != np.count_nonzero(before):
            ok = passing
    if frame.cluster.nominated:
        before = cache.ok if ok is None else ok
        taken = taken_by_nominated(frame, (*cache.row_filters, *live.active), before)
        if taken:
            ok = before.copy()
            ok[taken] = False
    return ok


def _with_devices(
    frame: Frame, profile: Profile, cache: TemplateCache, plugin: DynamicResources, state: Any, before: BoolArray
) -> BoolArray | None:
    """Return which of the nodes `before`, `bool[nodes]`, have the devices; None: an error ends the attempt.

    Devices are searched where nothing else rejects the pod. What comes after this plugin rejects nodes where it is
    asked, too: an error there ends the attempt as well.
    """
    if before.all():
        return None if plugin.errors(frame, state) is not None else plugin.filter(frame, state)
    rows = before.nonzero()[0]
    passing: BoolArray = np.zeros(len(before), np.bool_)
    if len(rows):
        some = frame.at(rows)
        if plugin.errors(some, state) is not None:
            return None
        passing[rows] = plugin.filter(some, state)
    place = profile.filters.index(plugin)
    after = {id(each) for each in profile.filters[place + 1 :]}
    if any(id(each) in after for each in cache.kept_filters):
        others = (~before).nonzero()[0]
        others = others[plugin.may_have_errors(frame.at(others), state)]
        others = others[_passes_before(frame.at(others), profile, plugin)]
        if len(others) and plugin.errors(frame.at(others), state) is not None:
            return None
    return passing


def _passes_before(some: Frame, profile: Profile, plugin: FilterPlugin) -> BoolArray:
    """Return `bool[rows]`: which pass the filters before a plugin."""
    if not some.size:
        return np.zeros(0, np.bool_)
    prepared = pre_filter(some, profile.filters[: profile.filters.index(plugin)])
    passing = np.ones(some.size, np.bool_)
    if prepared.nodes is not None:
        passing = named_nodes(some, prepared.nodes)[some.rows]
    for earlier, state in prepared.active:
        passing = passing & earlier.filter(some, state)
    return passing


def _totals(chosen: Frame, cache: TemplateCache, *, all_passing: bool = False) -> FloatArray:
    """Return `float64[rows]`: the weighted sum of all scores, for a frame with the feasible rows.

    all_passing: whether these are all rows that pass the kept filters.
    """
    rows = chosen.rows
    totals: FloatArray = cache.base(rows) + 0.0
    for kept in cache.normalizing:
        if kept.constant is not None:
            totals += kept.constant
        else:
            totals += kept.plugin.normalize(chosen, kept.state, kept.raw[rows]) * kept.weight
    cache.live_scores_added = False
    for score in cache.volume_scores if chosen.pod.volumes else cache.live_scores:
        plugin, prepared = score.plugin, score.plugin.pre_score(chosen)
        if isinstance(prepared, Ready) and prepared.adds:
            cache.live_scores_added |= not may_be_kept(plugin)
            if all_passing and plugin.scope is Scope.FEASIBLE:
                raw = cache.feasible_score(plugin, chosen, prepared)
            else:
                raw = plugin.score(chosen, prepared.state)
            totals += (plugin.normalize(chosen, prepared.state, raw) if plugin.normalizes else raw) * score.weight
    return totals


def _compared_totals(
    frame: Frame, cache: TemplateCache, passing: BoolArray | None, kernels: Kernels
) -> tuple[FloatArray, float, int] | None:
    """Return `float64[nodes]`: what `_totals` returns for the nodes that pass, -inf for others, by a compiled loop.

    Also return the highest total, and how many nodes have it. None: it takes more than one score that compares domains.

    Args:
        frame: of the pod.
        cache: of its template.
        passing: `bool[nodes]`: which pass; None: those that pass the kept filters.
        kernels: the loops.
    """
    if cache.is_in_full or cache.is_bounded_in_full:
        return None
    scores = cache.volume_scores if frame.pod.volumes else cache.live_scores
    comparing = next((score for score in scores if isinstance(score.plugin, ComparesDomains)), None)
    if comparing is None or not isinstance(comparing.plugin, ComparesDomains):
        return None
    ready = comparing.plugin.pre_score(frame)
    if not isinstance(ready, Ready) or not ready.adds:
        return None
    for score in scores:
        if score is not comparing:
            prepared = score.plugin.pre_score(frame)
            if isinstance(prepared, Ready) and prepared.adds:
                return None
    by_domain = comparing.plugin.by_domain(ready.state)
    constants = [kept.constant for kept in cache.normalizing if kept.constant is not None]
    if by_domain is None or len(constants) != len(cache.normalizing):
        return None
    cache.live_scores_added = True
    kept_totals = cache.maxima.totals(ALL_ROWS)
    if passing is not None:
        kept_totals = np.where(passing, kept_totals, -np.inf)
    totals: FloatArray = np.empty(len(kept_totals))
    highest, ties = kernels.compare_domains(
        kept_totals, np.array(constants, np.float64), *by_domain, comparing.weight, totals
    )
    return totals, highest, ties


def _whole_totals(frame: Frame, cache: TemplateCache, passing: BoolArray | None) -> FloatArray | None:
    """Return `float64[nodes]`: what `_totals` returns for the nodes that pass, -inf for others.

    None: it takes these nodes to know that.

    Args:
        frame: of the pod.
        cache: of its template.
        passing: `bool[nodes]`: which pass; None: those that pass the kept filters.
    """
    if passing is None:
        return _totals(frame.at(ALL_ROWS), cache, all_passing=True) if cache.count == frame.cluster.nodes.size else None
    if cache.is_in_full or cache.is_bounded_in_full or cache.live_scores_added:
        return None
    for score in cache.volume_scores if frame.pod.volumes else cache.live_scores:
        prepared = score.plugin.pre_score(frame)
        if isinstance(prepared, Ready) and prepared.adds:
            return None
    totals: FloatArray = np.where(passing, cache.maxima.totals(ALL_ROWS), -np.inf)
    for kept in cache.normalizing:
        if kept.constant is None:
            return None
        totals += kept.constant
    return totals


def _keep_freed_memory() -> None:
    """Let the allocator keep the memory of freed columns.

    glibc gives 128 KB and more back to the kernel as soon as they are free, and columns come and go: with 20,000
    nodes the page faults then cost twice what the arithmetic does. Having seen a larger block freed once, it keeps
    up to twice as much (`mallopt(3)`, M_MMAP_THRESHOLD). Other allocators ignore it.
    """
    np.empty(_LARGEST_BYTES, np.uint8)
