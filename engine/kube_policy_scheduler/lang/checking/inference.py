"""Syntax tree to typed tree: resolve names, infer types, report what cannot be right, and continue.

The whole recursion over expressions; its helpers are in `scope`, `operators` and `units`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, assert_never

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Span, closest
from kube_policy_scheduler.lang import codes, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import Definition
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.earlier import Earlier, Work
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.units import common_unit, constant_number, in_unit
from kube_policy_scheduler.lang.environment import (
    CLUSTER,
    OF_PODS,
    OF_WORKLOADS,
    Environment,
    Field,
    Key,
    QueryInput,
    QueryKey,
    Subject,
)
from kube_policy_scheduler.lang.expressions import AGGREGATES
from kube_policy_scheduler.lang.queries import QUERY_FUNCTION
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.literals import BYTES, CORES, DECIMALS, DURATIONS, SUFFIXES, label_problem
from kube_policy_scheduler.lang.signature import Builtin, Parameter, Receives, TypeSpec
from kube_policy_scheduler.lang.statements import STATEMENTS, WORKLOADS
from kube_policy_scheduler.lang.types import BYTES as BYTES_UNIT
from kube_policy_scheduler.lang.types import CORES as CORES_UNIT
from kube_policy_scheduler.lang.types import (
    NATIVE_RESOURCES,
    NUMBER,
    PLAIN,
    RESOURCE_WORDS,
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
    resource_name,
)
from kube_policy_scheduler.lang.versions import release_number
from kube_policy_scheduler.lang.walk import walk
from kube_policy_scheduler.wording import one_line, plural, shortened, some

OF_RUNNING_PODS = Depends.TEMPLATE | Depends.OWN | Depends.RUN | Depends.CLOCK
"""What aggregates may read of the pods on nodes."""
_NONE: Mapping[str, typed.Typed] = MappingProxyType({})
_NO_VARIABLES: Mapping[str, typed.Variable] = MappingProxyType({})


class Scope(msgspec.Struct, frozen=True):
    """The place of an expression."""

    statement: str
    """Its name in messages: `filter`, `for pods where`."""
    nodes: bool = True
    """Whether nodes may be used."""
    scores: bool = False
    """Whether nodes may be compared with each other."""
    devices: bool = False
    """Whether one device of a node may be read."""
    parameters: Mapping[str, typed.Typed] = msgspec.field(default_factory=lambda: _NONE)
    """Of the `def` that is expanded."""
    items: frozenset[str] = frozenset()
    """Names of an existing pod."""
    node_items: frozenset[str] = frozenset()
    """Names of a node that an aggregate iterates over."""
    variables: Mapping[str, typed.Variable] = msgspec.field(default_factory=lambda: _NO_VARIABLES)
    """Names of an item of a list."""
    item_depends: Depends = Depends.TEMPLATE
    """What may be read of an existing pod."""
    part: str = ""
    """What it is of a statement that groups pods: its `key`, or an `amount`: a bound or a size."""
    bare_item: bool = False
    """Whether fields of an existing pod are written without a name before them, as in `limit sum(request.cpu)`."""

    @property
    def bound(self) -> tuple[str, ...]:
        """Return all names that aggregates around it give."""
        return (*self.items, *self.node_items, *self.variables)

    def over(self, name: str, *, statement: str) -> Scope:
        """Return the scope inside `… for name in pods`."""
        return msgspec.structs.replace(
            self, statement=statement, items=frozenset({name}), nodes=False, scores=False, item_depends=OF_RUNNING_PODS
        )

    def over_nodes(self, name: str, *, statement: str) -> Scope:
        """Return the scope inside `… for name in nodes`."""
        return msgspec.structs.replace(
            self, statement=statement, node_items=frozenset({name}), nodes=False, scores=False
        )

    def over_list(self, variable: typed.Variable) -> Scope:
        """Return the scope inside `… for variable in list`."""
        return msgspec.structs.replace(self, variables=MappingProxyType({variable.name: variable}), scores=False)


ONE_EXPRESSION = "eval"
"""The statement of a scope that is no statement: an expression alone."""
ANYWHERE = Scope("let", nodes=True, scores=True, devices=True)


MAX_LEVELS = 160
"""Nested expressions after the expansion of names; keeps recursion far below Python's limit."""
MAX_COST = 5_000
"""Operations of one expression for one pod: at 1 µs per operation and 1,000 nodes 5 ms."""
MAX_STEPS = 20_000
"""Expressions checked for one statement: what is called twice counts twice."""
MAX_POLICY_COST = 20_000
"""Operations of all expressions of a policy together."""
MAX_POLICY_STEPS = 50_000
"""Expressions checked for all statements of a policy together: about a second."""
MAX_POLICY_ERRORS = 50
"""As many as people read; the help of each is the most expensive part of checking."""


