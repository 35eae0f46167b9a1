"""What a case may expect: one table of what stands under `expect`, each with how it is read and compared.

An expectation is about one decision (`OF_DECISION`), about all pods of a case together (`OF_CASE`), or about a queue
(`OF_QUEUE`). To add one, add a row here, and its form to `policy-test.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar

from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.outcome import ClauseVerdict, Outcome, replicas_by_cluster
from kube_policy_scheduler.tooling.tester.queue_order import Waiting, positions
from kube_policy_scheduler.tooling.tester.suite_file import Part, Path
from kube_policy_scheduler.tooling.tester.value_reader import ValueReader
from kube_policy_scheduler.tooling.tester.wanted import (
    Comparison,
    MaxSkew,
    Mismatch,
    NodeFacts,
    NodeMatch,
    Reason,
    YesOrReason,
    comparison,
    difference,
    names,
    number,
    says,
)

_WantedT = TypeVar("_WantedT")
_SubjectT = TypeVar("_SubjectT")
_MOST_REASONS = 6
_MOST_NODES = 3
_ADMIT_MISSING = "write which metric fails, `degraded: […]`, where that is meant"


@dataclass(frozen=True, slots=True)
class OneDecision:
    """What is compared with an expectation of a decision."""

    outcome: Outcome
    """What was decided."""
    facts: Mapping[str, NodeFacts]
    """Every node, by name."""
    policy_clauses: frozenset[str]
    """Names of the filters that are the policy's own, not Kubernetes'."""
    tie_ok: bool = False
    """Whether a tie-break may decide which node it is."""
    admits_missing: bool = False
    """Whether a clause without a value may be what rejects; the case says which metrics fail it."""


@dataclass(frozen=True, slots=True)
class AllPlacements:
    """What is compared with an expectation of all pods of a case together."""

    placed: Mapping[str, int]
    """How many of its pods are on each node."""
    facts: Mapping[str, NodeFacts]
    """Every node, by name."""
    open_to: frozenset[str]
    """The nodes that were feasible for any of its pods."""
    queues: Mapping[str, int]
    """How many pods on nodes belong to each queue, or to one below it."""


@dataclass(frozen=True, slots=True)
class PodsOfQueue:
    """What is compared with an expectation of a queue."""

    pods: Sequence[Waiting]
    """In the order in which they came."""
    tie_ok: bool = False
    """Whether who came first may decide between pods that are equal."""


@dataclass(frozen=True, slots=True)
class Named(Generic[_WantedT]):
    """What is wanted of one node or queue."""

    name: str
    wanted: _WantedT


_Read: TypeAlias = Callable[[ValueReader, Any, Path], Iterator[tuple[Path, _WantedT]]]


@dataclass(frozen=True, slots=True)
class ExpectationKind(Generic[_SubjectT]):
    """One key of `expect`: how its value is read, and compared with what came."""

    read: _Read[Any]
    """Yields what is wanted, once or for each key of the value, and where that stands."""
    compare: Callable[[Any, _SubjectT], Mismatch | None]
    """Returns how what came differs from what is wanted, None if it does not."""
    exact: Callable[[Any, Sequence[str]], Iterable[tuple[ExpectationKind[_SubjectT], Any]]] | None = None
    """What `exact` adds, from the value and all nodes: what is not named is not so. None: it adds nothing."""
    nodes: Callable[[Any, Outcome], Sequence[str]] | None = None
    """Which nodes it is about, to show what clauses say about them; None: no clause explains it."""
    about_filters: bool = False
    """Whether filters explain it, so that each is asked alone."""


def _kind(
    read: _Read[_WantedT],
    compare: Callable[[_WantedT, _SubjectT], Mismatch | None],
    *,
    exact: Callable[[Any, Sequence[str]], Iterable[tuple[ExpectationKind[_SubjectT], Any]]] | None = None,
    nodes: Callable[[_WantedT, Outcome], Sequence[str]] | None = None,
    about_filters: bool = False,
) -> ExpectationKind[_SubjectT]:
    """Return a kind whose parts fit together."""
    return ExpectationKind(read, compare, exact, nodes, about_filters)


@dataclass(frozen=True, slots=True)
class Expected:
    """Something that is expected, and where it stands."""

    key: str
    """Its key in `expect`, such as `node`."""
    path: Path


@dataclass(frozen=True, slots=True)
class Expectation(Expected, Generic[_SubjectT]):
    """One expectation of a case."""

    kind: ExpectationKind[_SubjectT]
    wanted: Any

    def mismatch(self, subject: _SubjectT) -> Mismatch | None:
        """Return how what came differs from what is expected, None if it does not."""
        return self.kind.compare(self.wanted, subject)

    @property
    def clause(self) -> str | None:
        """Return the clause that it names as the one that rejects, or None."""
        match self.wanted:
            case Reason(clause=clause) | Named(wanted=Reason(clause=clause)):
                return clause
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Expectations:
    """What stands under one `expect`, each in the order in which it was written."""

    of_decision: tuple[Expectation[OneDecision], ...] = ()
    of_case: tuple[Expectation[AllPlacements], ...] = ()
    of_queue: tuple[Expectation[PodsOfQueue], ...] = ()


def expectations(part: Part, reader: ValueReader) -> Expectations:
    """Return what an `expect` says; what it names that does not exist is among the reader's problems."""
    if "exact" in part.value and not part.value.keys() & INEXACT:
        message = f"`exact` has no effect without {', '.join(sorted(INEXACT))}"
        reader.problem((*part.path, "exact"), codes.BAD_FIXTURE, message, "")
    return Expectations(
        tuple(_read(OF_DECISION, part, reader)),
        tuple(_read(OF_CASE, part, reader)),
        tuple(_read(OF_QUEUE, part, reader)),
    )


