"""Syntax tree to canonical text on one line: what clauses are called, and what the formatter writes."""

from __future__ import annotations

import re
from typing import assert_never

from engine.lang import syntax
from engine.lang.literals import quoted

# how tightly an operator binds; a part that binds less tightly than its place needs parentheses
_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _COALESCE, _UNARY, _POSTFIX = range(10)
_BINARY = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "??": _COALESCE}
_BARE_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?", re.ASCII)
_BARE_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


def show(expr: syntax.Expr, place: int = _CONDITIONAL) -> str:
    """Return the canonical text of an expression; `place` says how tightly its surroundings bind."""
    text, binds = _shown(expr)
    return f"({text})" if binds < place else text


def _shown(expr: syntax.Expr) -> tuple[str, int]:
    match expr:
        case syntax.Number(text=text):
            return text, _UNARY  # `1.x` and `80%.x` would be numbers with wrong units
        case syntax.Text(value=value):
            return quoted(value), _POSTFIX
        case syntax.Truth(value=value):
            return ("true" if value else "false"), _POSTFIX
        case syntax.Name(name=name):
            return name, _POSTFIX
        case syntax.Member(base=base, name=name):
            return f"{show(base, _POSTFIX)}.{name}", _POSTFIX
        case syntax.Index(base=base, key=key):
            return f"{show(base, _POSTFIX)}[{show(key)}]", _POSTFIX
        case syntax.Call(function=function, arguments=arguments, named=named):
            shown = [show(a) for a in arguments] + [f"{n.name}={show(n.value)}" for n in named]
            return f"{function}({', '.join(shown)})", _POSTFIX
        case syntax.Aggregate():
            return _aggregate(expr), _POSTFIX
        case syntax.Unary(operator="-", operand=operand):
            return f"-{show(operand, _UNARY)}", _UNARY
        case syntax.Unary(operand=operand):
            return f"not {show(operand, _NOT)}", _NOT
        case syntax.Binary(operator=operator, left=left, right=right):
            binds = _BINARY.get(operator, _COMPARE)
            # operators of one level group to the left; comparisons do not group at all
            first = binds if binds is not _COMPARE else _SUM
            return f"{show(left, first)} {operator} {show(right, binds + 1)}", binds
        case syntax.Logical(operator=operator, operands=operands):
            binds = _AND if operator == "and" else _OR
            return f" {operator} ".join(show(o, binds + 1) for o in operands), binds
        case syntax.Conditional(condition=condition, then=then, otherwise=otherwise):
            return f"if {show(condition)} then {show(then)} else {show(otherwise)}", _CONDITIONAL
        case syntax.IsMissing(operand=operand, negated=negated):
            return f"{show(operand, _SUM)} is {'not ' if negated else ''}missing", _COMPARE
        case syntax.LabelTest():
            return _label_test(expr), _NOT
        case syntax.ListOf(items=items):
            return f"[{', '.join(show(item) for item in items)}]", _POSTFIX
        case _:
            assert_never(expr)


def _aggregate(expr: syntax.Aggregate) -> str:
    collection = show(expr.collection, _POSTFIX)
    where = f" where {show(expr.where)}" if expr.where is not None else ""
    if expr.value is None:
        return f"{expr.function}({expr.variable} in {collection}{where})"
    return f"{expr.function}({show(expr.value)} for {expr.variable} in {collection}{where})"


def _label_test(expr: syntax.LabelTest) -> str:
    subject = "pod label " if expr.subject == "pod" else "label "
    key = expr.key if _BARE_KEY.fullmatch(expr.key) else quoted(expr.key)
    values = [value if _BARE_VALUE.fullmatch(value) else quoted(value) for value in expr.values]
    match expr.operator:
        case "exists":
            return subject + key
        case "=" | "!=":
            return f"{subject}{key}{expr.operator}{values[0]}"
        case _:
            return f"{subject}{key} {expr.operator} ({', '.join(values)})"


