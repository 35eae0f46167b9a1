"""Syntax tree to typed tree: resolve names, infer types, report what can't be right, and go on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from kube_policy_scheduler.diagnostics import Diagnostic, Span
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions, syntax, typed
from kube_policy_scheduler.lang.checking import calls, folds, operators
from kube_policy_scheduler.lang.checking.dashes import dash
from kube_policy_scheduler.lang.checking.members import read_member
from kube_policy_scheduler.lang.checking.names import name_value
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import ANYWHERE, Scope
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.reading.literals import BYTES, DECIMALS, DURATIONS
from kube_policy_scheduler.lang.types import (
    BYTES as BYTES_UNIT,
)
from kube_policy_scheduler.lang.types import (
    PLAIN,
    SECONDS,
    SHARE,
    TEXT,
    TRUTH,
    Depends,
    Info,
    Kind,
    Literal,
    Shape,
    Type,
    Unit,
    number,
)
from kube_policy_scheduler.wording import one_line

MAX_LEVELS = 160
"""Expressions inside one another once names are expanded; keeps recursion far below Python's limit."""
MAX_COST = 5_000
"""Operations of one expression for one pod: at 1 µs per operation and 1,000 nodes 5 ms."""
MAX_STEPS = 20_000
"""Expressions looked at for one statement: what is called twice is looked at twice."""
MAX_POLICY_COST = 20_000
"""Operations of all expressions of a policy together."""
MAX_POLICY_STEPS = 50_000
"""Expressions looked at for all statements of a policy together: about a second."""
MAX_POLICY_ERRORS = 50
"""As many as people read; what each one needs for its help is the dearest part of checking."""


@dataclass(slots=True)
class Definition:
    """A `let`, `def` or `metric`, and what became of it."""

    tree: syntax.Let | syntax.Def | syntax.Metric
    value: typed.Typed | None = None
    levels: int = 0
    used: bool = False


