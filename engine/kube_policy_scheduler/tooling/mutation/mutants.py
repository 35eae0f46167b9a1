"""Policies with one small fault put in: of an expression, or of a statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.formatting.show import show
from kube_policy_scheduler.lang.queries import QUERY_FUNCTION
from kube_policy_scheduler.lang.reading.literals import quoted
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.walk import children, walk


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change, what kind it is and which case would notice it."""

    kind: str
    """Such as `comparison`; kinds are what people filter by."""
    span: Span
    """What is replaced."""
    text: str
    """What stands there instead."""
    hint: str
    """Which case would notice."""

    @property
    def source(self) -> Source:
        """Return the file that is changed."""
        return self.span.source

    def applied(self) -> Source:
        """Return the file with the change; its name stays."""
        text = self.source.text
        return Source(self.source.name, text[: self.span.start] + self.text + text[self.span.end :])

    def removed_and_added(self) -> tuple[str, str]:
        """Return the changed line, or lines joined, before and after, without indentation at the ends."""
        text = self.source.text
        start = text.rfind("\n", 0, self.span.start) + 1
        end = text.find("\n", self.span.end)
        end = len(text) if end < 0 else end
        before, after = text[start : self.span.start], text[self.span.end : end]
        return _one_line(before + self.span.text + after), _one_line(before + self.text + after)


def _one_line(text: str) -> str:
    return " ".join(text.split())


_COMPARISONS: Mapping[str, tuple[str, ...]] = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "in": ("not in",),
    "not in": ("in",),
}
"""Each operator with its neighbour at the boundary and its opposite."""
_BOUNDARIES = {("<", "<="), ("<=", "<"), (">", ">="), (">=", ">")}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}
_LABELS = {"=": "!=", "!=": "=", "in": "notin", "notin": "in"}
_AGGREGATES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "avg", "avg": "sum"}
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DIGITS = re.compile(r"[0-9.]+(?:[eE][+-]?[0-9]+)?")
_LABELLED = ("label", "annotation")


def expression(expr: expressions.Expr, *, truth: bool = False) -> Iterator[Mutant]:
    """Yield the mutants of an expression and of all below it, outermost first.

    Args:
        expr: what to change.
        truth: whether a truth value stands there.
    """
    yield from _of(expr)
    if truth:
        yield from _negated(expr)
    yield from _below(expr)


def _below(expr: expressions.Expr) -> Iterator[Mutant]:
    match expr:
        case expressions.Logical(operands=operands):
            for operand in operands:
                yield from expression(operand, truth=True)
        case expressions.Unary(operator="not", operand=operand):
            yield from expression(operand)  # to negate it once more is to drop the `not`
        case expressions.Conditional(condition=condition, then=then, otherwise=otherwise):
            yield from expression(condition, truth=True)
            yield from expression(then)
            yield from expression(otherwise)
        case expressions.Aggregate(value=value, where=where):
            if value is not None:
                yield from expression(value, truth=expr.function in ("any", "all"))
            if where is not None:
                yield from expression(where, truth=True)
        case expressions.Call(function=function, arguments=arguments, named=named):
            given = (*arguments, *(each.value for each in named))
            for argument in given:
                # the tests answer a query by its text
                if function != QUERY_FUNCTION or not isinstance(argument, expressions.Text):
                    yield from expression(argument)
        case expressions.Index(base=expressions.Member(name=name), key=expressions.Text()) if name in _LABELLED:
            pass  # the key is changed as a label's
        case expressions.Index(base=base):
            yield from expression(base)
        case _:
            for child in children(expr):
                yield from expression(child)


