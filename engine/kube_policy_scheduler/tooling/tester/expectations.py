"""What a case expects: as values, read from the `expect` of a case, and held against what was decided."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, assert_never

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.patterns import PatternError, compiled
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.outcome import ClauseVerdict, Outcome
from kube_policy_scheduler.tooling.tester.suite_file import Part, Path, did_you_mean
from kube_policy_scheduler.wording import listed, some

_MOST_NAMES = 12
"""Longer lists are cut."""


def is_pattern(text: str) -> bool:
    """Return whether a text is `/a regular expression/`."""
    return len(text) > 2 and text[0] == text[-1] == "/"


def says(wanted: str | None, texts: Iterable[str]) -> bool:
    """Return whether one of the texts is what is wanted; None wants nothing."""
    if wanted is None:
        return True
    if is_pattern(wanted):
        return any(compiled(wanted[1:-1]).search(text) for text in texts)
    return any(wanted in text for text in texts)


def number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:.10g}"


def names(several: Iterable[str]) -> str:
    """Return names in order."""
    return ", ".join(sorted(several)) or "none"


def difference(wanted: frozenset[str], got: frozenset[str]) -> tuple[str, str]:
    """Return two sets of names as expected and got; of large ones, what they do not have in common."""
    if max(len(wanted), len(got)) <= _MOST_NAMES:
        return names(wanted), names(got)
    missing, more = sorted(wanted - got), sorted(got - wanted)
    parts = [f"without {some(missing, limit=_MOST_NAMES)}"] if missing else []
    parts += [f"with {some(more, limit=_MOST_NAMES)}"] if more else []
    return f"{len(wanted)} names", f"{len(got)} names, {listed(parts)}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What `node: {zone: …}` may ask about a node."""

    name: str
    labels: Mapping[str, str]
    zone: str | None
    region: str | None
    ready: bool


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """A set of nodes: by name, or by what holds for them."""

    text: str
    """As it was written, for people."""
    holds: Callable[[NodeFacts], bool]
    names: tuple[str, ...] = ()
    """The nodes, where they are named."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A refusal that is expected."""

    clause: str | None
    message: str | None
    """A part of a text, or `/a regular expression/`."""

    def __str__(self) -> str:
        parts = ((name, text) for name, text in (("clause", self.clause), ("message", self.message)) if text)
        return ", ".join(f"{name} {text}" for name, text in parts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A number that is expected."""

    text: str
    holds: Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class GoesTo:
    """`node`, `node_in`: the pod goes to one of these."""

    match: NodeMatch


@dataclass(frozen=True, slots=True)
class NotOn:
    """`not_on`: the pod goes somewhere else."""

    match: NodeMatch


@dataclass(frozen=True, slots=True)
class Schedulable:
    """`schedulable`: the pod goes somewhere, or nowhere."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """`unschedulable`: the pod goes nowhere, for this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Held:
    """`held`: the pod waits outside the active queue, or does not."""

    wanted: bool
    message: str | None
    """A part of the reason, or `/a regular expression/`."""


@dataclass(frozen=True, slots=True)
class Evicts:
    """`evicts`: exactly these pods would be evicted to make room."""

    pods: frozenset[str]


@dataclass(frozen=True, slots=True)
class Feasible:
    """`feasible`: exactly these nodes pass every filter."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filtered:
    """`filtered`: this node does not pass, for this reason."""

    node: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Score:
    """`scores`: this node passes, with this total."""

    node: str
    wanted: Comparison


@dataclass(frozen=True, slots=True)
class Order:
    """`order`: these nodes pass, each with a higher total than the next."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Margin:
    """`margin`: by how much the winner's total exceeds the next."""

    wanted: Comparison


@dataclass(frozen=True, slots=True)
class Degraded:
    """`degraded`: exactly these queries lack a fresh value on some node."""

    queries: frozenset[str]


@dataclass(frozen=True, slots=True)
class Waits:
    """`waits`: the pod has a place but waits for its gang, or does not."""

    wanted: bool
    message: str | None
    """A part of the reason, or `/a regular expression/`."""


@dataclass(frozen=True, slots=True)
class Devices:
    """`devices`: it gets exactly these devices of its node."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InDomain:
    """`domain`: the gang of the pod is in the domain with this value of a label."""

    value: str


@dataclass(frozen=True, slots=True)
class Warnings:
    """`warnings`: exactly these, each by code or by a part of its text."""

    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """`placed`: so many pods of the case have a place, in all or on one node."""

    node: str | None
    wanted: Comparison


@dataclass(frozen=True, slots=True)
class MaxSkew:
    """`max_skew`: the pods of the case differ by no more between two domains."""

    by: str
    """zone, region, node, or a node label."""
    at_most: int


@dataclass(frozen=True, slots=True)
class InQueue:
    """`queue`: so many pods on nodes belong to this queue, or to one below it."""

    name: str
    wanted: Comparison


@dataclass(frozen=True, slots=True)
class Turns:
    """`turns`: these pods of the queue are decided in this order."""

    pods: tuple[str, ...]


OfOne: TypeAlias = (
    GoesTo
    | NotOn
    | Schedulable
    | Unschedulable
    | Held
    | Waits
    | InDomain
    | Evicts
    | Feasible
    | Filtered
    | Score
    | Order
    | Margin
    | Degraded
    | Devices
    | Warnings
)
"""What is expected of every decision of a case."""
OfAll: TypeAlias = Placed | MaxSkew | InQueue
"""What is expected of all decisions of a case together."""
Expectation: TypeAlias = OfOne | OfAll | Turns


_TOLERANCE = re.compile(r"(?P<value>-?[0-9.]+) *(?:±|\+-) *(?P<tolerance>[0-9.]+)")
_COMPARISON = re.compile(r"(?P<operator>>=|<=|>|<|==)? *(?P<value>-?[0-9.]+)")
_INEXACT = frozenset({"filtered", "scores", "order", "placed"})
"""Expectations that may leave out nodes, unless there is `exact`."""
_EQUAL_WITHIN = 1e-9
"""Relative: totals are sums of floats."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda got, limit: got >= limit,
    "<=": lambda got, limit: got <= limit,
    ">": lambda got, limit: got > limit,
    "<": lambda got, limit: got < limit,
    "==": lambda got, limit: abs(got - limit) <= _EQUAL_WITHIN * max(1.0, abs(limit)),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """One expectation and where it stands."""

    key: str
    """Its key in `expect`, such as `node`."""
    path: Path
    value: Expectation | None
    """None: implicit; it always holds."""


class ExpectReader:
    """Reads one case's `expect`, collecting what it names that does not exist."""

    def __init__(
        self,
        document: Document,
        *,
        facts: Mapping[str, NodeFacts],
        pods: Callable[[], frozenset[str]],
        queries: Sequence[str],
    ) -> None:
        self._document = document
        self._facts = facts
        self._nodes = tuple(facts)
        self._pods = pods
        self._queries = queries
        self.problems: list[Diagnostic] = []

    def read(self, part: Part) -> tuple[Expected, ...]:
        """Return the expectations in the order in which they were written."""
        found: list[Expected] = []
        exact = "exact" in part.value
        if exact and not part.value.keys() & _INEXACT:
            message = f"`exact` has no effect without {', '.join(sorted(_INEXACT))}"
            self._problem((*part.path, "exact"), codes.BAD_FIXTURE, message, "")
        for key, value in part.value.items():
            path = (*part.path, key)
            if key == "exact":
                continue
            if exact and key in _INEXACT:
                found.extend(Expected(key, path, each) for each in self._exactly(key, value))
            found.extend(Expected(key, place, expectation) for place, expectation in self._one(key, value, path))
        return tuple(found)

    def _one(self, key: str, value: Any, path: Path) -> Iterator[tuple[Path, Expectation]]:
        match key:
            case "node":
                yield path, GoesTo(self._match(value, path))
            case "node_in":
                yield path, GoesTo(self._match(value, path))
            case "not_on":
                yield path, NotOn(self._match(value, path))
            case "schedulable":
                yield path, Schedulable(value)
            case "unschedulable":
                yield path, Unschedulable(self._reason(value, path))
            case "held":
                yield path, Held(value is not False, self._text(value, path))
            case "evicts":
                self._known_pods(value, path)
                yield path, Evicts(frozenset(value))
            case "feasible":
                yield path, Feasible(frozenset(self._known(value, path)))
            case "filtered":
                for node, reason in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), Filtered(node, self._reason(reason, (*path, node)))
            case "scores":
                for node, number in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), Score(node, comparison(number))
            case "order":
                yield path, Order(tuple(self._known(value, path)))
            case "turns":
                self._known_pods(value, path)
                yield path, Turns(tuple(value))
            case "waits":
                yield path, Waits(value is not False, self._text(value, path))
            case "domain":
                yield path, InDomain(value)
            case "placed":
                if not isinstance(value, dict):
                    yield path, Placed(None, comparison(value))
                    return
                for node, number in value.items():
                    self._known([node], path, keys=True)
                    yield (*path, node), Placed(node, comparison(number))
            case "queue":
                for name, number in value.items():
                    yield (*path, name), InQueue(name, comparison(number))
            case "max_skew":
                by = value["by"]
                if by not in ("zone", "region", "node") and not any(by in one.labels for one in self._facts.values()):
                    labels = sorted({label for one in self._facts.values() for label in one.labels})
                    message = f"no node of the test has the label `{by}`"
                    advice = did_you_mean(by, ["zone", "region", "node", *labels])
                    self._problem((*path, "by"), codes.UNKNOWN_NODE, message, advice)
                yield path, MaxSkew(by, value["at_most"])
            case "devices":
                yield path, Devices(tuple(value))
            case "warnings":
                yield path, Warnings(tuple(value))
            case "margin":
                yield path, Margin(comparison(value))
            case "degraded":
                for index, query in enumerate(value):
                    if query not in self._queries:
                        advice = did_you_mean(query, self._queries, none="the policies read no metrics")
                        message = f"no policy reads the metric `{query}`"
                        self._problem((*path, index), codes.UNKNOWN_METRIC, message, advice)
                yield path, Degraded(frozenset(value))
            case _:
                raise AssertionError(f"the schema lets `{key}` through")

    def _exactly(self, key: str, value: Any) -> Iterator[Expectation]:
        """Yield what `exact` adds: what is not named is not so."""
        others = frozenset(self._nodes) - frozenset(value if isinstance(value, list | dict) else ())
        match key:
            case "filtered":
                yield Feasible(others)
            case "scores" | "order":
                yield Feasible(frozenset(value))
            case "placed" if isinstance(value, dict):
                yield from (Placed(node, comparison(0)) for node in sorted(others))

    def _text(self, value: bool | str, path: Path) -> str | None:
        if not isinstance(value, str):
            return None
        self._check_text(value, path)
        return value

    def _check_text(self, text: str, path: Path) -> None:
        if is_pattern(text):
            try:
                compiled(text[1:-1])
            except PatternError as error:
                advice = "write a regular expression of RE2"
                self._problem(path, codes.BAD_FIXTURE, f"not a regular expression: {error}", advice)

    def _known_pods(self, names: Sequence[str], path: Path) -> None:
        known = self._pods()
        for index, pod in enumerate(names):
            if pod not in known:
                advice = did_you_mean(pod, tuple(known), none="the test has no pods")
                self._problem((*path, index), codes.UNKNOWN_NODE, f"unknown pod `{pod}`", advice)

    def _match(self, value: Any, path: Path) -> NodeMatch:
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
            if not any(_holds(value, facts) for facts in self._facts.values()):
                self._problem(path, codes.UNKNOWN_NODE, f"no node of the test has {shown}", "")
            return NodeMatch(shown, lambda facts: _holds(value, facts))
        names = [value] if isinstance(value, str) else value
        self._known(names, path, single=isinstance(value, str))
        return NodeMatch(" or ".join(names), lambda facts: facts.name in names, tuple(names))

    def _known(self, names: list[str], path: Path, *, keys: bool = False, single: bool = False) -> list[str]:
        for index, name in enumerate(names):
            if name not in self._nodes:
                advice = did_you_mean(name, self._nodes, none="the test has no nodes")
                place = (*path, name) if keys else path if single else (*path, index)
                self._problem(place, codes.UNKNOWN_NODE, f"unknown node `{name}`", advice, key=keys)
        return names

    def _reason(self, value: Mapping[str, str], path: Path) -> Reason:
        message = value.get("message")
        if message is not None:
            self._check_text(message, (*path, "message"))
        return Reason(value.get("clause"), message)

    def _problem(self, path: Path, code: Code, message: str, advice: str, *, key: bool = False) -> None:
        self.problems.append(self._document.error(path, code, message=message, advice=advice, key=key))


