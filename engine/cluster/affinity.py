"""Terms that point at other pods: what pod (anti-)affinity and spreading select, as comparable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cluster import objects
from engine.cluster.pods import PodTemplate
from engine.cluster.selectors import Selector, label_selector

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace name."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A set of pods: those in some namespaces that a selector matches; `selector` None matches nothing."""

    namespaces: frozenset[str]
    selector: Selector | None
    namespace_selector: Selector | None = None
    """Further namespaces, by their labels; the empty selector means all."""

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        if self.selector is None or not self.selector.matches(template.labels):
            return False
        return self.covers(template.namespace, namespaces)

    def covers(self, namespace: str, namespaces: NamespaceLabels) -> bool:
        """Return whether the term looks into this namespace."""
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and (chosen.empty or chosen.matches(namespaces.get(namespace, {})))


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One term of pod affinity or anti-affinity, with its weight (0 for required terms)."""

    pods: PodTerm
    topology_key: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """The pod (anti-)affinity of one template."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    """Preferred affinity with weight w, preferred anti-affinity with weight -w."""

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred)


NO_TERMS = AffinityTerms()


def affinity_terms(template: PodTemplate) -> AffinityTerms:
    """Return the template's pod affinity, parsed once.

    Raises:
        SelectorError: a selector is not valid.
    """
    terms: AffinityTerms | None = template.memo.get("affinity-terms")
    if terms is None:
        terms = template.memo["affinity-terms"] = _parse(template)
    return terms


def _parse(template: PodTemplate) -> AffinityTerms:
    affinity = template.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity

    def required(part: objects.PodAffinity | None) -> tuple[AffinityTerm, ...]:
        return tuple(_term(template, t, 0) for t in (part.required or ())) if part else ()

    def preferred(part: objects.PodAffinity | None, sign: int) -> tuple[AffinityTerm, ...]:
        if part is None:
            return ()
        return tuple(
            _term(template, t.pod_affinity_term, sign * t.weight)
            for t in part.preferred or ()
            if t.pod_affinity_term is not None
        )

    return AffinityTerms(required(near), required(apart), preferred(near, 1) + preferred(apart, -1))


def _term(template: PodTemplate, term: objects.PodAffinityTerm, weight: int) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    pods = PodTerm(
        namespaces=frozenset((template.namespace,) if own else term.namespaces or ()),
        selector=label_selector(term.label_selector),
        namespace_selector=label_selector(term.namespace_selector),
    )
    return AffinityTerm(pods, term.topology_key, weight)
