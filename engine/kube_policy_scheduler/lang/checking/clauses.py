"""Clauses: what each of them may say, and where. Reports, and goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kube_policy_scheduler.lang import checked, expressions, syntax, typed
from kube_policy_scheduler.lang import codes_meaning as meaning
from kube_policy_scheduler.lang import codes_policy as codes
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.missing import cause_of, remedy, why
from kube_policy_scheduler.lang.checking.parts import SETTLED, PartChecks
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.checking.units import common_unit, in_unit
from kube_policy_scheduler.lang.reading.literals import label_problem
from kube_policy_scheduler.lang.types import BYTES, NUMBER, PLAIN, SECONDS, Info, Kind

DEFAULT_GANG_SECONDS = 300.0
"""How long a gang waits for its last member: long enough for an autoscaler to bring a node."""


@dataclass(slots=True, kw_only=True)
class ClauseChecks(PartChecks):
    """Checks clauses with one inference."""

    def clause(self, tree: syntax.Clause) -> checked.Clause | None:
        """Return what a clause means; None where it was said before and can be said only once."""
        name = self.named(tree)
        match tree:
            case syntax.Require(value=value, condition=condition):
                scope = self.pod_scope("require")
                test, when = self.truth(value, scope), self.condition(condition, scope)
                return self._test(ClauseKind.REQUIRE, tree, name, test, when)
            case syntax.Filter(value=value, condition=condition):
                scope = Scope("filter")
                clause = self._test(
                    ClauseKind.FILTER, tree, name, self.truth(value, scope), self.condition(condition, scope)
                )
                self._answers(clause)
                return clause
            case syntax.Score(value=value, condition=condition):
                scope = Scope("score", scores=True)
                result = self._score_value(self.inference.top(value, scope))
                return self._test(
                    ClauseKind.SCORE, tree, name, result, self.condition(condition, scope), weight=tree.weight
                )
            case syntax.Hold(condition=condition):
                return self._test(ClauseKind.HOLD, tree, name, self.truth(condition, self.pod_scope("hold")), None)
            case syntax.Order():
                return self._order(tree, name)
            case syntax.Spread() | syntax.Pack():
                return self._grouping(tree, name)
            case syntax.Limit():
                return self._limit(tree, name)
            case syntax.Gang():
                return self._gang(tree, name)
            case syntax.Preempt():
                return self._preempt(tree, name)
            case _:
                assert_never(tree)

    def _test(
        self,
        kind: ClauseKind,
        tree: syntax.Require | syntax.Filter | syntax.Score | syntax.Hold,
        name: str,
        value: typed.Typed,
        condition: typed.Typed | None,
        *,
        weight: expressions.Expr | None = None,
    ) -> checked.Test:
        return checked.Test(kind, tree, name, value, condition, self.number(weight, "weight", low=0))

    def _score_value(self, value: typed.Typed) -> typed.Typed:
        info = value.info
        if operators.bad(value):
            return value
        if info.type.kind is Kind.TRUTH:
            message = "a score is a number, this is true or false"
            advice = f"write `score 1 if {' '.join(value.span.text.split())}`"
            self.found.append(meaning.WRONG_TYPE.at(value.span, message, help=advice))
        elif info.type.kind is not Kind.NUMBER:
            self.found.append(operators.wrong_type(value, "a number"))
        elif info.type.unit.bytes or info.type.unit.seconds:
            shown = " ".join(value.span.text.split())
            one = {BYTES: "1Gi", SECONDS: "1h"}.get(info.type.unit)
            advice = f"write `{shown} / {one}`, or `scale({shown}, …)`" if one else "divide it by an amount of its kind"
            message = f"a score is a plain number, this is {info.type}"
            self.found.append(meaning.SCORE_UNIT.at(value.span, message, help=advice))
        return value

    def _answers(self, clause: checked.Test) -> None:
        """Report a filter that may have no answer for a node."""
        for value in (clause.value, clause.condition):
            if value is not None and value.info.maybe:
                cause = cause_of(value)
                shown = " ".join(cause.span.text.split())
                message = f"`{shown}` can be missing, and then this filter has no answer"
                advice = f"say what then holds: `{remedy(cause)}`"
                self.found.append(meaning.MISSING.at(cause.span, message, help=advice, notes=why(cause)))

    def _order(self, tree: syntax.Order, name: str) -> checked.Clause | None:
        if not self.once("order by", tree.span):
            return None
        keys = []
        for key in tree.keys:
            value = self.settled(self.inference.top(key.value, self.pod_scope("order by")), "order by")
            if value.info.type.kind in (Kind.LIST, Kind.PODS):
                self.found.append(operators.wrong_type(value, "a number or text to order by"))
            keys.append((value, key.descending))
        return checked.Ordering(ClauseKind.ORDER, tree, name, tuple(keys))

    def _grouping(self, tree: syntax.Spread | syntax.Pack, name: str) -> checked.Clause:
        spreads = isinstance(tree, syntax.Spread)
        kind = ClauseKind.SPREAD if spreads else ClauseKind.PACK
        topology = self._topology(tree.topology)
        skew = domains = None
        if isinstance(tree, syntax.Spread):
            skew = int(self.whole(tree.max_skew, "max skew", low=1)) if tree.max_skew else None
            domains = int(self.whole(tree.min_domains, "min domains", low=1)) if tree.min_domains else None
        return checked.Grouping(
            kind,
            tree,
            name,
            self.key(tree.key, kind.value),
            topology,
            skew,
            domains,
            self.condition(tree.condition, self.pod_scope(kind.value)),
            self.number(tree.weight, "weight", low=0),
        )

    def _topology(self, tree: syntax.Topology | None) -> str | None:
        if tree is None:
            return None
        topologies = self.inference.environment.topologies
        if tree.key in topologies:
            return topologies[tree.key]
        problem = label_problem(tree.key, of="key")
        if problem:
            self.found.append(meaning.BAD_ARGUMENT.at(tree.span, f"`{tree.key}` can't be a label key", help=problem))
        return tree.key

    def _limit(self, tree: syntax.Limit, name: str) -> checked.Clause:
        scope = self.pod_scope("limit")
        measure = self._measure(tree.measure)
        bound = self.inference.top(tree.bound, scope)
        if not operators.bad(bound):
            if bound.info.type.kind is not Kind.NUMBER:
                self.found.append(operators.wrong_type(bound, "a number"))
            elif measure is None or not operators.bad(measure):
                counted = measure or typed.Constant(Info(NUMBER), tree.measure.span, 0.0)
                common_unit(counted, bound, "compare {left} with {right}", self.found, bound.span)
        condition = self.condition(tree.condition, scope)
        return checked.Quota(ClauseKind.LIMIT, tree, name, measure, self.key(tree.key, "limit"), bound, condition)

    def _measure(self, tree: expressions.Expr) -> typed.Typed | None:
        if isinstance(tree, expressions.Call) and not tree.named:
            if tree.function == "count" and not tree.arguments:
                return None
            if tree.function == "sum" and len(tree.arguments) == 1:
                scope = Scope("limit", nodes=False, bare_item=True)
                value = self.inference.top(tree.arguments[0], scope)
                if not operators.bad(value) and value.info.type.kind is not Kind.NUMBER:
                    self.found.append(operators.wrong_type(value, "a number"))
                return value
        message = "`limit` adds up `sum(…)` or `count()` over pods"
        self.found.append(codes.MEASURE.at(tree.span, message, help="write `limit sum(request.cpu) by … to …`"))
        return operators.unknown(tree.span)

    def _gang(self, tree: syntax.Gang, name: str) -> checked.Clause:
        scope = self.pod_scope("gang")
        size = self.inference.top(tree.size, scope)
        if not operators.bad(size):
            if size.info.type.kind is not Kind.NUMBER:
                self.found.append(operators.wrong_type(size, "a number of pods"))
            else:
                in_unit(size, PLAIN, self.found)
        within = self.number(tree.within, "within", low=1, unit=SECONDS, default=DEFAULT_GANG_SECONDS)
        condition = self.condition(tree.condition, scope)
        return checked.Gang(ClauseKind.GANG, tree, name, self.key(tree.key, "gang"), size, within, condition)

    def _preempt(self, tree: syntax.Preempt, name: str) -> checked.Clause | None:
        if not self.once("preempt", tree.span):
            return None
        condition = self.condition(tree.condition, self.pod_scope("preempt"))
        evict = None
        if tree.evict is not None:
            scope = Scope("evict where", nodes=False, items=frozenset({"victim"}), item_depends=SETTLED)
            evict = self.truth(tree.evict, scope)
        return checked.Preemption(ClauseKind.PREEMPT, tree, name, condition, evict)
