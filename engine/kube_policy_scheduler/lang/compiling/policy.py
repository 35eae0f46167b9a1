"""A checked policy to a compiled one: each clause as a callable, and how it is called, cached and weighed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kube_policy_scheduler.lang import checked, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind, values_of, workload_values_of
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE, full
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledBackfill,
    CompiledChoose,
    CompiledClause,
    CompiledDivide,
    CompiledDivisionLevel,
    CompiledForWorkloads,
    CompiledGang,
    CompiledGrouping,
    CompiledMove,
    CompiledOrder,
    CompiledPolicy,
    CompiledPreemption,
    CompiledQuota,
    CompiledRebalance,
    CompiledRole,
    CompiledScore,
    CompiledTest,
    CompiledWorkloadLimit,
    CountedWorkloads,
    DeviceOrder,
    DomainOrder,
    Operand,
    Part,
    SortKey,
    Verdict,
    Victim,
)
from kube_policy_scheduler.lang.compiling.expressions import (
    Compiler,
    Evaluate,
    all_of,
    captured_values,
    column_items,
    on_nodes,
    own_reads,
)
from kube_policy_scheduler.lang.compiling.one_row import OneRow
from kube_policy_scheduler.lang.compiling.over_time import CHANGING, moving
from kube_policy_scheduler.lang.environment import (
    CLUSTER,
    OF_PODS,
    OF_WORKLOADS,
    Environment,
    Item,
    Members,
    OnNodes,
    Subject,
)
from kube_policy_scheduler.lang.formatting.show import show, show_statement
from kube_policy_scheduler.lang.types import TEXT_KINDS, Depends, Info, Kind, Shape
from kube_policy_scheduler.lang.versions import version_key


def compile_policy(
    policy: CheckedPolicy, environment: Environment, *, before: CompiledPolicy | None = None
) -> CompiledPolicy:
    """Compile a policy that has no errors.

    before: almost the same one, with the same environment: tests that did not change keep their callables.
    """
    device_order = _device_order(policy, environment)
    compiler = Compiler(environment.pods, device_order)
    maker = _Maker(compiler, policy.subject)
    known: dict[object, CompiledTest | CompiledScore] = {}
    if before is not None and device_order is None and before.devices is None:
        for each in before.clauses:
            if isinstance(each, CompiledTest | CompiledScore) and isinstance(each.checked, checked.Test):
                known[each.checked.origin] = each
    clauses = tuple(maker.clause_again(clause, known) for clause in policy.clauses)
    of_clauses = (each for clause in clauses for each in clause.inputs)
    return CompiledPolicy(
        name=policy.name,
        scheduler=policy.scheduler,
        governs=maker.compile_condition(policy.governs),
        priority=policy.priority,
        canary=policy.canary,
        clauses=clauses,
        without=policy.without,
        kubernetes_scores=policy.kubernetes_scores,
        ties=policy.ties,
        devices=device_order,
        domains=_domain_order(policy, environment, device_order),
        backfill=_backfill(policy, compiler, maker),
        rebalances=tuple(
            CompiledRebalance(
                show_statement(each.tree),
                each.margin,
                each.most,
                each.rest_seconds,
                maker.compile_condition(each.condition),
            )
            for each in policy.rebalances
        ),
        workloads=_of_workloads(policy.workloads, maker) if policy.workloads is not None else None,
        inputs=tuple(dict.fromkeys([*of_clauses, *_inputs(_other_roots(policy), compiler)])),
        pods_read=tuple(dict.fromkeys(compiler.pods_read)),
        of_texts=tuple(compiler.of_texts),
        checked=policy,
    )


def _other_roots(policy: CheckedPolicy) -> Iterator[typed.Typed]:
    """Return the values of a policy that stand in no clause."""
    yield from (value for value, _ in policy.domain_keys)
    if policy.backfill is not None:
        yield policy.backfill.lasts
        if policy.backfill.condition is not None:
            yield policy.backfill.condition
    yield from (each.condition for each in policy.rebalances if each.condition is not None)
    if policy.workloads is not None:
        yield from workload_values_of(policy.workloads)


def _of_workloads(rules: checked.OfWorkloads, maker: _Maker) -> CompiledForWorkloads:
    compiled = maker.compile_value
    return CompiledForWorkloads(
        tuple(
            CompiledChoose(
                show_statement(each.tree),
                maker.compiler.compile(each.fewest),
                maker.compiler.compile(each.most),
                each.topology,
                compiled(each.least),
                compiled(each.most_places),
                compiled(each.most_each),
                maker.compile_condition(each.condition),
            )
            for each in rules.chooses
        ),
        tuple(
            CompiledDivide(
                show_statement(each.tree),
                tuple(
                    CompiledDivisionLevel(level.word, level.topology, compiled(level.value), level.targets)
                    for level in each.levels
                ),
                compiled(each.least),
                compiled(each.most),
                each.tree.partly,
                maker.compile_condition(each.condition),
            )
            for each in rules.divides
        ),
        rules.keeps_running,
        tuple(
            CompiledMove(
                show_statement(each.tree),
                each.margin,
                each.most,
                each.rest_seconds,
                maker.compile_rows(each.condition),
            )
            for each in rules.rebalances
        ),
    )


def _backfill(policy: CheckedPolicy, compiler: Compiler, maker: _Maker) -> CompiledBackfill | None:
    """Return what `backfill` says, None if the policy does not have it."""
    found = policy.backfill
    if found is None:
        return None
    return CompiledBackfill(
        show_statement(found.tree),
        maker.compile_condition(found.condition),
        compiler.compile(found.lasts),
        found.most_seconds,
    )


def _device_order(policy: CheckedPolicy, environment: Environment) -> DeviceOrder | None:
    """Return what `devices by` says, None if the policy does not have it."""
    if policy.devices is not None:
        return DeviceOrder(policy.devices, rule=policy.devices)
    if not policy.device_keys:
        return None
    compiler = Compiler(environment.pods)
    made = [(compiler.compile(value), value.info, down) for value, down in policy.device_keys]

    def keys(frame: Any) -> list[tuple[Any, ...]]:
        columns = [
            [_sortable(item, _sorted_as(info), down) for item in column_items(evaluate(frame), frame.size, info)]
            for evaluate, info, down in made
        ]
        return list(zip(*columns, strict=True))

    tree = next(each for each in policy.statements if isinstance(each, syntax.Devices))
    values = tuple(
        (show(key.value), partial(_shown_items, evaluate, info))
        for key, (evaluate, info, _) in zip(tree.keys, made, strict=True)
    )
    return DeviceOrder(show_statement(tree).removeprefix("devices by "), keys=keys, values=values)


def template_test(value: typed.Typed, environment: Environment) -> Callable[[Any], bool]:
    """Return the test of a pod's template by a truth that depends on nothing else; what is missing is false."""
    holds = _Maker(Compiler(environment.pods, None)).compile_condition(value)
    assert holds is not None
    return lambda template: bool(holds(Item(template)))