def _read(
    table: Mapping[str, ExpectationKind[_SubjectT]], part: Part, reader: ValueReader
) -> Iterator[Expectation[_SubjectT]]:
    for key, value in part.value.items():
        kind = table.get(key)
        if kind is None:
            continue
        path = (*part.path, key)
        if "exact" in part.value and kind.exact is not None:
            yield from (Expectation(key, path, other, wanted) for other, wanted in kind.exact(value, reader.nodes))
        yield from (Expectation(key, place, kind, wanted) for place, wanted in kind.read(reader, value, path))


# --- how values are read -----------------------------------------------------------------------------


def _whole(read: Callable[[ValueReader, Any, Path], _WantedT]) -> _Read[_WantedT]:
    """Read a value as one expectation."""

    def reads(reader: ValueReader, value: Any, path: Path) -> Iterator[tuple[Path, _WantedT]]:
        yield path, read(reader, value, path)

    return reads


def _by_node(read: Callable[[ValueReader, Any, Path], _WantedT]) -> _Read[Named[_WantedT]]:
    """Read a mapping as one expectation for each node that it names."""

    def reads(reader: ValueReader, value: Any, path: Path) -> Iterator[tuple[Path, Named[_WantedT]]]:
        for node, each in value.items():
            yield (*path, node), Named(reader.known_node(node, (*path, node)), read(reader, each, (*path, node)))

    return reads


def _by_queue(reader: ValueReader, value: Any, path: Path) -> Iterator[tuple[Path, Named[Comparison]]]:
    """Read how many pods each queue has."""
    for name, each in value.items():
        yield (*path, name), Named(name, comparison(each))


def _in_all_or_by_node(
    reader: ValueReader, value: Any, path: Path
) -> Iterator[tuple[Path, Comparison | Named[Comparison]]]:
    """Read how many pods have a place, in all or by node."""
    if isinstance(value, dict):
        yield from _by_node(ValueReader.number)(reader, value, path)
    else:
        yield path, comparison(value)


def _flag(reader: ValueReader, value: bool, path: Path) -> bool:
    return value


def _text(reader: ValueReader, value: str, path: Path) -> str:
    return value


# --- of one decision ---------------------------------------------------------------------------------


def _goes_to(wanted: NodeMatch, one: OneDecision) -> Mismatch | None:
    return _place(wanted, one, inside=True)


def _not_on(wanted: NodeMatch, one: OneDecision) -> Mismatch | None:
    return _place(wanted, one, inside=False)


def _place(wanted: NodeMatch, one: OneDecision, *, inside: bool) -> Mismatch | None:
    outcome, facts = one.outcome, one.facts
    expected = wanted.text if inside else f"not {wanted.text}"
    if outcome.host is None or wanted.holds(facts[outcome.host]) is not inside:
        return Mismatch(expected, outcome.described())
    astray = [name for name in outcome.tied if wanted.holds(facts[name]) is not inside]
    if astray and not one.tie_ok:
        among = ", ".join(outcome.tied)
        return Mismatch(
            expected,
            f"{outcome.host}, but only by tie-break among {among} (score {number(outcome.totals[outcome.host])} each);"
            " if you want this, write `tie: ok`",
        )
    return None