class Inference(msgspec.Struct):
    """Infers the expressions of one policy."""

    environment: Environment
    unread_names: frozenset[str] = frozenset()
    """Names whose definitions could not be read: their values are unknown, and nothing more is reported of them."""
    definitions: dict[str, Definition] = msgspec.field(default_factory=dict)
    found: list[Diagnostic] = msgspec.field(default_factory=list)
    active: list[str] = msgspec.field(default_factory=list)
    """Names that are being expanded."""
    level: int = 0
    deepest: int = 0
    total: int = 0
    """Operations so far."""
    steps: int = 0
    """Expressions checked for the current statement, including those of expanded names."""
    all_steps: int = 0
    """The same for the statements before."""
    inputs: set[Any] = msgspec.field(default_factory=set)
    """What is read from outside, also by unused names."""
    is_over: bool = False
    """Whether the policy is too large, or has very many errors: the rest is skipped."""
    known_levels: dict[int, tuple[int, typed.Typed]] = msgspec.field(default_factory=dict)
    earlier: Earlier | None = None
    """What the check before found."""
    works: list[Work] = msgspec.field(default_factory=list)
    """For what is being checked: a statement, and the definitions that are being expanded."""
    done: dict[str, Work] = msgspec.field(default_factory=dict)
    """By name, of definitions that have values."""
    most_nested: int = 0

    @property
    def subject(self) -> Subject:
        """Return what the policy decides about."""
        return self.environment.subject

    def infer(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return the typed expression in a scope."""
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

    def infer_root(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return the typed form of a whole expression of a statement, or unknown if it is too large."""
        if self.is_over:
            return unknown(expr.span)
        self.all_steps += self.steps
        self.deepest = self.steps = 0
        before = len(self.found)
        value = self.infer(expr, scope)
        cost = typed.cost(value, {}) if len(self.found) == before and self.deepest <= MAX_LEVELS else 0
        if self.deepest > MAX_LEVELS or cost > MAX_COST:
            message = f"after expansion, this needs more than {MAX_COST:,} operations or {MAX_LEVELS} levels"
            self.found.append(codes.COSTLY.at(expr.span, message, help="use each name once, or simplify"))
            value, cost = unknown(expr.span), 0
        self.total += cost
        if self.total > MAX_POLICY_COST:
            self._end(expr, f"with this, the policy needs more than {MAX_POLICY_COST:,} operations for each pod")
        elif self.all_steps + self.steps > MAX_POLICY_STEPS:
            self._end(expr, f"with this, the policy needs more than {MAX_POLICY_STEPS:,} steps to check")
        return value

    def _end(self, expr: expressions.Expr, message: str) -> None:
        """Report what exceeds the limit, and stop."""
        advice = "split it into policies for different pods, or simplify"
        self.found.append(codes.COSTLY.at(expr.span, message, help=advice))
        self.is_over = True

    def _infer(self, expr: expressions.Expr, scope: Scope) -> typed.Typed:
        found, span = self.found, expr.span
        match expr:
            case expressions.Number():
                return _number(expr)
            case expressions.Text(value=text):
                return typed.Constant(Info(TEXT, words=frozenset((text,))), span, text)
            case expressions.Truth(value=true):
                return typed.Constant(Info(TRUTH), span, true)
            case expressions.Name():
                return name_value(self, expr, scope)
            case expressions.Member() | expressions.Index():
                return read_member(self, expr, scope)
            case expressions.Call():
                return call_value(self, expr, scope)
            case expressions.Aggregate():
                return aggregate_value(self, expr, scope)
            case expressions.Unary(operator="-", operand=operand):
                return operators.negative(self.infer(operand, scope), found, span=span)
            case expressions.Unary(operand=operand):
                value = operators.truth(self.infer(operand, scope), found)
                return unknown(span) if operators.has_unknown(value) else typed.Not(value.info, span, value)
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
                return self._list([self._item(item, scope) for item in items], span)
            case _:
                assert_never(expr)

    def _binary(self, expr: expressions.Binary, scope: Scope) -> typed.Typed:
        if report_dash(self, expr, scope) or _report_null(self, expr):
            return unknown(expr.span)
        left, right = self.infer(expr.left, scope), self.infer(expr.right, scope)
        at, span = expr.operator_span, expr.span
        match expr.operator:
            case "+" | "-" | "*" | "/" | "%":
                return operators.arithmetic(expr.operator, left, right, self.found, span=span, at=at)
            case "??":
                return operators.otherwise(left, right, self.found, span=span, at=at)
            case "in" | "not in":
                return operators.contained(left, right, self.found, negated=expr.operator != "in", span=span)
            case "matches":
                return matches_value(self, left, expr, scope)
            case _:
                return operators.comparison(expr.operator, left, right, self.found, span=span, at=at)

    def _logic(self, operator: str, operands: list[typed.Typed], span: Span) -> typed.Typed:
        truths = tuple(operators.truth(operand, self.found) for operand in operands)
        if operators.has_unknown(*truths):
            return unknown(span)
        shape, maybe, depends = operators.joined(*truths)
        return typed.Logic(Info(TRUTH, shape, maybe, depends), span, operator, truths)

    def _item(self, item: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return an item of a list; an unknown name is probably a text: `in [amd64]`."""
        known = (*self.definitions, *self.unread_names, *scope.parameters, *scope.bound)
        if not isinstance(item, expressions.Name) or item.name in known or item.name in self.environment.builtins:
            return self.infer(item, scope)
        if item.name in self.subject.roots or closest(item.name, known) or item.name.lower() in foreign.NAMES:
            return self.infer(item, scope)
        if scope.bare_item and f"{self.subject.decided}.{item.name}" in self.environment.fields:
            return self.infer(item, scope)
        written = f'"{item.name}"'
        message, fix = (
            f"`{item.name}` is a text, but has no quotes",
            Fix(f"write {written}", (Edit(item.span, written),)),
        )
        self.found.append(codes.UNKNOWN_NAME.at(item.span, message, help=f"write `{written}`", fix=fix))
        return unknown(item.span)

    def _list(self, items: list[typed.Typed], span: Span) -> typed.Typed:
        if operators.has_unknown(*items):
            return unknown(span)
        kinds = {item.info.type.kind for item in items}
        if len(kinds) > 1 or kinds - {Kind.TEXT, Kind.NUMBER}:
            advice = {
                Kind.TRUTH: "join conditions with `and` or `or`",
                Kind.VERSION: "compare with each of them, joined with `or`",
            }.get(items[-1].info.type.kind, "")
            self.found.append(operators.wrong_type(items[-1], "list items of one type, text or numbers", advice=advice))
            return unknown(span)
        info = Info(Type(Kind.LIST, item=next(iter(kinds), None)))
        if all(isinstance(item, typed.Constant) for item in items):
            return typed.Constant(info, span, tuple(i.value for i in items if isinstance(i, typed.Constant)))
        shape, maybe, depends = operators.joined(*items)
        return typed.ListOf(
            msgspec.structs.replace(info, shape=shape, maybe=maybe, depends=depends), span, tuple(items)
        )

    def _label_test(self, expr: expressions.LabelTest, scope: Scope) -> typed.Typed:
        if expr.subject == "pod" and self.subject is not OF_PODS:
            message = "`pod label …` is about pods, and this policy is about workloads"
            advice = f'write `workload.label["{one_line(expr.key, 40)}"]`, and compare it'
            self.found.append(codes.SUBJECT.at(expr.span, message, help=advice))
            return unknown(expr.span)
        subject = expr.subject if expr.subject == "pod" else self.subject.row
        source = self.environment.fields.get(f"{subject}.label")
        if source is None:
            self.found.append(codes.UNKNOWN_FIELD.at(expr.span, f"there is no `{expr.subject}.label` here"))
            return unknown(expr.span)
        info = source.info(expr.key)
        if scope.bare_item and expr.subject == "pod":
            info = msgspec.structs.replace(info, shape=Shape.ITEM)
        value: typed.Typed = typed.Read(info, expr.span, source, expr.key)
        if expr.subject == "node" and not scope.nodes and not scope.node_items:
            shown, name = one_line(expr.span.text, 40), self.subject.name
            message = f"`{shown}` depends on the {self.subject.row}, but `{scope.statement}` can use only {name}"
            advice = f"for the label of the pod write `pod {shown}`"
            if self.subject is not OF_PODS:
                advice = f'for the label of the workload write `workload.label["{one_line(expr.key, 40)}"] == "…"`'
            self.found.append(codes.NO_NODE.at(expr.span, message, help=advice))
            return unknown(expr.span)
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
        """Record an expression of this depth; return whether the depth is allowed."""
        self.deepest = max(self.deepest, self.level + levels)
        return self.deepest <= MAX_LEVELS

    def levels(self, value: typed.Typed) -> int:
        """Return the depth of a value."""
        known = self.known_levels.get(id(value))
        if known is None:
            found = 1 + max((self.levels(part) for part in typed.parts(value)), default=0)
            known = self.known_levels[id(value)] = (found, value)  # the id is the value's as long as that lives
        return known[0]

    @property
    def steps_so_far(self) -> int:
        """Return the expressions checked so far."""
        return self.all_steps + self.steps

    def begin(self) -> None:
        """Begin to count the work for a statement or a definition."""
        self.works.append(Work(-self.steps_so_far, -self.total))

    def end(self) -> Work:
        """Return the work since the last `begin` that did not end yet."""
        work = self.works.pop()
        whole = work.steps + self.steps_so_far
        work.steps, work.cost = whole - work.of_others, work.cost + self.total
        if self.works:
            self.works[-1].of_others += whole
        return work

    def use(self, definition: Definition) -> None:
        """Note that a definition is used."""
        definition.used = True
        if self.works:
            self.works[-1].names[definition.tree.name] = None

    def read(self, inputs: Iterable[Any]) -> None:
        """Note what is read from outside."""
        self.inputs.update(inputs)
        if self.works:
            self.works[-1].inputs.update(inputs)

    def repeat(self, work: Work, span: Span) -> None:
        """Count work that was done before."""
        for name in work.names:
            definition = self.definitions[name]
            if isinstance(definition.tree, syntax.Def):
                self.use(definition)
            else:
                self.value_of(definition, span)
        self.steps += work.steps
        self.total += work.cost
        self.read(work.inputs)

    def value_of(self, definition: Definition, span: Span) -> typed.Typed:
        """Return the value of a `let` or `metric`, inferred on first use."""
        self.use(definition)
        name = definition.tree.name
        if definition.value is not None:
            return definition.value
        if not self.enter(name, span):
            return unknown(span)
        self.begin()
        known = self.earlier.work_of_name(name) if self.earlier is not None else None
        if self.earlier is not None and known is not None:
            self.repeat(known, span)
            definition.value, definition.levels = self.earlier.value(name)
            self.active.pop()
            self.done[name] = self.end()
            return definition.value
        level, deepest, self.level, self.deepest = self.level, self.deepest, 0, 0
        try:
            tree = definition.tree
            assert not isinstance(tree, syntax.Def)
            value = metric_value(self, tree) if isinstance(tree, syntax.Metric) else self.infer(tree.value, ANYWHERE)
            definition.levels = self.deepest
            if definition.levels > MAX_LEVELS:
                message = f"`{name}` uses more than {MAX_LEVELS} levels of other names"
                self.found.append(codes.COSTLY.at(tree.name_span, message, help="use fewer names inside names"))
                value = unknown(tree.span)
            definition.value = value
        finally:
            self.level, self.deepest = level, deepest
            self.active.pop()
            self.done[name] = self.end()
        return value

    def enter(self, name: str, span: Span) -> bool:
        """Begin to expand a name; report and return False if it is being expanded already."""
        if name in self.active:
            self.found.append(recursion(span, self.active[self.active.index(name) :]))
            return False
        if len(self.active) > 30:
            message = "more than 30 names are nested"
            self.found.append(codes.COSTLY.at(span, message, help="use fewer names inside names"))
            return False
        self.active.append(name)
        self.most_nested = max(self.most_nested, len(self.active))
        return True

    def allowed(self, value: typed.Typed, scope: Scope) -> bool:
        """Return whether a value may be used here, and report it if it may not."""
        if Depends.DEVICE in value.info.depends and not scope.devices:
            message = f"`{one_line(value.span.text, 40)}` is about one device, which `{scope.statement}` cannot use"
            self.found.append(codes.NOT_HERE.at(value.span, message, help="use it in `devices by`"))
            return False
        row, decided = self.subject.roots
        if value.info.shape is Shape.NODE and not scope.nodes:
            shown = one_line(value.span.text, 40)
            message = f"`{shown}` depends on the {row}, but `{scope.statement}` can use only {self.subject.name}"
            advice = "move it to a `filter`" if not scope.items else "compare it outside the parentheses"
            if scope.statement == ONE_EXPRESSION:
                advice = "an expression is about nodes, or with `p.…` about running pods"
            elif scope.part == "amount":
                advice = f"it must be the same for all {self.subject.rows}: write a number, or one that follows from"
                advice += f" the {decided}"
            elif scope.part == "key":
                advice = (
                    "group by a text of the pod, such as a label; for each node or zone, add `over node` or `over zone`"
                )
            elif scope.statement == "order by":
                advice = f"the queue is ordered before there is a {row}: use a `score`"
            if value.info.depends & Depends.SIGNAL and not scope.items:
                advice = (
                    f'name it: `metric NAME = promql("…") for {self.subject.everything}` is one value, and'
                    f" `… by LABEL as {decided}.label.KEY` one for each {decided}"
                )
            for name in scope.node_items:
                message = f"`{one_line(value.span.text, 40)}` is about the candidate node, not about `{name}`"
                advice = (
                    f"write `{name}.…`; for the nodes in the zone of the candidate node, write `zone.nodes`,"
                    " and for all others subtract those: `count(n in cluster.nodes) - count(n in zone.nodes)`"
                )
            self.found.append(codes.NO_NODE.at(value.span, message, help=advice))
            return False
        if Depends.FEASIBLE in value.info.depends and not scope.scores:
            shown = one_line(value.span.text, 40)
            message = f"`{shown}` compares {self.subject.rows}, which `{scope.statement}` cannot do"
            self.found.append(codes.NOT_HERE.at(value.span, message, help="use it in a `score`"))
            return False
        return True


def recursion(span: Span, ring: Sequence[str]) -> Diagnostic:
    """Return the diagnostic of names that use each other in a ring, the first one at a place."""
    message = f"`{ring[0]}` uses itself: {' → '.join([*ring, ring[0]])}"
    return codes.RECURSION.at(span, message, help="recursion is not allowed; write out the expression")


def _number(expr: expressions.Number) -> typed.Typed:
    unit: Unit
    literal: Literal | None
    if expr.suffix in DURATIONS:
        unit, literal = SECONDS, None
    elif expr.suffix in CORES:
        unit, literal = CORES_UNIT, None
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


# --- names -----------------------------------------------------------------------------------------------


def name_value(inference: Inference, expr: expressions.Name, scope: Scope) -> typed.Typed:
    """Return the meaning of a bare name."""
    name = expr.name
    if name in scope.parameters:
        value = scope.parameters[name]
        if not inference.reaches(inference.levels(value)):
            return unknown(expr.span)
        return typed.Reference(value.info, expr.span, name, value)
    if name in scope.variables:
        return msgspec.structs.replace(scope.variables[name], span=expr.span)
    definition = inference.definitions.get(name)
    if definition is not None:
        if isinstance(definition.tree, syntax.Def):
            inference.use(definition)
            advice = f"call it: `{name}({', '.join(p.name for p in definition.tree.parameters)})`"
            inference.found.append(codes.WRONG_TYPE.at(expr.span, f"`{name}` is a function", help=advice))
            return unknown(expr.span)
        return _reference(inference, definition, expr.span, scope)
    if scope.bare_item and f"{inference.subject.decided}.{name}" in inference.environment.fields:
        return read_member(inference, expr, scope)
    if name not in inference.unread_names:
        inference.found.append(unknown_name(inference, expr, scope))
    return unknown(expr.span)


def _reference(inference: Inference, definition: Definition, span: Span, scope: Scope) -> typed.Typed:
    value = inference.value_of(definition, span)
    if operators.has_unknown(value):
        return unknown(span)
    inference.reaches(definition.levels)
    reference = typed.Reference(value.info, span, definition.tree.name, value)
    return reference if inference.allowed(reference, scope) else unknown(span)


# --- paths to fields -------------------------------------------------------------------------------------


def read_member(
    inference: Inference, expr: expressions.Member | expressions.Index | expressions.Name, scope: Scope
) -> typed.Typed:
    """Return the field that a path leads to, or an element of a list."""
    path = _path(expr, _names_in(inference, scope))
    if path is None:
        if isinstance(expr, expressions.Index) and _reports_key(inference, expr, scope):
            return unknown(expr.span)
        return _element(inference, expr, scope)
    root, steps = path
    of_node = root.name in scope.node_items
    item = root.name in scope.items
    row, decided = inference.subject.roots
    subject = decided if item else row if of_node else root.name
    is_bare = scope.bare_item and not item and subject not in (row, decided) and steps
    if (
        is_bare
        and not _begins_field(inference, decided, root.name)
        and _begins_field(inference, decided, steps[0].text)
    ):
        shown = one_line(_shown(expr)[len(root.name) :], 40)
        advice = f"each of these {inference.subject.name} is `{decided}`: write `{decided}{shown}`"
        inference.found.append(codes.UNKNOWN_NAME.at(root.span, f"unknown name `{root.name}`", help=advice))
        return unknown(expr.span)
    if scope.bare_item and not item and subject not in (row, decided):
        item, subject = True, decided
        steps = [Step(root.name, root.span, False), *steps]
    elif scope.bare_item and subject == decided:
        item = True
    if subject not in (row, decided):
        return _no_root(inference, root, expr, scope)
    if item and steps and steps[0].text == "node" and not steps[0].bracket:
        return _of_its_node(inference, root, steps, expr, scope)
    chosen = _field(inference, subject, steps)
    if chosen is None:
        inference.found.append(unknown_field(inference, subject, root, steps, scope))
        return unknown(expr.span)
    found, rest = chosen
    if found.depends & Depends.RUN and not (item and not found.depends & ~scope.item_depends):
        counted = not found.depends & ~OF_RUNNING_PODS
        message = f"`{_shown(expr)}` is available only for {'running pods' if counted else 'pods that may be evicted'}"
        name = found.path.partition(".")[2]
        advice = f"write `victim.{name}` after `evict where`"
        if counted:
            example = f"count(p in node.pods where p.{name}{_BOUND.get(name, '')})"
            advice = f"write `{example}`, or `victim.{name}` after `evict where`"
            if "victim" in scope.items:
                advice = f"write `victim.{name}`"
            elif scope.statement == "of pods where":
                advice = f"a limit counts by what does not change: write `filter {example} < …`"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    if item and found.depends & ~scope.item_depends:
        message = f"`{_shown(expr)}` is not available for running pods"
        advice = foreign.running_pod_advice(root.name, found.path.partition(".")[2])
        advice = advice or "use a field that `policyctl fields` marks as `also of running pods`"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    return _read_field(inference, found, rest, expr, scope, of=root.name if item or of_node else "")


def _of_its_node(
    inference: Inference,
    root: expressions.Name,
    steps: list[Step],
    expr: expressions.Member | expressions.Index | expressions.Name,
    scope: Scope,
) -> typed.Typed:
    """Return a field of the node of an existing pod: `p.node.label.disk`."""
    shown = f"{root.name}.node" if root.name != "node" else "node"
    if len(steps) == 1:
        message, advice = f"`{_shown(expr)}` is not a value", f"use a field of the node, such as `{shown}.name`"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    chosen = _field(inference, "node", steps[1:])
    if chosen is None:
        named = msgspec.structs.replace(root, name=shown)
        inference.found.append(unknown_field(inference, "node", named, steps[1:], scope))
        return unknown(expr.span)
    return _read_field(inference, *chosen, expr, scope, of=shown)


def _read_field(
    inference: Inference,
    found: Field,
    rest: list[Step],
    expr: expressions.Member | expressions.Index | expressions.Name,
    scope: Scope,
    *,
    of: str,
) -> typed.Typed:
    """Return the value of a field, or of an element of it.

    Args:
        inference: of the policy.
        found: the field.
        rest: the steps after it.
        expr: the whole path.
        scope: where it stands.
        of: how what it is a field of is written, if that is one of those that an aggregate iterates over; else "".
    """
    key: str | None = None
    if found.key is not None:
        if not rest:
            inference.found.append(_key_missing(found, expr))
            return unknown(expr.span)
        key = _key(inference, found.key, rest[0])
        if key is None:
            return unknown(expr.span)
        rest = rest[1:]
    info = found.info(key)
    if found.key is Key.RESOURCE and key not in NATIVE_RESOURCES:
        info = msgspec.structs.replace(info, maybe=info.maybe or found.shape is Shape.NODE)
    if of:
        info = msgspec.structs.replace(info, shape=Shape.ITEM, depends=_item_depends(found, info.depends, scope))
    value: typed.Typed = typed.Read(info, expr.span, found, key)
    if not inference.allowed(value, scope):
        return unknown(expr.span)
    if rest and not rest[0].bracket and found.key in (Key.LABEL, Key.ANNOTATION):
        dotted = ".".join([key or "", *(step.text for step in rest)])
        written = f'{found.path}["{dotted}"]' if not of else f'{of}.{found.path.partition(".")[2]}["{dotted}"]'
        span = Span(expr.span.source, expr.span.start, rest[-1].span.end)
        message = f"`{dotted}` is one key, so it stands in brackets and quotes"
        fix = Fix(f"write {written}", (Edit(span, written),))
        inference.found.append(codes.UNKNOWN_FIELD.at(span, message, help=f"write `{written}`", fix=fix))
        return unknown(expr.span)
    for step in rest:
        value = _step(inference, value, step)
    return value


def _item_depends(found: Field, depends: Depends, scope: Scope) -> Depends:
    """Return what a field of an existing pod, or of its node, follows from."""
    if found.shape is Shape.NODE and not scope.node_items:
        static = Depends.NODES if depends & Depends.NODE else Depends.NOTHING
        return depends & ~(Depends.NODE | Depends.ROW | Depends.OFFER) | Depends.CLUSTER | static
    if scope.item_depends == OF_RUNNING_PODS:
        return depends & ~Depends.OWN  # a value of the running pod, not of the pod that is decided
    return depends


_BOUND = {"running": " > 10min", "restarts": " > 3"}
"""How to make a condition of a field that is not one."""


ConstantOf: TypeAlias = Callable[[expressions.Name], Any]
"""From a name to the constant for which it stands, None if it stands for none."""


def _names_in(inference: Inference, scope: Scope) -> ConstantOf:
    """Return how names are read that stand for a key: `node.label[rack]`, `domain(rack)`."""

    def constant(expr: expressions.Name) -> Any:
        if expr.name in scope.parameters:
            return constant_of(scope.parameters[expr.name])
        definition = inference.definitions.get(expr.name)
        if definition is None or not isinstance(definition.tree, syntax.Let):
            return None
        return constant_of(inference.value_of(definition, expr.span))

    return constant


def _reports_key(inference: Inference, expr: expressions.Index, scope: Scope) -> bool:
    """Report a key of a label or the like that is not a text; return whether that was, or is, reported."""
    if _is_unknown(inference, expr.key, scope):
        return True
    path = _path(expr.base)
    if path is None or not path[1] or not isinstance(expr.key, expressions.Name):
        return False
    row, decided = inference.subject.roots
    name = path[0].name
    subject = decided if name in scope.items else row if name in scope.node_items else name
    chosen = _field(inference, subject, path[1])
    if chosen is None or chosen[0].key is None or chosen[1]:
        return False
    value, kind = inference.infer(expr.key, scope), chosen[0].key.value
    if not operators.has_unknown(value):
        name = expr.key.name
        message = f"the {kind} must be a text that is the same for all pods and nodes, and `{name}` is not one"
        advice = f'write it in quotes, or name it: `let {name} = "…"`'
        inference.found.append(codes.NOT_CONSTANT.at(expr.key.span, message, help=advice))
    return True


def _is_unknown(inference: Inference, key: expressions.Expr, scope: Scope) -> bool:
    """Return whether a key is a name of which everything was reported: a parameter of an unused `def`, for example."""
    if not isinstance(key, expressions.Name):
        return False
    if key.name in inference.unread_names:
        return True
    definition = inference.definitions.get(key.name)
    value = scope.parameters.get(key.name) or (definition.value if definition is not None else None)
    return value is not None and operators.has_unknown(value)


def _path(
    expr: expressions.Expr, constant: ConstantOf = lambda name: None
) -> tuple[expressions.Name, list[Step]] | None:
    """Return the root and the steps of a path; None if it does not begin with a name. constant: reads its keys."""
    steps: list[Step] = []
    while True:
        match expr:
            case expressions.Name():
                return expr, steps[::-1]
            case expressions.Member(base=base, name=name, name_span=span):
                steps.append(Step(name, span, False))
                expr = base
            case expressions.Index(base=base, key=expressions.Text(value=text, span=span)):
                steps.append(Step(text, span, True))
                expr = base
            case expressions.Index(base=base, key=expressions.Number(value=value, suffix="", span=span)):
                position = int(value) if value == int(value) else None
                steps.append(Step("", span, True, position))
                expr = base
            case expressions.Index(base=base, key=expressions.Name(span=span) as key) if isinstance(
                value := constant(key), str
            ):
                steps.append(Step(value, span, True))
                expr = base
            case _:
                return None


def _shown(expr: expressions.Expr) -> str:
    return " ".join(expr.span.text.split())


def _field(inference: Inference, subject: str, steps: list[Step]) -> tuple[Field, list[Step]] | None:
    """Return the field with the longest matching path, and the steps after it."""
    fields = inference.environment.fields
    for length in (2, 1):
        if len(steps) >= length and not any(step.bracket for step in steps[:length]):
            found = fields.get(".".join([subject, *(step.text for step in steps[:length])]))
            if found is not None:
                return found, steps[length:]
    return None


def _no_root(inference: Inference, root: expressions.Name, expr: expressions.Expr, scope: Scope) -> typed.Typed:
    if root.name in inference.definitions or root.name in scope.parameters or root.name in scope.variables:
        value = inference.infer(root, scope)
        if isinstance(expr, expressions.Index):
            return _element(inference, expr, scope)
        if not operators.has_unknown(value):
            advice = f'compare it: `{root.name} == "…"`' if root.name in scope.variables else ""
            inference.found.append(operators.wrong_type(value, "a value with fields", advice=advice))
        return unknown(expr.span)
    if (wrong := _of_other_subject(inference, root, expr)) is not None:
        inference.found.append(wrong)
        return unknown(expr.span)
    if root.name in ("zone", "region", inference.subject.everything, *inference.environment.topologies):
        shown = one_line(_shown(expr), 40)
        message, path = f"`{shown}` is not a value", shown.partition(".")[2]
        row, rows = inference.subject.row, inference.subject.rows
        advice = f"count its pods: `count(p in {root.name}.pods where …)`; the zone of a node is `node.zone`"
        if inference.subject is not OF_PODS:
            advice = f"count its clusters: `count(c in {root.name}.clusters where …)`; for that of a cluster write"
            advice += f" `cluster.{root.name}`"
        if path == rows:
            advice = f"count them: `count({rows[0]} in {shown} where …)`"
        elif _begins_field(inference, row, path.partition(".")[0]):
            advice = f"add it up over {rows}: `sum({rows[0]}.{path} for {rows[0]} in {root.name}.{rows})`"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    if root.name in inference.unread_names:
        return unknown(expr.span)
    if _is_item_path(inference, root.name, scope):
        advice = f"write `{_item(scope)}.{one_line(_shown(expr), 40)}`"
        inference.found.append(codes.UNKNOWN_NAME.at(root.span, f"unknown name `{root.name}`", help=advice))
        return unknown(expr.span)
    meant = closest(root.name, (*inference.subject.roots, *scope.bound))
    if root.name == "queue":
        message, advice = "`queue.share` is not a value", "write `order by queue.share, …`: it orders pods only"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    starts = " or ".join(f"`{each}.`" for each in inference.subject.roots)
    advice = foreign.NAMES.get(root.name.lower(), "") or f"paths start with {starts}"
    advice = f"did you mean `{meant}`?" if meant else advice
    inference.found.append(codes.UNKNOWN_NAME.at(root.span, f"unknown name `{root.name}`", help=advice))
    return unknown(expr.span)


def _of_other_subject(
    inference: Inference, root: expressions.Name, expr: expressions.Expr | None = None
) -> Diagnostic | None:
    """Return the diagnostic of a path that only policies of another subject have; None if it is none."""
    own, name = inference.subject, root.name
    if own is OF_PODS:
        fields = inference.environment.of(WORKLOADS).fields
        steps = _shown(expr).split(".") if expr is not None else []
        is_field = len(steps) > 1 and ".".join(steps[:2]) in fields and not _begins_field(inference, "node", steps[1])
        if name != OF_WORKLOADS.decided and not is_field:
            return None
        message = f"`{name}.…` is available only in a policy of workloads"
        return codes.SUBJECT.at(root.span, message, help="add `for workloads where …`, or write `pod.…` and `node.…`")
    if name not in OF_PODS.roots:
        return None
    message, written = f"`{name}.…` is available only in a policy of pods", "cluster" if name == "node" else "workload"
    return codes.SUBJECT.at(root.span, message, help=f"write `{written}.…`: this policy chooses clusters for workloads")


def _key_missing(found: Field, expr: expressions.Expr) -> Diagnostic:
    example = {Key.RESOURCE: "cpu", Key.LABEL: "app", Key.ANNOTATION: "owner", Key.CONDITION: "MemoryPressure"}
    assert found.key is not None
    message = f"`{_shown(expr)}` needs the {found.key.value} after it"
    advice = f'write `{found.path}.{example[found.key]}`, or `{found.path}["…"]` for other keys'
    return codes.UNKNOWN_FIELD.at(expr.span, message, help=advice)


def _key(inference: Inference, kind: Key, step: Step) -> str | None:
    """Return the key that a step names, in Kubernetes' spelling, or None after reporting."""
    if step.position is not None or (step.bracket and not step.text):
        message = f"a {kind.value} is a text"
        inference.found.append(codes.WRONG_TYPE.at(step.span, message, help="write it in quotes"))
        return None
    match kind:
        case Key.RESOURCE:
            resource = resource_name(step.text)
            if not step.bracket and step.text not in RESOURCE_WORDS and "/" not in resource:
                meant = closest(step.text, RESOURCE_WORDS) if step.text not in ("gpu", "gpus") else None
                advice = (
                    f"did you mean `{meant}`?" if meant else 'write other resources in brackets: `["nvidia.com/gpu"]`'
                )
                message = f"unknown resource `{step.text}`"
                inference.found.append(codes.UNKNOWN_FIELD.at(step.span, message, help=advice))
                return None
            return resource
        case Key.LABEL | Key.ANNOTATION:
            problem = label_problem(step.text, of="key")
            if problem:
                message = f"`{step.text}` cannot be a {kind.value}"
                inference.found.append(codes.LABEL.at(step.span, message, help=problem))
                return None
            return step.text
        case Key.CONDITION:
            return step.text


def _element(inference: Inference, expr: expressions.Expr, scope: Scope) -> typed.Typed:
    """Return an element of a list, or report that the value has none."""
    if isinstance(expr, expressions.Index):
        base = inference.infer(expr.base, scope)
        position = expr.key.value if isinstance(expr.key, expressions.Number) and expr.key.suffix == "" else None
        if position is None or position != int(position):
            kind, advice = inference.infer(expr.key, scope), "elements are counted from 0: `[0]`"
            if not operators.has_unknown(kind, base):
                message = "the index of the element must be a constant"
                inference.found.append(codes.NOT_CONSTANT.at(expr.key.span, message, help=advice))
            return unknown(expr.span)
        return _step(inference, base, Step("", expr.key.span, True, int(position)))
    assert isinstance(expr, expressions.Member)
    base = inference.infer(expr.base, scope)
    if not operators.has_unknown(base):
        message = f"{base.info.type} has no field `{expr.name}`"
        advice = _with_fields(inference)
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.name_span, message, help=advice))
    return unknown(expr.span)


