"""Terms that point at other pods: what pod (anti-)affinity and spreading select, as comparable values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import aggregate
from kube_policy_scheduler.cluster.pod_sets import ANY, Anchor, Label, NamespaceLabels, PlainSet, Weighing
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import Selector, SelectorError, label_selector

_NO_LABELS: Mapping[str, str] = {}
_VALUES_A_TERM = 16
"""Values that take about as much memory as the rest of a condition."""
_MOST_ANCHORS = 64
"""Pairs of a namespace and a label that a term is found by; with more it is found by the one or the other alone."""


@dataclass(frozen=True, slots=True)
class PodTerm(PlainSet):
    """A set of pods: those in some namespaces that a selector matches; `selector` None matches nothing."""

    namespaces: frozenset[str]
    selector: Selector | None
    namespace_selector: Selector | None = None
    """Further namespaces, by their labels; the empty selector means all."""

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return self.namespace_selector is not None and not self.namespace_selector.empty

    @property
    def terms(self) -> int:
        """Return how many conditions it counts as: long lists of values or namespaces count for more."""
        values = sum(len(e.values) for e in self.selector.expressions) if self.selector is not None else 0
        return 1 + (values + len(self.namespaces)) // _VALUES_A_TERM

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        if self.selector is None:
            return ()
        spaces: Collection[str | None] = self.namespaces if self.namespace_selector is None else (None,)
        chosen = [e for e in self.selector.expressions if e.operator == "In"]
        if not chosen:
            return [Label(space) for space in spaces]
        least = min(chosen, key=lambda expression: len(expression.values))
        if len(spaces) * len(least.values) <= _MOST_ANCHORS:
            return [Label(space, least.key, value) for space in spaces for value in least.values]
        if len(spaces) > 1:
            return [Label(space) for space in spaces]
        return [Label(None, least.key, value) for value in least.values]

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        if self.selector is None or not self.covers(template.namespace, namespaces):
            return False
        return self.selector.matches(template.labels)

    def covers(self, namespace: str, namespaces: NamespaceLabels) -> bool:
        """Return whether the term looks into this namespace; an unknown one counts as one without labels."""
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and (chosen.empty or chosen.matches(namespaces.get(namespace, _NO_LABELS)))


def _matches_incoming(term: PodTerm, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
    """Return whether pods of a template match a term of an incoming pod, by kube-scheduler's reading of it.

    kube-scheduler 1.36 resolves the `namespaceSelector` of an incoming pod's term to the namespaces that it
    matches, but then also matches the empty set of labels (`mergeAffinityTermNamespacesIfNotEmpty` takes
    the term by value, so that the selector is not cleared). Selectors made of NotIn and DoesNotExist therefore
    cover every namespace. The API's documentation means `PodTerm.matches`; we agree with what is deployed.
    """
    if term.selector is None:
        return False
    if not term.covers(template.namespace, namespaces):
        chosen = term.namespace_selector
        if chosen is None or not chosen.matches(_NO_LABELS):
            return False
    return term.selector.matches(template.labels)


@dataclass(frozen=True, slots=True)
class IncomingTerms(PlainSet):
    """The pods that match every one of some terms of an incoming pod."""

    all_of: tuple[PodTerm, ...]

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return any(term.reads_namespaces for term in self.all_of)

    @property
    def terms(self) -> int:
        """Return how many conditions there are."""
        return sum(term.terms for term in self.all_of)

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return self.all_of[0].anchors() if self.all_of else ()

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return bool(self.all_of) and all(_matches_incoming(term, template, namespaces) for term in self.all_of)


class WeightedTerms(msgspec.Struct, frozen=True):
    """The pods that match any of some terms of an incoming pod; one counts for the weights of all that it matches."""

    any_of: tuple[tuple[PodTerm, int], ...]
    weighing: ClassVar[Weighing] = Weighing.WHOLE

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return any(term.reads_namespaces for term, _ in self.any_of)

    @property
    def terms(self) -> int:
        """Return how many conditions there are."""
        return sum(term.terms for term, _ in self.any_of)

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        found = {anchor for term, _ in self.any_of for anchor in term.anchors()}
        return (ANY,) if ANY in found else found

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> int | None:
        """Return the weights of the terms that pods of the template match, added up; None if they match none."""
        found = [weight for term, weight in self.any_of if _matches_incoming(term, template, namespaces)]
        return sum(found) if found else None


class AffinityTerm(msgspec.Struct, frozen=True):
    """One term of pod affinity or anti-affinity, with its weight (0 for required terms)."""

    pods: PodTerm
    topology_key: str
    weight: int = 0


class AffinityTerms(msgspec.Struct, frozen=True):
    """The pod (anti-)affinity of one template."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    """Preferred affinity with weight w, preferred anti-affinity with weight -w."""
    problem: str = ""
    """What is wrong with the terms that are left out, in the API machinery's words."""

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred)


