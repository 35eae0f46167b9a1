"""What only policies of workloads say: `choose`, `divide`; and which statements belong to which subject."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import checked, codes, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.inference import Scope, constant_of
from kube_policy_scheduler.lang.checking.parts import Parts, unsettled
from kube_policy_scheduler.lang.checking.units import in_unit
from kube_policy_scheduler.lang.environment import CLUSTER, OF_WORKLOADS
from kube_policy_scheduler.lang.statements import BY_KEYWORD
from kube_policy_scheduler.lang.types import PLAIN, Depends, Kind, Shape, Unit

_WHOLE = ("as placement", "copies")
"""What can only be said of all clusters, and with no bounds."""

_OF_PODS = "remove it: it is about pods"
_INSTEAD = {
    "preempt": "no running replicas are taken away for other workloads: write `order by workload.priority desc`, so"
    " that important ones are decided first",
    "gang": "remove it: without `partly`, all replicas of a workload are placed or none",
    "queue": "write a `limit`, such as `limit sum(request.cpu) by workload.namespace to 100`",
    "backfill": "remove it: a workload without room does not keep others from being decided",
}
"""By the first word of a statement about pods: what to do in a policy of workloads."""


def belongs(checker: Parts, tree: syntax.Statement) -> bool:
    """Return whether a statement belongs into policies of this subject; report it, or a part of it, that does not."""
    subject = checker.inference.subject
    keyword = tree.span.text.split(maxsplit=1)[0]
    statement, problem = BY_KEYWORD.get(keyword), ""
    fleet = subject is OF_WORKLOADS
    match tree:
        case syntax.ForPods() if fleet:
            problem, advice = "for pods", "keep one `for`: a policy is about pods, or about workloads"
        case syntax.UseKubernetes() | syntax.UseScores() if fleet:
            problem, advice = "use kubernetes", "write `use karmada without …` for the filters of Karmada"
        case syntax.UseKarmada() if not fleet:
            problem, advice = "use karmada", "write `use kubernetes without …`, or add `for workloads where …`"
        case syntax.Filter(also_running=True) if not fleet:
            problem, advice = "also running", "remove it: a filter decides only about pods without a node"
        case syntax.Limit(of_pods=condition) if fleet and condition is not None:
            problem, advice = "of pods where", "write `of workloads where …`"
        case syntax.Limit(of_workloads=condition) if not fleet and condition is not None:
            problem, advice = "of workloads where", "write `of pods where …`"
        case syntax.Filter(new_nodes=str()) | syntax.Require(new_nodes=str()) | syntax.Limit(new_nodes=str()) if fleet:
            problem, advice = "new nodes", "remove it: what a cluster can add is in its room"
        case syntax.Metric(for_cluster=True) if fleet:
            problem, advice = "for cluster", "write `for fleet` for one value, or `by cluster` for one of each cluster"
        case syntax.Metric(for_fleet=True) if not fleet:
            problem, advice = "for fleet", "write `for cluster` for one value of the cluster"
        case syntax.Spread(counting=syntax.Counting()) if fleet:
            problem, advice = "counting", "remove it: a domain counts if the workload may use a cluster of it"
        case syntax.Order(strict=True) if fleet:
            problem, advice = "strict", "remove it: a workload without room does not keep others from being decided"
        case syntax.Canary() if fleet:
            problem, advice = "canary", "write a second policy with a higher `priority` for some of the workloads"
        case _ if statement is not None and subject.name not in statement.subjects:
            problem = keyword
            advice = _INSTEAD.get(keyword, _OF_PODS) if fleet else "add `for workloads where …` to the policy"
        case _:
            return True
    message = f"`{problem}` does not belong in a policy of {subject.name}"
    checker.found.append(codes.SUBJECT.at(tree.span, message, help=advice))
    return isinstance(tree, syntax.Filter | syntax.Require | syntax.Order)


def choose(checker: Parts, tree: syntax.Choose) -> checked.Choose:
    """Return what `choose` means."""
    fewest = _count(checker, tree.fewest, "choose", low=1)
    most = _count(checker, tree.largest, "to", low=1) if tree.largest is not None else fewest
    words = (("at least", tree.least), ("at most", tree.most), ("each at most", tree.most_each))
    counts = {word: _count(checker, part, word, low=1) for word, part in words if part is not None}
    least, places, each = (counts.get(word) for word, _ in words)
    _report_empty(checker, tree, fewest, most, counts)
    if (tree.topology is None) != (not counts):
        word = next(iter(counts), "at least")
        message = f"`over` and `{word}` belong together: in how many different places the clusters are"
        if word == "each at most":
            message = "`over` and `each at most` belong together: how many clusters of one place are chosen"
        advice = f"write `choose 2 to 3 clusters over region {word} 2`"
        checker.found.append(codes.PART.at(tree.span, message, help=advice))
    topology = checker.topology(tree.topology)
    if tree.topology is not None and topology is None:
        message = "each cluster is a place of its own"
        checker.found.append(
            codes.NO_CHOICE.at(tree.topology.span, message, help="name a region, zone, provider or label")
        )
    condition = checker.condition(tree.condition, Scope("choose", nodes=False))
    return checked.Choose(tree, fewest, most, topology, least, places, each, condition)


def _report_empty(
    checker: Parts, tree: syntax.Choose, fewest: typed.Typed, most: typed.Typed, counts: Mapping[str, typed.Typed]
) -> None:
    """Report numbers that contradict each other."""
    low, high = _constant(fewest), _constant(most)
    if low is not None and high is not None and low > high:
        message, advice = f"`choose` names {low:g} to {high:g} clusters", f"write `choose {high:g} to {low:g} clusters`"
        checker.found.append(codes.OUT_OF_RANGE.at(tree.span, message, help=advice))
    least, places, each = (_constant(counts.get(word)) for word in ("at least", "at most", "each at most"))
    if least is not None and high is not None and least > high:
        message = f"{high:g} clusters cannot be in {least:g} places"
        advice = f"write `choose {least:g} clusters`, or a smaller number after `at least`"
        checker.found.append(codes.OUT_OF_RANGE.at(counts["at least"].span, message, help=advice))
    if least is not None and places is not None and least > places:
        message, advice = (
            f"`at most {places:g}` is less than `at least {least:g}`",
            "write a larger number after `at most`",
        )
        checker.found.append(codes.OUT_OF_RANGE.at(counts["at most"].span, message, help=advice))
    elif low is not None and places is not None and each is not None and low > places * each:
        message = f"{places:g} places with {each:g} each are fewer than {low:g} clusters"
        advice = "write a larger number after `at most`, or after `each at most`"
        checker.found.append(codes.OUT_OF_RANGE.at(counts["each at most"].span, message, help=advice))


def _constant(value: typed.Typed | None) -> float | None:
    found = constant_of(value) if value is not None else None
    return found if isinstance(found, int | float) else None


def divide(checker: Parts, tree: syntax.Divide) -> checked.Divide:
    """Return what `divide` means."""
    levels = tuple(_level(checker, level, is_last=level is tree.levels[-1]) for level in tree.levels)
    bounds = []
    for word, bound in (("at least", tree.least), ("at most", tree.most)):
        value = None
        if bound is not None:
            value = _number(checker, bound, word, Scope("divide"))
            checker.require_value(value, "divide")
            checker.in_range(value, word, low=0)
        bounds.append(value)
    last = tree.levels[-1].word
    unused = ["at least"] * (tree.least is not None) + ["at most"] * (tree.most is not None) + ["partly"] * tree.partly
    if last in _WHOLE and unused:
        _part(checker, tree.span, f"`{unused[0]}` has no meaning beside `{last}`", "remove it")
    elif last == "best first" and tree.least is not None:
        advice = "write `divide evenly` or `divide by …`, which give each cluster a part"
        _part(
            checker, tree.span, "`at least` has no meaning beside `best first`, which fills one after the other", advice
        )
    condition = checker.condition(tree.condition, Scope("divide", nodes=False))
    return checked.Divide(tree, levels, bounds[0], bounds[1], condition)


def _level(checker: Parts, tree: syntax.Division, *, is_last: bool) -> checked.DivisionLevel:
    topology = checker.topology(tree.topology)
    if tree.topology is None and not is_last:
        message = "nothing can be divided further than among clusters"
        _part(
            checker,
            tree.span,
            message,
            "write the regions, zones or providers first: `divide over region evenly then evenly`",
        )
    elif tree.topology is not None and is_last:
        advice = f"add how: `{' '.join(tree.span.text.split())} then evenly`"
        _part(checker, tree.span, "`divide` does not say what each cluster gets", advice)
    if tree.topology is not None and topology is None:
        checker.found.append(
            codes.NO_CHOICE.at(tree.topology.span, "clusters are divided last", help="leave out `over cluster`")
        )
    value = None
    if tree.value is not None:
        value = _number(checker, tree.value, "divide by", Scope("divide", scores=True), any_unit=True)
        if not operators.has_unknown(value) and value.info.shape is not Shape.NODE:
            message, advice = (
                "this is the same for every cluster",
                "write `divide evenly`, or use a field of the cluster",
            )
            checker.found.append(codes.NO_CHOICE.at(value.span, message, help=advice))
    return checked.DivisionLevel(tree.word, topology, value, checker.shares(tree.targets or ()))


def limit(checker: Parts, tree: syntax.Limit, name: str) -> checked.WorkloadLimit:
    """Return what `limit` means."""
    scope = checker.pod_scope("limit")
    measure, unit = _measure(checker, tree.measure)
    bound = checker.inference.infer_root(tree.bound, msgspec.structs.replace(scope, part="amount"))
    if not operators.has_unknown(bound):
        if bound.info.type.kind is not Kind.NUMBER:
            checker.found.append(operators.wrong_type(bound, "a number"))
        elif in_unit(bound, unit, checker.found):
            checker.in_range(bound, "to", low=0)
        checker.require_value(bound, "limit")
    of_workloads = None
    if tree.of_workloads is not None:
        of_workloads = checker.truth(tree.of_workloads, checker.pod_scope("of workloads where"))
        if of_workloads.info.depends & ~Depends.TEMPLATE:
            message = "`of workloads where` can read only the template of a workload, and this is not part of it"
            advice = 'use labels, the namespace or the kind: `workload.label.tier == "batch"`'
            checker.found.append(codes.KEY.at(unsettled(of_workloads, Depends.TEMPLATE).span, message, help=advice))
    return checked.WorkloadLimit(
        ClauseKind.LIMIT,
        tree,
        name,
        measure,
        checker.key(tree.key, "limit") if tree.key is not None else None,
        bound,
        of_workloads,
        checker.topology(tree.topology) if tree.topology is not None else CLUSTER,
        checker.condition(tree.condition, scope),
    )


def _measure(checker: Parts, tree: expressions.Expr) -> tuple[str, Unit]:
    """Return what `limit` adds up, and its unit."""
    if isinstance(tree, expressions.Call) and not tree.named and not tree.distinct:
        if tree.function == "count" and not tree.arguments:
            return checked.WORKLOADS, PLAIN
        if tree.function == "sum" and len(tree.arguments) == 1:
            scope = Scope("limit", nodes=False, bare_item=True, item_depends=Depends.TEMPLATE)
            value = checker.inference.infer_root(tree.arguments[0], scope)
            if operators.has_unknown(value):
                return checked.REPLICAS, PLAIN
            found = typed.inner(value)
            if isinstance(found, typed.Read) and found.field.path == "workload.replicas":
                return checked.REPLICAS, PLAIN
            if isinstance(found, typed.Read) and found.field.path == "workload.request":
                return found.key or "", value.info.type.unit
    message = "`limit` adds up `sum(replicas)`, `sum(request.…)` or `count()` over workloads"
    advice = "write `limit sum(replicas) by … to …`, or `limit count() …` for the number of workloads"
    checker.found.append(codes.MEASURE.at(tree.span, message, help=advice))
    return checked.REPLICAS, PLAIN


def _part(checker: Parts, span: Span, message: str, advice: str) -> None:
    checker.found.append(codes.PART.at(span, message, help=advice))


def _count(checker: Parts, tree: expressions.Expr, what: str, *, low: float) -> typed.Typed:
    value = _number(checker, tree, what, Scope("choose", nodes=False, part="amount"))
    checker.require_value(value, "choose")
    checker.in_range(value, what, low=low, whole=True)
    return checker.settled(value, what)


def _number(checker: Parts, tree: expressions.Expr, what: str, scope: Scope, *, any_unit: bool = False) -> typed.Typed:
    value = checker.inference.infer_root(tree, scope)
    if not operators.has_unknown(value):
        if value.info.type.kind is not Kind.NUMBER:
            checker.found.append(operators.wrong_type(value, f"a number after `{what}`"))
            return operators.unknown(value.span)
        if not any_unit and not in_unit(value, PLAIN, checker.found):
            return operators.unknown(value.span)
    return value