def _of(expr: expressions.Expr) -> Iterator[Mutant]:
    match expr:
        case expressions.Number():
            yield from numbers(expr)
        case expressions.Text(value=value, span=span):
            yield _other_text(value, span)
        case expressions.Truth(value=value, span=span):
            yield Mutant("constant", span, "false" if value else "true", f"a case where it matters that it is {value}")
        case expressions.Member(base=expressions.Member(name=kind) as base, name=name, span=span) if kind in _LABELLED:
            yield _other_label(base, name, span)
        case expressions.Index(
            base=expressions.Member(name=kind) as base, key=expressions.Text(value=name), span=span
        ) if kind in _LABELLED:
            yield _other_label(base, name, span)
        case expressions.Binary():
            yield from _binary(expr)
        case expressions.Logical():
            yield from _chain(expr)
        case expressions.Unary(operator=operator, operand=operand, span=span):
            word = "`not`" if operator == "not" else "the sign"
            kind = "negation" if operator == "not" else "sign"
            yield Mutant(kind, span, f"({operand.span.text})", f"a case that is decided differently without {word}")
        case expressions.IsMissing(operand=operand, negated=negated, span=span):
            text = f"{operand.span.text} is {'' if negated else 'not '}missing"
            yield Mutant("negation", span, text, f"a case where {_text(operand)} is missing, or one where it is not")
        case expressions.LabelTest():
            yield from _label_test(expr)
        case expressions.Aggregate(function=function, name_span=span, where=where):
            if function in _AGGREGATES:
                yield _other_function(function, _AGGREGATES[function], span)
            if where is not None:
                hint = f"a case with an existing pod for which `{_text(where)}` is false"
                yield Mutant("condition", where.span, "true", hint)
        case _:
            pass


def numbers(expr: expressions.Number) -> Iterator[Mutant]:
    """Yield a literal doubled and halved; 0 becomes 1."""
    digits = _DIGITS.match(expr.text)
    if digits is None:
        return
    amount, suffix = float(digits[0]), expr.text[digits.end() :]
    for other in (2 * amount, amount / 2) if amount else (1.0,):
        text = f"{other:.10g}{suffix}"
        hint = f"a case whose outcome differs between {expr.text} and {text}"
        yield Mutant("constant", expr.span, text, hint)


def _binary(expr: expressions.Binary) -> Iterator[Mutant]:
    operator, span, left = expr.operator, expr.operator_span, _text(expr.left)
    for other in _COMPARISONS.get(operator, ()):
        if (operator, other) in _BOUNDARIES:
            hint = f"a case where {left} is exactly {_text(expr.right)}"
            yield Mutant("boundary", span, other, hint)
        else:
            yield Mutant("comparison", span, other, f"a case that `{_text(expr)}` decides")
    if operator in _ARITHMETIC:
        hint = f"a case where {_text(expr.right)} changes the outcome"
        yield Mutant("arithmetic", span, _ARITHMETIC[operator], hint)
    if operator == "??":
        hint = f"a case where {left} has a value that differs from {_text(expr.right)}"
        yield Mutant("fall-back", expr.span, f"({expr.right.span.text})", hint)
        if not isinstance(expr.right, expressions.Number):
            hint = f"a case where {left} is missing"
            yield Mutant("fall-back", expr.span, f"({expr.left.span.text})", hint)


def _chain(expr: expressions.Logical) -> Iterator[Mutant]:
    operator, operands = expr.operator, expr.operands
    other = "or" if operator == "and" else "and"
    text = _text_between(expr, lambda gap: re.sub(rf"\b{re.escape(operator)}\b", other, gap))
    yield Mutant("logic", expr.span, text, f"a case where some but not all of `{_text(expr)}` hold")
    for at, operand in enumerate(operands):
        start = operand.span.start if at + 1 < len(operands) else operands[at - 1].span.end
        end = operands[at + 1].span.start if at + 1 < len(operands) else operand.span.end
        only = "false" if operator == "and" else "true"
        hint = f"a case where `{_text(operand)}` alone is {only}"
        yield Mutant("operand", Span(expr.span.source, start, end), "", hint)


def _text_between(expr: expressions.Logical, change: Callable[[str], str]) -> str:
    """Return the text of a chain with what stands between its operands changed."""
    text, at, done = expr.span.source.text, expr.span.start, ""
    for operand in expr.operands:
        done += change(text[at : operand.span.start]) + operand.span.text
        at = operand.span.end
    return done + text[at : expr.span.end]


def _negated(expr: expressions.Expr) -> Iterator[Mutant]:
    match expr:
        case (
            expressions.Binary()
            | expressions.Logical()
            | expressions.IsMissing()
            | expressions.Unary()
            | expressions.Truth()
        ):
            pass  # their own mutants say the opposite
        case expressions.LabelTest(operator=operator) if operator != "exists":
            pass
        case _:
            hint = f"a case that `{_text(expr)}` decides"
            yield Mutant("negation", expr.span, f"(not {_wrapped(expr)})", hint)


