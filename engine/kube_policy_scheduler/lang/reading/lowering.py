"""Lark's reductions to the syntax tree, one method per rule of the grammar.

What the grammar lets through but is no policy (a wrong unit, an escape that is none, a clause that the statement does
not take) is reported here.
"""

# ruff: noqa: D102  (the grammar says what each rule is)

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import msgspec
from lark import Token

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Source, Span
from kube_policy_scheduler.lang import codes, expressions, syntax
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.lang.language_versions import NEWEST
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.literals import label_problem, number, string
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSES, EXAMPLES
from kube_policy_scheduler.wording import one_line


class Lowering(msgspec.Struct):
    """What one statement is lowered with."""

    source: Source
    start: int
    """Where the statement begins in the source."""
    found: list[Diagnostic]

    def span(self, first: Any, last: Any) -> Span:
        """Return the range from one token or tree to another."""
        start = self.start + (first.start_pos or 0) if isinstance(first, Token) else first.span.start
        end = self.start + (last.end_pos or 0) if isinstance(last, Token) else last.span.end
        return Span(self.source, start, end)

    def report(self, code: Code, span: Span, message: str, *, help: str = "", fix: Fix | None = None) -> None:  # noqa: A002
        """Report a problem of this statement."""
        self.found.append(code.at(span, message, help=help, fix=fix))


_CURRENT: ContextVar[Lowering] = ContextVar("lowering")
"""Lark binds its callbacks to one object for good; what they work on differs by statement and by thread."""


@contextmanager
def lowering(current: Lowering) -> Iterator[None]:
    """Lower what is parsed inside with `current`."""
    token = _CURRENT.set(current)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class Part(msgspec.Struct, frozen=True):
    """A suffix of a statement, before it is known whether the statement takes it."""

    word: str
    value: Any
    span: Span


def current() -> Lowering:
    """Return the lowering context of the current statement."""
    return _CURRENT.get()


def whole(items: list[Any]) -> Span:
    """Return the range of all the items."""
    return current().span(items[0], items[-1])


def at(token: Any) -> Span:
    """Return the range of one token or tree."""
    return current().span(token, token)


def string_value(token: Token) -> str:
    """Return what a string literal says."""
    value, bad = string(str(token))
    if bad is not None:
        start, lowering = at(token).start + bad, current()
        shown = str(token)[bad : bad + 2]
        advice = f"write `\\\\{shown[1:]}` for a backslash, or remove it"
        span = Span(lowering.source, start, start + 2)
        lowering.report(codes.ESCAPE, span, f"`{shown}` is not a valid escape in a string", help=advice)
    return value


def text_or_word(token: Token) -> str:
    """Return what a string literal or a bare word says."""
    return string_value(token) if token.type == "STRING" else str(token)


# --- expressions -----------------------------------------------------------------------------------------

_WORD_BEFORE = re.compile(r"[A-Za-z]\w*(-\w+)*-$")


class _Members(msgspec.Struct, frozen=True):
    """`p in collection where …` or `x for p in collection where …`, before the function is known."""

    value: expressions.Expr | None
    variable: str
    collection: expressions.Expr
    where: expressions.Expr | None
    span: Span
    distinct: bool = False


class _Distinct(msgspec.Struct, frozen=True):
    """`distinct node`"""

    value: expressions.Expr
    span: Span


class _Label(msgspec.Struct, frozen=True):
    key: str
    span: Span


