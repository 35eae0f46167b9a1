"""Statements: Lark's reductions to the syntax tree, one method per rule of the grammar.

The grammar takes the parts of a statement in any order; here each statement takes those that belong to it.
"""

# ruff: noqa: D102  (the grammar says what each rule is)

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.lang import codes_syntax as codes
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.reading.lowering import Part, at, current, string_value, text_or_word, whole
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSES


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
            current().report(codes.PART, part.span, f"`{part.word}` stands here twice", help=advice)
        else:
            seen.add(part.word)
            found[CLAUSES[part.word]] = part.value
    return found


class Statements:
    """Rules of statements and their parts."""

    def policy(self, items: list[Any]) -> syntax.Statement:
        return syntax.PolicyName(str(items[1]), whole(items))

    def scheduler(self, items: list[Any]) -> syntax.Statement:
        return syntax.SchedulerName(str(items[1]), whole(items))

    def for_pods(self, items: list[Any]) -> syntax.Statement:
        return syntax.ForPods(items[3], whole(items))

    def priority(self, items: list[Any]) -> syntax.Statement:
        return syntax.Priority(items[1], whole(items))

    def canary(self, items: list[Any]) -> syntax.Statement:
        share = items[4] if isinstance(items[4], expressions.Number) else None
        condition = items[-1] if len(items) > 5 else None
        return syntax.Canary(str(items[2]), share, condition, at(items[2]), whole(items))

    def ties(self, items: list[Any]) -> syntax.Statement:
        return syntax.Ties(str(items[2]), at(items[2]), whole(items))

    def devices(self, items: list[Any]) -> syntax.Statement:
        return syntax.Devices(str(items[2]), at(items[2]), whole(items))

    # --- composition and names ---------------------------------------------------------------------------

    def plugins(self, items: list[Any]) -> tuple[syntax.PluginName, ...]:
        return tuple(syntax.PluginName(str(item), at(item)) for item in items[::2])

    def use_kubernetes(self, items: list[Any]) -> syntax.Statement:
        if len(items) == 2:
            return syntax.UseKubernetes((), whole(items))
        plugins = items[3]
        return syntax.UseKubernetes(plugins, at(items[0]).to(plugins[-1].span))

    def use_scores(self, items: list[Any]) -> syntax.Statement:
        return syntax.UseScores(items[4] if len(items) > 3 else None, whole(items))

    def use_file(self, items: list[Any]) -> syntax.Statement:
        return syntax.UseFile(string_value(items[1]), at(items[1]), whole(items))

    def let(self, items: list[Any]) -> syntax.Statement:
        return syntax.Let(str(items[1]), items[3], at(items[1]), whole(items))

    def parameters(self, items: list[Any]) -> tuple[expressions.Name, ...]:
        return tuple(expressions.Name(str(item), at(item)) for item in items[::2])

    def define(self, items: list[Any]) -> syntax.Statement:
        return syntax.Def(str(items[1]), items[3], items[6], at(items[1]), whole(items))

    def metric(self, items: list[Any]) -> syntax.Statement:
        name, query = items[1], items[3]
        return syntax.Metric(str(name), query, **_clauses("metric", items), name_span=at(name), span=whole(items))

    # --- clauses -----------------------------------------------------------------------------------------

    def require(self, items: list[Any]) -> syntax.Statement:
        return syntax.Require(items[1], **_clauses("require", items), span=whole(items))

    def filter(self, items: list[Any]) -> syntax.Statement:
        return syntax.Filter(items[1], **_clauses("filter", items), span=whole(items))

    def score(self, items: list[Any]) -> syntax.Statement:
        return syntax.Score(items[1], **_clauses("score", items), span=whole(items))

    def hold(self, items: list[Any]) -> syntax.Statement:
        return syntax.Hold(items[2], **_clauses("hold", items), span=whole(items))

    def order_key(self, items: list[Any]) -> syntax.OrderKey:
        return syntax.OrderKey(items[0], len(items) > 1 and items[1].type == "DESC", whole(items))

    def order(self, items: list[Any]) -> syntax.Statement:
        keys = tuple(item for item in items if isinstance(item, syntax.OrderKey))
        return syntax.Order(keys, whole(items))

    def spread(self, items: list[Any]) -> syntax.Statement:
        clauses = _clauses("spread", items)
        if clauses["min_domains"] is not None and clauses["max_skew"] is None:
            advice = "write `max skew N min domains M`"
            current().report(codes.PART, whole(items), "`min domains` has a meaning only after `max skew`", help=advice)
        return syntax.Spread(items[2], **clauses, span=whole(items))

    def pack(self, items: list[Any]) -> syntax.Statement:
        return syntax.Pack(items[2], **_clauses("pack", items), span=whole(items))

    def limit(self, items: list[Any]) -> syntax.Statement:
        return syntax.Limit(items[1], items[3], items[5], **_clauses("limit", items), span=whole(items))

    def gang(self, items: list[Any]) -> syntax.Statement:
        return syntax.Gang(items[2], items[4], **_clauses("gang", items), span=whole(items))

    def preempt(self, items: list[Any]) -> syntax.Statement:
        if len(items) == 2:
            return syntax.Preempt(None, None, whole(items))
        return syntax.Preempt(items[2], items[5] if len(items) > 3 else None, whole(items))

    # --- parts -------------------------------------------------------------------------------------------

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

    def part_max_skew(self, items: list[Any]) -> Part:
        return Part("max skew", items[2], whole(items))

    def part_min_domains(self, items: list[Any]) -> Part:
        return Part("min domains", items[2], whole(items))

    def part_within(self, items: list[Any]) -> Part:
        return Part("within", items[1], whole(items))

    def part_every(self, items: list[Any]) -> Part:
        return Part("every", items[1], whole(items))

    def part_stale(self, items: list[Any]) -> Part:
        return Part("stale after", items[2], whole(items))

    def part_default(self, items: list[Any]) -> Part:
        return Part("default", items[1], whole(items))

    def part_by(self, items: list[Any]) -> Part:
        return Part("by", str(items[1]), whole(items))