def namespace_test(value: typed.Typed | None, environment: Environment) -> Callable[[Any], bool]:
    """Return a test of templates: whether a condition may be true of some pod in the namespace of the template.

    Parts of the condition that read anything but the namespace count as true.
    """
    joined = typed.conjuncts(value) if value is not None else ()
    tests = [template_test(part, environment) for part in joined if typed.reads_only(part, "pod.namespace")]
    return lambda template: all(test(template) for test in tests)


def template_text(value: typed.Typed, environment: Environment) -> Callable[[Any], str | None]:
    """Return what gives the text of a pod's template; None where it is missing."""
    evaluate = Compiler(environment.pods, None).compile(value)
    return lambda template: evaluate(Item(template))


class CompiledReclaim(msgspec.Struct, frozen=True, eq=False):
    """`reclaim`"""

    text: str
    fair: bool
    after_seconds: float
    rest_seconds: float
    condition: Evaluate | None
    evict: Callable[[Any, Any], bool] | None
    """From a frame and the PodInfo of a victim; None: any pod of a queue that borrows."""


def compile_reclaim(reclaim: checked.Reclaim, environment: Environment) -> CompiledReclaim:
    """Compile a `reclaim` that has no errors."""
    maker = _Maker(Compiler(environment.pods, None))
    return CompiledReclaim(
        show_statement(reclaim.tree),
        reclaim.fair,
        reclaim.after_seconds,
        reclaim.rest_seconds,
        maker.compile_condition(reclaim.condition),
        maker.compile_eviction(reclaim.evict),
    )