def _wrapped(expr: expressions.Expr) -> str:
    return f"({expr.span.text})" if isinstance(expr, expressions.Conditional) else expr.span.text


def _label_test(expr: expressions.LabelTest) -> Iterator[Mutant]:
    def changed(**parts: object) -> str:
        values = {"subject": expr.subject, "key": expr.key, "operator": expr.operator, "values": expr.values}
        return show(expressions.LabelTest(**{**values, **parts}, span=expr.span))  # type: ignore[arg-type]

    if expr.operator in _LABELS:
        hint = f"a case that `{_text(expr)}` decides"
        yield Mutant("comparison", expr.span, changed(operator=_LABELS[expr.operator]), hint)
    hint = f"a case with a {expr.subject} that has the label {expr.key}"
    yield Mutant("label", expr.span, changed(key=f"{expr.key}-other"), hint)
    for at, value in enumerate(expr.values):
        values = (*expr.values[:at], f"{value}-other", *expr.values[at + 1 :])
        hint = f"a case with a {expr.subject} whose label {expr.key} is {value}"
        yield Mutant("label", expr.span, changed(values=values), hint)


def _other_label(base: expressions.Member, name: str, span: Span) -> Mutant:
    text = f"{base.span.text}[{quoted(f'{name}-other')}]"
    return Mutant("label", span, text, f"a case where {base.name} {name} changes the outcome")


def _other_text(value: str, span: Span) -> Mutant:
    time = _TIME.fullmatch(value)
    if time is not None:
        text = quoted(f"{(int(time[1]) + 1) % 24:02}:{time[2]}")
        return Mutant("constant", span, text, f"a case at {value}, or within the hour after it")
    return Mutant("constant", span, quoted(f"{value}-other"), f'a case where it matters that it is "{value}"')


def _other_function(name: str, other: str, span: Span) -> Mutant:
    return Mutant("function", span, other, f"a case that tells {name} from {other}")


def _text(expr: expressions.Expr) -> str:
    return " ".join(expr.span.text.split())


def mutants(file: syntax.File, builtins: Mapping[str, Builtin], *, several: bool = False) -> tuple[Mutant, ...]:
    """Return the mutants of one policy file in the order of its text, each once.

    Args:
        file: what to change.
        builtins: by name; those with an opposite are exchanged for it.
        several: whether other policies are decided with, so that its priority means something.
    """
    found = [mutant for statement in file.statements for mutant in _statement(statement, several=several)]
    for call in (part for statement in file.statements for part in walk(statement)):
        if isinstance(call, expressions.Call) and call.function in builtins and builtins[call.function].words.opposite:
            found.append(_other_function(call.function, builtins[call.function].words.opposite, call.name_span))
    unique = {(m.span.start, m.span.end, m.text): m for m in reversed(found) if m.text != m.span.text}
    return tuple(sorted(unique.values(), key=lambda m: (m.span.start, m.span.end, m.kind, m.text)))


def _statement(statement: syntax.Statement, *, several: bool) -> Iterator[Mutant]:
    match statement:
        case syntax.PolicyName() | syntax.SchedulerName() | syntax.UseFile():
            pass
        case syntax.Priority(value=value):
            if several:
                yield from expression(value)
        case syntax.ForPods(condition=condition) | syntax.ForWorkloads(condition=condition):
            yield from expression(condition, truth=True)
        case syntax.Choose() | syntax.Divide() | syntax.Keep():
            yield from _of_workloads(statement)
        case syntax.Canary(condition=condition):
            if condition is not None:
                yield from expression(condition, truth=True)
        case syntax.UseKubernetes(without=without):
            for plugin in without:
                yield _left_out(statement.span, f"a case that {plugin.name} alone decides")
                break
        case syntax.UseScores(weight=weight, weights=weights):
            yield _left_out(statement.span, "a case that the default scores decide")
            for part in (weight, *(each.weight for each in weights)):
                if part is not None:
                    yield from expression(part)
        case syntax.Let(value=value):
            yield from expression(value)
        case syntax.Def(value=value):
            yield from expression(value)
        case syntax.Metric(stale_after=stale, default=default):
            # how often it is asked is nothing that a decision could show
            for part in (stale, default):
                if part is not None:
                    yield from expression(part)
        case syntax.Queue():
            yield from _queue(statement)
        case syntax.Reclaim():
            yield from _reclaim(statement)
        case syntax.Backfill(condition=condition, lasts=lasts, most=most):
            yield _left_out(statement.span, "a case where a pod starts before the first one that waits")
            if condition is not None:
                yield from expression(condition, truth=True)
            for part in (lasts, most):
                if part is not None:
                    yield from expression(part)
        case _:
            if isinstance(statement, syntax.Clause):
                yield from _clause(statement)