def comparison(value: float | str) -> Comparison:
    """Return a number, `'>= 50'` or `'180 ± 0.5'` as a comparison."""
    if not isinstance(value, str):
        exactly = float(value)
        return Comparison(f"{exactly:.10g}", lambda got: _OPERATORS["=="](got, exactly))
    text = value
    tolerant = _TOLERANCE.fullmatch(text.strip())
    if tolerant is not None:
        middle, tolerance = float(tolerant["value"]), float(tolerant["tolerance"])
        return Comparison(text, lambda got: abs(got - middle) <= tolerance)
    plain = _COMPARISON.fullmatch(text.strip())
    assert plain is not None, f"the schema lets {text!r} through"
    holds, limit = _OPERATORS[plain["operator"] or "=="], float(plain["value"])
    return Comparison(text, lambda got: holds(got, limit))


def _holds(match: Mapping[str, Any], facts: NodeFacts) -> bool:
    return all(
        all(facts.labels.get(label) == text for label, text in value.items())
        if key == "labels"
        else getattr(facts, key) == value
        for key, value in match.items()
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    return {True: "true", False: "false"}.get(value, str(value))


_MOST_REASONS = 6
_ADMIT_MISSING = "write which metric fails, `degraded: […]`, where that is meant"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What was expected and what came, each as people read it."""

    expected: str
    got: str
    value: float | None = None
    """What came, where that is a number."""


def compare(
    expectation: OfOne,
    outcome: Outcome,
    *,
    facts: Mapping[str, NodeFacts],
    policy_clauses: frozenset[str],
    tie_ok: bool,
    admits_missing: bool = False,
) -> Mismatch | None:
    """Return how the outcome differs from what is expected, None where it does not.

    Args:
        expectation: one of a case's expectations.
        outcome: what was decided.
        facts: every node, by name.
        policy_clauses: names of the filters that are the policy's own, not Kubernetes'.
        tie_ok: whether a tie-break may decide which node it is.
        admits_missing: whether a clause without a value may be what refuses; the case says which metrics fail it.
    """
    match expectation:
        case GoesTo(match=wanted) | NotOn(match=wanted):
            inside = isinstance(expectation, GoesTo)
            return _place(outcome, wanted, facts=facts, inside=inside, tie_ok=tie_ok)
        case Schedulable(wanted=wanted):
            text = {True: "schedulable", False: "unschedulable"}
            if (outcome.host is not None) is wanted:
                return None
            return Mismatch(text[wanted], describe_outcome(outcome))
        case Unschedulable(reason=reason):
            return _unschedulable(outcome, reason, policy_clauses=policy_clauses, admits_missing=admits_missing)
        case Held(wanted=wanted, message=message):
            if (outcome.held is not None) is wanted and says(message, [outcome.held or ""]):
                return None
            expected = message or "" if wanted else "not held"
            return Mismatch(f"held: {expected}" if wanted else expected, describe_outcome(outcome))
        case Waits(wanted=wanted, message=message):
            if (outcome.waits is not None) is wanted and says(message, [outcome.waits or ""]):
                return None
            return Mismatch(
                f"waits: {message or 'for its gang'}" if wanted else "does not wait", describe_outcome(outcome)
            )
        case InDomain(value=value):
            if value in outcome.domains:
                return None
            there = f"domain: {', '.join(outcome.domains)}" if outcome.domains else "the pod's gang is in no domain"
            return Mismatch(f"domain: {value}", there if outcome.domains else f"{there}; {describe_outcome(outcome)}")
        case Warnings(wanted=several):
            return _warnings(outcome, several)
        case Evicts(pods=pods):
            return None if outcome.victims == pods else Mismatch(*difference(pods, outcome.victims))
        case Feasible(nodes=nodes):
            if outcome.feasible == nodes:
                return None
            expected, got = difference(nodes, outcome.feasible)
            return Mismatch(expected, got + _why_not(outcome, nodes - outcome.feasible))
        case Filtered(node=node, reason=reason):
            return _filtered(outcome, node, reason, admits_missing=admits_missing)
        case Score(node=node, wanted=wanted):
            if node not in outcome.totals:
                return Mismatch(wanted.text, _why_not(outcome, {node}).removeprefix("; ") or f"{node} has no score")
            if wanted.holds(outcome.totals[node]):
                return None
            return Mismatch(wanted.text, number(outcome.totals[node]), outcome.totals[node])
        case Order(nodes=order):
            return _order(outcome, order)
        case Margin(wanted=wanted):
            margin = _margin(outcome)
            if margin is None:
                return Mismatch(wanted.text, f"{describe_outcome(outcome)}; there is no next node")
            return None if wanted.holds(margin) else Mismatch(wanted.text, number(margin))
        case Devices(names=wanted_devices):
            if outcome.host is not None and sorted(outcome.devices) == sorted(wanted_devices):
                return None
            got = names(outcome.devices) if outcome.host is not None else describe_outcome(outcome)
            return Mismatch(names(wanted_devices), got)
        case Degraded(queries=queries):
            if outcome.degraded == queries:
                return None
            return Mismatch(*difference(queries, outcome.degraded))
        case _:
            assert_never(expectation)


def describe_outcome(outcome: Outcome) -> str:
    """Return where the pod describe_outcome and by how much, in one line."""
    if outcome.error is not None:
        return f"error: {outcome.error}"
    if outcome.held is not None:
        return f"held: {outcome.held}"
    if outcome.host is None:
        return f"unschedulable: {outcome.message}"
    ranked = sorted(outcome.totals.items(), key=lambda item: (-item[1], item[0]))
    text = f"{outcome.host} (score {number(outcome.totals[outcome.host])}"
    others = [item for item in ranked if item[0] != outcome.host]
    if others:
        text += f", next {others[0][0]} {number(others[0][1])}"
    return text + ")" + (f", and waits: {outcome.waits}" if outcome.waits is not None else "")


def _place(
    outcome: Outcome, wanted: NodeMatch, *, facts: Mapping[str, NodeFacts], inside: bool, tie_ok: bool
) -> Mismatch | None:
    expected = wanted.text if inside else f"not {wanted.text}"
    if outcome.host is None or wanted.holds(facts[outcome.host]) is not inside:
        return Mismatch(expected, describe_outcome(outcome))
    astray = [name for name in outcome.tied if wanted.holds(facts[name]) is not inside]
    if astray and not tie_ok:
        among = ", ".join(outcome.tied)
        return Mismatch(
            expected,
            f"{outcome.host}, but only by tie-break among {among} (score {number(outcome.totals[outcome.host])} each);"
            " if you want this, write `tie: ok`",
        )
    return None


def _unschedulable(
    outcome: Outcome, reason: Reason, *, policy_clauses: frozenset[str], admits_missing: bool
) -> Mismatch | None:
    expected = f"unschedulable: {reason}"
    if outcome.host is not None:
        return Mismatch(expected, describe_outcome(outcome))
    if not admits_missing and (undefined := _without_value(outcome, reason)):
        return Mismatch(expected, undefined)
    if reason.clause is None:
        return None if says(reason.message, [outcome.message]) else Mismatch(expected, describe_outcome(outcome))
    verdict = outcome.verdict(reason.clause)
    decisive = verdict is not None and _decides(verdict, outcome, policy_clauses)
    if verdict is None or not decisive:
        return Mismatch(expected, f"unschedulable for a different reason: {outcome.message}")
    texts = sorted({text for texts in verdict.refused.values() for text in texts})
    return None if says(reason.message, texts) else Mismatch(expected, f"{verdict.clause}: {', '.join(texts)}")


def _without_value(outcome: Outcome, reason: Reason) -> str:
    """Return what is wrong where a pod goes nowhere only because a clause has no value; "" where that is not so."""
    concerned = (outcome.verdict(reason.clause),) if reason.clause is not None else outcome.verdicts
    lacking = [one for one in concerned if one is not None and one.undefined and one.undefined >= one.refused.keys()]
    others = [one for one in outcome.verdicts if one.refused and one.undefined < one.refused.keys()]
    if not lacking or (reason.clause is None and others):
        return ""
    return f"`{lacking[0].clause}` has no value; {_ADMIT_MISSING}"


def _decides(verdict: ClauseVerdict, outcome: Outcome, policy_clauses: frozenset[str]) -> bool:
    """Return whether the clause refuses every node, or one that all others of the policy let through."""
    if verdict.refused.keys() >= outcome.nodes:
        return True
    siblings = [part for part in outcome.conjuncts if verdict.within and part.within == verdict.within]
    clauses = [other for other in outcome.verdicts if other.clause in policy_clauses - {verdict.within}]
    others = {node for other in (*clauses, *siblings) if other.clause != verdict.clause for node in other.refused}
    return bool(verdict.refused.keys() - others)


def _filtered(outcome: Outcome, node: str, reason: Reason, *, admits_missing: bool) -> Mismatch | None:
    expected = f"{node} filtered by {reason}"
    if reason.clause is not None:
        named = outcome.verdict(reason.clause)
        refusing = [] if named is None or node not in named.refused else [named]
    else:
        refusing = [verdict for verdict in outcome.verdicts if node in verdict.refused]
    as_wanted = [verdict for verdict in refusing if says(reason.message, verdict.refused[node])]
    if as_wanted and not admits_missing and all(node in verdict.undefined for verdict in as_wanted):
        return Mismatch(expected, f"`{as_wanted[0].clause}` has no value for {node}; {_ADMIT_MISSING}")
    if as_wanted:
        return None
    got = "; ".join(outcome.refusals(node))
    return Mismatch(expected, f"{node} filtered by {got}" if got else f"{node} passes every filter")


def _order(outcome: Outcome, order: tuple[str, ...]) -> Mismatch | None:
    expected = " > ".join(order)
    absent = [name for name in order if name not in outcome.totals]
    if absent:
        return Mismatch(expected, _why_not(outcome, absent).removeprefix("; "))
    totals = [outcome.totals[name] for name in order]
    if all(left > right for left, right in pairwise(totals)):
        return None
    ranked = sorted(order, key=lambda name: (-outcome.totals[name], name))
    return Mismatch(expected, ", ".join(f"{name} {number(outcome.totals[name])}" for name in ranked))


def _margin(outcome: Outcome) -> float | None:
    ranked = sorted(outcome.totals.values(), reverse=True)
    return None if outcome.host is None or len(ranked) < 2 else ranked[0] - ranked[1]


def _warnings(outcome: Outcome, several: tuple[str, ...]) -> Mismatch | None:
    open_ = list(several)
    unexpected = []
    for warning in outcome.warnings:
        match = next((one for one in open_ if one == warning.code or says(one, [warning.text])), None)
        if match is None:
            unexpected.append(str(warning))
        else:
            open_.remove(match)
    if not open_ and not unexpected:
        return None
    return Mismatch(", ".join(several) or "none", ", ".join(str(one) for one in outcome.warnings) or "none")


def compare_all(
    expectation: OfAll,
    placed: Mapping[str, int],
    *,
    facts: Mapping[str, NodeFacts],
    open_to: frozenset[str],
    queues: Mapping[str, int],
) -> Mismatch | None:
    """Return how the placements of a case differ from what is expected, None where they do not.

    Args:
        expectation: one of a case's expectations.
        placed: how many of its pods are on each node.
        facts: every node, by name.
        open_to: the nodes that were feasible for any of its pods.
        queues: how many pods on nodes belong to each queue, or to one below it.
    """
    match expectation:
        case Placed(node=None, wanted=wanted):
            total = sum(placed.values())
            return None if wanted.holds(total) else Mismatch(wanted.text, f"{total} ({_spread(placed)})", total)
        case Placed(node=node, wanted=wanted):
            count = placed.get(node or "", 0)
            return None if wanted.holds(count) else Mismatch(wanted.text, f"{count} ({_spread(placed)})", count)
        case InQueue(name=name, wanted=wanted):
            if name not in queues and "/" not in name:  # one of several by key is not known without pods
                there = f"the queues are {', '.join(queues)}" if queues else "no policy has queues"
                return Mismatch(f"queue {name}", f"there is no such queue: {there}")
            number_of_pods = queues.get(name, 0)
            return None if wanted.holds(number_of_pods) else Mismatch(wanted.text, str(number_of_pods), number_of_pods)
        case MaxSkew(by=by, at_most=at_most):
            domains: dict[str, int] = {}
            for name, one in facts.items():
                domain = _domain(one, by)
                if domain is not None and (name in open_to or name in placed):
                    domains[domain] = domains.get(domain, 0) + placed.get(name, 0)
            skew = max(domains.values(), default=0) - min(domains.values(), default=0)
            return None if skew <= at_most else Mismatch(f"{by}: at most {at_most}", f"{skew} ({_spread(domains)})")
        case _:
            assert_never(expectation)


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


def _why_not(outcome: Outcome, nodes: Iterable[str]) -> str:
    reasons = ((node, next(outcome.refusals(node), "")) for node in sorted(nodes))
    parts = [f"{node} filtered by {reason}" for node, reason in reasons if reason]
    if len(parts) > _MOST_REASONS:
        parts[_MOST_REASONS:] = [f"and {len(parts) - _MOST_REASONS} more"]
    return f"; {'; '.join(parts)}" if parts else ""