def _schedulable(wanted: bool, one: OneDecision) -> Mismatch | None:
    if (one.outcome.host is not None) is wanted:
        return None
    return Mismatch("schedulable" if wanted else "unschedulable", one.outcome.described())


def _unschedulable(reason: Reason, one: OneDecision) -> Mismatch | None:
    outcome, expected = one.outcome, f"unschedulable: {reason}"
    if outcome.host is not None:
        return Mismatch(expected, outcome.described())
    undefined = "" if one.admits_missing else _without_value(outcome, reason)
    if undefined:
        return Mismatch(expected, undefined)
    if reason.clause is None:
        return None if says(reason.message, [outcome.message]) else Mismatch(expected, outcome.described())
    verdict = outcome.verdict(reason.clause)
    if verdict is None or not _decides(verdict, outcome, one.policy_clauses):
        return Mismatch(expected, f"unschedulable for a different reason: {outcome.message}")
    texts = sorted({text for texts in verdict.rejected.values() for text in texts})
    return None if says(reason.message, texts) else Mismatch(expected, f"{verdict.clause}: {', '.join(texts)}")


def _without_value(outcome: Outcome, reason: Reason) -> str:
    """Return what is wrong where a pod goes nowhere only because a clause has no value; "" where that is not so."""
    concerned = (outcome.verdict(reason.clause),) if reason.clause is not None else outcome.verdicts
    lacking = [one for one in concerned if one is not None and one.undefined and one.undefined >= one.rejected.keys()]
    others = [one for one in outcome.verdicts if one.rejected and one.undefined < one.rejected.keys()]
    if not lacking or (reason.clause is None and others):
        return ""
    return f"`{lacking[0].clause}` has no value; {_ADMIT_MISSING}"


def _decides(verdict: ClauseVerdict, outcome: Outcome, policy_clauses: frozenset[str]) -> bool:
    """Return whether the clause rejects every node, or one that all others of the policy let through."""
    if verdict.rejected.keys() >= outcome.nodes:
        return True
    siblings = [part for part in outcome.conjuncts if verdict.within and part.within == verdict.within]
    clauses = [other for other in outcome.verdicts if other.clause in policy_clauses - {verdict.within}]
    others = {node for other in (*clauses, *siblings) if other.clause != verdict.clause for node in other.rejected}
    return bool(verdict.rejected.keys() - others)


def _filtered(named: Named[Reason], one: OneDecision) -> Mismatch | None:
    outcome, node, reason = one.outcome, named.name, named.wanted
    expected = f"{node} filtered by {reason}"
    if reason.clause is not None:
        verdict = outcome.verdict(reason.clause)
        rejecting = [] if verdict is None or node not in verdict.rejected else [verdict]
    else:
        rejecting = [verdict for verdict in outcome.verdicts if node in verdict.rejected]
    as_wanted = [verdict for verdict in rejecting if says(reason.message, verdict.rejected[node])]
    if as_wanted and not one.admits_missing and all(node in verdict.undefined for verdict in as_wanted):
        return Mismatch(expected, f"`{as_wanted[0].clause}` has no value for {node}; {_ADMIT_MISSING}")
    if as_wanted:
        return None
    got = "; ".join(outcome.rejections(node))
    return Mismatch(expected, f"{node} filtered by {got}" if got else f"{node} passes every filter")


def _clusters(wanted: Mapping[str, int], one: OneDecision) -> Mismatch | None:
    outcome, expected = one.outcome, replicas_by_cluster(wanted)
    if outcome.clusters is None:
        return Mismatch(expected, f"a pod, which goes to a node: {outcome.described()}")
    if outcome.clusters == {name: count for name, count in wanted.items() if count > 0}:
        return None
    got = replicas_by_cluster(outcome.clusters)
    if outcome.host is None:
        return Mismatch(expected, f"{got}; {outcome.described()}")
    other = [name for name in outcome.why if outcome.clusters.get(name, 0) != wanted.get(name, 0)]
    why = "; ".join(f"{name}: {outcome.why[name]}" for name in other[:_MOST_REASONS])
    return Mismatch(expected, f"{got} ({why})" if why else got)