class _Condition(msgspec.Struct, frozen=True):
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
                problem = f'write a text in quotes: `"{word[0]}{text}"`'
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
        wide: expressions.Expr = msgspec.structs.replace(items[1], span=whole(items))
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
            advice = 'write `count(p in node.pods where p.label.app == "web")`'
            if isinstance(inside, expressions.Member):
                name = {"nodes": "n", "pods": "p"}.get(inside.name, "i")
                advice = (
                    f"write `count({name} in {one_line(inside.span.text, 40)} where …)`, and `{name}` in the condition"
                )
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
        distinct = isinstance(items[0], Token)
        value, _, variable, _, collection, *where = items[distinct:]
        return _Members(value, str(variable), collection, where[-1] if where else None, whole(items), distinct)

    def distinct_of(self, items: list[Any]) -> _Distinct:
        return _Distinct(items[1], whole(items))

    def _distinct_call(self, callee: Any, arguments: list[Any], span: Span) -> expressions.Expr:
        """Return `count(distinct node)`, and report anything else that has no `for`."""
        given = tuple(each.value if isinstance(each, _Distinct) else each for each in arguments)
        path = expressions.Name | expressions.Member | expressions.Index
        if str(callee) == "count" and len(given) == 1 and isinstance(given[0], path):
            return expressions.Call("count", given, (), at(callee), span, distinct=True)
        advice = "write `count(distinct p.label.app for p in node.pods)`"
        wrong = next(each for each in arguments if isinstance(each, _Distinct))
        current().report(codes.UNEXPECTED, wrong.span, "`distinct` needs `for` and what to count", help=advice)
        kept = tuple(each for each in given if not isinstance(each, expressions.Named | _Members))
        return expressions.Call(str(callee), kept, (), at(callee), span)

    def call(self, items: list[Any]) -> expressions.Expr:
        callee, _, arguments, _ = items
        span, lowering = whole(items), current()
        function = str(callee)
        if any(isinstance(argument, _Distinct) for argument in arguments):
            return self._distinct_call(callee, arguments, span)
        if len(arguments) == 1 and function in expressions.AGGREGATES:
            members = arguments[0]
            if not isinstance(members, _Members):
                members = self._membership(members, None) or members
            if isinstance(members, _Members):
                return expressions.Aggregate(
                    function,
                    members.variable,
                    members.value,
                    members.collection,
                    members.where,
                    at(callee),
                    span,
                    members.distinct,
                )
        for argument in arguments:
            if isinstance(argument, _Members):
                advice = f"{', '.join(sorted(expressions.AGGREGATES))} aggregate pods, nodes or lists"
                if (meant := foreign.AGGREGATES.get(function.lower())) is not None:
                    shown = one_line(argument.span.text, 60)
                    advice = f"write `{meant}{'' if meant.endswith('(') else ' '}{shown})`"
                message = f"`{function}` does not aggregate pods, nodes or lists"
                lowering.report(codes.UNEXPECTED, argument.span, message, help=advice)
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
        bare = next((key.removeprefix(path) for path in ("pod.label.", "node.label.") if key.startswith(path)), None)
        if bare:
            fix = Fix(f"write {bare}", (Edit(at(items[0]), bare),))
            message = f"`{key}` is a value, and a selector names the key of the label alone"
            current().report(codes.LABEL, at(items[0]), message, help=f"write `{bare}`", fix=fix)
            return _Label(bare, at(items[0]))
        problem = label_problem(key, of="key")
        if problem:
            current().report(codes.LABEL, at(items[0]), f"`{key}` cannot be a label key", help=problem)
        return _Label(key, at(items[0]))

    def label_value(self, items: list[Any]) -> _Label:
        value = text_or_word(items[0])
        problem = label_problem(value, of="value")
        if problem:
            current().report(codes.LABEL, at(items[0]), f"`{value}` cannot be a label value", help=problem)
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


# --- statements ------------------------------------------------------------------------------------------


def _clauses(keyword: str, items: list[Any]) -> dict[str, Any]:
    """Return what stands behind each clause, by attribute of the tree; None for a clause that is not there.

    Reports clauses that the statement does not take, and those that repeat.
    """
    allowed = BY_KEYWORD[keyword].clauses
    found: dict[str, Any] = {CLAUSES[word]: None for word in allowed}
    seen = set()
    for part in items:
        if not isinstance(part, Part):
            continue
        if part.word not in allowed:
            advice = f"`{keyword}` takes {', '.join(f'`{word}`' for word in allowed)}"
            current().report(codes.PART, part.span, f"`{part.word}` does not belong to `{keyword}`", help=advice)
        elif part.word in seen:
            advice = "join the conditions with `and`" if part.word == "if" else "keep one of them"
            current().report(codes.PART, part.span, f"`{part.word}` appears twice", help=advice)
        else:
            seen.add(part.word)
            found[CLAUSES[part.word]] = part.value
    return found


_SUFFIXES = frozenset(word.split()[0] for word in CLAUSES)


