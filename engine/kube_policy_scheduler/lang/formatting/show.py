"""Syntax tree to canonical text on one line: what clauses are called, and what the formatter writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

import msgspec

from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.reading.literals import quoted
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSES

# how tightly an operator binds; a part that binds less tightly than its place needs parentheses
_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _COALESCE, _UNARY, _POSTFIX = range(10)
_BINARY = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "??": _COALESCE}
_BARE_KEY = r"(?a)[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_BARE_VALUE = r"(?a)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KINDS = {"+": "sum", "-": "sum", "*": "product", "/": "product", "%": "product", "??": "default"}


class _Printer(msgspec.Struct, frozen=True):
    """One canonical text for each tree, except for brackets."""

    keep: bool
    """Whether brackets stay that mix operations more clearly, though the precedence says the same."""

    def show(self, expr: expressions.Expr, place: int = _CONDITIONAL, *, around: expressions.Expr | None = None) -> str:
        """Return the text of an expression.

        Args:
            expr: the expression.
            place: how tightly its surroundings bind.
            around: the operation that it is an operand of.
        """
        text, binds = self._shown(expr)
        return f"({text})" if binds < place or (around is not None and self._clarified(expr, around)) else text

    def _clarified(self, expr: expressions.Expr, around: expressions.Expr) -> bool:
        """Return whether brackets that are to be kept stand around an operand: operations of two kinds were mixed."""
        return self.keep and _mixed(expr, around) and _bracketed(expr)

    def _shown(self, expr: expressions.Expr) -> tuple[str, int]:
        match expr:
            case expressions.Number(text=text):
                return text, _UNARY  # `1.x` and `80%.x` would be numbers with wrong units
            case expressions.Text(value=value):
                return quoted(value), _POSTFIX
            case expressions.Truth(value=value):
                return ("true" if value else "false"), _POSTFIX
            case expressions.Name(name=name):
                return name, _POSTFIX
            case expressions.Member(base=base, name=name):
                return f"{self.show(base, _POSTFIX)}.{name}", _POSTFIX
            case expressions.Index(base=base, key=key):
                return f"{self.show(base, _POSTFIX)}[{self.show(key)}]", _POSTFIX
            case expressions.Call(function=function, arguments=arguments, named=named):
                shown = [self.show(a) for a in arguments] + [f"{n.name}={self.show(n.value)}" for n in named]
                distinct = "distinct " if expr.distinct else ""
                return f"{function}({distinct}{', '.join(shown)})", _POSTFIX
            case expressions.Aggregate():
                return self._aggregate(expr), _POSTFIX
            case expressions.Unary(operator="-", operand=operand):
                return f"-{self.show(operand, _UNARY)}", _UNARY
            case expressions.Unary(operand=operand):
                return f"not {self.show(operand, _NOT, around=expr)}", _NOT
            case expressions.Binary(operator=operator, left=left, right=right):
                binds = _BINARY.get(operator, _COMPARE)
                # operators of one level group to the left; comparisons do not group at all
                first = binds if binds is not _COMPARE else _SUM
                return (
                    f"{self.show(left, first, around=expr)} {operator} {self.show(right, binds + 1, around=expr)}",
                    binds,
                )
            case expressions.Logical(operator=operator, operands=operands):
                binds = _AND if operator == "and" else _OR
                return f" {operator} ".join(self.show(o, binds + 1, around=expr) for o in operands), binds
            case expressions.Conditional(condition=condition, then=then, otherwise=otherwise):
                return f"if {self.show(condition)} then {self.show(then)} else {self.show(otherwise)}", _CONDITIONAL
            case expressions.IsMissing(operand=operand, negated=negated):
                return f"{self.show(operand, _SUM)} is {'not ' if negated else ''}missing", _COMPARE
            case expressions.LabelTest():
                return self._label_test(expr), _NOT
            case expressions.ListOf(items=items):
                return f"[{', '.join(self.show(item) for item in items)}]", _POSTFIX
            case _:
                assert_never(expr)

    def _aggregate(self, expr: expressions.Aggregate) -> str:
        collection = self.show(expr.collection, _POSTFIX)
        where = f" where {self.show(expr.where)}" if expr.where is not None else ""
        if expr.value is None:
            return f"{expr.function}({expr.variable} in {collection}{where})"
        distinct = "distinct " if expr.distinct else ""
        return f"{expr.function}({distinct}{self.show(expr.value)} for {expr.variable} in {collection}{where})"

    def _label_test(self, expr: expressions.LabelTest) -> str:
        subject = "pod label " if expr.subject == "pod" else "label "
        key = expr.key if re.fullmatch(_BARE_KEY, expr.key) else quoted(expr.key)
        values = [value if re.fullmatch(_BARE_VALUE, value) else quoted(value) for value in expr.values]
        match expr.operator:
            case "exists":
                return subject + key
            case "=" | "!=":
                return f"{subject}{key}{expr.operator}{values[0]}"
            case _:
                return f"{subject}{key} {expr.operator} ({', '.join(values)})"

    def show_statement(self, statement: syntax.Statement) -> str:
        """Return the canonical text of a statement, on one line."""
        match statement:
            case syntax.Language(version=version):
                return f"language {version}"
            case syntax.PolicyName(name=name):
                return f"policy {name}"
            case syntax.SchedulerName(name=name):
                return f"scheduler {name}"
            case syntax.ForPods(condition=condition):
                return f"for pods where {self.show(condition)}"
            case syntax.ForWorkloads(condition=condition):
                return f"for workloads where {self.show(condition)}"
            case syntax.Priority(value=value):
                return f"priority {self.show(value)}"
            case syntax.Canary(of=of, share=share, condition=condition):
                pods = f"pods where {self.show(condition)}" if condition is not None else ""
                chosen = " of ".join(part for part in (self.show(share) if share is not None else "", pods) if part)
                return f"canary of {of} for {chosen}"
            case syntax.Ties(word=word):
                return f"ties by {word}"
            case syntax.Devices(keys=keys):
                return f"devices by {self._keys(keys)}"
            case syntax.Domains(keys=keys):
                return f"domains by {self._keys(keys)}"
            case syntax.Queue(name=name, parent=parent, pods=pods, key=key):
                of = f" of {parent}" if parent is not None else ""
                taken = self._part("for pods where", pods) + self._part("by", key)
                return f"queue {name}{of}{taken}" + self._clauses("queue", statement)
            case syntax.Reclaim():
                return "reclaim" + self._clauses("reclaim", statement)
            case syntax.Backfill():
                return "backfill" + self._clauses("backfill", statement)
            case syntax.Rebalance():
                return "rebalance" + self._clauses("rebalance", statement)
            case syntax.UseKubernetes(without=without):
                names = ", ".join(plugin.name for plugin in without)
                return f"use kubernetes without {names}" if names else "use kubernetes"
            case syntax.UseKarmada(without=without):
                names = ", ".join(plugin.name for plugin in without)
                return f"use karmada without {names}" if names else "use karmada"
            case syntax.Choose(fewest=fewest, largest=largest):
                return f"choose {self.show(fewest)}{self._part('to', largest)} clusters" + self._clauses(
                    "choose", statement
                )
            case syntax.Divide(levels=levels):
                return f"divide {' then '.join(map(self._division, levels))}" + self._clauses("divide", statement)
            case syntax.Keep(running=running):
                return f"keep {'running' if running else 'nothing'}"
            case syntax.UseScores(weight=weight, without=without, weights=weights):
                left_out = f" without {', '.join(plugin.name for plugin in without)}" if without else ""
                by_name = ", ".join(f"{each.plugin.name} weight {self.show(each.weight)}" for each in weights)
                named = f" with {by_name}" if weights else ""
                return "use kubernetes scores" + self._part("weight", weight) + left_out + named
            case syntax.UseFile(path=path):
                return f"use {quoted(path)}"
            case syntax.Let(name=name, value=value, low=low, high=high):
                return f"let {name} = {self.show(value)}" + self._part("from", low) + self._part("to", high)
            case syntax.Def(name=name, parameters=parameters, value=value):
                return f"def {name}({', '.join(p.name for p in parameters)}) = {self.show(value)}"
            case syntax.Metric(name=name, query=query):
                return f"metric {name} = {self.show(query)}" + self._clauses("metric", statement)
            case _:
                return self._clause(statement)

    def clause_text(self, clause: syntax.Clause) -> str:
        """Return what a clause says without its keyword and suffixes: `fits(cpu, mem)`."""
        match clause:
            case syntax.Require(value=value) | syntax.Filter(value=value) | syntax.Score(value=value):
                return self.show(value)
            case syntax.Hold(value=value):
                return self.show(value)
            case _:
                return self.show_statement(clause)

    def _clause(self, clause: syntax.Clause) -> str:
        match clause:
            case syntax.Require(value=value):
                return f"require {self.show(value)}" + self._clauses("require", clause)
            case syntax.Filter(value=value):
                return f"filter {self.show(value)}" + self._clauses("filter", clause)
            case syntax.Score(value=value):
                return f"score {self.show(value)}" + self._clauses("score", clause)
            case syntax.Hold(value=value):
                return f"hold if {self.show(value)}" + self._clauses("hold", clause)
            case syntax.Order(keys=keys):
                return f"order by {self._keys(keys)}" + self._clauses("order", clause)
            case syntax.Spread(key=key):
                return f"spread by {self.show(key)}" + self._clauses("spread", clause)
            case syntax.Pack(key=key):
                return f"pack by {self.show(key)}" + self._clauses("pack", clause)
            case syntax.Limit(measure=measure, key=key, bound=bound):
                shown = f"limit {self.show(measure)}{self._part('by', key)} to {self.show(bound)}"
                return shown + self._clauses("limit", clause)
            case syntax.Gang(key=key, size=size):
                return f"gang by {self.show(key)} size {self.show(size)}" + self._clauses("gang", clause)
            case syntax.Preempt(condition=condition, evict=evict):
                if condition is None:
                    return "preempt never"
                return f"preempt if {self.show(condition)}" + self._part("evict where", evict)
            case _:
                assert_never(clause)

    def _keys(self, keys: Sequence[syntax.OrderKey]) -> str:
        return ", ".join(self.show(key.value) + (" desc" if key.descending else "") for key in keys)

    def _clauses(self, keyword: str, statement: syntax.Statement) -> str:
        """Return the clauses that a statement has, in their order: ` as NAME if COND else "why" weight N`."""
        said = BY_KEYWORD[keyword]
        shown = ((word, self._part(word, getattr(statement, CLAUSES[word]))) for word in said.clauses)
        return "".join(f"{part} {said.behind[word]}" if part and word in said.behind else part for word, part in shown)

    def _division(self, level: syntax.Division) -> str:
        over = f"over {self._member(level.topology)} " if level.topology is not None else ""
        return over + (level.word or self._part("by", level.value)[1:] or self._part("target", level.targets)[1:])

    def _member(self, role: syntax.Role | syntax.Target | syntax.Topology | syntax.Amount) -> str:
        """Return the canonical text of an item of a clause: `2 of role=worker`, `spot 70%`, `rack`, `cpu 400`."""
        if isinstance(role, syntax.Amount):
            resource = role.resource if re.fullmatch(_BARE_KEY, role.resource) else quoted(role.resource)
            return f"{resource} {self.show(role.amount)}"
        if isinstance(role, syntax.Topology):
            return role.key if re.fullmatch(_BARE_KEY, role.key) else quoted(role.key)
        if isinstance(role, syntax.Target):
            value = role.value if re.fullmatch(_BARE_VALUE, role.value) else quoted(role.value)
            return f"{value} {self.show(role.share)}"
        return f"{self.show(role.number)} of {self._label_test(role.label).removeprefix('pod label ')}"

    def _series_key(self, key: syntax.SeriesKey) -> str:
        return key.label + (f" as {self.show(key.value)}" if key.value is not None else "")

    def _part(
        self,
        word: str,
        value: expressions.Expr
        | syntax.Topology
        | syntax.Counting
        | syntax.SeriesKey
        | tuple[syntax.Role, ...]
        | tuple[syntax.Target, ...]
        | tuple[syntax.Topology, ...]
        | tuple[syntax.Amount, ...]
        | str
        | bool
        | None,
    ) -> str:
        match value:
            case None | False:
                return ""
            case True:
                return f" {word}"
            case tuple():
                separator = " or " if word == "within one" else ", "
                return f" {word} {separator.join(self._member(each) for each in value)}"
            case syntax.SeriesKey():
                keys = (value, value.also) if value.also is not None else (value,)
                return f" {word} {', '.join(self._series_key(key) for key in keys)}"
            case syntax.Topology():
                return f" {word} {self._member(value)}"
            case syntax.Counting(words=words):
                return f" {word} {', '.join(words)} nodes"
            case str():
                return f" {word} {quoted(value) if word == 'else' else value}"
            case _:
                return f" {word} {self.show(value)}"


def _mixed(expr: expressions.Expr, around: expressions.Expr) -> bool:
    """Return whether an operation inside another one is easily read in another order than it has."""
    match expr, around:
        case expressions.Logical(operator=inner), expressions.Logical(operator=outer):
            return inner != outer
        case expressions.Binary(operator=inner), expressions.Binary(operator=outer) if inner in _KINDS:
            return _KINDS[inner] != _KINDS.get(outer) and (outer in _KINDS or inner == "??")
        case expressions.Binary(), expressions.Unary(operator="not"):
            return True
        case _:
            return False


def _bracketed(expr: expressions.Expr) -> bool:
    """Return whether an operation stands in brackets of its own where it was written."""
    match expr:
        case expressions.Logical(operands=(first, *_)) | expressions.Binary(left=first):
            start = expr.span.start
            return expr.span.source.text.startswith("(", start) and first.span.start > start
        case _:
            return False


def show(expr: expressions.Expr) -> str:
    """Return the canonical text of an expression."""
    return _CANONICAL.show(expr)


def show_statement(statement: syntax.Statement) -> str:
    """Return the canonical text of a statement, on one line."""
    return _CANONICAL.show_statement(statement)


def clause_text(clause: syntax.Clause) -> str:
    """Return what a clause says without its keyword and suffixes: `fits(cpu, mem)`."""
    return _CANONICAL.clause_text(clause)


def formatted_statement(statement: syntax.Statement) -> str:
    """Return the canonical text of a statement, on one line, with the brackets that someone wrote to be clear."""
    return _FORMATTER.show_statement(statement)


_CANONICAL, _FORMATTER = _Printer(keep=False), _Printer(keep=True)