def _with_fields(inference: Inference) -> str:
    return f"only {' and '.join(f'`{each}`' for each in inference.subject.roots)} have fields"


def _step(inference: Inference, value: typed.Typed, step: Step) -> typed.Typed:
    """Return the meaning of a step beyond a field: an element of a list."""
    span = value.span.to(step.span)
    if operators.has_unknown(value):
        return unknown(span)
    if value.info.type.kind is Kind.LIST and step.position is not None:
        item = value.info.type.item or Kind.TEXT
        info = Info(Type(item), value.info.shape, True, value.info.depends)
        return typed.Element(info, span, value, step.position)
    message = f"{value.info.type} has no field `{step.text}`"
    advice = _with_fields(inference)
    if step.position is not None:
        message, advice = f"{value.info.type} has no elements", "only lists have"
    elif step.text.lower() in ("age", "since", "lasttransitiontime") and operators.is_status(value):
        condition = value.span.source.text[value.span.start : step.span.start].rstrip(".[").rpartition(".")[2]
        advice = f"write `node.condition_age.{one_line(condition, 40)}`"
    elif step.text in inference.environment.builtins and value.info.type.kind is Kind.TEXT:
        shown = value.span.source.text[value.span.start : step.span.start].rstrip(".[ ")
        advice = f"write `{step.text}({one_line(shown, 40)})`"
    elif operators.is_status(value):
        status = value.span.source.text[value.span.start : step.span.start].rstrip(".[")
        advice = f'it is the status itself: write `{one_line(status, 60)}`, or compare that with `"True"`'
    inference.found.append(codes.UNKNOWN_FIELD.at(step.span, message, help=advice))
    return unknown(span)