def _domain_order(
    policy: CheckedPolicy, environment: Environment, device_order: DeviceOrder | None
) -> DomainOrder | None:
    """Return what `domains by` says, None if the policy does not have it."""
    if policy.domains is not None:
        return DomainOrder(policy.domains, rule=policy.domains)
    if not policy.domain_keys:
        return None
    compiler = Compiler(environment.pods, device_order)
    keys = tuple(partial(_domain_key, compiler.compile(value), value.info, down) for value, down in policy.domain_keys)
    tree = next(each for each in policy.statements if isinstance(each, syntax.Domains))
    return DomainOrder(show_statement(tree).removeprefix("domains by "), keys=keys)


def _domain_key(evaluate: Evaluate, info: Info, down: bool, frame: Any) -> Any:
    values = full(evaluate(frame), frame.size)
    if info.type.kind is Kind.TRUTH and info.maybe:
        values = np.where(values == MISSING, np.nan, values == TRUE)
    return np.negative(values, dtype=np.float64) if down else np.asarray(values, np.float64)


def _sorted_as(info: Info) -> Kind:
    return info.type.kind if info.type.kind in TEXT_KINDS else Kind.NUMBER


def _shown_items(evaluate: Evaluate, info: Info, frame: Any) -> list[Any]:
    return column_items(evaluate(frame), frame.size, info)


def _inputs(roots: Iterable[typed.Typed], compiler: Compiler) -> tuple[Any, ...]:
    found: dict[Any, None] = {}
    for part in (part for root in roots for part in typed.below(root)):
        if isinstance(part, typed.Apply):
            found |= dict.fromkeys(part.inputs)
        elif isinstance(part, typed.MemberAggregate):
            found[compiler.member_value(part)] = None
    return tuple(found)


def _at_first_use(make: Callable[[], Evaluate]) -> Evaluate:
    """Return a callable that is made when it is first called: of one row, most policies of an editor never are."""
    made: Evaluate | None = None

    def evaluate(frame: Any) -> Any:
        nonlocal made
        if made is None:
            made = make()
        return made(frame)

    return evaluate


