"""Terms that point at other pods: what pod (anti-)affinity and spreading select, as comparable values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.cluster import objects
from engine.cluster.label_errors import aggregate
from engine.cluster.pods import PodTemplate
from engine.cluster.selectors import Selector, SelectorError, label_selector

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace name."""

_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A set of pods: those in some namespaces that a selector matches; `selector` None matches nothing."""

    namespaces: frozenset[str]
    selector: Selector | None
    namespace_selector: Selector | None = None
    """Further namespaces, by their labels; the empty selector means all."""

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return self.namespace_selector is not None and not self.namespace_selector.empty

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


@dataclass(frozen=True, slots=True)
class IncomingTerms:
    """The pods that match every one of some terms of an incoming pod, by kube-scheduler's reading of them.

    kube-scheduler 1.36 resolves the `namespaceSelector` of an incoming pod's term to the namespaces that it
    matches, but then also asks it about the empty set of labels (`mergeAffinityTermNamespacesIfNotEmpty` takes
    the term by value, so that the selector is not cleared). Selectors made of NotIn and DoesNotExist therefore
    cover every namespace. The API's documentation means `PodTerm.matches`; we agree with what is deployed.
    """

    terms: tuple[PodTerm, ...]

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return any(term.reads_namespaces for term in self.terms)

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        if not self.terms:
            return False
        for term in self.terms:
            if term.selector is None:
                return False
            if not term.covers(template.namespace, namespaces):
                chosen = term.namespace_selector
                if chosen is None or not chosen.matches(_NO_LABELS):
                    return False
            if not term.selector.matches(template.labels):
                return False
        return True


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
    terms: AffinityTerms | None = template.memo.get("affinity-terms")
    if terms is None:
        terms = template.memo["affinity-terms"] = _parse(template)
    return terms


def carried_terms(template: PodTemplate) -> Mapping[CarriedTerm, int]:
    """Return the terms that a placed pod of this template weighs on others with, by position."""
    carried: Mapping[CarriedTerm, int] | None = template.memo.get("carried-terms")
    if carried is None:
        terms = affinity_terms(template)
        found = [
            *_merged("required", (AffinityTerm(t.pods, t.topology_key, 1) for t in terms.required)),
            *_merged("required_anti", (AffinityTerm(t.pods, t.topology_key, 1) for t in terms.required_anti)),
            *_merged("preferred", terms.preferred),
        ]
        carried = template.memo["carried-terms"] = {term: position for position, term in enumerate(found)}
    return carried


def _merged(kind: str, terms: Iterable[AffinityTerm]) -> list[CarriedTerm]:
    weights: dict[tuple[PodTerm, str], int] = {}
    for term in terms:
        key = term.pods, term.topology_key
        weights[key] = weights.get(key, 0) + term.weight
    return [CarriedTerm(kind, AffinityTerm(*key, weight)) for key, weight in weights.items()]


@dataclass(frozen=True, slots=True)
class Carriers:
    """The placed pods that carry a term."""

    carried: CarriedTerm

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        return False

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return self.carried in carried_terms(template)


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