def _before(wanted: tuple[str, ...], one: OneDecision) -> Mismatch | None:
    turns, expected = one.outcome.turns, f"before {', '.join(wanted)}"
    unknown = [name for name in wanted if name not in turns]
    if unknown:
        return Mismatch(expected, f"`workloads` has no {', '.join(unknown)}")
    place = turns.index(one.outcome.pod)
    if all(turns.index(name) > place for name in wanted):
        return None
    return Mismatch(expected, f"the order is {', '.join(turns)}")


def _replicas(reader: ValueReader, value: Mapping[str, int], path: Path) -> Mapping[str, int]:
    for name in value:
        reader.known_node(name, (*path, name))
    return value


def _held(wanted: YesOrReason, one: OneDecision) -> Mismatch | None:
    held = one.outcome.held
    if (held is not None) is wanted.wanted and says(wanted.message, [held or ""]):
        return None
    return Mismatch(f"held: {wanted.message or ''}" if wanted.wanted else "not held", one.outcome.described())


def _waits(wanted: YesOrReason, one: OneDecision) -> Mismatch | None:
    waits = one.outcome.waits
    if (waits is not None) is wanted.wanted and says(wanted.message, [waits or ""]):
        return None
    expected = f"waits: {wanted.message or 'for its gang'}" if wanted.wanted else "does not wait"
    return Mismatch(expected, one.outcome.described())


def _in_domain(value: str, one: OneDecision) -> Mismatch | None:
    domains = one.outcome.domains
    if value in domains:
        return None
    nowhere = f"the pod's gang is in no domain; {one.outcome.described()}"
    return Mismatch(f"domain: {value}", f"domain: {', '.join(domains)}" if domains else nowhere)


def _evicts(pods: frozenset[str], one: OneDecision) -> Mismatch | None:
    victims = one.outcome.victims
    return None if victims == pods else Mismatch(*difference(pods, victims))


def _feasible(nodes: frozenset[str], one: OneDecision) -> Mismatch | None:
    outcome = one.outcome
    if outcome.feasible == nodes:
        return None
    expected, got = difference(nodes, outcome.feasible)
    why_not = _why_not(outcome, nodes - outcome.feasible)
    return Mismatch(expected, f"{got}; {why_not}" if why_not else got)


def _score(named: Named[Comparison], one: OneDecision) -> Mismatch | None:
    node, wanted, totals = named.name, named.wanted, one.outcome.totals
    if node not in totals:
        return Mismatch(wanted.text, _why_not(one.outcome, {node}) or f"{node} has no score")
    return None if wanted.holds(totals[node]) else Mismatch(wanted.text, number(totals[node]), totals[node])


def _order(order: tuple[str, ...], one: OneDecision) -> Mismatch | None:
    outcome, expected = one.outcome, " > ".join(order)
    absent = [name for name in order if name not in outcome.totals]
    if absent:
        return Mismatch(expected, _why_not(outcome, absent))
    totals = [outcome.totals[name] for name in order]
    if all(left > right for left, right in pairwise(totals)):
        return None
    ranked = sorted(order, key=lambda name: (-outcome.totals[name], name))
    return Mismatch(expected, ", ".join(f"{name} {number(outcome.totals[name])}" for name in ranked))


def _margin(wanted: Comparison, one: OneDecision) -> Mismatch | None:
    outcome = one.outcome
    ranked = sorted(outcome.totals.values(), reverse=True)
    if outcome.host is None or len(ranked) < 2:
        return Mismatch(wanted.text, f"{outcome.described()}; there is no next node")
    margin = ranked[0] - ranked[1]
    return None if wanted.holds(margin) else Mismatch(wanted.text, number(margin))


def _degraded(queries: frozenset[str], one: OneDecision) -> Mismatch | None:
    degraded = one.outcome.degraded
    return None if degraded == queries else Mismatch(*difference(queries, degraded))


def _devices(wanted: tuple[str, ...], one: OneDecision) -> Mismatch | None:
    outcome = one.outcome
    if outcome.host is None:
        return Mismatch(names(wanted), outcome.described())
    return None if sorted(outcome.devices) == sorted(wanted) else Mismatch(names(wanted), names(outcome.devices))


def _warnings(several: tuple[str, ...], one: OneDecision) -> Mismatch | None:
    warnings = one.outcome.warnings
    open_, unexpected = list(several), 0
    for warning in warnings:
        match = next((each for each in open_ if each == warning.code or says(each, [warning.text])), None)
        if match is None:
            unexpected += 1
        else:
            open_.remove(match)
    if not open_ and not unexpected:
        return None
    return Mismatch(", ".join(several) or "none", ", ".join(str(each) for each in warnings) or "none")