@dataclass(slots=True)
class Inference:
    """Infers the expressions of one policy."""

    environment: Environment
    definitions: dict[str, Definition] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    """Names that are being expanded."""
    level: int = 0
    deepest: int = 0
    total: int = 0
    """Operations so far."""
    steps: int = 0
    """Expressions looked at for the statement at hand, those of expanded names included."""
    all_steps: int = 0
    """The same for the statements before."""
    inputs: set[Any] = field(default_factory=set)
    """What is read from outside, by names that nothing uses too."""
    is_over: bool = False
    """Whether the policy is larger than one may be, or has very many errors: nothing more is looked at."""
    known_levels: dict[int, tuple[int, typed.Typed]] = field(default_factory=dict)

    def infer(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return what an expression means in a scope."""
        self.level += 1
        self.deepest = max(self.deepest, self.level)
        try:
            self.steps += 1
            if self.level > MAX_LEVELS or self.steps > MAX_STEPS:
                self.deepest = MAX_LEVELS + 1
                return unknown(expr.span)
            if self.is_over or len(self.found) > MAX_POLICY_ERRORS:
                return unknown(expr.span)
            return self._infer(expr, scope)
        finally:
            self.level -= 1

    def top(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return what a whole expression of a statement means, or unknown where it is too large."""
        if self.is_over:
            return unknown(expr.span)
        self.all_steps += self.steps
        self.deepest = self.steps = 0
        before = len(self.found)
        value = self.infer(expr, scope)
        cost = typed.cost(value, {}) if len(self.found) == before and self.deepest <= MAX_LEVELS else 0
        if self.deepest > MAX_LEVELS or cost > MAX_COST:
            message = f"expanded, this takes more than {MAX_COST:,} operations or {MAX_LEVELS} levels"
            self.found.append(codes.COSTLY.at(expr.span, message, help="use each name once, or simplify"))
            value, cost = unknown(expr.span), 0
        self.total += cost
        if self.total > MAX_POLICY_COST:
            self._end(expr, f"with this the policy takes more than {MAX_POLICY_COST:,} operations for every pod")
        elif self.all_steps + self.steps > MAX_POLICY_STEPS:
            self._end(expr, f"with this the policy takes more than {MAX_POLICY_STEPS:,} steps to check")
        return value

    def _end(self, expr: expressions.Expr, message: str) -> None:
        """Report what is too much, and look at nothing more."""
        advice = "split it into policies for different pods, or simplify"
        self.found.append(codes.COSTLY.at(expr.span, message, help=advice))
        self.is_over = True

    def _infer(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        found, span = self.found, expr.span
        match expr:
            case expressions.Number():
                return _number(expr)
            case expressions.Text(value=text):
                return typed.Constant(Info(TEXT), span, text)
            case expressions.Truth(value=true):
                return typed.Constant(Info(TRUTH), span, true)
            case expressions.Name():
                return name_value(self, expr, scope)
            case expressions.Member() | expressions.Index():
                return read_member(self, expr, scope)
            case expressions.Call():
                return calls.call(self, expr, scope)
            case expressions.Aggregate():
                return folds.aggregate(self, expr, scope)
            case expressions.Unary(operator="-", operand=operand):
                return operators.negative(self.infer(operand, scope), found, span=span)
            case expressions.Unary(operand=operand):
                value = operators.truth(self.infer(operand, scope), found)
                return unknown(span) if operators.bad(value) else typed.Not(value.info, span, value)
            case expressions.Binary():
                return self._binary(expr, scope)
            case expressions.Logical(operator=operator, operands=operands):
                return self._logic(operator, [self.infer(o, scope) for o in operands], span)
            case expressions.Conditional(condition=condition, then=then, otherwise=otherwise):
                return operators.choose(
                    self.infer(condition, scope),
                    self.infer(then, scope),
                    self.infer(otherwise, scope),
                    found,
                    span=span,
                )
            case expressions.IsMissing(operand=operand, negated=negated):
                return operators.missing(self.infer(operand, scope), negated=negated, span=span)
            case expressions.LabelTest():
                return self._label_test(expr, scope)
            case expressions.ListOf(items=items):
                return self._list([self.infer(item, scope) for item in items], span)
            case _:
                assert_never(expr)

    def _binary(self, expr: expressions.Binary, scope: Scope) -> typed.Typed:
        if dash(self, expr, scope):
            return unknown(expr.span)
        left, right = self.infer(expr.left, scope), self.infer(expr.right, scope)
        at, span = expr.operator_span, expr.span
        match expr.operator:
            case "+" | "-" | "*" | "/" | "%":
                return operators.arithmetic(expr.operator, left, right, self.found, span=span, at=at)
            case "??":
                if not left.info.maybe and not operators.bad(left):
                    message = f"`{one_line(left.span.text, 40)}` is never missing, so its default is never used"
                    advice = "remove `??` and what follows, or put the comparison before it in parentheses"
                    self.found.append(codes.NEVER_MISSING.at(at, message, help=advice))
                    return unknown(span)
                return operators.otherwise(left, right, self.found, span=span, at=at)
            case "in" | "not in":
                return operators.contained(left, right, self.found, negated=expr.operator != "in", span=span)
            case "matches":
                return calls.matches(self, left, expr, scope)
            case _:
                return operators.comparison(expr.operator, left, right, self.found, span=span, at=at)

    def _logic(self, operator: str, operands: list[typed.Typed], span: Span) -> typed.Typed:
        truths = tuple(operators.truth(operand, self.found) for operand in operands)
        if operators.bad(*truths):
            return unknown(span)
        shape, maybe, depends = operators.joined(*truths)
        return typed.Logic(Info(TRUTH, shape, maybe, depends), span, operator, truths)

    def _list(self, items: list[typed.Typed], span: Span) -> typed.Typed:
        if operators.bad(*items):
            return unknown(span)
        kinds = {item.info.type.kind for item in items}
        if len(kinds) > 1 or kinds & {Kind.LIST, Kind.PODS}:
            self.found.append(operators.wrong_type(items[-1], "items of one kind, text or numbers, in a list"))
            return unknown(span)
        info = Info(Type(Kind.LIST, item=next(iter(kinds), None)))
        if all(isinstance(item, typed.Constant) for item in items):
            return typed.Constant(info, span, tuple(i.value for i in items if isinstance(i, typed.Constant)))
        shape, maybe, depends = operators.joined(*items)
        return typed.Listed(replace(info, shape=shape, maybe=maybe, depends=depends), span, tuple(items))

    def _label_test(self, expr: expressions.LabelTest, scope: Scope) -> typed.Typed:
        environment = self.environment
        source = environment.fields.get(f"{expr.subject}.label")
        if source is None:
            self.found.append(codes.UNKNOWN_FIELD.at(expr.span, f"there is no `{expr.subject}.label` here"))
            return unknown(expr.span)
        info = source.info(expr.key)
        value: typed.Typed = typed.Read(info, expr.span, source, expr.key)
        if not self.allowed(value, scope):
            return unknown(expr.span)
        truth = Info(TRUTH, info.shape, False, info.depends)
        match expr.operator:
            case "exists":
                return typed.Missing(truth, expr.span, True, value)
            case "=" | "!=":
                other = typed.Constant(Info(TEXT), expr.span, expr.values[0])
                return typed.Same(truth, expr.span, expr.operator == "!=", value, other)
            case _:
                values = typed.Constant(Info(Type(Kind.LIST, item=Kind.TEXT)), expr.span, expr.values)
                return typed.Contained(truth, expr.span, expr.operator == "notin", value, values)

    # --- names -------------------------------------------------------------------------------------------

    def reaches(self, levels: int) -> bool:
        """Note that something so many levels deep stands here; return whether that is few enough."""
        self.deepest = max(self.deepest, self.level + levels)
        return self.deepest <= MAX_LEVELS

    def levels(self, value: typed.Typed) -> int:
        """Return how deep a value is."""
        known = self.known_levels.get(id(value))
        if known is None:
            found = 1 + max((self.levels(part) for part in typed.parts(value)), default=0)
            known = self.known_levels[id(value)] = (found, value)  # the id is the value's as long as that lives
        return known[0]

    def value_of(self, definition: Definition, span: Span) -> typed.Typed:
        """Return the value of a `let` or `metric`, inferring it when it is first used."""
        definition.used = True
        name = definition.tree.name
        if definition.value is not None:
            return definition.value
        if not self.enter(name, span):
            return unknown(span)
        level, deepest, self.level, self.deepest = self.level, self.deepest, 0, 0
        try:
            tree = definition.tree
            assert not isinstance(tree, syntax.Def)
            value = calls.metric(self, tree) if isinstance(tree, syntax.Metric) else self.infer(tree.value, ANYWHERE)
            definition.levels = self.deepest
            if definition.levels > MAX_LEVELS:
                message = f"`{name}` stands on more than {MAX_LEVELS} levels of other names"
                self.found.append(codes.COSTLY.at(tree.name_span, message, help="use fewer names inside names"))
                value = unknown(tree.span)
            definition.value = value
        finally:
            self.level, self.deepest = level, deepest
            self.active.pop()
        return value

    def enter(self, name: str, span: Span) -> bool:
        """Begin to expand a name; report and return False where it is being expanded already."""
        if name in self.active:
            ring = " → ".join([*self.active[self.active.index(name) :], name])
            message = f"`{name}` uses itself: {ring}"
            self.found.append(codes.RECURSION.at(span, message, help="there is no recursion; write it out"))
            return False
        if len(self.active) > 30:
            message = "more than 30 names are expanded inside one another"
            self.found.append(codes.COSTLY.at(span, message, help="use fewer names inside names"))
            return False
        self.active.append(name)
        return True

    def allowed(self, value: typed.Typed, scope: Scope) -> bool:
        """Return whether a value may be spoken about here, reporting where it may not."""
        if value.info.shape is Shape.NODE and not scope.nodes:
            message = (
                f"`{one_line(value.span.text, 40)}` differs from node to node, but `{scope.statement}` knows only pods"
            )
            advice = "move it to a `filter`" if not scope.items else "compare it outside the parentheses"
            self.found.append(codes.NO_NODE.at(value.span, message, help=advice))
            return False
        if Depends.FEASIBLE in value.info.depends and not scope.scores:
            message = (
                f"`{one_line(value.span.text, 40)}` compares nodes with each other, which `{scope.statement}` can't"
            )
            self.found.append(codes.NOT_HERE.at(value.span, message, help="use it in a `score`"))
            return False
        return True


def _number(expr: expressions.Number) -> typed.Typed:
    unit: Unit
    literal: Literal | None
    if expr.suffix in DURATIONS:
        unit, literal = SECONDS, None
    elif expr.suffix in BYTES:
        unit, literal = BYTES_UNIT, None
    elif expr.suffix in DECIMALS:
        unit, literal = PLAIN, Literal.DECIMAL
    elif expr.suffix == "m":
        unit, literal = PLAIN, Literal.MILLI
    elif expr.suffix == "%":
        unit, literal = SHARE, Literal.PERCENT
    else:
        unit, literal = PLAIN, Literal.PLAIN
    return typed.Constant(Info(number(unit), low=expr.value, high=expr.value, literal=literal), expr.span, expr.value)