def show_statement(statement: syntax.Statement) -> str:
    """Return the canonical text of a statement, on one line."""
    match statement:
        case syntax.PolicyName(name=name):
            return f"policy {name}"
        case syntax.SchedulerName(name=name):
            return f"scheduler {name}"
        case syntax.ForPods(condition=condition):
            return f"for pods where {show(condition)}"
        case syntax.Priority(value=value):
            return f"priority {show(value)}"
        case syntax.Ties(word=word):
            return f"ties by {word}"
        case syntax.Devices(word=word):
            return f"devices by {word}"
        case syntax.UseKubernetes(without=without):
            names = ", ".join(plugin.name for plugin in without)
            return f"use kubernetes without {names}" if names else "use kubernetes"
        case syntax.UseScores(weight=weight):
            return "use kubernetes scores" + _part("weight", weight)
        case syntax.UseFile(path=path):
            return f"use {quoted(path)}"
        case syntax.Let(name=name, value=value):
            return f"let {name} = {show(value)}"
        case syntax.Def(name=name, parameters=parameters, value=value):
            return f"def {name}({', '.join(p.name for p in parameters)}) = {show(value)}"
        case syntax.Metric():
            parts = _part("every", statement.every) + _part("stale after", statement.stale_after)
            parts += _part("default", statement.default) + (f" by {statement.by}" if statement.by else "")
            return f"metric {statement.name} = {show(statement.query)}{parts}"
        case _:
            return _clause(statement)


def clause_text(clause: syntax.Clause) -> str:
    """Return what a clause says without its keyword and suffixes: `fits(cpu, mem)`."""
    match clause:
        case syntax.Require(value=value) | syntax.Filter(value=value) | syntax.Score(value=value):
            return show(value)
        case syntax.Hold(condition=condition):
            return show(condition)
        case _:
            return show_statement(clause)


def _clause(clause: syntax.Clause) -> str:
    match clause:
        case syntax.Require(value=value) | syntax.Filter(value=value):
            word = "require" if isinstance(clause, syntax.Require) else "filter"
            return f"{word} {show(value)}" + _suffixes(clause)
        case syntax.Score(value=value):
            return f"score {show(value)}" + _suffixes(clause)
        case syntax.Hold(condition=condition):
            return f"hold if {show(condition)}" + _suffixes(clause)
        case syntax.Order(keys=keys):
            return "order by " + ", ".join(show(k.value) + (" desc" if k.descending else "") for k in keys)
        case syntax.Spread(key=key):
            skew = _part("max skew", clause.max_skew) + _part("min domains", clause.min_domains)
            return f"spread by {show(key)}{_over(clause.topology)}{skew}" + _suffixes(clause)
        case syntax.Pack(key=key):
            return f"pack by {show(key)}{_over(clause.topology)}" + _suffixes(clause)
        case syntax.Limit(measure=measure, key=key, bound=bound):
            return f"limit {show(measure)} by {show(key)} to {show(bound)}" + _suffixes(clause)
        case syntax.Gang(key=key, size=size, within=within):
            return f"gang by {show(key)} size {show(size)}{_part('within', within)}" + _suffixes(clause)
        case syntax.Preempt(condition=condition, evict=evict):
            if condition is None:
                return "preempt never"
            return f"preempt if {show(condition)}" + _part("evict where", evict)
        case _:
            assert_never(clause)


def _part(word: str, value: syntax.Expr | None) -> str:
    return f" {word} {show(value)}" if value is not None else ""


def _over(topology: syntax.Topology | None) -> str:
    if topology is None:
        return ""
    return f" over {topology.key if _BARE_KEY.fullmatch(topology.key) else quoted(topology.key)}"


def _suffixes(clause: syntax.Clause) -> str:
    """Return `as NAME if COND else "why" weight N`, as far as the clause has them."""
    text = ""
    name, condition = getattr(clause, "name", None), getattr(clause, "condition", None)
    reason, weight = getattr(clause, "reason", None), getattr(clause, "weight", None)
    if name is not None:
        text += f" as {name}"
    if condition is not None and not isinstance(clause, syntax.Hold):
        text += f" if {show(condition)}"
    if reason is not None:
        text += f" else {quoted(reason)}"
    return text + _part("weight", weight)