def _of_workloads(statement: syntax.Choose | syntax.Divide | syntax.Keep) -> Iterator[Mutant]:
    parts: tuple[expressions.Expr | None, ...]
    match statement:
        case syntax.Choose(fewest=fewest, largest=largest, condition=condition):
            yield _left_out(statement.span, "a case with more clusters than are chosen")
            parts = (fewest, largest, statement.least, statement.most, statement.most_each)
        case syntax.Divide(levels=levels, least=fewest, most=most, condition=condition):
            yield _left_out(statement.span, "a case that the Placement would divide otherwise")
            parts = (*(level.value for level in levels), fewest, most)
        case syntax.Keep(running=running, span=span):
            text = "keep nothing" if running else "keep running"
            yield Mutant("keyword", span, text, "a case with replicas that run elsewhere than they would be placed now")
            return
    for part in parts:
        if part is not None:
            yield from expression(part)
    if condition is not None:
        yield from expression(condition, truth=True)


def _queue(queue: syntax.Queue) -> Iterator[Mutant]:
    yield _left_out(queue.span, f"a case that the quota of queue {queue.name} decides")
    if queue.pods is not None:
        yield from expression(queue.pods, truth=True)
    if queue.key is not None:
        yield from expression(queue.key)
    for amounts in (queue.minimum, queue.maximum, queue.lend):
        for each in amounts or ():
            yield from numbers(each.amount)
    for number in (queue.weight, queue.remember):
        if number is not None:
            yield from expression(number)
    if queue.minimum and queue.lend is None:
        last = (queue.maximum or queue.minimum)[-1].span.end
        text = f" lend {', '.join(f'{_resource(each)} 0' for each in queue.minimum)}"
        hint = f"a case where another queue borrows what queue {queue.name} does not use"
        yield Mutant("lending", Span(queue.span.source, last, last), text, hint)


def _resource(amount: syntax.Amount) -> str:
    """Return a resource as written, with its quotes if it has some."""
    return amount.span.text[: amount.amount.span.start - amount.span.start].strip()


def _reclaim(reclaim: syntax.Reclaim) -> Iterator[Mutant]:
    if reclaim.above_max:
        if reclaim.evict is not None:
            yield from expression(reclaim.evict, truth=True)
        return  # it evicts for no pod: no decision of a test shows it
    yield _left_out(reclaim.span, "a case with a pod that a queue gets its guarantee back from")
    keyword = Span(reclaim.span.source, reclaim.span.start, reclaim.span.start + len("reclaim"))
    if reclaim.fair:
        fair = Span(
            reclaim.span.source, keyword.end, reclaim.span.text.index("fair") + reclaim.span.start + len("fair")
        )
        yield Mutant("fair", fair, "", "a case where a queue that borrows gets something from one that borrows more")
    else:
        hint = "a case where a queue that borrows would get something from one that borrows more"
        yield Mutant("fair", keyword, "reclaim fair", hint)
    for duration in (reclaim.after, reclaim.rest):
        if duration is not None:
            yield from expression(duration)
    for truth in (reclaim.condition, reclaim.evict):
        if truth is not None:
            yield from expression(truth, truth=True)


def _clause(clause: syntax.Clause) -> Iterator[Mutant]:
    yield _left_out(clause.span, f"a case that this {_keyword(clause)} decides")
    condition = getattr(clause, "condition", None)
    if condition is not None and not isinstance(clause, syntax.Preempt):
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
        case syntax.Hold(value=held):
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
        case syntax.Limit(measure=measure, key=key, bound=bound, topology=topology):
            for part in (measure, bound):
                yield from expression(part)
            if key is not None:
                yield from _domains(key, topology)
            for counted in (clause.of_pods, clause.of_workloads):
                if counted is not None:
                    yield from expression(counted, truth=True)
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
