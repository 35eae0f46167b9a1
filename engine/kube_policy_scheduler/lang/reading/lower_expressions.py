"""Expressions: Lark's reductions to the syntax tree, one method per rule of the grammar.

What the grammar lets through but is no policy (a wrong unit, an escape that is none) is reported here.
"""

# ruff: noqa: D102  (the grammar says what each rule is)

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from lark import Token

from kube_policy_scheduler.diagnostics import Edit, Fix, Span
from kube_policy_scheduler.lang import codes_syntax as codes
from kube_policy_scheduler.lang import expressions
from kube_policy_scheduler.lang.reading.literals import label_problem, number
from kube_policy_scheduler.lang.reading.lowering import at, current, string_value, text_or_word, whole

_WORD_BEFORE = re.compile(r"[A-Za-z]\w*(-\w+)*-$")
AGGREGATES = frozenset({"count", "sum", "min", "max", "avg", "any", "all"})
"""Functions that go over pods."""


@dataclass(frozen=True, slots=True)
class _Members:
    """`p in collection where …` or `x for p in collection where …`, before the function is known."""

    value: expressions.Expr | None
    variable: str
    collection: expressions.Expr
    where: expressions.Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class _Label:
    key: str
    span: Span


@dataclass(frozen=True, slots=True)
class _Condition:
    operator: str
    values: tuple[str, ...]
    span: Span | None