def _why_not(outcome: Outcome, nodes: Iterable[str]) -> str:
    """Return what rejects each of these nodes, "" where nothing does."""
    reasons = ((node, next(outcome.rejections(node), "")) for node in sorted(nodes))
    parts = [f"{node} filtered by {reason}" for node, reason in reasons if reason]
    if len(parts) > _MOST_REASONS:
        parts[_MOST_REASONS:] = [f"and {len(parts) - _MOST_REASONS} more"]
    return "; ".join(parts)


# --- which nodes an expectation is about, and which it should have been about --------------------------


def _best(wanted: object, outcome: Outcome) -> Sequence[str]:
    """Return the winner and the next; without a winner, some nodes."""
    ranked = sorted(outcome.totals, key=lambda name: (-outcome.totals[name], name))
    return ranked[:2] or sorted(outcome.nodes)[:_MOST_NODES]


def _matched(wanted: NodeMatch, outcome: Outcome) -> Sequence[str]:
    """Return the nodes that are named and the winner."""
    if not wanted.names:
        return _best(wanted, outcome)
    return list(dict.fromkeys((*wanted.names, *((outcome.host,) if outcome.host else ()))))


def _named(wanted: Named[_WantedT], outcome: Outcome) -> Sequence[str]:
    return [wanted.name]


def _in_order(wanted: tuple[str, ...], outcome: Outcome) -> Sequence[str]:
    return wanted


def _not_in_both(wanted: frozenset[str], outcome: Outcome) -> Sequence[str]:
    return sorted(wanted ^ outcome.feasible)


def _none(wanted: object, outcome: Outcome) -> Sequence[str]:
    return ()


# --- of all pods of a case ---------------------------------------------------------------------------


def _placed(placed: Comparison | Named[Comparison], all_: AllPlacements) -> Mismatch | None:
    match placed:
        case Named(name=node, wanted=wanted):
            count = all_.placed.get(node, 0)
        case Comparison() as wanted:
            count = sum(all_.placed.values())
    return None if wanted.holds(count) else Mismatch(wanted.text, f"{count} ({_spread(all_.placed)})", count)


def _in_queue(named: Named[Comparison], all_: AllPlacements) -> Mismatch | None:
    name, wanted, queues = named.name, named.wanted, all_.queues
    if name not in queues and "/" not in name:  # one of several by key is not known without pods
        there = f"the queues are {', '.join(queues)}" if queues else "no policy has queues"
        return Mismatch(f"queue {name}", f"there is no such queue: {there}")
    count = queues.get(name, 0)
    return None if wanted.holds(count) else Mismatch(wanted.text, str(count))


def _max_skew(wanted: MaxSkew, all_: AllPlacements) -> Mismatch | None:
    domains: dict[str, int] = {}
    for name, one in all_.facts.items():
        domain = _domain(one, wanted.by)
        if domain is not None and (name in all_.open_to or name in all_.placed):
            domains[domain] = domains.get(domain, 0) + all_.placed.get(name, 0)
    skew = max(domains.values(), default=0) - min(domains.values(), default=0)
    if skew <= wanted.at_most:
        return None
    return Mismatch(f"{wanted.by}: at most {wanted.at_most}", f"{skew} ({_spread(domains)})")


def _domain(one: NodeFacts, by: str) -> str | None:
    match by:
        case "zone":
            return one.zone
        case "region":
            return one.region
        case "node":
            return one.name
        case _:
            return one.labels.get(by)