class _Maker:
    """Compiles clauses with one compiler."""

    def __init__(self, compiler: Compiler, subject: Subject = OF_PODS) -> None:
        self.compiler = compiler
        self._subject = subject
        self._refuses = f"{subject.row}(s) didn't match policy clause"
        self._one_row = OneRow(compiler)
        self._keys: dict[tuple[str, object], tuple[typed.Typed, Evaluate]] = {}
        """Those by which clauses tell pods apart, by text and type."""

    def clause_again(
        self, clause: checked.Clause, known: Mapping[object, CompiledTest | CompiledScore]
    ) -> CompiledClause:
        """Compile one clause, with the callables of the same test in another text."""
        if not isinstance(clause, checked.Test):
            return self.clause(clause)
        found, span, value = known.get(clause.origin), clause.tree.span, clause.value
        if found is None or found.name != clause.name:
            return self.clause(clause)
        parts = cache(partial(self._parts, values_of(clause)))
        if isinstance(found, CompiledScore):
            return replace(found, span=span, checked=clause, parts=parts)
        trees = value.operands if found.operands and isinstance(value, typed.Logic) else ()
        pairs = zip(found.operands, trees, strict=True)
        operands = tuple(Operand(operand.text, tree, operand.evaluate) for operand, tree in pairs)
        return replace(found, span=span, checked=clause, parts=parts, operands=operands)

    def clause(self, clause: checked.Clause) -> CompiledClause:
        """Compile one clause."""
        common = self._common(clause)
        match clause:
            case checked.Test(kind=ClauseKind.SCORE):
                return self._score(clause, common)
            case checked.Test():
                return self._test(clause, common)
            case checked.Grouping(key=key):
                return CompiledGrouping(
                    **common,
                    counted=CountedWorkloads(checked.REPLICAS, self.compiler.compile(key), None)
                    if self._subject is OF_WORKLOADS
                    else None,
                    members=self._same_key(key),
                    key=self.compiler.compile(key),
                    topology=clause.topology,
                    targets=clause.targets,
                    share=self.compiler.compile(clause.share) if clause.share is not None else None,
                    max_skew=clause.max_skew,
                    min_domains=clause.min_domains,
                    counting=clause.counting,
                    condition=self.compile_condition(clause.condition),
                    weight=clause.weight,
                )
            case checked.Ordering():
                return CompiledOrder(
                    **common,
                    evaluate=self._sort_key(clause),
                    over_time=self._sort_key_over_time(clause),
                    strict=clause.strict,
                    share=clause.share,
                    condition=self.compile_condition(clause.condition),
                )
            case checked.Quota(measure=measure):
                of_pod = self.compiler.item(measure)[0] if measure is not None else None
                own = own_reads(measure)
                of_pods, on = self._of_pods(clause)
                return CompiledQuota(
                    **common,
                    members=self._counted(clause, of_pods),
                    key=self.compiler.compile(clause.key) if clause.key is not None else None,
                    selects=of_pods is not None,
                    per_domain=clause.per_domain,
                    topology=clause.topology,
                    distinct=clause.distinct,
                    on=on,
                    measure=of_pod,
                    measure_members=_constant(Members(measure, (), of_pod, own=own)) if of_pod is not None else None,
                    own=own | own_reads(clause.of_pods),
                    bound=self.compiler.compile(clause.bound),
                    new_nodes_help=(clause.tree.new_nodes or ("help" if _new_nodes_may_help(clause) else "")) == "help",
                    condition=self.compile_condition(clause.condition),
                )
            case checked.WorkloadLimit():
                return CompiledWorkloadLimit(
                    **common,
                    counted=CountedWorkloads(
                        clause.measure,
                        self.compile_value(clause.key),
                        self.compile_condition(clause.of_workloads),
                    ),
                    topology=clause.topology,
                    bound=self.compiler.compile(clause.bound),
                    condition=self.compile_condition(clause.condition),
                )
            case checked.Gang():
                return CompiledGang(
                    **common,
                    key=self.compiler.compile(clause.key),
                    size=self.compiler.compile(clause.size),
                    roles=tuple(
                        CompiledRole(each.text, self.compiler.compile(each.number), self.compiler.compile(each.test))
                        for each in clause.roles
                    ),
                    within_seconds=clause.within_seconds,
                    levels=clause.levels,
                    evict_whole=clause.evict_whole,
                    condition=self.compile_condition(clause.condition),
                )
            case checked.Preemption():
                return CompiledPreemption(
                    **common,
                    condition=self.compile_condition(clause.condition),
                    evict=self.compile_eviction(clause.evict),
                )

    def compile_condition(self, value: typed.Typed | None) -> Evaluate | None:
        """Return the callable of a truth about the pod; what is missing is not so."""
        if value is None:
            return None
        made = self.compiler.compile(value)
        return (lambda frame: bool(made(frame) == TRUE)) if value.info.maybe else made

    def compile_value(self, value: typed.Typed | None) -> Evaluate | None:
        """Return the callable of a value, if there is one."""
        return None if value is None else self.compiler.compile(value)

    def compile_rows(self, value: typed.Typed | None) -> Callable[[Any], Any] | None:
        """Return the callable of a truth about rows, to `bool[rows]`; what is missing is not so."""
        return (
            None
            if value is None
            else Operand(" ".join(value.span.text.split()), value, self.compiler.compile(value)).holds
        )

    def _common(self, clause: checked.Clause) -> dict[str, Any]:
        depends, roots = Depends.NOTHING, values_of(clause)
        for root in roots:
            depends |= root.info.depends
        text = show_statement(clause.tree)
        own_words = getattr(clause.tree, "reason", None)
        reason = own_words or f"{self._refuses} {clause.name}"
        if clause.kind in (ClauseKind.REQUIRE, ClauseKind.HOLD, ClauseKind.LIMIT):
            what = "held" if clause.kind is ClauseKind.HOLD else "rejected"
            reason = own_words or f"{self._subject.decided} is {what} by policy clause {clause.name}"
        return {
            "kind": clause.kind,
            "name": clause.name,
            "inputs": _inputs(roots, self.compiler),
            "text": text,
            "reason": reason,
            "has_own_words": bool(own_words),
            "span": clause.tree.span,
            "depends": depends,
            "checked": clause,
            "parts": cache(partial(self._parts, roots)),
        }

    def _parts(self, roots: tuple[typed.Typed, ...]) -> tuple[Part, ...]:
        return tuple(
            Part(value.span, value.info, self.compiler.compile(value))
            for root in roots
            for value in typed.below(root)
            if not isinstance(value, typed.Constant | typed.Reference)
            if value.info.shape is not Shape.ITEM and not typed.free(value)
        )

    def _test(self, clause: checked.Test, common: dict[str, Any]) -> CompiledTest:
        value, condition = clause.value, clause.condition
        made = self.compiler.compile(value)
        if clause.kind is ClauseKind.HOLD and condition is not None:
            # held only where both hold; of the others, what has a false condition passes
            value = typed.Logic(
                Info(value.info.type, Shape.DECISION, value.info.maybe or condition.info.maybe),
                value.span,
                "and",
                (condition, value),
            )
            made, condition = self.compiler.compile(value), None
        asks = self.compiler.compile(condition) if condition is not None else None
        maybe = value.info.maybe or (condition is not None and condition.info.maybe)
        nodes = value.info.shape is Shape.NODE or (condition is not None and condition.info.shape is Shape.NODE)
        evaluate, missing = made, None
        if maybe:
            combined = self._combined(value, condition)
            evaluate = lambda frame: combined(frame) == TRUE  # noqa: E731
            missing = lambda frame: combined(frame) == MISSING  # noqa: E731
        elif asks is not None:
            evaluate = lambda frame: np.logical_or(made(frame), np.logical_not(asks(frame)))  # noqa: E731
        of_row: Evaluate | None = None
        if nodes and clause.kind is ClauseKind.FILTER:
            one = _at_first_use(partial(self._combined, value, condition, of_row=True))
            of_row = (lambda frame: one(frame) == TRUE) if maybe or condition is not None else one
        operands = self._operands(clause)
        own = maybe or clause.condition is not None or getattr(clause.tree, "reason", None) is not None
        said = f"{self._refuses} {clause.tree.name}:" if clause.tree.name is not None else self._refuses
        reasons = () if own else tuple(f"{said} {operand.text}" for operand in operands)
        return CompiledTest(
            **common,
            evaluate=evaluate,
            missing=missing,
            of_row=of_row,
            nodes=nodes,
            operands=operands,
            reasons=reasons,
            everywhere=tuple(self._everywhere(clause)),
            new_nodes_fail=_new_nodes(clause) == "never help",
        )

    def _everywhere(self, clause: checked.Test) -> Iterator[Verdict]:
        """Yield the conditions that have one answer for all nodes, those that could be added included.

        Such a condition does not depend on the node. If it is about the nodes of the cluster, such as their number,
        new nodes may change it.
        """
        value, condition = clause.value, clause.condition
        if clause.kind is ClauseKind.HOLD or _new_nodes(clause) == "help":
            return
        if condition is not None and condition.info.shape is Shape.NODE:
            return
        parts = value.operands if isinstance(value, typed.Logic) and value.operator == "and" else (value,)
        for part in parts:
            follows = part.info.depends | (condition.info.depends if condition is not None else Depends.NOTHING)
            if part.info.shape is Shape.NODE or follows & Depends.NODES:
                continue
            maybe = part.info.maybe or (condition is not None and condition.info.maybe)
            made = self._combined(part, condition) if maybe or condition is not None else self.compiler.compile(part)
            three_valued = maybe or condition is not None
            holds = partial(_is_true, made) if three_valued else partial(_holds, made)
            yield Verdict(" ".join(part.span.text.split()), holds)

    def _operands(self, clause: checked.Test) -> tuple[Operand, ...]:
        tree, value = clause.tree, clause.value
        if not isinstance(tree, syntax.Filter) or not isinstance(tree.value, expressions.Logical):
            return ()
        if not isinstance(value, typed.Logic) or value.operator != "and":
            return ()
        return tuple(
            Operand(show(shown), operand, self.compiler.compile(operand))
            for shown, operand in zip(tree.value.operands, value.operands, strict=True)
        )

    def _combined(self, value: typed.Typed, condition: typed.Typed | None, *, of_row: bool = False) -> Evaluate:
        """Return three-valued `value or not condition`; of_row: for frames of one row."""
        result = value
        if condition is not None:
            negated = typed.Not(condition.info, condition.span, condition)
            shape = Shape.NODE if Shape.NODE in (value.info.shape, condition.info.shape) else Shape.DECISION
            info = Info(value.info.type, shape, True, value.info.depends | condition.info.depends)
            result = typed.Logic(info, value.span, "or", (value, negated))
        return self._one_row.compile(result) if of_row else self.compiler.compile(result)

    def _score(self, clause: checked.Test, common: dict[str, Any]) -> CompiledScore:
        value, condition = clause.value, clause.condition
        made = self.compiler.compile(value)
        info = value.info
        of_row: Evaluate | None = None
        if info.shape is Shape.NODE or (condition is not None and condition.info.shape is Shape.NODE):
            of_row = _at_first_use(partial(self._score_of_row, value, condition))
        if condition is None:
            always: Evaluate = lambda frame: full(made(frame), frame.size)  # noqa: E731
            return CompiledScore(
                **common,
                evaluate=always,
                of_row=of_row,
                weight=clause.weight,
                maybe=info.maybe,
                low=info.low,
                high=info.high,
            )
        asks, three_valued = self.compiler.compile(condition), condition.info.maybe

        def evaluate(frame: Any) -> Any:
            when, score = asks(frame), made(frame)
            if not three_valued:
                if isinstance(when, np.ndarray):
                    return np.where(when, score, 0.0)
                return full(score if when else 0.0, frame.size)
            chosen = np.where(when == FALSE, 0.0, np.where(when == MISSING, np.nan, score))
            return chosen if chosen.ndim else np.full(frame.size, float(chosen))

        return CompiledScore(
            **common,
            evaluate=evaluate,
            of_row=of_row,
            weight=clause.weight,
            maybe=info.maybe or three_valued,
            low=min(info.low, 0.0),
            high=max(info.high, 0.0),
        )

    def _score_of_row(self, value: typed.Typed, condition: typed.Typed | None) -> Evaluate:
        score = self._one_row.compile(value)
        if condition is None:
            return lambda frame: float(score(frame))
        asks, three_valued = self._one_row.compile(condition), condition.info.maybe

        def of_row(frame: Any) -> float:
            when = asks(frame)
            if three_valued and when == MISSING:
                return math.nan
            return float(score(frame)) if when else 0.0

        return of_row

    def _key(self, key: typed.Typed) -> tuple[typed.Typed, Evaluate]:
        """Return a key by which pods are told apart, compiled: one for all clauses that write it in the same way."""
        text = " ".join(key.span.text.split()), key.info.type
        return self._keys.setdefault(text, (key, self.compiler.compile(key)))

    def _same_key(self, key: typed.Typed) -> Callable[[Any], Members]:
        key, evaluate = self._key(key)

        def members(frame: Any) -> Members:
            wanted = evaluate(frame)
            return Members(key, (wanted,), lambda item: evaluate(item) == item.captured[0], by=evaluate)

        return members

    def _of_pods(self, clause: checked.Quota) -> tuple[typed.Typed | None, Callable[[Any], OnNodes | None]]:
        """Return what a limit asks of the pods that count, and the nodes on which they count."""
        parts = typed.conjuncts(clause.of_pods) if clause.of_pods is not None else ()
        of_nodes = all_of(tuple(part for part in parts if typed.reads_its_node(part)))
        if of_nodes is None:
            return clause.of_pods, lambda frame: None
        of_pods = all_of(tuple(part for part in parts if not typed.reads_its_node(part)))
        return of_pods, on_nodes(self.compiler, of_nodes)

    def _counted(self, clause: checked.Quota, of_pods: typed.Typed | None) -> Callable[[Any], Members]:
        """Return the pods that a limit counts, from the frame of a pod. of_pods: what it asks of them."""
        if of_pods is None:
            if clause.key is not None:
                return self._same_key(clause.key)
            everyone = Members(clause, (), lambda item: True)
            return lambda frame: everyone
        test, captures = self.compiler.item(of_pods)
        own = own_reads(of_pods)
        if clause.key is None:
            return lambda frame: Members(clause, captured_values(captures, frame), test, own=own)
        _, evaluate = self._key(clause.key)

        def counts(item: Item) -> bool:
            if evaluate(item) != item.captured[0]:
                return False
            return bool(test(item._replace(captured=item.captured[1:])))

        return lambda frame: Members(
            clause, (evaluate(frame), *captured_values(captures, frame)), counts, by=evaluate, own=own
        )

    def _sort_key(self, clause: checked.Ordering) -> Evaluate:
        keys = [(self.compiler.compile(value), value.info.type.kind, down) for value, down in clause.keys]

        def key(frame: Any) -> tuple[Any, ...]:
            return tuple(_sortable(evaluate(frame), kind, down) for evaluate, kind, down in keys)

        return key

    def _sort_key_over_time(self, clause: checked.Ordering) -> Callable[[Any], SortKey] | None:
        if not any(value.info.depends & CHANGING for value, _ in clause.keys):
            return None
        keys = [(moving(self.compiler, value), value.info.type.kind, down) for value, down in clause.keys]

        def key(frame: Any) -> SortKey:
            lines = [line(frame) for line, _, _ in keys]
            return SortKey(
                tuple(_sortable(line.base, kind, down) for line, (_, kind, down) in zip(lines, keys, strict=True)),
                tuple(-line.slope if down else line.slope for line, (_, _, down) in zip(lines, keys, strict=True)),
                min(line.until for line in lines),
            )

        return key

    def compile_eviction(self, value: typed.Typed | None) -> Callable[[Any, Any], bool] | None:
        """Return the callable of a truth about a victim, from a frame and its PodInfo."""
        if value is None:
            return None
        evaluate, captured = self.compiler.item(value)

        def evict(frame: Any, victim: Any) -> bool:
            return bool(evaluate(Victim(victim, tuple(capture(frame) for capture in captured), frame)))

        return evict