# --- dashes ----------------------------------------------------------------------------------------------

_DATE = r"[12]\d{3}-\d{2}-\d{2}"
_DASHED = r"[A-Za-z]\w*(-\w+)+"


_DOTTED_KEY = r"((?:\w+\.)?[a-z_]+)\.([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/[A-Za-z0-9][A-Za-z0-9._-]*)"


def _report_key(inference: Inference, expr: expressions.Binary) -> bool:
    """Report `node.label.topology.kubernetes.io/zone`, which is a division by the grammar and a key by intention."""
    found = re.fullmatch(_DOTTED_KEY, expr.span.text) if expr.operator in "/-" and len(expr.span.text) < 300 else None
    subject = found[1].rpartition(".")[2] if found is not None else ""
    fields = (field for field in inference.environment.fields.values() if field.key is not None)
    if found is None or subject not in {field.path.rpartition(".")[2] for field in fields}:
        return False
    written = f'{found[1]}["{found[2]}"]'
    fix = Fix(f"write {written}", (Edit(expr.span, written),))
    message = f"`{found[2]}` is one key, so it stands in brackets and quotes"
    inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=f"write `{written}`", fix=fix))
    return True


def _report_comment(inference: Inference, expr: expressions.Binary) -> bool:
    """Report `-- comment`, which is twice a minus by the grammar."""
    text, at = expr.span.source.text, expr.operator_span
    if expr.operator != "-" or not text.startswith(" -- ", at.start - 1):
        return False
    span = Span(at.source, at.start, at.start + 2)
    fix = Fix("write #", (Edit(span, "#"),))
    message, advice = "`--` does not start a comment", "comments start with `#`"
    inference.found.append(codes.FOREIGN_OPERATOR.at(span, message, help=advice, fix=fix))
    return True


def report_dash(inference: Inference, expr: expressions.Binary, scope: Scope) -> bool:
    """Report `node.label.disk-type`, which is a subtraction by the grammar and a key by intention."""
    if _report_key(inference, expr) or _report_comment(inference, expr):
        return True
    if expr.operator == "-" and re.fullmatch(_DATE, expr.span.text):
        written = f'time("{expr.span.text}")'
        fix = Fix(f"write {written}", (Edit(expr.span, written),))
        message = f"`-` means minus here, so `{expr.span.text}` is not a date"
        inference.found.append(codes.DASH.at(expr.span, message, help=f"write `{written}`", fix=fix))
        return True
    if expr.operator == "-" and _bare_text(inference, expr, scope):
        return True
    return expr.operator == "-" and _dashed_key(inference, expr, scope)


_DASHED_KEY = r"(\w+(?:-\w+)+)(?![\w.(\[-])"
_KEYED = r"(?:label|annotation)\.$"


def _dashed_key(inference: Inference, expr: expressions.Binary, scope: Scope) -> bool:
    """Report `node.label.disk-type-2`: names and numbers that touch the signs between them."""
    first: expressions.Expr = expr
    parts: list[expressions.Expr] = []
    while isinstance(first, expressions.Binary) and first.operator == "-":
        parts.append(first.right)
        first = first.left
    if not isinstance(first, expressions.Member):
        return False
    source = expr.span.source
    start = first.name_span.start
    key = re.compile(_DASHED_KEY).match(source.text, start, start + 300)
    if key is None:
        return False
    known = {*inference.definitions, *inference.unread_names, *scope.parameters}
    inner = [part.left if isinstance(part, expressions.Binary) and part.operator == "??" else part for part in parts]
    inside = [part for part in inner if part.span.start < key.end()]
    names = [part.name for part in inside if isinstance(part, expressions.Name)]
    numbers = [part for part in inside if isinstance(part, expressions.Number)]
    is_keyed = re.search(_KEYED, source.text[max(0, start - 20) : start]) is not None
    if len(names) + len(numbers) < len(inside) or known & {*names} or not (names or is_keyed):
        return False
    written, name = f'{first.base.span.text}["{key[1]}"]', key[1]
    message = f"`-` means minus here, it is not a part of the name `{name}`"
    at = Span(source, first.span.end, first.span.end + 1)
    fix = Fix(f"write {written}", (Edit(Span(source, first.span.start, key.end(1)), written),))
    inference.found.append(codes.DASH.at(at, message, help=f"write `{written}`", fix=fix))
    return True


_NOTHING = frozenset({"null", "none", "nil", "undefined", "missing"})


def _report_null(inference: Inference, expr: expressions.Binary) -> bool:
    """Report `node.zone == null`."""
    is_null = isinstance(expr.right, expressions.Name) and expr.right.name.lower() in _NOTHING
    if expr.operator not in ("==", "!=") or not is_null or expr.right.span.text in inference.definitions:
        return False
    test = "is missing" if expr.operator == "==" else "is not missing"
    fix = Fix(f"write {test}", (Edit(expr.operator_span.to(expr.right.span), test),))
    message = f"you cannot compare with `{expr.right.span.text}`"
    advice = f"write `{one_line(expr.left.span.text, 40)} {test}`"
    inference.found.append(codes.UNKNOWN_NAME.at(expr.right.span, message, help=advice, fix=fix))
    return True


def _bare_text(inference: Inference, expr: expressions.Binary, scope: Scope) -> bool:
    """Report `eu-central-1a`, a text without quotes."""
    text, first = expr.span.text, expr.left
    while isinstance(first, expressions.Binary):
        first = first.left
    if not isinstance(first, expressions.Name) or not re.fullmatch(_DASHED, text):
        return False
    if first.name in {*inference.definitions, *inference.unread_names, *scope.parameters}:
        return False
    written = f'"{text}"'
    fix = Fix(f"write {written}", (Edit(expr.span, written),))
    message = f"`{text}` is a text, but has no quotes"
    inference.found.append(codes.UNKNOWN_NAME.at(expr.span, message, help=f"write `{written}`", fix=fix))
    return True


# --- calls -----------------------------------------------------------------------------------------------


def call_value(inference: Inference, expr: expressions.Call, scope: Scope) -> typed.Typed:
    """Return the value of a call."""
    if expr.distinct:
        counted = expr.arguments[0]
        shown = one_line(counted.span.text, 40)
        field = shown.removeprefix("p.").removeprefix("pod.")
        if topology_of(inference, counted, scope) is not None:
            field = {"node": "node.name"}.get(shown, field if field.startswith("node.") else f"node.{field}")
        message = "`count(distinct …)` needs what to go over"
        advice = f"write `count(distinct p.{field} for p in cluster.pods)`"
        inference.found.append(codes.ARGUMENTS.at(expr.span, message, help=advice))
        return unknown(expr.span)
    definition = inference.definitions.get(expr.function)
    if definition is not None:
        return _expanded(inference, definition, expr, scope)
    if expr.function in ("length", "count") and (items := number_of_items(inference, expr, scope)) is not None:
        return items
    builtin = inference.environment.builtins.get(expr.function)
    if builtin is None:
        if expr.function not in inference.unread_names:
            inference.found.append(unknown_function(inference, expr))
        return unknown(expr.span)
    return Binding(inference, builtin, expr, scope).apply()


def matches_value(inference: Inference, left: typed.Typed, expr: expressions.Binary, scope: Scope) -> typed.Typed:
    """Return `text matches "pattern"`, which is the builtin `matches`."""
    call_ = expressions.Call("matches", (expr.left, expr.right), (), expr.operator_span, expr.span)
    return unknown(expr.span) if operators.has_unknown(left) else call_value(inference, call_, scope)


def metric_value(inference: Inference, tree: syntax.Metric) -> typed.Typed:
    """Return the value of a `metric`: its query with the options of the statement, then its default."""
    query = tree.query
    if not (isinstance(query, expressions.Call) and query.function == QUERY_FUNCTION):
        advice = 'write `metric NAME = promql("…")`; for other values, use `let`'
        inference.found.append(codes.WRONG_TYPE.at(query.span, "a metric is a query", help=advice))
        return unknown(tree.span)
    extra = [("every", tree.every), ("max_age", tree.stale_after)]
    named = [*query.named, *(expressions.Named(name, value, value.span) for name, value in extra if value is not None)]
    environment, arguments = inference.environment, query.arguments
    everything = inference.subject.everything
    for_all = tree.for_fleet if everything == "fleet" else tree.for_cluster
    builtin = environment.queries["cluster"] if for_all else environment.builtins[QUERY_FUNCTION]
    if tree.by is not None and for_all:
        message = f"a metric is `for {everything}` or `by` a label, not both"
        advice = f"for one value of the {everything} remove `by …`; for one of each {inference.subject.row} or tenant"
        advice += f" remove `for {everything}`"
        inference.found.append(codes.PART.at(tree.by.span, message, help=advice))
    elif tree.by is not None and tree.by.label.startswith(("pod.", "node.", "workload.", "cluster.")):
        field, name = tree.by.label, tree.by.label.rpartition(".")[2]
        if isinstance(tree.by.value, expressions.Name):
            name = tree.by.value.name
        message = f"`{field}` is a field, and `by` names a label of the series"
        advice = f"write the label first, as in `by {name} as {field}`"
        inference.found.append(codes.BAD_ARGUMENT.at(tree.by.span, message, help=advice))
        return unknown(tree.span)
    elif tree.by is not None:
        label, text = "by", tree.by.value
        if isinstance(text, expressions.Name) and text.name not in {*inference.definitions, *inference.unread_names}:
            message, advice = f"unknown name `{text.name}`", f"did you mean `pod.label.{text.name}`?"
            inference.found.append(codes.UNKNOWN_NAME.at(text.span, message, help=advice))
            return unknown(tree.span)
        if tree.by.also is not None:
            pair = _pair(inference, tree.by, tree.by.also)
            if pair is None:
                return unknown(tree.span)
            builtin, arguments = environment.queries["pair"], (*arguments[:1], pair[1])
            named.append(expressions.Named("label", expressions.Text(pair[0], tree.by.span), tree.by.span))
        elif tree.by.value is not None:
            builtin, label, arguments = environment.queries["value"], "label", (*arguments[:1], tree.by.value)
        named.append(expressions.Named(label, expressions.Text(tree.by.label, tree.by.span), tree.by.span))
    value = Binding(
        inference, builtin, msgspec.structs.replace(query, arguments=arguments, named=tuple(named)), ANYWHERE
    ).apply()
    if tree.default is None:
        return value
    if isinstance(tree.default, expressions.Name) and tree.default.name.lower() in ("none", "null", "nil", "missing"):
        message, advice = f"unknown name `{tree.default.name}`", "leave out `default`: without it the value is missing"
        inference.found.append(codes.UNKNOWN_NAME.at(tree.default.span, message, help=advice))
        return unknown(tree.span)
    default = inference.infer(tree.default, ANYWHERE)
    return operators.otherwise(value, default, inference.found, span=tree.span, at=tree.default.span)