class Statements:
    """Rules of statements and their parts."""

    def language(self, items: list[Any]) -> syntax.Statement:
        said = items[1]
        version, shown = 0, one_line(said.span.text, 20)
        if isinstance(said, expressions.Number) and said.text.isdigit():
            version = int(min(said.value, NEWEST + 1))
        if version > NEWEST:
            message = f"language {shown} is newer than this program, which reads 1 to {NEWEST}"
            advice = f"update kube-policy-scheduler, or write `language {NEWEST}` if the file needs nothing newer"
            current().report(codes.LANGUAGE, said.span, message, help=advice)
        elif version < 1:
            message = f"`{shown}` is not a version of the language"
            advice = f"write a whole number from 1 to {NEWEST}: `language {NEWEST}` is the newest"
            current().report(codes.LANGUAGE, said.span, message, help=advice)
        return syntax.Language(version, whole(items))

    def policy(self, items: list[Any]) -> syntax.Statement:
        return syntax.PolicyName(str(items[1]), whole(items))

    def scheduler(self, items: list[Any]) -> syntax.Statement:
        return syntax.SchedulerName(str(items[1]), whole(items))

    def for_pods(self, items: list[Any]) -> syntax.Statement:
        return syntax.ForPods(items[3], whole(items))

    def for_workloads(self, items: list[Any]) -> syntax.Statement:
        return syntax.ForWorkloads(items[3], whole(items))

    def priority(self, items: list[Any]) -> syntax.Statement:
        return syntax.Priority(items[1], whole(items))

    def canary(self, items: list[Any]) -> syntax.Statement:
        share = items[4] if isinstance(items[4], expressions.Number) else None
        condition = items[-1] if len(items) > 5 else None
        return syntax.Canary(str(items[2]), share, condition, at(items[2]), whole(items))

    def ties(self, items: list[Any]) -> syntax.Statement:
        return syntax.Ties(str(items[2]), at(items[2]), whole(items))

    def devices(self, items: list[Any]) -> syntax.Statement:
        return syntax.Devices(tuple(item for item in items if isinstance(item, syntax.OrderKey)), whole(items))

    def domains(self, items: list[Any]) -> syntax.Statement:
        return syntax.Domains(tuple(item for item in items if isinstance(item, syntax.OrderKey)), whole(items))

    def queue(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("queue", items)
        words = {item.type: place for place, item in enumerate(items) if isinstance(item, Token)}
        parent = items[words["OF"] + 1] if "OF" in words else None
        pods = items[words["WHERE"] + 1] if "WHERE" in words else None
        key = items[words["BY"] + 1] if "BY" in words else None
        return syntax.Queue(
            str(items[1]),
            str(parent) if parent is not None else None,
            pods,
            key,
            **clauses,
            name_span=at(items[1]),
            parent_span=at(parent if parent is not None else items[1]),
            span=whole(items),
        )

    def amounts(self, items: list[Any]) -> tuple[syntax.Amount, ...]:
        return tuple(items[::2])

    def amount(self, items: list[Any]) -> syntax.Amount:
        resource, token = items
        written = Expressions.number(self, [token])  # type: ignore[arg-type]
        assert isinstance(written, expressions.Number)
        return syntax.Amount(resource.key, written, current().span(resource, token))

    def resource(self, items: list[Any]) -> _Label:
        return _Label(text_or_word(items[0]), at(items[0]))

    # --- composition and names ---------------------------------------------------------------------------

    def plugins(self, items: list[Any]) -> tuple[syntax.PluginName, ...]:
        return tuple(syntax.PluginName(str(item), at(item)) for item in items[::2])

    def use_kubernetes(self, items: list[Any]) -> syntax.Statement:
        if len(items) == 2:
            return syntax.UseKubernetes((), whole(items))
        plugins = items[3]
        return syntax.UseKubernetes(plugins, at(items[0]).to(plugins[-1].span))

    def use_karmada(self, items: list[Any]) -> syntax.Statement:
        if len(items) == 2:
            return syntax.UseKarmada((), whole(items))
        plugins = items[3]
        return syntax.UseKarmada(plugins, at(items[0]).to(plugins[-1].span))

    def use_scores(self, items: list[Any]) -> syntax.Statement:
        weight: expressions.Expr | None = None
        without: list[syntax.PluginName] = []
        weights: list[syntax.PluginWeight] = []
        for token, item in pairwise(items):
            if isinstance(item, syntax.PluginWeight):
                weights.append(item)
            elif isinstance(item, tuple):
                without.extend(item)
            elif not isinstance(item, Token):
                if weight is not None:
                    current().report(codes.PART, at(token), "`weight` appears twice", help="keep one of them")
                weight = item
        last = items[-1][-1] if isinstance(items[-1], tuple) else items[-1]
        return syntax.UseScores(weight, tuple(without), tuple(weights), current().span(items[0], last))

    def weighted(self, items: list[Any]) -> syntax.PluginWeight:
        return syntax.PluginWeight(syntax.PluginName(str(items[0]), at(items[0])), items[2], whole(items))

    def use_file(self, items: list[Any]) -> syntax.Statement:
        return syntax.UseFile(string_value(items[1]), at(items[1]), whole(items))

    def let(self, items: list[Any]) -> syntax.Statement:
        low, high = (items[5], items[7]) if len(items) > 4 else (None, None)
        return syntax.Let(str(items[1]), items[3], low, high, at(items[1]), whole(items))

    def parameters(self, items: list[Any]) -> tuple[expressions.Name, ...]:
        return tuple(expressions.Name(str(item), at(item)) for item in items[::2])

    def define(self, items: list[Any]) -> syntax.Statement:
        return syntax.Def(str(items[1]), items[3], items[6], at(items[1]), whole(items))

    def metric(self, items: list[Any]) -> syntax.Statement:
        name, query, clauses = items[1], items[3], _clauses("metric", items)
        clauses["for_cluster"], clauses["for_fleet"] = bool(clauses["for_cluster"]), bool(clauses["for_fleet"])
        return syntax.Metric(str(name), query, **clauses, name_span=at(name), span=whole(items))

    # --- clauses -----------------------------------------------------------------------------------------

    def require(self, items: list[Any]) -> syntax.Statement:
        return syntax.Require(items[1], **_clauses("require", items), span=whole(items))

    def filter(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("filter", items)
        clauses["also_running"] = bool(clauses["also_running"])
        return syntax.Filter(items[1], **clauses, span=whole(items))

    def score(self, items: list[Any]) -> syntax.Statement:
        return syntax.Score(items[1], **_clauses("score", items), span=whole(items))

    def hold(self, items: list[Any]) -> syntax.Statement:
        return syntax.Hold(items[2], **_clauses("hold", items), span=whole(items))

    def order_key(self, items: list[Any]) -> syntax.OrderKey:
        return syntax.OrderKey(items[0], len(items) > 1 and items[1].type == "DESC", whole(items))

    def order(self, items: list[Any]) -> syntax.Statement:
        keys, clauses = tuple(item for item in items if isinstance(item, syntax.OrderKey)), _clauses("order", items)
        clauses["strict"] = bool(clauses["strict"])
        return syntax.Order(keys, **clauses, span=whole(items))

    def spread(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("spread", items)
        for word in ("min domains", "counting"):
            if clauses[CLAUSES[word]] is not None and clauses["max_skew"] is None:
                advice = f"write `max skew N {word} …`"
                message = f"`{word}` has a meaning only after `max skew`"
                current().report(codes.PART, whole(items), message, help=advice)
        return syntax.Spread(items[2], **clauses, span=whole(items))

    def pack(self, items: list[Any]) -> syntax.Statement:
        return syntax.Pack(items[2], **_clauses("pack", items), span=whole(items))

    def limit(self, items: list[Any]) -> syntax.Statement:
        key = items[3] if items[2].type == "BY" else None
        bound = items[5] if key is not None else items[3]
        return syntax.Limit(items[1], key, bound, **_clauses("limit", items), span=whole(items))

    def gang(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("gang", items)
        clauses["evict_whole"] = bool(clauses["evict_whole"])
        return syntax.Gang(items[2], items[4], **clauses, span=whole(items))

    def preempt(self, items: list[Any]) -> syntax.Statement:
        if len(items) == 2:
            return syntax.Preempt(None, None, whole(items))
        return syntax.Preempt(items[2], items[5] if len(items) > 3 else None, whole(items))

    def reclaim(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("reclaim", items)
        clauses["fair"], clauses["above_max"] = bool(clauses["fair"]), bool(clauses["above_max"])
        return syntax.Reclaim(**clauses, span=whole(items))

    def backfill(self, items: list[Any]) -> syntax.Statement:
        clauses, span = _clauses("backfill", items), whole(items)
        if clauses["lasts"] is None:
            message, advice = "`backfill` does not say how long pods run", f"write `{EXAMPLES['backfill']}`"
            current().report(codes.PART, span, message, help=advice)
            clauses["lasts"] = expressions.Number(0.0, "s", "0s", span)
        return syntax.Backfill(**clauses, span=span)

    def rebalance(self, items: list[Any]) -> syntax.Statement:
        return syntax.Rebalance(**_clauses("rebalance", items), span=whole(items))

    def choose(self, items: list[Any]) -> syntax.Statement:
        most = items[3] if items[2].type == "TO" else None
        return syntax.Choose(items[1], most, **_clauses("choose", items), span=whole(items))

    def divide(self, items: list[Any]) -> syntax.Statement:
        levels = tuple(item for item in items if isinstance(item, syntax.Division))
        clauses, span = _clauses("divide", items), whole(items)
        clauses["partly"] = bool(clauses["partly"])
        return syntax.Divide(levels, **clauses, span=span)

    def division_word(self, items: list[Any]) -> syntax.Division:
        return syntax.Division(" ".join(items), None, None, None, whole(items))

    def division_by(self, items: list[Any]) -> syntax.Division:
        return syntax.Division("", None, items[1], None, whole(items))

    def division_over(self, items: list[Any]) -> syntax.Division:
        over, how, *behind = items[1:]
        if how.type == "TARGET":
            span = current().span(items[0], behind[0][-1])
            return syntax.Division("", over, None, behind[0], span)
        return syntax.Division("" if behind else str(how), over, behind[0] if behind else None, None, whole(items))

    def keep(self, items: list[Any]) -> syntax.Statement:
        return syntax.Keep(items[1].type == "RUNNING", whole(items))

    # --- parts -------------------------------------------------------------------------------------------

    def part_min(self, items: list[Any]) -> Part:
        return Part("min", items[1], current().span(items[0], items[1][-1]))

    def part_max(self, items: list[Any]) -> Part:
        return Part("max", items[1], current().span(items[0], items[1][-1]))

    def part_lend(self, items: list[Any]) -> Part:
        return Part("lend", items[1], current().span(items[0], items[1][-1]))

    def part_remember(self, items: list[Any]) -> Part:
        return Part("remember", items[1], whole(items))

    def part_fair(self, items: list[Any]) -> Part:
        return Part("fair", True, whole(items))

    def part_above_max(self, items: list[Any]) -> Part:
        return Part("above max", True, whole(items))

    def part_lasts(self, items: list[Any]) -> Part:
        return Part("lasts", items[1], whole(items))

    def part_evict_whole(self, items: list[Any]) -> Part:
        return Part("evict whole", True, whole(items))

    def part_after(self, items: list[Any]) -> Part:
        return Part("after", items[1], whole(items))

    def part_evict(self, items: list[Any]) -> Part:
        return Part("evict where", items[2], whole(items))

    def part_margin(self, items: list[Any]) -> Part:
        return Part("margin", items[1], whole(items))

    def part_at_most(self, items: list[Any]) -> Part:
        return Part("at most", items[2], whole(items))

    def part_each_at_most(self, items: list[Any]) -> Part:
        return Part("each at most", items[3], whole(items))

    def part_at_least(self, items: list[Any]) -> Part:
        return Part("at least", items[2], whole(items))

    def part_partly(self, items: list[Any]) -> Part:
        return Part("partly", True, whole(items))

    def part_also_running(self, items: list[Any]) -> Part:
        return Part("also running", True, whole(items))

    def part_rest(self, items: list[Any]) -> Part:
        return Part("rest", items[1], whole(items))

    def part_as(self, items: list[Any]) -> Part:
        return Part("as", str(items[1]), whole(items))

    def part_if(self, items: list[Any]) -> Part:
        return Part("if", items[1], whole(items))

    def part_else(self, items: list[Any]) -> Part:
        return Part("else", string_value(items[1]), whole(items))

    def part_weight(self, items: list[Any]) -> Part:
        return Part("weight", items[1], whole(items))

    def part_over(self, items: list[Any]) -> Part:
        return Part("over", syntax.Topology(text_or_word(items[1]), at(items[1])), whole(items))

    def part_over_level(self, items: list[Any]) -> Part:
        return Part("over", items[1], whole(items))

    def part_max_skew(self, items: list[Any]) -> Part:
        return Part("max skew", items[2], whole(items))

    def part_min_domains(self, items: list[Any]) -> Part:
        return Part("min domains", items[2], whole(items))

    def part_counting(self, items: list[Any]) -> Part:
        return Part("counting", items[1], whole(items))

    def counted(self, items: list[Any]) -> syntax.Counting:
        return syntax.Counting(tuple(str(item) for item in items[:-1:2]), whole(items))

    def part_of_pods(self, items: list[Any]) -> Part:
        return Part("of pods where", items[3], whole(items))

    def part_of_workloads(self, items: list[Any]) -> Part:
        return Part("of workloads where", items[3], whole(items))

    def part_new_nodes(self, items: list[Any]) -> Part:
        return Part("new nodes", " ".join(items[2]), current().span(items[0], items[2][-1]))

    def helping(self, items: list[Any]) -> list[Token]:
        return items

    def part_strict(self, items: list[Any]) -> Part:
        return Part("strict", True, whole(items))

    def part_target(self, items: list[Any]) -> Part:
        return Part("target", items[1], current().span(items[0], items[1][-1]))

    def part_target_by(self, items: list[Any]) -> Part:
        return Part("target by", items[2], whole(items))

    def targets(self, items: list[Any]) -> tuple[syntax.Target, ...]:
        return tuple(items[::2])

    def target(self, items: list[Any]) -> syntax.Target:
        value, token = items
        text = str(token)
        share, suffix, problem = number(text)
        if value.key in _SUFFIXES and not value.span.text.startswith('"'):
            message = f"`{value.key}` behind a comma is read as a domain"
            advice = f'remove the comma before `{value.key}`, or write a domain of this name in quotes: `"{value.key}"`'
            current().report(codes.PART, value.span, message, help=advice)
        elif problem:
            current().report(codes.NUMBER, at(token), f"`{text}` is not a share", help="write a share such as `70%`")
        return syntax.Target(
            value.key, expressions.Number(share, suffix, text, at(token)), current().span(value, token)
        )

    def part_with(self, items: list[Any]) -> Part:
        return Part("with", items[1], current().span(items[0], items[1][-1]))

    def roles(self, items: list[Any]) -> tuple[syntax.Role, ...]:
        return tuple(items[::2])

    def role(self, items: list[Any]) -> syntax.Role:
        number, _, key, condition = items
        span = current().span(key, condition if condition.span else key)
        label = expressions.LabelTest("pod", key.key, condition.operator, condition.values, span)
        return syntax.Role(number, label, current().span(number, label))

    def part_within(self, items: list[Any]) -> Part:
        return Part("within", items[1], whole(items))

    def part_within_one(self, items: list[Any]) -> Part:
        return Part("within one", items[2], current().span(items[0], items[2][-1]))

    def levels(self, items: list[Any]) -> tuple[syntax.Topology, ...]:
        return tuple(items[::2])

    def level(self, items: list[Any]) -> syntax.Topology:
        return syntax.Topology(text_or_word(items[0]), at(items[0]))

    def part_every(self, items: list[Any]) -> Part:
        return Part("every", items[1], whole(items))

    def part_stale(self, items: list[Any]) -> Part:
        return Part("stale after", items[2], whole(items))

    def part_default(self, items: list[Any]) -> Part:
        return Part("default", items[1], whole(items))

    def part_by(self, items: list[Any]) -> Part:
        keys = [item for item in items if isinstance(item, syntax.SeriesKey)]
        if len(keys) > 2:
            message = "a metric is found by at most two labels: that of the node, and one `as` a text of the pod"
            advice = "add up or choose the others in the query: `max by (node, peer) (…)`"
            current().report(codes.PART, keys[2].span, message, help=advice)
        first = keys[0]
        if len(keys) > 1:
            first = msgspec.structs.replace(first, also=keys[1], span=first.span.to(keys[1].span))
        return Part("by", first, whole(items))

    def series_key(self, items: list[Any]) -> syntax.SeriesKey:
        return syntax.SeriesKey(str(items[0]), items[2] if len(items) > 1 else None, whole(items))

    def part_for_cluster(self, items: list[Any]) -> Part:
        return Part("for cluster", True, whole(items))

    def part_for_fleet(self, items: list[Any]) -> Part:
        return Part("for fleet", True, whole(items))
