"""Terms that point at other pods: what pod (anti-)affinity and spreading select, as comparable values."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import aggregate
from kube_policy_scheduler.cluster.pod_sets import ANY, Anchor, Label, NamespaceLabels, PlainSet, Weighing, labels_of
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import Selector, SelectorError, label_selector
from kube_policy_scheduler.cluster.steps import now

MANY = 256
"""With so many terms in one pod, these are read, and compared with templates, in steps: 1 to 3 ms."""
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
    _hash: int = field(init=False, compare=False, repr=False)
    """Kept: a pod may have thousands of terms, of which sets are made."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.namespaces, self.selector, self.namespace_selector)))

    def __hash__(self) -> int:
        return self._hash

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


class _TermsOfAPod:
    """What sets of pods have in common that are made of terms of an incoming pod: there may be tens of thousands."""

    __slots__ = ("_hash", "_key", "reads_namespaces", "terms")

    def __init__(self, key: Sequence[Any], pods: Sequence[PodTerm]) -> None:
        """key: what makes it equal to others. pods: the sets of its terms."""
        self._key, self._hash = key, hash(key)
        self.reads_namespaces = any(term.reads_namespaces for term in pods)
        """Whether membership depends on the labels of namespaces."""
        self.terms = sum([term.terms for term in pods])
        """How many conditions there are."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is type(self) and self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._key})"

    @property
    def is_large(self) -> bool:
        """Return whether there are so many terms that a template is compared with them in steps."""
        return len(self._key) >= MANY


class IncomingTerms(_TermsOfAPod, PlainSet):
    """The pods that match every one of some terms of an incoming pod."""

    __slots__ = ("all_of",)

    def __init__(self, all_of: tuple[PodTerm, ...]) -> None:
        super().__init__(all_of, all_of)
        self.all_of = all_of

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return self.all_of[0].anchors() if self.all_of else ()

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return bool(self.all_of) and all(_matches_incoming(term, template, namespaces) for term in self.all_of)

    def weighed(self, template: PodTemplate, namespaces: NamespaceLabels) -> Generator[None, None, int | None]:
        """Return what `weight` does, in steps."""
        for term in self.all_of:
            if not _matches_incoming(term, template, namespaces):
                return None
            yield
        return 1 if self.all_of else None


class WeightedTerms(_TermsOfAPod):
    """The pods that match any of some terms of an incoming pod; one counts for the weights of all that it matches."""

    __slots__ = ("_by_anchor", "any_of")
    weighing: ClassVar[Weighing] = Weighing.WHOLE

    def __init__(self, any_of: tuple[tuple[PodTerm, int], ...]) -> None:
        super().__init__(any_of, [term for term, _ in any_of])
        self.any_of = any_of
        self._by_anchor: dict[Anchor, list[tuple[PodTerm, int]]] | None = None

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        if self.is_large:
            return (ANY,)
        found = {anchor for term, _ in self.any_of for anchor in term.anchors()}
        return (ANY,) if ANY in found else found

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> int | None:
        """Return the weights of the terms that pods of the template match, added up; None if they match none."""
        found = [weight for term, weight in self.any_of if _matches_incoming(term, template, namespaces)]
        return sum(found) if found else None

    def weighed(self, template: PodTemplate, namespaces: NamespaceLabels) -> Generator[None, None, int | None]:
        """Return what `weight` does, in steps."""
        by_anchor = self._by_anchor
        if by_anchor is None:
            by_anchor = {}
            for term, weight in self.any_of:
                for anchor in term.anchors():
                    by_anchor.setdefault(anchor, []).append((term, weight))
                yield
            self._by_anchor = by_anchor
        total, is_in = 0, False
        for anchor in labels_of(template):
            for term, weight in by_anchor.get(anchor, ()):
                if _matches_incoming(term, template, namespaces):
                    total, is_in = total + weight, True
                yield
        return total if is_in else None


AskedSet: TypeAlias = tuple[IncomingTerms | WeightedTerms, int]
"""A set of pods, and what to multiply their numbers with."""


class AskedSets(NamedTuple):
    """The sets of pods that the affinity of an incoming pod asks for."""

    wanted: IncomingTerms
    """Those that it is to be near to."""
    near_by: tuple[str, ...]
    """By which topology keys."""
    apart: Mapping[str, AskedSet]
    """Those that it must not be near to, by topology key."""
    preferred: Mapping[str, AskedSet]
    """Those that it prefers to be near to, or not to be, by topology key."""

    large: tuple[tuple[Iterable[str], IncomingTerms | WeightedTerms], ...] = ()
    """The large sets, each with the topology keys that it matters by."""


NO_SETS = AskedSets(IncomingTerms(()), (), {}, {})


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


def _by_key(terms: Iterable[tuple[AffinityTerm, int]]) -> Generator[None, None, Mapping[str, AskedSet]]:
    """Return by topology key the set of pods that terms with these weights select, in steps.

    All terms of a key are one set of pods, counted by weight: a pod may have thousands of terms.
    """
    keys: dict[str, dict[PodTerm, int]] = {}
    for term, weight in terms:
        weights = keys.setdefault(term.topology_key, {})
        weights[term.pods] = weights.get(term.pods, 0) + weight
        yield
    found: dict[str, AskedSet] = {}
    for key, weights in keys.items():
        if len(weights) == 1:  # the same set for all templates with that term
            [(pods, weight)] = weights.items()
            found[key] = IncomingTerms((pods,)), weight
        else:
            found[key] = WeightedTerms(tuple(weights.items())), 1
        yield
    return found


Side: TypeAlias = tuple[str, str]
"""The kind of some terms and their topology key."""


class TemplateAffinity:
    """The pod (anti-)affinity of templates: read when it is asked for, at once or in steps.

    It does not lead back to a template: it lives as long as one that has it.
    """

    __slots__ = ("_by_anchor", "_carried", "_namespace", "_near", "key", "number", "read", "sets")

    def __init__(self, namespace: str, affinity: objects.Affinity) -> None:
        self._near = affinity.pod_affinity or objects.PodAffinity(), affinity.pod_anti_affinity or objects.PodAffinity()
        self._namespace = namespace
        self.number = sum([len(part.required or ()) + len(part.preferred or ()) for part in self._near])
        """How many terms are written."""
        written = (term for _, kind in _LISTS for term, _ in self._written(kind))
        at_home = namespace if any(map(_is_at_home, written)) else ""  # else it is the same in all namespaces
        key = _ENCODER.encode((at_home, self._near))
        self.key = key if len(key) <= _LONG_KEY else blake2b(key).digest()
        """Equal for those that say the same."""
        self.read: AffinityTerms | None = None
        """The terms; None: not read yet."""
        self._carried: list[CarriedTerm] | None = None
        self._by_anchor: dict[Anchor, list[tuple[PodTerm, Side, int]]] | None = None
        self.sets: AskedSets | None = None
        """None: not made yet."""

    @property
    def is_large(self) -> bool:
        """Return whether there are so many terms that they are read in steps."""
        return self.number >= MANY

    def terms(self) -> Generator[None, None, AffinityTerms]:
        """Return the terms, in steps.

        A list of terms that does not parse is left out as a whole, as kube-scheduler does with placed pods; an
        incoming pod with a `problem` is rejected.
        """
        if self.read is None:
            problems: list[str] = []
            lists = []
            for name, kind in _LISTS:
                found: list[AffinityTerm] = []
                try:
                    for term, weight in self._written(kind):
                        found.append(_term(self._namespace, term, weight))
                        yield
                except SelectorError as error:
                    problems.append(f"{name}: {error}")
                    found = []
                lists.append(tuple(found))
            near, apart, preferred, unwanted = lists
            self.read = self.read or AffinityTerms(near, apart, preferred + unwanted, aggregate(problems) or "")
        return self.read

    def _written(self, kind: str) -> Iterator[tuple[objects.PodAffinityTerm, int]]:
        near, apart = self._near
        match kind:
            case "required":
                yield from ((term, 0) for term in near.required or ())
            case "required_anti":
                yield from ((term, 0) for term in apart.required or ())
            case _:
                part, sign = (near, 1) if kind == "preferred" else (apart, -1)
                for each in part.preferred or ():
                    yield each.pod_affinity_term or objects.PodAffinityTerm(), sign * each.weight

    def asked(self) -> Generator[None, None, AskedSets]:
        """Return the sets of pods that an incoming pod asks for, in steps."""
        if self.sets is None:
            terms = yield from self.terms()
            wanted = dict.fromkeys(term.pods for term in terms.required)
            keys = dict.fromkeys(term.topology_key for term in terms.required)
            apart = yield from _by_key((term, 1) for term in terms.required_anti)
            preferred = yield from _by_key((term, term.weight) for term in terms.preferred)
            near = IncomingTerms(tuple(wanted))
            several = [
                (tuple(keys), near),
                *(((key,), pods) for by in (apart, preferred) for key, (pods, _) in by.items()),
            ]
            large = tuple(each for each in several if each[1].is_large)
            self.sets = self.sets or AskedSets(near, tuple(keys), apart, preferred, large)
        return self.sets

    def carried(self) -> Generator[None, None, Sequence[CarriedTerm]]:
        """Return the terms that a placed pod weighs on others with, each once; in steps."""
        if self._carried is None:
            terms = yield from self.terms()
            found: list[CarriedTerm] = []
            for kind, given, one in (
                ("required", terms.required, 1),
                ("required_anti", terms.required_anti, 1),
                ("preferred", terms.preferred, None),
            ):
                weights: dict[tuple[PodTerm, str], int] = {}
                for term in given:
                    key = term.pods, term.topology_key
                    weights[key] = weights.get(key, 0) + (term.weight if one is None else one)
                    yield
                for (pods, topology_key), weight in weights.items():
                    found.append(CarriedTerm(kind, AffinityTerm(pods, topology_key, weight)))
                    yield
            self._carried = self._carried or found
        return self._carried

    def anchored(self) -> Generator[None, None, Mapping[Anchor, Sequence[tuple[PodTerm, Side, int]]]]:
        """Return the carried terms with their weights, by what the pods that they select have in common; in steps."""
        if self._by_anchor is None:
            carried = yield from self.carried()
            found: dict[Anchor, list[tuple[PodTerm, Side, int]]] = {}
            sides: dict[Side, Side] = {}
            for kind, term in carried:
                side = sides.setdefault((kind, term.topology_key), (kind, term.topology_key))
                for anchor in term.pods.anchors():
                    found.setdefault(anchor, []).append((term.pods, side, term.weight))
                yield
            self._by_anchor = self._by_anchor or found
        return self._by_anchor

    def towards(
        self, template: PodTemplate, namespaces: NamespaceLabels
    ) -> Generator[None, None, Mapping[Side, int] | None]:
        """Return what a placed pod weighs on pods of a template with, by side; None: no term selects them. In steps."""
        by_anchor = yield from self.anchored()
        found: dict[Side, int] = {}
        for anchor in labels_of(template):
            for pods, side, weight in by_anchor.get(anchor, ()):
                if pods.matches(template, namespaces):
                    found[side] = found.get(side, 0) + weight
                yield
        return found or None


_LISTS = (
    ("requiredAffinityTerms", "required"),
    ("requiredAntiAffinityTerms", "required_anti"),
    ("preferredAffinityTerms", "preferred"),
    ("preferredAntiAffinityTerms", "unwanted"),
)
_ENCODER = msgspec.msgpack.Encoder()
_LONG_KEY = 4096
"""Longer ones are compared by a digest."""


def pod_affinity(template: PodTemplate) -> TemplateAffinity | None:
    """Return the template's pod affinity; None: it has none."""
    affinity = template.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return None
    known: TemplateAffinity | None = template.memo.get("pod-affinity")
    if known is None:
        known = template.memo["pod-affinity"] = TemplateAffinity(template.namespace, affinity)
    return known


def affinity_terms(template: PodTemplate) -> AffinityTerms:
    """Return the terms of the template's pod affinity; see `TemplateAffinity.terms`."""
    known = pod_affinity(template)
    return NO_TERMS if known is None else known.read or now(known.terms())


def asked_sets(template: PodTemplate) -> AskedSets:
    """Return the sets of pods that pods of a template ask for."""
    known = pod_affinity(template)
    return NO_SETS if known is None else known.sets or now(known.asked())


def _is_at_home(term: objects.PodAffinityTerm) -> bool:
    """Return whether a term is about pods of the namespace of the pod that has it."""
    return not term.namespaces and term.namespace_selector is None


def _term(namespace: str, term: objects.PodAffinityTerm, weight: int) -> AffinityTerm:
    pods = PodTerm(
        namespaces=frozenset((namespace,) if _is_at_home(term) else term.namespaces or ()),
        selector=label_selector(term.label_selector),
        namespace_selector=label_selector(term.namespace_selector),
    )
    return AffinityTerm(pods, term.topology_key, weight)