def _pair(
    inference: Inference, of_node: syntax.SeriesKey, other: syntax.SeriesKey
) -> tuple[str, expressions.Expr] | None:
    """Return the label of the second key of a metric and its text, None after reporting what is wrong with them."""
    advice = "write the label of the node first: `by node, peer as pod.label.peer`"
    if of_node.value is not None or other.value is None:
        message = "of two labels, the first names the node, and the second one is `as` a text of the pod"
        inference.found.append(codes.BAD_ARGUMENT.at(of_node.span, message, help=advice))
        return None
    if of_node.label == other.label:
        message = f"both labels are `{other.label}`"
        inference.found.append(codes.BAD_ARGUMENT.at(other.span, message, help=advice))
        return None
    before = len(inference.found)
    value = inference.infer(other.value, Scope("metric", nodes=False))
    if operators.has_unknown(value) or len(inference.found) > before:
        return None
    return other.label, other.value


def _expanded(inference: Inference, definition: Definition, expr: expressions.Call, scope: Scope) -> typed.Typed:
    """Return the body of a `def` with the arguments of one call."""
    tree = definition.tree
    inference.use(definition)
    if not isinstance(tree, syntax.Def):
        message = f"`{expr.function}` is a value, not a function"
        inference.found.append(codes.WRONG_TYPE.at(expr.name_span, message, help="remove the parentheses"))
        return unknown(expr.span)
    names = [parameter.name for parameter in tree.parameters]
    if len({*names}) < len(names):  # reported at its definition
        return unknown(expr.span)
    given = dict(zip(names, expr.arguments, strict=False))
    for argument in expr.named:
        if argument.name in names and argument.name not in given:
            given[argument.name] = argument.value
    if len(given) != len(names) or len(expr.arguments) + len(expr.named) != len(names):
        message = (
            f"`{expr.function}` takes {plural(len(names), 'argument')}, not {len(expr.arguments) + len(expr.named)}"
        )
        advice = f"write `{expr.function}({', '.join(names)})`"
        inference.found.append(codes.ARGUMENTS.at(expr.span, message, help=advice))
        return unknown(expr.span)
    values = {name: inference.infer(argument, scope) for name, argument in given.items()}
    if operators.has_unknown(*values.values()) or not inference.enter(expr.function, expr.name_span):
        return unknown(expr.span)
    try:
        inner = msgspec.structs.replace(scope, parameters=MappingProxyType(values))
        value = inference.infer(tree.value, inner)
    finally:
        inference.active.pop()
    if operators.has_unknown(value):
        return unknown(expr.span)
    return typed.Reference(value.info, expr.span, expr.function, value)


class Binding(msgspec.Struct):
    """The arguments of one call matched with the parameters of a builtin."""

    inference: Inference
    builtin: Builtin
    expr: expressions.Call
    scope: Scope
    constants: list[tuple[str, Any]] = msgspec.field(default_factory=list)
    """The parameters that are constants, with what was written for them."""

    def apply(self) -> typed.Typed:
        """Return the value of the call."""
        assigned = self._assign()
        if assigned is None:
            return unknown(self.expr.span)
        before = len(self.inference.found)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        values: list[typed.Typed] = []
        unit: typed.Typed | None = None
        for parameter, argument in assigned:
            if parameter.takes.constant:
                bound = self._constant(parameter, argument)
            else:
                value = self._value(parameter, argument)
                if parameter.takes.unit is None and not operators.has_unknown(value):
                    unit = self._same_unit(unit, value)
                values.append(value)
                bound = ArgumentSlot(len(values) - 1)
            if parameter.named_only:
                named[_python_name(self.builtin, parameter)] = bound
            else:
                positional.append(bound)
        if (
            len(self.inference.found) > before
            or operators.has_unknown(*values)
            or any(each is None for each in (*positional, *named.values()))
        ):
            return unknown(self.expr.span)
        return self._typed(positional, named, values, unit)

    def _assign(self) -> list[tuple[Parameter, expressions.Expr]] | None:
        """Return each given argument with its parameter, or None after reporting that they do not match."""
        parameters = self.builtin.parameters
        places = [p for p in parameters if not p.named_only]
        assigned: list[tuple[Parameter, expressions.Expr]] = []
        problem = ""
        for at, argument in enumerate(self.expr.arguments):
            if at < len(places):
                assigned.append((places[at], argument))
            elif places and places[-1].variadic:
                assigned.append((places[-1], argument))
            else:
                problem = (
                    f"`{self.builtin.name}` takes {plural(len(places), 'argument')}, not {len(self.expr.arguments)}"
                )
        taken = {parameter.name for parameter, _ in assigned}
        for given in self.expr.named:
            found = next((p for p in parameters if p.name == given.name and not p.variadic), None)
            if found is None:
                meant = closest(given.name, [p.name for p in parameters])
                problem = f"`{self.builtin.name}` has no argument `{given.name}`"
                problem += f"; did you mean `{meant}`?" if meant else ""
            elif found.name in taken:
                problem = f"the argument `{given.name}` appears twice"
            else:
                taken.add(found.name)
                assigned.append((found, given.value))
        lacking = [p.name for p in parameters if p.required and p.name not in taken]
        if lacking and not problem:
            problem = f"`{self.builtin.name}` also needs `{lacking[0]}`"
        if problem:
            advice = self._named_argument() or f"write it as `{self.builtin.signature}`"
            names = {each.name for each in self.expr.named}
            if self.builtin.name == QUERY_FUNCTION and names & {"for", "cluster", "as"}:
                advice = 'write `metric NAME = promql("…") for cluster`, or `… by LABEL as pod.label.KEY`'
            self.inference.found.append(codes.ARGUMENTS.at(self.expr.span, problem, help=advice))
            return None
        return assigned

    def _named_argument(self) -> str:
        """Return how to name one argument too many, if that is all that is wrong: `promql("x", max_age=2min)`."""
        places = [p for p in self.builtin.parameters if not p.named_only]
        given, names = self.expr.arguments, {each.name for each in self.expr.named}
        named = [p for p in self.builtin.parameters if p.named_only and p.name not in names]
        if len(given) != len(places) + 1 or not named:
            return ""
        value = self.inference.infer(given[-1], self.scope)
        kind, unit = value.info.type.kind, value.info.type.unit
        fitting = [p for p in named if p.takes.kind is kind and (kind is not Kind.NUMBER or p.takes.unit == unit)]
        if not fitting:
            return ""
        written = [each.span.text for each in given[:-1]] + [f"{fitting[0].name}={given[-1].span.text}"]
        written += [f"{each.name}={each.value.span.text}" for each in self.expr.named]
        others = f" (or `{'`, `'.join(p.name for p in fitting[1:])}`)" if len(fitting) > 1 else ""
        return f"name the argument{others}: `{self.builtin.name}({', '.join(written)})`"

    def _value(self, parameter: Parameter, argument: expressions.Expr) -> typed.Typed:
        value = self.inference.infer(argument, self.scope)
        takes = parameter.takes
        if operators.has_unknown(value):
            return value
        found = self.inference.found
        if takes.kind is Kind.TRUTH:
            return operators.truth(value, found)
        if value.info.type.kind is not takes.kind:
            if self.builtin.receives is Receives.COLUMNS:
                advice = "write a label such as `pod.label.tenant`, or `pod.namespace`"
                found.append(operators.wrong_type(value, "a text after `as`", advice=advice))
            else:
                advice = self._argument_advice(value, argument)
                found.append(operators.wrong_type(value, f"{_kind(takes)} as `{parameter.name}`", advice=advice))
            return unknown(argument.span)
        if takes.kind is Kind.NUMBER and takes.unit is not None:
            return self._in_unit(value, takes.unit)
        return value

    def _argument_advice(self, value: typed.Typed, argument: expressions.Expr) -> str:
        """Return what to write for an argument of the wrong type; "" if nothing special is known."""
        shown, name = one_line(" ".join(argument.span.text.split()), 40), self.builtin.name
        if value.info.type.kind is Kind.LIST:
            return f"test each item: `any({name}(i, …) for i in {shown})`"
        if self.builtin.words.reads_text and isinstance(value, typed.Constant) and value.info.type.kind is Kind.NUMBER:
            if name in ("quantity", "duration"):
                return f"write the amount itself, `{shown}`"
            return f'write it in quotes: `{name}("{shown}")`'
        return ""

    def _in_unit(self, value: typed.Typed, unit: Unit) -> typed.Typed:
        found = self.inference.found
        return value if in_unit(value, unit, found) else unknown(value.span)

    def _same_unit(self, known: typed.Typed | None, value: typed.Typed) -> typed.Typed:
        if known is None:
            return value
        unit = common_unit(known, value, "mix {left} and {right} here", self.inference.found, value.span)
        if unit is None:
            return known
        both = known.info.literal and value.info.literal
        return typed.Constant(Info(number(unit), literal=known.info.literal if both else None), value.span, 0.0)

    def _constant(self, parameter: Parameter, argument: expressions.Expr) -> Any:
        """Return the kernel's value for a constant argument, or None after reporting."""
        takes, found = parameter.takes, self.inference.found
        defined = {*self.inference.definitions, *self.inference.unread_names}
        if takes.word and isinstance(argument, expressions.Logical):
            written = f"{self.builtin.name}({', '.join(one_line(each.span.text, 30) for each in argument.operands)})"
            message = "resources are separated with commas"
            found.append(codes.ARGUMENTS.at(argument.span, message, help=f"write `{written}`"))
            return None
        # a metric may have the name of a resource
        words = frozenset(RESOURCE_WORDS) - self.scope.parameters.keys()
        if takes.word and isinstance(argument, expressions.Name) and argument.name not in defined - words:
            if argument.name not in RESOURCE_WORDS:
                meant = closest(argument.name, RESOURCE_WORDS) if argument.name not in ("gpu", "gpus") else None
                advice = f"did you mean `{meant}`?" if meant else 'write other resources in quotes: "nvidia.com/gpu"'
                found.append(codes.UNKNOWN_NAME.at(argument.span, f"unknown resource `{argument.name}`", help=advice))
                return None
            constant: Any = resource_name(argument.name)
        else:
            if takes.kind is Kind.TEXT and self._is_bare(argument):
                written = f'"{argument.span.text}"'
                fix = Fix(f"write {written}", (Edit(argument.span, written),))
                message = f"`{argument.span.text}` is a text, but has no quotes"
                advice = f"write `{self.builtin.name}({written})`"
                found.append(codes.UNKNOWN_NAME.at(argument.span, message, help=advice, fix=fix))
                return None
            value = self.inference.infer(argument, self.scope)
            if operators.has_unknown(value):
                return None
            if value.info.type.kind is not takes.kind:
                advice = f"write names of resources: `{self.builtin.name}(cpu, mem)`" if takes.word else ""
                if takes.kind is Kind.TEXT and not takes.word and value.info.type.kind is Kind.NUMBER:
                    clock = self.builtin.name == "between" and argument.span.text.isdigit()
                    shown = f"{argument.span.text:0>2}:00" if clock else argument.span.text
                    advice = f'write it in quotes: `"{shown}"`'
                found.append(operators.wrong_type(value, f"{_kind(takes)} as `{parameter.name}`", advice=advice))
                return None
            constant = constant_of(value)
            if constant is None:
                message = f"`{parameter.name}` of `{self.builtin.name}` must be a constant"
                found.append(codes.NOT_CONSTANT.at(argument.span, message, help="write a constant text or number"))
                return None
            if takes.kind is Kind.NUMBER and operators.has_unknown(self._in_unit(value, takes.unit or PLAIN)):
                return None
        self.constants.append((parameter.name, constant))
        if takes.prepare is None:
            return constant
        try:
            return takes.prepare(constant)
        except ValueError as error:
            message, _, advice = str(error).partition("; ")
            found.append(codes.BAD_ARGUMENT.at(argument.span, message, help=advice))
            return None

    def _inputs(self, values: Sequence[typed.Typed]) -> tuple[QueryInput, ...]:
        """Return the metrics that the arguments read, each once; report one that is not found by a plain field."""
        found: dict[Any, QueryInput] = {}
        for part in (part for value in values for part in typed.below(value)):
            if not isinstance(part, typed.Apply):
                continue
            for query in part.inputs:
                key = None
                if part.builtin.receives is Receives.COLUMNS:
                    key = _query_key(part.arguments[0])
                    if key is None:
                        shown = one_line(part.arguments[0].span.text, 40)
                        message = f"`{self.builtin.name}` cannot count the new pods of `{shown}`"
                        advice = "find the metric by a plain field of the pod's template or of the node"
                        self.inference.found.append(codes.ARGUMENTS.at(self.expr.span, message, help=advice))
                found.setdefault(query, QueryInput(query, key, part.builtin.shape is Shape.NODE))
        return tuple(found.values())

    def _is_bare(self, argument: expressions.Expr) -> bool:
        """Return whether an argument is an unknown name."""
        defined = (*self.inference.definitions, *self.inference.unread_names)
        known = (*defined, *self.scope.parameters, *self.scope.bound)
        return isinstance(argument, expressions.Name) and not (
            argument.name in (*known, "node", "pod", *self.inference.environment.builtins)
            or closest(argument.name, known)
        )

    def _typed(
        self, positional: list[Any], named: dict[str, Any], values: list[typed.Typed], unit: typed.Typed | None
    ) -> typed.Typed:
        builtin, gives = self.builtin, self.builtin.gives
        shape, _, depends = operators.joined(*values)
        maybe = gives.maybe or any(v.info.maybe for v in values if v.info.type.kind is not Kind.TEXT)
        if gives.kind is not Kind.TRUTH:
            maybe = maybe or any(v.info.maybe for v in values)
        kernel = builtin.kernel
        constant = next((each for each in positional if not isinstance(each, ArgumentSlot)), None)
        ask = builtin.words.problem
        problem = ask(constant, len(values)) if ask is not None and constant is not None else ""
        if problem:
            advice = f"the signature is `{builtin.signature}`"
            self.inference.found.append(codes.ARGUMENTS.at(self.expr.span, problem, help=advice))
        reads_inputs = builtin.receives is Receives.INPUTS
        inputs = self._inputs(values) if reads_inputs else ()
        if reads_inputs and not inputs:
            message = f"`{builtin.name}` needs a metric, but its arguments contain none"
            advice = f'write for example `{builtin.name}(promql("cpu_usage"), 5)`'
            self.inference.found.append(codes.ARGUMENTS.at(self.expr.span, message, help=advice))
            return unknown(self.expr.span)
        own_depends = builtin.depends
        if inputs:
            kernel = _with_inputs(kernel, inputs)
            if all(each.of_nodes for each in inputs):
                own_depends &= ~Depends.CLUSTER  # what follows for a node follows from its own metric and pods
        if builtin.staged:
            try:
                kernel = kernel(*positional, **named)
            except ValueError as error:
                message, _, advice = str(error).partition("; ")
                self.inference.found.append(codes.BAD_ARGUMENT.at(self.expr.span, message, help=advice))
                return unknown(self.expr.span)
        else:
            kernel = _bound(kernel, positional, named, frame=builtin.reads_frame)
        result = Type(gives.kind, gives.unit or (unit.info.type.unit if unit else PLAIN), gives.item)
        low, high = -1e308, 1e308
        if builtin.bounds is not None:
            pairs = [(v.info.low, v.info.high) for v in values if v.info.type.kind is Kind.NUMBER]
            low, high = builtin.bounds(*pairs)
        if builtin.words.reads_text and isinstance(values[0], typed.Constant):
            if not self._reads_constant(values[0], kernel(values[0].value)):
                return unknown(self.expr.span)
            maybe = False
            release = release_number(values[0].value) if gives.kind is Kind.VERSION else None
            low, high = (low, high) if release is None else (release, release)
        info = Info(result, builtin.shape or shape, maybe, depends | own_depends, low, high, gives.literal)
        reads = tuple(getattr(kernel, "inputs", ()))
        self.inference.read(reads)
        value = typed.Apply(info, self.expr.span, builtin, kernel, tuple(values), reads, tuple(self.constants))
        return value if self.inference.allowed(value, self.scope) else unknown(self.expr.span)

    def _reads_constant(self, given: typed.Constant, read: Any) -> bool:
        """Return whether a constant text could be read, and report it if it could not."""
        if read is not None and read == read:
            return True
        text = str(given.value)
        message, advice = f'"{shortened(text, 40)}" is not {self.builtin.words.reads_text}', self.builtin.advice
        stripped = "".join(text.split())
        if stripped and stripped != text and len(text) < 40:
            message += " because of the spaces" if text.strip() == stripped else ""
            advice = f'write `{self.builtin.name}("{stripped}")`, without spaces'
        self.inference.found.append(codes.BAD_ARGUMENT.at(given.span, message, help=advice))
        return False


