"""Mutants of statements: clauses left out, conditions dropped, weights and signs, keys, orders, topologies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.formatting.show import show
from kube_policy_scheduler.tooling.mutation.expressions import expression
from kube_policy_scheduler.tooling.mutation.mutant import Mutant


def mutants(file: syntax.File, *, several: bool = False) -> tuple[Mutant, ...]:
    """Return the mutants of one policy file in the order of its text, each once.

    Args:
        file: what to change.
        several: whether other policies are decided with, so that its priority means something.
    """
    found = [mutant for statement in file.statements for mutant in _statement(statement, several=several)]
    unique = {(m.span.start, m.span.end, m.text): m for m in reversed(found) if m.text != m.span.text}
    return tuple(sorted(unique.values(), key=lambda m: (m.span.start, m.span.end, m.kind, m.text)))


def _statement(statement: syntax.Statement, *, several: bool) -> Iterator[Mutant]:
    match statement:
        case syntax.PolicyName() | syntax.SchedulerName() | syntax.UseFile():
            pass
        case syntax.Priority(value=value):
            if several:
                yield from expression(value)
        case syntax.ForPods(condition=condition):
            yield from expression(condition, truth=True)
        case syntax.Canary(condition=condition):
            if condition is not None:
                yield from expression(condition, truth=True)
        case syntax.UseKubernetes(without=without):
            for plugin in without:
                yield _left_out(statement.span, f"a case that {plugin.name} alone decides")
                break
        case syntax.UseScores(weight=weight):
            yield _left_out(statement.span, "a case that the default scores decide")
            if weight is not None:
                yield from expression(weight)
        case syntax.Let(value=value):
            yield from expression(value)
        case syntax.Def(value=value):
            yield from expression(value)
        case syntax.Metric(stale_after=stale, default=default):
            # how often it is asked is nothing that a decision could show
            for part in (stale, default):
                if part is not None:
                    yield from expression(part)
        case _:
            if isinstance(statement, syntax.Clause):
                yield from _clause(statement)


def _clause(clause: syntax.Clause) -> Iterator[Mutant]:
    yield _left_out(clause.span, f"a case that this {_keyword(clause)} decides")
    condition = getattr(clause, "condition", None)
    if condition is not None and not isinstance(clause, syntax.Hold | syntax.Preempt):
        hint = (
            f"a case where `{' '.join(condition.span.text.split())}` is false and this {_keyword(clause)} would matter"
        )
        yield Mutant("condition", condition.span, "true", hint)
        yield from expression(condition, truth=True)
    weight: expressions.Expr | None = getattr(clause, "weight", None)
    if weight is not None:
        yield from expression(weight)
    match clause:
        case syntax.Require(value=value) | syntax.Filter(value=value):
            yield from expression(value, truth=True)
        case syntax.Score(value=value):
            if not (isinstance(value, expressions.Unary) and value.operator == "-"):
                yield Mutant("sign", value.span, f"-({value.span.text})", "a case that this score decides")
            yield from expression(value)
        case syntax.Hold(condition=held):
            yield from expression(held, truth=True)
        case syntax.Order(keys=keys):
            for key in keys:
                yield from _order_key(key, keys)
        case syntax.Spread(key=key, topology=topology, max_skew=skew, min_domains=domains):
            if skew is None:
                yield _keyword_changed(clause.span, "spread", "pack")
            yield from _domains(key, topology)
            for part in (skew, domains):
                if part is not None:
                    yield from expression(part)
        case syntax.Pack(key=key, topology=topology):
            yield _keyword_changed(clause.span, "pack", "spread")
            yield from _domains(key, topology)
        case syntax.Limit(measure=measure, key=key, bound=bound):
            for part in (measure, key, bound):
                yield from expression(part)
        case syntax.Gang(key=key, size=size):
            yield from expression(key)
            yield from expression(size)
        case syntax.Preempt(condition=allowed, evict=evict):
            for truth in (allowed, evict):
                if truth is not None:
                    yield from expression(truth, truth=True)
        case _:
            assert_never(clause)


def _left_out(span: Span, hint: str) -> Mutant:
    return Mutant("clause", span, "", hint)


def _keyword(clause: syntax.Clause) -> str:
    return type(clause).__name__.lower()


def _keyword_changed(span: Span, word: str, other: str) -> Mutant:
    start = Span(span.source, span.start, span.start + len(word))
    return Mutant(
        "clause", start, other, f"a case where a pod with the same key is already there, that tells {word} from {other}"
    )


def _order_key(key: syntax.OrderKey, keys: Sequence[syntax.OrderKey]) -> Iterator[Mutant]:
    text = f"{show(key.value)}{'' if key.descending else ' desc'}"
    hint = f"a burst of pods that differ in {show(key.value)}"
    if len(keys) > 1 and key is not keys[0]:
        hint += " alone"
    yield Mutant("order", key.span, text, hint)
    yield from expression(key.value)


def _domains(key: expressions.Expr, topology: syntax.Topology | None) -> Iterator[Mutant]:
    yield from expression(key)
    if topology is not None and topology.key != "node":
        yield Mutant("topology", topology.span, "node", "a case with two nodes in one domain, one of them empty")