NO_TERMS = AffinityTerms()


class CarriedTerm(NamedTuple):
    """An affinity term of pods that are already placed, which weighs on pods to come."""

    kind: str
    """required, required_anti or preferred"""
    term: AffinityTerm
    """With the weights of equal terms added up; for required terms, how often the template has it."""


def affinity_terms(template: PodTemplate) -> AffinityTerms:
    """Return the template's pod affinity, parsed once.

    A list of terms that does not parse is left out as a whole, as kube-scheduler does with placed pods; an
    incoming pod with a `problem` is refused.
    """
    if template.spec.affinity is None:
        return NO_TERMS
    terms: AffinityTerms | None = template.memo.get("affinity-terms")
    if terms is None:
        terms = template.memo["affinity-terms"] = _parse(template)
    return terms


def carried_terms(template: PodTemplate) -> Sequence[CarriedTerm]:
    """Return the terms that a placed pod of this template weighs on others with, each once."""
    carried: Sequence[CarriedTerm] | None = template.memo.get("carried-terms")
    if carried is None:
        terms = affinity_terms(template)
        if terms is NO_TERMS:
            return ()
        carried = template.memo["carried-terms"] = [
            *_merged("required", (AffinityTerm(t.pods, t.topology_key, 1) for t in terms.required)),
            *_merged("required_anti", (AffinityTerm(t.pods, t.topology_key, 1) for t in terms.required_anti)),
            *_merged("preferred", terms.preferred),
        ]
    return carried


def _merged(kind: str, terms: Iterable[AffinityTerm]) -> list[CarriedTerm]:
    weights: dict[tuple[PodTerm, str], int] = {}
    for term in terms:
        key = term.pods, term.topology_key
        weights[key] = weights.get(key, 0) + term.weight
    return [CarriedTerm(kind, AffinityTerm(*key, weight)) for key, weight in weights.items()]


def _parse(template: PodTemplate) -> AffinityTerms:
    affinity = template.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    problems: list[str] = []

    def attempt(name: str, parse: Callable[[], tuple[AffinityTerm, ...]]) -> tuple[AffinityTerm, ...]:
        try:
            return parse()
        except SelectorError as error:
            problems.append(f"{name}: {error}")
            return ()

    def required(part: objects.PodAffinity | None) -> tuple[AffinityTerm, ...]:
        return tuple(_term(template, t, 0) for t in (part.required or ())) if part else ()

    def preferred(part: objects.PodAffinity | None, sign: int) -> tuple[AffinityTerm, ...]:
        if part is None:
            return ()
        return tuple(
            _term(template, t.pod_affinity_term or objects.PodAffinityTerm(), sign * t.weight)
            for t in part.preferred or ()
        )

    return AffinityTerms(
        attempt("requiredAffinityTerms", lambda: required(near)),
        attempt("requiredAntiAffinityTerms", lambda: required(apart)),
        attempt("preferredAffinityTerms", lambda: preferred(near, 1))
        + attempt("preferredAntiAffinityTerms", lambda: preferred(apart, -1)),
        aggregate(problems) or "",
    )


def _term(template: PodTemplate, term: objects.PodAffinityTerm, weight: int) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    pods = PodTerm(
        namespaces=frozenset((template.namespace,) if own else term.namespaces or ()),
        selector=label_selector(term.label_selector),
        namespace_selector=label_selector(term.namespace_selector),
    )
    return AffinityTerm(pods, term.topology_key, weight)