def _query_key(value: typed.Typed) -> QueryKey | None:
    """Return how the text is read that finds a series; None if it is not a plain field of a template or a node."""
    value = typed.inner(value)
    if not isinstance(value, typed.Read) or value.info.depends & ~(Depends.TEMPLATE | Depends.NODE):
        return None
    read, key = value.field.read, value.key
    return QueryKey((value.field.path, key), read if key is None else lambda frame: read(frame, key))


def _with_inputs(kernel: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda frame, *values, **named: kernel(frame, inputs, *values, **named)


class ArgumentSlot(msgspec.Struct, frozen=True):
    """The place of a value among constants."""

    position: int


def _bound(
    kernel: Callable[..., Any], positional: Sequence[Any], named: dict[str, Any], *, frame: bool
) -> Callable[..., Any]:
    """Return the kernel with its constants bound: it takes the frame, if it reads it, and the values."""
    plain = not named and all(isinstance(p, ArgumentSlot) and p.position == at for at, p in enumerate(positional))
    if plain:
        return kernel
    shift = 1 if frame else 0

    def fill(bound: Any, given: tuple[Any, ...]) -> Any:
        return given[bound.position + shift] if isinstance(bound, ArgumentSlot) else bound

    def apply(*given: Any) -> Any:
        return kernel(
            *given[:shift],
            *(fill(bound, given) for bound in positional),
            **{name: fill(bound, given) for name, bound in named.items()},
        )

    return apply


def constant_of(value: typed.Typed) -> Any:
    """Return the value of a constant expression, also through names; None if it is not constant."""
    match value:
        case typed.Constant(value=constant):
            return constant
        case typed.Reference(value=inner):
            return constant_of(inner)
        case _:
            return constant_number(value)


def _kind(takes: TypeSpec) -> str:
    return f"a {takes.kind.value}" if takes.kind in (Kind.NUMBER, Kind.LIST) else str(takes.kind.value)


def _python_name(builtin: Builtin, parameter: Parameter) -> str:
    """Return the name of a parameter in Python, which may end in `_` if the word is reserved."""
    names = builtin.kernel.__code__.co_varnames
    return parameter.name if parameter.name in names else f"{parameter.name}_"


# --- aggregates ------------------------------------------------------------------------------------------

_NOWHERE = object()


def aggregate_value(inference: Inference, expr: expressions.Aggregate, scope: Scope) -> typed.Typed:
    """Return the value of an aggregate."""
    found, span = inference.found, expr.span
    if inference.environment.members is not None and _is_of_members(inference.subject, expr.collection):
        return _member_aggregate(inference, expr, scope, inference.environment.members)
    collection = _collection(inference, expr.collection, scope)
    if collection is None:
        return unknown(span)
    around = scope.variables if isinstance(collection, typed.Typed) else scope.bound
    if around:
        message = "aggregates cannot be nested"
        found.append(codes.NOT_HERE.at(span, message, help="first name the inner one with `let`"))
        return unknown(span)
    row = inference.subject.row
    if expr.variable == row or expr.variable in scope.bound:
        meaning = f"the candidate {row}" if expr.variable == row else "something else around it"
        advice = "choose another name, such as `n`"
        found.append(codes.REDEFINED.at(span, f"`{expr.variable}` already means {meaning}", help=advice))
        return unknown(span)
    if not isinstance(collection, _Collection):
        return _list_aggregate(inference, expr, collection, scope)
    if expr.function == "count" and isinstance(expr.value, expressions.Name) and expr.value.name == expr.variable:
        advice = f"write `count({expr.variable} in {one_line(expr.collection.span.text, 40)} where …)`"
        found.append(codes.ARGUMENTS.at(span, f"`count` needs no value for each `{expr.variable}`", help=advice))
        return unknown(span)
    topology, where = collection.topology, expr.where
    if topology == CLUSTER:
        topology, where = _same_domain(inference, expr, scope, of_nodes=collection.of_nodes)
    if topology != CLUSTER and not scope.nodes:
        subject = inference.subject
        message = f"`{expr.collection.span.text}` depends on the {row}, but `{scope.statement}` can use only"
        message += f" {subject.name}"
        collected = subject.rows if collection.of_nodes else "pods"
        advice = f"use `{subject.everything}.{collected}`, or move it to a `filter`"
        found.append(codes.NO_NODE.at(span, message, help=advice))
        return unknown(span)
    enter = scope.over_nodes if collection.of_nodes else scope.over
    made = _parts(
        inference, msgspec.structs.replace(expr, where=where), enter(expr.variable, statement=f"{expr.function}(…)")
    )
    if made is None:
        return unknown(span)
    value, condition = made
    function = "distinct" if expr.distinct else expr.function
    if not collection.of_nodes and mixes_pod_and_node(inference, value, condition):
        return unknown(span)
    info = _aggregate_info(function, value, condition)
    shape = Shape.DECISION if topology == CLUSTER else Shape.NODE
    if not collection.of_nodes:
        depends = Depends.ROW if topology is None else Depends.CLUSTER | Depends.NODE
        info = msgspec.structs.replace(info, shape=shape, depends=info.depends | depends)
        return typed.Aggregate(info, span, function, topology, value, condition)
    assert topology is not None
    # values that change only with the nodes are constant while no node changes, like labels
    depends = Depends.CLUSTER if info.depends & ~(Depends.NODE | Depends.TEMPLATE) else Depends.NODES
    depends |= Depends.NODE if topology != CLUSTER else Depends.NOTHING
    info = msgspec.structs.replace(info, shape=shape, depends=info.depends | depends)
    return typed.NodeAggregate(info, span, function, topology, value, condition)


def _is_of_members(subject: Subject, collection: expressions.Expr) -> bool:
    """Return whether these are the nodes or the pods of the candidate cluster: `cluster.nodes`, `cluster.pods`."""
    return (
        isinstance(collection, expressions.Member)
        and collection.name in OF_PODS.collections
        and isinstance(collection.base, expressions.Name)
        and collection.base.name == subject.row
    )


_OF_NO_MEMBER = Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.QUEUE | Depends.SIGNAL | Depends.FEASIBLE


def _member_aggregate(
    inference: Inference, expr: expressions.Aggregate, scope: Scope, members: Environment
) -> typed.Typed:
    """Return an aggregate over the nodes or pods of each cluster: one value of each, missing where it is not read."""
    found, span, subject = inference.found, expr.span, inference.subject
    shown = one_line(expr.collection.span.text, 40)
    if scope.bound or not scope.nodes:
        message = "aggregates cannot be nested"
        advice = "first name the inner one with `let`"
        if not scope.bound:
            message = f"`{shown}` depends on the {subject.row}, but `{scope.statement}` can use only {subject.name}"
            advice = "move it to a `filter`, a `score` or a `divide`"
        found.append((codes.NOT_HERE if scope.bound else codes.NO_NODE).at(span, message, help=advice))
        return unknown(span)
    for part in (expr.value, expr.where):
        for each in walk(part) if part is not None else ():
            if isinstance(each, expressions.Name) and each.name in subject.roots:
                message = f"`{each.name}.…` cannot be used inside `{expr.function}(… in {shown})`"
                advice = f"use `{expr.variable}.…` alone, and compare the result outside the parentheses"
                found.append(codes.NOT_HERE.at(each.span, message, help=advice))
                return unknown(span)
    names = {name: Definition(each.tree) for name, each in inference.definitions.items()}
    inside = Inference(members, inference.unread_names, names, found, all_steps=inference.all_steps + inference.steps)
    inside.total, before = inference.total, len(found)
    value = inside.infer_root(expr, Scope(scope.statement, nodes=False))
    inference.total, inference.is_over = inside.total, inference.is_over or inside.is_over
    inference.steps += inside.steps
    for name, each in names.items():
        if each.used:
            inference.use(inference.definitions[name])
    if operators.has_unknown(value) or len(found) > before:
        return unknown(span)
    foreign_part = next((part for part in typed.below(value) if _is_of_no_member(part)), None)
    if foreign_part is not None:
        message = f"`{one_line(foreign_part.span.text, 40)}` cannot be read in member clusters"
        items = expr.collection.span.text.rpartition(".")[2]
        advice = f"use another field of the {items}, such as `{expr.variable}.name`"
        found.append(codes.NOT_HERE.at(foreign_part.span, message, help=advice))
        return unknown(span)
    info = msgspec.structs.replace(
        value.info, shape=Shape.NODE, maybe=True, depends=Depends.NODE | Depends.ROW, words=None
    )
    return typed.MemberAggregate(info, span, value)


def _is_of_no_member(part: typed.Typed) -> bool:
    """Return whether a part follows from the pod that would be placed, or from metrics."""
    own = part.info.depends if part.info.shape is not Shape.ITEM else part.info.depends & Depends.SIGNAL
    return isinstance(part, typed.Read | typed.Apply) and bool(own & _OF_NO_MEMBER)


def mixes_pod_and_node(inference: Inference, *values: typed.Typed | None) -> bool:
    """Report a condition or value that is about a pod and about its node at once; return whether there is one."""
    for part in (part for value in values if value is not None for part in typed.conjuncts(value)):
        if typed.reads_its_node(part) and typed.reads_pod(part):
            shown = one_line(" ".join(part.span.text.split()), 40)
            message = f"`{shown}` is about each pod and about its node at once"
            advice = "write two conditions, one of the pod and one of its node, and join them with `and` after `where`"
            inference.found.append(codes.NOT_HERE.at(part.span, message, help=advice))
            return True
    return False


def _list_aggregate(
    inference: Inference, expr: expressions.Aggregate, listed: typed.Typed, scope: Scope
) -> typed.Typed:
    """Return the value of an aggregate over the items of a list."""
    info, binder = listed.info, typed.Binder()
    kind = Type(info.type.item or Kind.TEXT, info.type.unit)
    kept = Info(kind, info.shape, _has_missing_items(listed), info.depends)
    variable = typed.Variable(kept, expr.span, expr.variable, binder)
    made = _parts(inference, expr, scope.over_list(variable))
    if made is None:
        return unknown(expr.span)
    value, condition = made
    function = "distinct" if expr.distinct else expr.function
    info = _aggregate_info(function, *(part for part in (value, condition) if part is not None), over=listed)
    return typed.ListAggregate(info, expr.span, function, listed, binder, value, condition)


def _has_missing_items(listed: typed.Typed) -> bool:
    """Return whether an item of a list can be missing, as a label in `[node.label.a, "b"]`."""
    match typed.inner(listed):
        case typed.ListOf(items=items):
            return any(item.info.maybe for item in items)
        case typed.Conditional(then=one, otherwise=other) | typed.Otherwise(left=one, right=other):
            return _has_missing_items(one) or _has_missing_items(other)
        case _:
            return False


def number_of_items(inference: Inference, expr: expressions.Call, scope: Scope) -> typed.Typed | None:
    """Return `length(list)` and `count(list)`; None if the argument is not a list."""
    if len(expr.arguments) != 1 or expr.named:
        return None
    before = len(inference.found)
    listed = inference.infer(expr.arguments[0], scope)
    if listed.info.type.kind is Kind.LIST:
        info = _aggregate_info("count", over=listed)
        return typed.ListAggregate(info, expr.span, "count", listed, typed.Binder(), None, None)
    del inference.found[before:]  # it is inferred again
    return None


class _Collection(msgspec.Struct, frozen=True):
    """Pods or nodes that an aggregate iterates over."""

    topology: str | None
    """Label key of the domains; None is the node, "*" the cluster."""
    of_nodes: bool


def _collection(inference: Inference, collection: expressions.Expr, scope: Scope) -> _Collection | typed.Typed | None:
    """Return the pods, the nodes or the list of an aggregate, None after reporting that it is not one."""
    topologies, subject = inference.environment.topologies, inference.subject
    if isinstance(collection, expressions.Member) and collection.name in subject.collections:
        of_nodes = collection.name == subject.rows
        match collection.base:
            case expressions.Name(name=name) if name == subject.everything:
                return _Collection(CLUSTER, of_nodes)
            case expressions.Name(name=name) if name in topologies and not (of_nodes and topologies[name] is None):
                return _Collection(topologies[name], of_nodes)
            case expressions.Call(function="domain", arguments=(expressions.Text(value=key, span=at),), named=()):
                return _domain(inference, key, at, of_nodes=of_nodes)
            case expressions.Call(function="domain", arguments=(expressions.Name(span=at) as name,), named=()):
                if isinstance(known := _names_in(inference, scope)(name), str):
                    return _domain(inference, known, at, of_nodes=of_nodes)
                if _is_unknown(inference, name, scope):
                    return None
    elif _is_value(inference, collection, scope):
        value = inference.infer(collection, scope)
        if value.info.type.kind is Kind.LIST:
            return value
        if operators.has_unknown(value):
            return None
    names = ", ".join(f"`{name}.pods`" for name in (*topologies, "cluster"))
    advice = f'use {names}, `domain("LABEL").pods`, `cluster.nodes`, `zone.nodes`, or a list such as `pod.images`'
    if isinstance(collection, expressions.Member) and collection.name == "nodes":
        advice = 'use `cluster.nodes`, `zone.nodes`, `region.nodes` or `domain("LABEL").nodes`'
    message = "expected a collection of pods or nodes, or a list"
    if subject is OF_PODS:
        advice = _collection_advice(inference, collection) or advice
    else:
        message = "expected a collection of clusters, or a list"
        advice = "use `fleet.clusters`, `region.clusters`, `zone.clusters`, `provider.clusters`, or a list"
    inference.found.append(codes.WRONG_TYPE.at(collection.span, message, help=advice))
    return None


def topology_of(inference: Inference, expr: expressions.Expr, scope: Scope) -> tuple[str | None] | None:
    """Return the label key of the domains that `node`, `zone`, a name or `node.label.rack` stands for.

    The key None is the node itself. None without a tuple: it stands for no domains.
    """
    topologies = inference.environment.topologies
    if isinstance(expr, expressions.Name) and expr.name in topologies:
        return (topologies[expr.name],)
    if isinstance(expr, expressions.Name):
        key = _names_in(inference, scope)(expr)
        return (key,) if isinstance(key, str) and not label_problem(key, of="key") else None
    path = _path(expr, _names_in(inference, scope))
    if path is not None and [step.text for step in path[1]] == ["name"] and path[0].name == inference.subject.row:
        return (None,)
    root, key = _label_read(inference, expr, scope)
    return (key,) if root == inference.subject.row and key is not None else None


def _domain(inference: Inference, key: str, at: Span, *, of_nodes: bool) -> _Collection | None:
    """Return the pods or nodes of `domain("key")`, None after reporting that there can be no such label."""
    problem = label_problem(key, of="key")
    if not problem:
        return _Collection(key, of_nodes)
    inference.found.append(codes.BAD_ARGUMENT.at(at, f"`{key}` cannot be a label key", help=problem))
    return None


_COLLECTIONS = {
    "nodes": "`cluster.nodes`", "pods": "`node.pods` or `cluster.pods`", "cluster": "`cluster.nodes` or `cluster.pods`",
    "zone": "`zone.nodes` or `zone.pods`", "region": "`region.nodes` or `region.pods`", "node": "`node.pods`",
}  # fmt: skip


def _collection_advice(inference: Inference, collection: expressions.Expr) -> str:
    """Return which collection is probably intended; "" if that is not clear."""
    topologies = inference.environment.topologies
    match collection:
        case expressions.Name(name=name) if name in _COLLECTIONS:
            return f"write {_COLLECTIONS[name]}"
        case expressions.Member(name="nodes" | "pods" as what, base=base):
            if isinstance(base, expressions.Call) and base.function == "domain" and len(base.arguments) == 1:
                base = base.arguments[0]
            if isinstance(base, expressions.Name) and base.name in inference.definitions:
                return f'`{base.name}` must name the label key, a text: `let {base.name} = "…"`'
            if isinstance(base, expressions.Name) and base.name not in topologies:
                return f'write `domain("{base.name}").{what}`'
            if isinstance(base, expressions.Member) and base.name in topologies:
                return f"write `{base.name}.{what}`"
    return ""


def _is_value(inference: Inference, expr: expressions.Expr, scope: Scope) -> bool:
    """Return whether something can be intended as a value rather than as a misspelt collection."""
    match expr:
        case expressions.ListOf() | expressions.Text() | expressions.Conditional():
            return True
        case expressions.Call(function=function):
            return function in (*inference.environment.builtins, *inference.definitions, *inference.unread_names)
        case expressions.Member() | expressions.Index() | expressions.Name():
            path = _path(expr)
            known = (*inference.definitions, *inference.unread_names, *scope.parameters, *scope.bound)
            known = (*known, *inference.subject.roots)
            return path is None or path[0].name in known
        case _:
            return False


def _same_domain(
    inference: Inference, expr: expressions.Aggregate, scope: Scope, *, of_nodes: bool
) -> tuple[str, expressions.Expr | None]:
    """Return the label by which `where n.label.KEY == node.label.KEY` selects, and the other conditions.

    The nodes with the label's value of the candidate node are one of its domains. "*" without such a condition.
    of_nodes: whether it iterates over nodes; of pods, `p.node.label.KEY` is the label of their node.
    """
    where = expr.where
    operands = where.operands if isinstance(where, expressions.Logical) and where.operator == "and" else (where,)
    for operand in operands:
        if not isinstance(operand, expressions.Binary) or operand.operator != "==":
            continue
        keys = [_label_read(inference, side, scope) for side in (operand.left, operand.right)]
        items = expr.variable if of_nodes else f"{expr.variable}.node"
        of_both = {root for root, _ in keys} == {items, inference.subject.row}
        if not of_both or keys[0][1] != keys[1][1] or keys[0][1] is None:
            continue
        left = tuple(each for each in operands if each is not operand and each is not None)
        rest = left[0] if len(left) == 1 else None
        if len(left) > 1:
            assert isinstance(where, expressions.Logical)
            rest = msgspec.structs.replace(where, operands=left)
        return keys[0][1], rest
    return CLUSTER, where


def _label_read(inference: Inference, expr: expressions.Expr, scope: Scope) -> tuple[str, str | None]:
    """Return what a path begins with, and the key of the node label that it leads to, None if to none."""
    path = _path(expr, _names_in(inference, scope))
    if path is None:
        return "", None
    (root, steps), name = path, path[0].name
    begins = steps[0].text if steps and not steps[0].bracket else ""
    if inference.subject is OF_PODS and root.name != "node" and begins == "node":
        name, steps = f"{name}.node", steps[1:]
    if len(steps) == 2 and steps[0].text == "label" and not steps[0].bracket and steps[1].text:
        return name, steps[1].text
    if len(steps) == 1 and not steps[0].bracket:
        return name, inference.environment.topologies.get(steps[0].text)
    return name, None


def _parts(
    inference: Inference, expr: expressions.Aggregate, inner: Scope
) -> tuple[typed.Typed | None, typed.Typed | None] | None:
    """Return what is aggregated and the condition, or None after reporting what is wrong with them."""
    value = inference.infer(expr.value, inner) if expr.value is not None else None
    where = operators.truth(inference.infer(expr.where, inner), inference.found) if expr.where is not None else None
    if any(part is not None and operators.has_unknown(part) for part in (value, where)):
        return None
    value = _checked_value(inference, expr, value)
    if value is not None and operators.has_unknown(value):
        return None
    return value, where


def _checked_value(inference: Inference, expr: expressions.Aggregate, value: typed.Typed | None) -> typed.Typed | None:
    """Return the value that is aggregated, and report one of the wrong kind or one too many."""
    found = inference.found
    if expr.distinct and expr.function != "count":
        message = f"`distinct` belongs to `count`, not to `{expr.function}`"
        found.append(codes.ARGUMENTS.at(expr.span, message, help="write `count(distinct …)`, or remove `distinct`"))
        return unknown(expr.span)
    match expr.function:
        case "count" if expr.distinct:
            if value is not None and value.info.type.kind not in (Kind.TEXT, Kind.NUMBER):
                found.append(operators.wrong_type(value, "texts or numbers to count"))
                return unknown(value.span)
        case "count":
            if value is not None:
                whole = f"{expr.variable} in {expr.collection.span.text}"
                shown = " ".join(value.span.text.split())
                advice = f"write `count({whole} where …)`, or `count(distinct {shown} for …)`"
                if value.info.type.kind is Kind.TRUTH and len(shown) < 60:
                    advice = f"write `count({whole} where {shown})`"
                found.append(codes.ARGUMENTS.at(value.span, "`count` counts members, not values", help=advice))
                return unknown(value.span)
        case "any" | "all":
            if value is not None:
                return operators.truth(value, found)
            if expr.function == "all":
                advice = f"write `all(CONDITION for {expr.variable} in {expr.collection.span.text})`"
                found.append(codes.ARGUMENTS.at(expr.span, "`all` needs a condition", help=advice))
                return unknown(expr.span)
        case _:
            if value is None:
                advice = f"write `{expr.function}({expr.variable}.request.cpu for {expr.variable} in …)`"
                found.append(codes.ARGUMENTS.at(expr.span, f"`{expr.function}` of what?", help=advice))
                return unknown(expr.span)
            if value.info.type.kind is not Kind.NUMBER:
                found.append(operators.wrong_type(value, "a number"))
                return unknown(value.span)
    return value


def _aggregate_info(function: str, *values: typed.Typed | None, over: typed.Typed | None = None) -> Info:
    """Return the info of an aggregate of a value under a condition, from the first of the two that is present.

    over: the list that it iterates over; for pods and nodes, shape and dependencies are not given.
    """
    given = [value for value in values if value is not None]
    shape, _, depends = operators.joined(*given, *(() if over is None else (over,)))
    match function:
        case "count" | "distinct":
            return Info(NUMBER, shape, False, depends, 0, 1e9)
        case "any" | "all":
            return Info(TRUTH, shape, False, depends)
        case _:
            info = given[0].info
            low, high = info.low, info.high
            if function == "sum":
                low, high = min(0.0, low * 1e9), max(0.0, high * 1e9)
            literal = info.literal and (Literal.QUANTITY if info.literal is Literal.QUANTITY else Literal.PLAIN)
            return Info(info.type, shape, function != "sum", depends, low, high, literal)


# --- unknown names ---------------------------------------------------------------------------------------

_MOST_NAMES = 20
"""Number of names listed in an advice."""
_GROUPING = frozenset(statement.keyword for statement in STATEMENTS if statement.groups)


class Step(msgspec.Struct, frozen=True):
    """One step of a path: `.name` or `["key"]`."""

    text: str
    span: Span
    bracket: bool
    position: int | None = None


def _item(scope: Scope) -> str:
    """Return the name of what an aggregate iterates over, or of the victim."""
    return next(iter((*scope.items, *scope.node_items)))


def _begins_field(inference: Inference, subject: str, name: str) -> bool:
    return any(path.split(".")[:2] == [subject, name] for path in inference.environment.fields)


def _is_item_path(inference: Inference, name: str, scope: Scope) -> bool:
    """Return whether a name is a field of what an aggregate iterates over, written without its variable."""
    if len(scope.items) + len(scope.node_items) != 1:
        return False
    row, decided = inference.subject.roots
    return _begins_field(inference, decided if scope.items else row, name)


def unknown_name(inference: Inference, expr: expressions.Name, scope: Scope) -> Diagnostic:
    """Return the diagnostic of an unknown bare name."""
    name = expr.name
    row, decided = inference.subject.roots
    if name in (row, decided) or name in scope.items or name in scope.node_items:
        root = decided if name in scope.items else row if name in scope.node_items else name
        message = f"`{name}` is not a value"
        advice = f"use a field, such as `{name}.{'label.app' if root == decided else 'ready'}`"
        return codes.UNKNOWN_NAME.at(expr.span, message, help=advice)
    if (wrong := _of_other_subject(inference, expr)) is not None:
        return wrong
    if name in ("strict", "asc", "desc") and scope.statement == "order by":
        advice = f"`{name}` stands at the end, without a comma: `order by pod.queued {name}`"
        return codes.UNKNOWN_NAME.at(expr.span, f"unknown name `{name}`", help=advice)
    if _is_item_path(inference, name, scope):
        return codes.UNKNOWN_NAME.at(expr.span, f"unknown name `{name}`", help=f"write `{_item(scope)}.{name}`")
    if name in inference.environment.builtins:
        advice = f"call it: `{inference.environment.builtins[name].signature}`"
        return codes.UNKNOWN_NAME.at(expr.span, f"`{name}` is a function", help=advice)
    fields = [path for path in inference.environment.fields if path.split(".")[-1] == name]
    known = [*inference.definitions, *scope.parameters, *scope.bound]
    meant = closest(name, known)
    if name.lower() in foreign.NAMES and not meant:
        advice = foreign.NAMES[name.lower()]
    elif meant:
        advice = f"did you mean `{meant}`?"
    elif name in SUFFIXES:
        advice = f"write the amount, `1{name}`"
    elif scope.statement in _GROUPING and name in inference.environment.topologies:
        advice = f"pods are grouped by a label, over a topology: `{scope.statement} by pod.label.app over {name}`"
    elif scope.bare_item and name in RESOURCE_WORDS:
        advice = f"did you mean `request.{name}`?"
    elif name in RESOURCE_WORDS and decided == "pod":
        advice = f"write `node.free.{name}`, or `pod.request.{name}` for what the pod requests"
    elif scope.statement in _GROUPING and not fields:
        advice = f"did you mean `pod.label.{name}`?"
    elif fields:
        advice = f"did you mean `{fields[0]}`?"
    elif scope.parameters or known:
        advice = f"the known names are {some(sorted(known), limit=_MOST_NAMES)}; write texts in quotes"
    else:
        metric = f', metrics in `promql("{name}")`' if scope.scores else ""
        advice = f'write texts in quotes: "{name}"{metric}; define names with `let {name} = …`'
    return codes.UNKNOWN_NAME.at(expr.span, f"unknown name `{name}`", help=advice)


def unknown_field(
    inference: Inference, subject: str, root: expressions.Name, steps: list[Step], scope: Scope
) -> Diagnostic:
    """Return the diagnostic of a path that leads to no field."""
    first = steps[0]
    fields = [f for f in inference.environment.fields.values() if f.path.startswith(f"{subject}.")]
    has_parts = any(path.startswith(f"{subject}.{first.text}.") for path in inference.environment.fields)
    if root.name != subject and subject == "pod" and not has_parts:
        fields = [f for f in fields if not f.depends & ~scope.item_depends]
        meant = closest(first.text, {f.path.split(".")[1] for f in fields})
        message = f"`{root.name}.{first.text}` is not available for running pods"
        advice = "use a field that `policyctl fields` marks as `also of running pods`"
        advice = f"did you mean `{root.name}.{meant}`?" if meant else advice
        known = foreign.field_advice("pod", first.text, inference.environment.fields.values())
        advice = known.replace("`pod.", f"`{root.name}.") if known and " or " not in known else advice
        advice = foreign.running_pod_advice(root.name, first.text) or advice
        if first.text not in ("labels", "annotations"):
            return codes.UNKNOWN_FIELD.at(first.span, message, help=advice)
    names = sorted({f.path.split(".")[1] for f in fields})
    inner = sorted(p.split(".")[2] for p in inference.environment.fields if p.startswith(f"{subject}.{first.text}."))
    if inner:
        at = steps[1] if len(steps) > 1 else first
        what = f"`{root.name}.{first.text}` has no field `{at.text}`" if len(steps) > 1 else "the field is missing here"
        return codes.UNKNOWN_FIELD.at(at.span, what, help=f"it has {', '.join(inner)}")
    if first.text == "pods":
        message = f"`{root.name}.pods` can only be counted"
        advice = f"write `count(p in {root.name}.pods where …)`"
        return codes.WRONG_TYPE.at(first.span, message, help=advice)
    meant = closest(first.text, names)
    advice, fix = foreign.field_advice(subject, first.text, inference.environment.fields.values()), None
    advice = advice.replace(f"`{subject}.", f"`{root.name}.")
    if first.bracket:
        advice = f'for a label write `{root.name}.label["{one_line(first.text, 40)}"]`'
    if first.text in ("labels", "annotations"):
        meant, rest = first.text[:-1], root.span.source.text[first.span.end : steps[-1].span.end]
        advice = f"write `{root.name}.{meant}{rest}{']' if rest.startswith('[') else ''}`"
        if len(steps) == 1:
            advice = f"write one of them: `{root.name}.{meant}.KEY`, or `label KEY=VALUE` for the node"
        else:
            fix = Fix(f"write {meant}", (Edit(first.span, meant),))
    elif not advice:
        advice = f"did you mean `{root.name}.{meant}`?" if meant else f"a {subject} has {', '.join(names)}"
    message = f"unknown field `{first.text}` of a {subject}"
    return codes.UNKNOWN_FIELD.at(first.span, message, help=advice, fix=fix)


_OF_COLLECTION = r"(\w+\.(node|pod)s)\.(.{1,60})"


def _aggregate_advice(inference: Inference, expr: expressions.Call) -> str:
    """Return how to write an aggregate whose argument shows what it is to iterate over; "" if that is not clear."""
    name, given = expr.function, expr.arguments
    first = given[0] if given else None
    over = given[1] if len(given) == 2 else first
    if isinstance(over, expressions.Member) and over.name in ("pods", "nodes"):
        item, shown = over.name[0], one_line(over.span.text, 40)
        if name == "count":
            return f"write `count({item} in {shown} where …)`"
        value = one_line(given[0].span.text, 40) if len(given) == 2 else f"{item}.…"
        return f"write `{name}({value} for {item} in {shown})`"
    match first:
        case expressions.Binary(operator="in", left=left, right=right) if (path := _path(left)) is not None:
            shown, item = one_line(right.span.text, 40), path[0].name
            return f"write `{name}({one_line(left.span.text, 40)} for {item} in {shown})`"
        case expressions.Logical(operands=(expressions.Binary(operator="in") as members, *_)):
            return f"write `{name}({one_line(members.span.text, 40)} where …)`"
        case expressions.Binary(operator=operator, left=left, right=right) if name in ("any", "all"):
            before = len(inference.found)
            listed = inference.infer(left, ANYWHERE)
            del inference.found[before:]
            if listed.info.type.kind is Kind.LIST:
                shown = one_line(left.span.text, 40)
                return f"write `{name}(i {operator} {one_line(right.span.text, 40)} for i in {shown})`"
        case expressions.Member() if (found := re.fullmatch(_OF_COLLECTION, first.span.text)) is not None:
            item, what = found[2][0], found[3]
            if what in RESOURCE_WORDS:
                what = f"{'request' if found[2] == 'pod' else 'free'}.{what}"
            return f"write `{name}({item}.{what} for {item} in {found[1]})`"
    return ""


def unknown_function(inference: Inference, expr: expressions.Call) -> Diagnostic:
    """Return the diagnostic of an unknown function."""
    name = expr.function
    if name in AGGREGATES:
        advice = {
            "count": "write `count(p in node.pods where …)`",
            "any": "write `any(p in node.pods where …)`",
            "all": "write `all(CONDITION for p in node.pods)`",
        }.get(name, f"write `{name}(p.request.cpu for p in node.pods)`")
        first = expr.arguments[0] if expr.arguments else None
        shown = _aggregate_advice(inference, expr)
        advice = shown or advice
        if isinstance(first, expressions.Call) and first.function == QUERY_FUNCTION:
            advice = f'aggregate inside the query: `promql("{name} by (node) (…)")`'
        elif name == "sum" and len(expr.arguments) > 1 and not shown:
            advice = "add with `+`"
        return codes.ARGUMENTS.at(expr.span, f"`{name}` aggregates pods, nodes or lists", help=advice)
    known = [*inference.environment.builtins, *({*inference.definitions} - {*inference.active}), *AGGREGATES]
    advice = foreign.function_advice(name, inference.environment.builtins.values())
    if name == "distinct":
        advice = "write `count(distinct p.label.app for p in node.pods)`"
    meant = closest(name, known)
    if meant and (not advice or meant.replace("_", "") == name.lower().replace("_", "")):
        advice = f"did you mean `{meant}`?"
    advice = advice or "`policyctl functions` lists all of them"
    return codes.UNKNOWN_FUNCTION.at(expr.name_span, f"unknown function `{name}`", help=advice)