class Expressions:
    """Rules of expressions."""

    def name(self, items: list[Any]) -> expressions.Expr:
        return expressions.Name(str(items[0]), whole(items))

    def number(self, items: list[Any]) -> expressions.Expr:
        text = str(items[0])
        span = whole(items)
        value, suffix, problem = number(text)
        if problem:
            word = _WORD_BEFORE.search(span.source.text, max(0, span.start - 60), span.start)
            fix = None
            if word is not None:
                problem = f'a text stands in quotes: `"{word[0]}{text}"`'
            elif problem.startswith("write `"):
                written = problem.removeprefix("write `").removesuffix("`")
                fix = Fix(f"write {written}", (Edit(span, written),))
            current().report(codes.NUMBER, span, f"`{text}` is not a number or quantity", help=problem, fix=fix)
        return expressions.Number(value, suffix, text, span)

    def text(self, items: list[Any]) -> expressions.Expr:
        return expressions.Text(string_value(items[0]), whole(items))

    def truth(self, items: list[Any]) -> expressions.Expr:
        return expressions.Truth(items[0].type == "TRUE", whole(items))

    def parenthesised(self, items: list[Any]) -> expressions.Expr:
        wide: expressions.Expr = replace(items[1], span=whole(items))
        return wide

    def list_of(self, items: list[Any]) -> expressions.Expr:
        return expressions.ListOf(tuple(items[1]), whole(items))

    def items(self, items: list[Any]) -> list[Any]:
        return [item for item in items if not isinstance(item, Token)]

    arguments = items

    def member(self, items: list[Any]) -> expressions.Expr:
        base, _, name = items
        return expressions.Member(base, str(name), at(name), whole(items))

    def index(self, items: list[Any]) -> expressions.Expr:
        return expressions.Index(items[0], items[2], whole(items))

    def minus(self, items: list[Any]) -> expressions.Expr:
        return expressions.Unary("-", items[1], whole(items))

    def negation(self, items: list[Any]) -> expressions.Expr:
        return expressions.Unary("not", items[1], whole(items))

    def arithmetic(self, items: list[Any]) -> expressions.Expr:
        left, operator, right = items
        return expressions.Binary(str(operator), left, right, at(operator), whole(items))

    def comparator(self, items: list[Any]) -> Token:
        token: Token = items[0]
        return token

    def not_in(self, items: list[Any]) -> Token:
        return Token("NOT_IN", "not in", start_pos=items[0].start_pos, end_pos=items[1].end_pos)

    compare = arithmetic

    def is_missing(self, items: list[Any]) -> expressions.Expr:
        return expressions.IsMissing(items[0], len(items) == 4, whole(items))

    def conjunction(self, items: list[Any]) -> expressions.Expr:
        return self._chain("and", items)

    def disjunction(self, items: list[Any]) -> expressions.Expr:
        return self._chain("or", items)

    def _chain(self, operator: str, items: list[Any]) -> expressions.Expr:
        operands: list[expressions.Expr] = []
        for item in items[::2]:
            if isinstance(item, expressions.Logical) and item.operator == operator:
                operands.extend(item.operands)
            else:
                operands.append(item)
        return expressions.Logical(operator, tuple(operands), whole(items))

    def conditional(self, items: list[Any]) -> expressions.Expr:
        return expressions.Conditional(items[1], items[3], items[5], whole(items))

    # --- calls -------------------------------------------------------------------------------------------

    def named(self, items: list[Any]) -> expressions.Named:
        return expressions.Named(str(items[0]), items[2], whole(items))

    def members(self, items: list[Any]) -> _Members | expressions.Expr:
        inside, _, where = items
        found = self._membership(inside, where)
        if found is None:
            advice = 'write it as `count(p in node.pods where p.label.app == "web")`'
            current().report(codes.UNEXPECTED, inside.span, "`where` belongs after `NAME in PODS`", help=advice)
            return expressions.Truth(True, whole(items))
        return found

    def _membership(self, inside: expressions.Expr, where: expressions.Expr | None) -> _Members | None:
        if (
            isinstance(inside, expressions.Binary)
            and inside.operator == "in"
            and isinstance(inside.left, expressions.Name)
        ):
            span = inside.span.to(where.span) if where else inside.span
            return _Members(None, inside.left.name, inside.right, where, span)
        return None

    def members_of(self, items: list[Any]) -> _Members:
        value, _, variable, _, collection = items[:5]
        where = items[6] if len(items) > 5 else None
        return _Members(value, str(variable), collection, where, whole(items))

    def call(self, items: list[Any]) -> expressions.Expr:
        callee, _, arguments, _ = items
        span, lowering = whole(items), current()
        function = str(callee)
        if len(arguments) == 1 and function in AGGREGATES:
            members = arguments[0]
            if not isinstance(members, _Members):
                members = self._membership(members, None) or members
            if isinstance(members, _Members):
                return expressions.Aggregate(
                    function, members.variable, members.value, members.collection, members.where, at(callee), span
                )
        for argument in arguments:
            if isinstance(argument, _Members):
                advice = f"{', '.join(sorted(AGGREGATES))} go over pods, one at a time"
                lowering.report(codes.UNEXPECTED, argument.span, f"`{function}` does not go over pods", help=advice)
        named = tuple(a for a in arguments if isinstance(a, expressions.Named))
        return expressions.Call(
            function,
            tuple(a for a in arguments if not isinstance(a, expressions.Named | _Members)),
            named,
            at(callee),
            span,
        )

    # --- label tests -------------------------------------------------------------------------------------

    def label_key(self, items: list[Any]) -> _Label:
        key = text_or_word(items[0])
        problem = label_problem(key, of="key")
        if problem:
            current().report(codes.LABEL, at(items[0]), f"`{key}` can't be the key of a label", help=problem)
        return _Label(key, at(items[0]))

    def label_value(self, items: list[Any]) -> _Label:
        value = text_or_word(items[0])
        problem = label_problem(value, of="value")
        if problem:
            current().report(codes.LABEL, at(items[0]), f"`{value}` can't be the value of a label", help=problem)
        return _Label(value, at(items[0]))

    def label_exists(self, items: list[Any]) -> _Condition:
        return _Condition("exists", (), None)

    def label_compare(self, items: list[Any]) -> _Condition:
        operator = "!=" if items[0].type == "NE" else "="
        return _Condition(operator, (items[1].key,), whole(items))

    def label_in(self, items: list[Any]) -> _Condition:
        operator = "in" if items[0].type == "IN" else "notin"
        values = tuple(item.key for item in items if isinstance(item, _Label))
        return _Condition(operator, values, whole(items))

    def label_test(self, items: list[Any]) -> expressions.Expr:
        key, condition = items[-2:]
        subject = "pod" if items[0].type == "POD" else "node"
        span = current().span(items[0], condition if condition.span else key)
        return expressions.LabelTest(subject, key.key, condition.operator, condition.values, span)