class _Descending:
    """Sorts texts, or keys of versions, the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(other.key == self.key)

    def __hash__(self) -> int:
        return hash(self.key)


def _sortable(value: Any, kind: Kind, descending: bool) -> Any:
    """Return a key part; what is missing comes last either way."""
    if kind in TEXT_KINDS:
        if value is None:
            return (1, "")
        own = version_key(value) if kind is Kind.VERSION else value
        return (0, _Descending(own) if descending else own)
    number = float(value) if kind is Kind.NUMBER else (1.0 if value in (True, TRUE) else 0.0)
    if number != number:
        return float("inf")
    return -number if descending else number


def _new_nodes_may_help(clause: checked.Quota) -> bool:
    """Return whether a new node may take what a limit rejects elsewhere: not where it counts all nodes with pods."""
    return clause.per_domain and (clause.distinct is None or clause.topology != CLUSTER)


def _new_nodes(clause: checked.Test) -> str | None:
    """Return what a `require` or `filter` says of new nodes."""
    tree = clause.tree
    return tree.new_nodes if isinstance(tree, syntax.Require | syntax.Filter) else None


def _is_true(evaluate: Evaluate, frame: Any) -> bool:
    return bool(evaluate(frame) == TRUE)


def _holds(evaluate: Evaluate, frame: Any) -> bool:
    return bool(evaluate(frame))


def _constant(members: Members) -> Callable[[Any], Members]:
    return lambda frame: members
