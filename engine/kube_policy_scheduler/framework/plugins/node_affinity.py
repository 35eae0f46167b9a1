"""NodeAffinity: nodeSelector and node affinity, required and preferred."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.node_selectors import (
    NAME_FIELD,
    has_many,
    preferred_nodes,
    preferred_score,
    required_mask,
    required_nodes,
)
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready, ScoresByHighest, Skip
from kube_policy_scheduler.framework.plugins.base import Filter, Score, normalized, scaled
from kube_policy_scheduler.framework.status import Code, Status

CONFLICT = "pod affinity terms conflict"


class NodeAffinity(Filter, Score, ScoresByHighest):
    """Rejects nodes that the pod's nodeSelector or required node affinity excludes; prefers those it prefers."""

    name = "NodeAffinity"
    default = Default(4, weight=2)
    reads = Reads.SPEC
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL})
    reason = "node(s) didn't match Pod's node affinity/selector"
    normalizes = True

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods that require nothing; narrow the nodes if every term names some."""
        template = frame.pod.template
        known: PreFilterResult | None = template.shape.get((self.name, "required"))
        if known is None:
            known = template.shape[self.name, "required"] = self._pre_filter(template)
        return known

    def _pre_filter(self, template: PodTemplate) -> PreFilterResult:
        required = _required(template.spec)
        if required is None:
            return SKIP if template.spec.node_selector is None else Ready(key=_key(template))
        names = _named(required.node_selector_terms or [])
        if names is not None and not names:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (CONFLICT,))
        key = _key(template)
        return Ready(nodes=names, key=None if key is None else (key, names))

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return required_mask(frame.template, frame.cluster.nodes, frame.rows)

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Skip pods without preferred terms; a preferred term that does not parse is ignored.

        kube-scheduler ends the attempt on such a term, but the API server rejects it.
        """
        template = frame.pod.template
        affinity = template.spec.affinity
        if affinity is None or affinity.node_affinity is None or affinity.node_affinity.preferred is None:
            return SKIP
        known: Ready | None = template.shape.get((self.name, "preferred"))
        if known is None:
            terms = preferred_nodes(template)
            known = template.shape[self.name, "preferred"] = Ready(terms, key=None if has_many(template) else terms)
        return known

    def score(self, frame: Frame, state: Any) -> IntArray:
        """Return `int64[rows]`: the sum of the weights of the preferred terms that a node meets."""
        return preferred_score(frame.template, frame.cluster.nodes, frame.rows)

    def score_key_now(self, frame: Frame, ready: Ready) -> Hashable | None:
        """Return whether all nodes get the highest score or none does; None if nodes differ, or may."""
        nodes, is_preferred = frame.cluster.nodes, False
        if has_many(frame.template):
            return None
        for preferred in ready.state:
            everywhere = preferred.term.everywhere(nodes)
            if everywhere is None:
                return None
            is_preferred = is_preferred or everywhere
        return is_preferred

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray:
        """Return 100 for the nodes with the highest sum."""
        return normalized(raw)

    def scaled(self, raw: IntArray, *, highest: int) -> IntArray:
        """Return the same for some nodes."""
        return scaled(raw, highest=highest, reverse=False)


def _key(template: PodTemplate) -> Hashable | None:
    """Return what templates with the same required nodes share; None: very many requirements are not compared."""
    return None if has_many(template) else required_nodes(template)


def _required(spec: objects.PodSpec) -> objects.NodeSelector | None:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required


def _named(terms: list[objects.NodeSelectorTerm]) -> frozenset[str] | None:
    """Return the names of the only nodes that the terms can match, None if one of them names none."""
    union: set[str] = set()
    for term in terms:
        sets = [set(r.values or ()) for r in term.match_fields or () if r.key == NAME_FIELD and r.operator == "In"]
        if not sets:
            return None
        union |= set.intersection(*sets)
    return frozenset(union) if terms else None