def _spread(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none is placed"


# --- of a queue --------------------------------------------------------------------------------------


def _turns(wanted: tuple[str, ...], queue: PodsOfQueue) -> Mismatch | None:
    expected, pods = ", ".join(wanted), queue.pods
    reasons = [(pod.name, pod.held()) for pod in pods if pod.name in wanted]
    held = [f"{name} is held: {reason}" for name, reason in reasons if reason]
    if held:
        return Mismatch(expected, "; ".join(held))
    came = tuple(name for name in positions(pods) if name in wanted)
    if came != wanted:
        return Mismatch(expected, ", ".join(came))
    reversed_ = tuple(name for name in positions(pods[::-1]) if name in wanted)
    if came != reversed_ and not queue.tie_ok:
        equal = " and ".join(name for name, other in zip(came, reversed_, strict=True) if name != other)
        return Mismatch(expected, f"{equal} are equal: the arrival order decides; if you want this, write `tie: ok`")
    return None


# --- the table ---------------------------------------------------------------------------------------

_FEASIBLE: ExpectationKind[OneDecision] = _kind(
    _whole(ValueReader.node_set), _feasible, nodes=_not_in_both, about_filters=True
)


def _no_other(
    value: Iterable[str], nodes: Sequence[str]
) -> Iterator[tuple[ExpectationKind[OneDecision], frozenset[str]]]:
    """Add that the nodes that are not named are filtered."""
    yield _FEASIBLE, frozenset(value)


def _every_other(
    value: Iterable[str], nodes: Sequence[str]
) -> Iterator[tuple[ExpectationKind[OneDecision], frozenset[str]]]:
    """Add that the nodes that are not named are feasible."""
    yield _FEASIBLE, frozenset(nodes) - frozenset(value)


def _nothing_elsewhere(
    value: Any, nodes: Sequence[str]
) -> Iterator[tuple[ExpectationKind[AllPlacements], Named[Comparison]]]:
    """Add that the nodes that are not named have no pods."""
    if isinstance(value, dict):
        yield from ((OF_CASE["placed"], Named(node, comparison(0))) for node in sorted({*nodes} - {*value}))


OF_DECISION: Mapping[str, ExpectationKind[OneDecision]] = {
    "node": _kind(_whole(ValueReader.node_match), _goes_to, nodes=_matched),
    "node_in": _kind(_whole(ValueReader.node_match), _goes_to, nodes=_matched),
    "not_on": _kind(_whole(ValueReader.node_match), _not_on, nodes=_matched),
    "schedulable": _kind(_whole(_flag), _schedulable, nodes=_best),
    "unschedulable": _kind(_whole(ValueReader.reason), _unschedulable, nodes=_best, about_filters=True),
    "filtered": _kind(_by_node(ValueReader.reason), _filtered, exact=_every_other, nodes=_named, about_filters=True),
    "feasible": _FEASIBLE,
    "scores": _kind(_by_node(ValueReader.number), _score, exact=_no_other, nodes=_named),
    "order": _kind(_whole(ValueReader.node_order), _order, exact=_no_other, nodes=_in_order),
    "margin": _kind(_whole(ValueReader.number), _margin, nodes=_best),
    "clusters": _kind(_whole(_replicas), _clusters, nodes=_none),
    "before": _kind(_whole(ValueReader.texts), _before, nodes=_none),
    "evicts": _kind(_whole(ValueReader.pod_set), _evicts, nodes=_none),
    "held": _kind(_whole(ValueReader.yes_or_reason), _held, nodes=_none),
    "waits": _kind(_whole(ValueReader.yes_or_reason), _waits, nodes=_none),
    "domain": _kind(_whole(_text), _in_domain, nodes=_none),
    "devices": _kind(_whole(ValueReader.texts), _devices, nodes=_none),
    "degraded": _kind(_whole(ValueReader.query_set), _degraded),
    "warnings": _kind(_whole(ValueReader.texts), _warnings, nodes=_none),
}
"""What is expected of every decision of a case, or of a step."""

OF_WORKLOADS = frozenset(
    {"clusters", "schedulable", "unschedulable", "filtered", "feasible", "scores", "order", "margin"} | {"before"}
)
"""Those of them that a case with a workload may have: clusters of the fleet are what nodes are elsewhere."""

OF_CASE: Mapping[str, ExpectationKind[AllPlacements]] = {
    "placed": _kind(_in_all_or_by_node, _placed, exact=_nothing_elsewhere),
    "max_skew": _kind(_whole(ValueReader.max_skew), _max_skew),
    "queue": _kind(_by_queue, _in_queue),
}
"""What is expected of all pods of a case together."""

OF_QUEUE: Mapping[str, ExpectationKind[PodsOfQueue]] = {
    "turns": _kind(_whole(ValueReader.pod_order), _turns),
}
"""What is expected of a case that decides nothing."""

_TABLES: Sequence[Mapping[str, ExpectationKind[Any]]] = (OF_DECISION, OF_CASE, OF_QUEUE)
INEXACT = frozenset(key for table in _TABLES for key, kind in table.items() if kind.exact is not None)
"""Expectations that may leave out nodes, unless there is `exact`."""
