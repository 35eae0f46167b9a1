"""How each expectation is held against an outcome, and what is said where it does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from kube_policy_scheduler.tooling.tester import expectation as wants
from kube_policy_scheduler.tooling.tester.expectation import NodeFacts, NodeMatch, OfAll, OfOne, Reason
from kube_policy_scheduler.tooling.tester.outcome import Outcome, Verdict
from kube_policy_scheduler.tooling.tester.texts import difference, number, says

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
        case wants.GoesTo(match=wanted) | wants.NotOn(match=wanted):
            inside = isinstance(expectation, wants.GoesTo)
            return _place(outcome, wanted, facts=facts, inside=inside, tie_ok=tie_ok)
        case wants.Schedulable(wanted=wanted):
            text = {True: "schedulable", False: "unschedulable"}
            if (outcome.host is not None) is wanted:
                return None
            return Mismatch(text[wanted], went(outcome))
        case wants.Unschedulable(reason=reason):
            return _unschedulable(outcome, reason, policy_clauses=policy_clauses, admits_missing=admits_missing)
        case wants.Held(wanted=wanted, message=message):
            if (outcome.held is not None) is wanted and says(message, [outcome.held or ""]):
                return None
            expected = message or "" if wanted else "not held"
            return Mismatch(f"held: {expected}" if wanted else expected, went(outcome))
        case wants.Waits(wanted=wanted, message=message):
            if (outcome.waits is not None) is wanted and says(message, [outcome.waits or ""]):
                return None
            return Mismatch(f"waits: {message or 'for its gang'}" if wanted else "does not wait", went(outcome))
        case wants.Warnings(wanted=several):
            return _warnings(outcome, several)
        case wants.Evicts(pods=pods):
            return None if outcome.victims == pods else Mismatch(*difference(pods, outcome.victims))
        case wants.Feasible(nodes=nodes):
            if outcome.feasible == nodes:
                return None
            expected, got = difference(nodes, outcome.feasible)
            return Mismatch(expected, got + _why_not(outcome, nodes - outcome.feasible))
        case wants.Filtered(node=node, reason=reason):
            return _filtered(outcome, node, reason, admits_missing=admits_missing)
        case wants.Score(node=node, wanted=wanted):
            if node not in outcome.totals:
                return Mismatch(wanted.text, _why_not(outcome, {node}).removeprefix("; ") or f"{node} has no score")
            if wanted.holds(outcome.totals[node]):
                return None
            return Mismatch(wanted.text, number(outcome.totals[node]), outcome.totals[node])
        case wants.Order(nodes=order):
            return _order(outcome, order)
        case wants.Margin(wanted=wanted):
            margin = _margin(outcome)
            if margin is None:
                return Mismatch(wanted.text, f"{went(outcome)}; there is no next node")
            return None if wanted.holds(margin) else Mismatch(wanted.text, number(margin))
        case wants.Degraded(queries=queries):
            if outcome.degraded == queries:
                return None
            return Mismatch(*difference(queries, outcome.degraded))
        case _:
            assert_never(expectation)


def went(outcome: Outcome) -> str:
    """Return where the pod went and by how much, in one line."""
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
        return Mismatch(expected, went(outcome))
    astray = [name for name in outcome.tied if wanted.holds(facts[name]) is not inside]
    if astray and not tie_ok:
        among = ", ".join(outcome.tied)
        return Mismatch(
            expected,
            f"{outcome.host}, but only by tie-break among {among} (score {number(outcome.totals[outcome.host])} each);"
            " write `tie: ok` where that is meant",
        )
    return None


def _unschedulable(
    outcome: Outcome, reason: Reason, *, policy_clauses: frozenset[str], admits_missing: bool
) -> Mismatch | None:
    expected = f"unschedulable: {reason}"
    if outcome.host is not None:
        return Mismatch(expected, went(outcome))
    if not admits_missing and (undefined := _without_value(outcome, reason)):
        return Mismatch(expected, undefined)
    if reason.clause is None:
        return None if says(reason.message, [outcome.message]) else Mismatch(expected, went(outcome))
    verdict = outcome.verdict(reason.clause)
    decisive = verdict is not None and _decides(verdict, outcome, policy_clauses)
    if verdict is None or not decisive:
        return Mismatch(expected, f"unschedulable for another reason: {outcome.message}")
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


def _decides(verdict: Verdict, outcome: Outcome, policy_clauses: frozenset[str]) -> bool:
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
    expectation: OfAll, placed: Mapping[str, int], *, facts: Mapping[str, NodeFacts], open_to: frozenset[str]
) -> Mismatch | None:
    """Return how the placements of a case differ from what is expected, None where they do not.

    Args:
        expectation: one of a case's expectations.
        placed: how many of its pods are on each node.
        facts: every node, by name.
        open_to: the nodes that were feasible for any of its pods.
    """
    match expectation:
        case wants.Placed(node=None, wanted=wanted):
            total = sum(placed.values())
            return None if wanted.holds(total) else Mismatch(wanted.text, f"{total} ({_spread(placed)})", total)
        case wants.Placed(node=node, wanted=wanted):
            count = placed.get(node or "", 0)
            return None if wanted.holds(count) else Mismatch(wanted.text, f"{count} ({_spread(placed)})", count)
        case wants.MaxSkew(by=by, at_most=at_most):
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
