"""What clauses of a policy say about the nodes of a decision, or the pods of a queue, that is not as expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.tooling.tester.expectations import Expectation, OneDecision
from kube_policy_scheduler.tooling.tester.outcome import Outcome, TestedPolicy
from kube_policy_scheduler.tooling.tester.queue_order import Waiting
from kube_policy_scheduler.tooling.tester.wanted import number
from kube_policy_scheduler.tooling.why.scores import PartValues, leaves, part_values

_REJECTING = frozenset({ClauseKind.FILTER, ClauseKind.REQUIRE, ClauseKind.LIMIT})
_MOST_NODES = 3
_MOST_CLAUSES = 4


@dataclass(frozen=True, slots=True)
class Pointer:
    """One subexpression and its values."""

    start: int
    """Offset in the clause's text."""
    end: int
    values: tuple[tuple[str, str], ...]
    """Node and value; the node is "" where it is one value for the whole decision."""


@dataclass(frozen=True, slots=True)
class ClauseValues:
    """A clause as it was written, and what its innermost parts say."""

    place: str
    """`FILE:LINE`"""
    text: str
    """One line."""
    pointers: tuple[Pointer, ...]
    """In the order of the text."""
    scores: tuple[tuple[str, str], ...] = ()
    """Of a score: node, and what the clause adds to its total."""


def values_of_decision(
    expectation: Expectation[OneDecision], outcome: Outcome, policy: TestedPolicy, frame: Frame
) -> tuple[ClauseValues, ...]:
    """Return what explains a decision that is not as expected; the cluster has to be as it was for the decision."""
    if expectation.kind.nodes is None:
        return ()
    if outcome.held is not None or outcome.error is not None:
        chosen = [clause for clause in policy.clauses if clause.kind is ClauseKind.HOLD and outcome.held is not None]
        return tuple(_values(clause, frame, ()) for clause in chosen[:_MOST_CLAUSES])
    rows = frame.cluster.nodes.rows
    nodes = [name for name in expectation.kind.nodes(expectation.wanted, outcome) if name in rows][:_MOST_NODES]
    if outcome.host is None or expectation.kind.about_filters or not set(nodes) & set(outcome.totals):
        rejecting = {
            verdict.clause for verdict in outcome.verdicts if not nodes or verdict.rejected.keys() & set(nodes)
        }
        clauses = [c for c in policy.clauses if c.kind in _REJECTING and (c.name in rejecting or not rejecting)]
        return tuple(_values(clause, frame, nodes) for clause in clauses[:_MOST_CLAUSES])
    clauses = [c for c in policy.clauses if c.kind in (ClauseKind.SCORE, ClauseKind.SPREAD, ClauseKind.PACK)]
    evaluation = evaluate(frame, policy.profile)
    places = {int(row): place for place, row in enumerate(evaluation.feasible)}

    def added(clause: CompiledClause) -> tuple[tuple[str, str], ...]:
        scores = evaluation.scores.get(clause.name)
        if scores is None:
            return ()
        return tuple((name, number(float(scores[places[rows[name]]]))) for name in nodes if rows[name] in places)

    return tuple(replace(_values(clause, frame, nodes), scores=added(clause)) for clause in clauses[:_MOST_CLAUSES])


def values_of_queue(pods: Sequence[Waiting]) -> tuple[ClauseValues, ...]:
    """Return what the `order by` of each policy says of each pod of a queue."""
    found: dict[int, ClauseValues] = {}
    for pod in pods:
        for clause in pod.policy.clauses:
            if clause.kind is not ClauseKind.ORDER:
                continue
            one = _values(clause, pod.frame, ())
            named = tuple(
                replace(part, values=tuple((pod.name, text) for _, text in part.values)) for part in one.pointers
            )
            known = found.get(id(clause))
            if known is not None:
                named = tuple(
                    replace(part, values=(*part.values, *more.values))
                    for part, more in zip(known.pointers, named, strict=True)
                )
            found[id(clause)] = replace(one, pointers=named)
    return tuple(found.values())


def _values(clause: CompiledClause, frame: Frame, nodes: Sequence[str]) -> ClauseValues:
    span = clause.span
    line, _ = span.source.position(span.start)
    text, offsets = _one_line(span.text)
    positions = [frame.cluster.nodes.rows[name] for name in nodes] or [0]
    found = []
    # what stands where another part stands, as the label within `label a=b`, is left to that
    outermost = {part.span.start: part for part in reversed(leaves(clause, (span.start, span.end)))}
    for _, part in sorted(outermost.items()):
        for values in part_values([part], frame, positions):
            if not nodes and not values.same:
                continue
            start, last = offsets[part.span.start - span.start], offsets[part.span.end - span.start - 1]
            found.append(Pointer(start, last + 1, _by_node(values, nodes)))
    return ClauseValues(f"{span.source.name}:{line}", text, tuple(found))


def _by_node(values: PartValues, nodes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    texts = values.texts()
    return (("", texts[0]),) if values.same and texts else tuple(zip(nodes, texts, strict=True))


def _one_line(text: str) -> tuple[str, list[int]]:
    """Return a text with every run of white space as one blank, and where each of its characters went."""
    done: list[str] = []
    offsets = []
    for character in text:
        offsets.append(len(done))
        if not character.isspace():
            done.append(character)
        elif done and done[-1] != " ":
            done.append(" ")
    return "".join(done).rstrip(), offsets
