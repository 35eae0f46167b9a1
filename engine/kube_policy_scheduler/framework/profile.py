"""Which plugins serve a pod, in which order and with which weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.choice import Ties
from kube_policy_scheduler.framework.events import BACKFILL, BACKFILL_EVENTS, NARROWED, NARROWED_EVENTS, ClusterEvent
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.plugin import FilterPlugin, ScoresByDomain, Weighted
from kube_policy_scheduler.framework.quota import RECLAIM, QuotaRules


class PreemptionRule(msgspec.Struct, frozen=True, eq=False):
    """A policy's `preempt`: it narrows what Kubernetes allows, and never widens it."""

    text: str
    """As written, for messages."""
    allows: Callable[[Frame], bool]
    """Whether the pod may preempt."""
    spares: Callable[[Frame, PodInfo], bool] | None = None
    """Whether a running pod must not be evicted for this one; None: any pod may be."""
    events: frozenset[ClusterEvent] = frozenset()
    """Events after which the rule may allow a preemption that it rejected before."""


class DomainOrder(Protocol):
    """A policy's `domains by`; compared by identity."""

    @property
    def text(self) -> str:
        """Return it as written."""

    @property
    def rule(self) -> str | None:
        """Return the word of a `DomainRule`; None for values of nodes."""

    @property
    def keys(self) -> tuple[Callable[[Frame], FloatArray], ...]:
        """Return what returns `float64[rows]`, NaN where missing: the smallest mean over a domain comes first."""


class Profile(msgspec.Struct, frozen=True, eq=False):
    """The plugins of one policy (or of plain Kubernetes); compared by identity."""

    name: str
    filters: tuple[FilterPlugin, ...] = ()
    """In order; the first rejection of a node is reported."""
    scores: tuple[Weighted, ...] = ()
    preempts: bool = True
    """Whether PostFilter runs."""
    preemption: PreemptionRule | None = None
    """Which pods may preempt and be evicted, in addition to Kubernetes' own rules."""
    clauses: Mapping[str, str | None] = {}
    """The clauses of a policy by name, each with its message if the author of the policy wrote it."""
    ties: Ties = Ties.HASH
    """Which of several best nodes is taken."""
    devices: DeviceOrder | None = None
    """Which of several devices of the node the pod gets; None: the default."""
    queues: QuotaRules | None = None
    """The queues, which a filter applies; None: there are none."""
    gangs_of: Callable[[Frame], Sequence[GangRequirement]] | None = None
    """The gangs of a running pod by the `gang` clauses of all policies, evicted as a whole; None: there are none."""
    domains: DomainOrder | None = None
    """Which of several domains with room for a gang it gets; None: the fullest."""
    by_template: bool = True
    """Whether pods of one template get the same results at one moment, except for their volumes and nominations."""
    narrowing: tuple[FilterPlugin, ...] = ()
    """Its first filters, if it is `whole` on fewer nodes."""
    wider: Profile | None = None
    """The same profile without `narrowing`; see `whole`."""
    # what follows from the others:
    wakes: Mapping[str, frozenset[ClusterEvent]] = {}
    """By filter name: the events that may help a pod that it rejected; if absent, any event."""
    kept_filters: tuple[FilterPlugin, ...] = ()
    """The filters whose results are kept."""
    kept_scores: tuple[Weighted, ...] = ()
    """The scores whose results are kept."""
    live_scores: tuple[Weighted, ...] = ()
    """The scores that run for each pod. Those by domain are last: the order decides how sums are rounded."""

    _live_filters: tuple[FilterPlugin, ...] = ()

    def __post_init__(self) -> None:
        wakes = {NARROWED: NARROWED_EVENTS, BACKFILL: BACKFILL_EVENTS}
        for plugin in self.filters:
            wakes[plugin.name] = wakes.get(plugin.name, frozenset()) | (plugin.events or frozenset())
        for plugin in self.filters:
            if plugin.events is None:
                wakes.pop(plugin.name, None)
        if self.queues is not None:
            wakes[RECLAIM] = frozenset({ClusterEvent.CLOCK})
        if self.preemption is not None and self.preempts:
            wakes = {name: events | self.preemption.events for name, events in wakes.items()}
        live_scores = [score for score in self.scores if score.plugin.scope.is_live]
        live_scores.sort(key=lambda score: isinstance(score.plugin, ScoresByDomain))
        derived = {
            "wakes": wakes,
            "kept_filters": tuple(plugin for plugin in self.filters if not plugin.scope.is_live),
            "kept_scores": tuple(score for score in self.scores if not score.plugin.scope.is_live),
            "live_scores": tuple(live_scores),
            "_live_filters": tuple(plugin for plugin in self.filters if plugin.scope.is_live),
        }
        for name, value in derived.items():
            msgspec.structs.force_setattr(self, name, value)

    def live_filters_of(self, template: PodTemplate) -> tuple[tuple[FilterPlugin, ...], tuple[FilterPlugin, ...]]:
        """Return the live filters that may apply to pods of a template without volumes, and with volumes.

        See `FilterPlugin.may_filter`.
        """
        without: list[FilterPlugin] = []
        with_volumes: list[FilterPlugin] = []
        for plugin in self._live_filters:
            if plugin.may_filter(template):
                without.append(plugin)
                with_volumes.append(plugin)
            elif plugin.is_about_volumes:
                with_volumes.append(plugin)
        return tuple(without), tuple(with_volumes)

    def live_scores_of(self, template: PodTemplate) -> tuple[tuple[Weighted, ...], tuple[Weighted, ...]]:
        """Return the live scores that may apply to pods of a template without volumes, and with volumes."""
        without: list[Weighted] = []
        with_volumes: list[Weighted] = []
        for score in self.live_scores:
            if score.plugin.may_score(template):
                without.append(score)
                with_volumes.append(score)
            elif score.plugin.is_about_volumes:
                with_volumes.append(score)
        return tuple(without), tuple(with_volumes)

    @property
    def whole(self) -> Profile:
        """Return the profile for all nodes: what is cached for its templates serves those narrowed from it too."""
        return self if self.wider is None else self.wider

    def ordered(self, order: DeviceOrder) -> Profile:
        """Return the same profile with another order of devices."""
        return msgspec.structs.replace(self, devices=order, wider=self.whole)

    def narrowed(self, *filters: FilterPlugin, preempts: bool = True) -> Profile:
        """Return the same profile for fewer nodes.

        Args:
            filters: asked first, and evaluated each time; for each node they depend on facts of that node alone.
            preempts: False: PostFilter does not run.
        """
        return msgspec.structs.replace(
            self,
            filters=(*filters, *self.filters),
            narrowing=(*filters, *self.narrowing),
            wider=self.whole,
            preempts=self.preempts and preempts,
        )
