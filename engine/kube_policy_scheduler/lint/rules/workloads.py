"""Rules about policies of workloads: what moves, empties or floods clusters without being meant."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, Clause, ClauseKind, Grouping, Test
from kube_policy_scheduler.lang.checking.missing import missing_part, remedy
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.lint.rule import Finding, rule, short

_KIND = ("workload.kind", "workload.api_version", "workload.name")
_BEST_FIRST, _COPIES, _AS_PLACEMENT = "best first", "copies", "as placement"
_EVICTION = "ClusterEviction"
_CHANGING = Depends.SIGNAL | Depends.ROW


@rule("P0391")
def workloads_of_every_kind(policy: CheckedPolicy) -> Iterator[Finding]:
    """ConfigMaps, Secrets and Services are workloads, too. A policy that chooses clusters for each of them can choose
    others than for the Deployments that need them. Name the kinds; Karmada lets the objects that a workload needs
    follow it (`propagateDeps`).

    Avoid::

        for workloads where workload.namespace == "shop"
        score -(cluster.price ?? 9)
        choose 2 clusters

    Prefer::

        for workloads where workload.namespace == "shop" and workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        choose 2 clusters
    """
    rules = policy.workloads
    if rules is None or policy.governs is None or not (rules.chooses or _filters(policy)):
        return
    if not any(isinstance(part, typed.Read) and part.field.path in _KIND for part in typed.below(policy.governs)):
        message = "this matches ConfigMaps and Services, too, which may get other clusters than what needs them"
        yield Finding(
            policy.governs.span, message, 'add `and workload.kind == "Deployment"`, or the kinds that you mean'
        )


@rule("P0392")
def best_first_without_score(policy: CheckedPolicy) -> Iterator[Finding]:
    """`divide best first` fills the cluster with the highest score. Without a `score`, clusters where the workload runs
    come first, and then those with the most room.

    Avoid::

        for workloads where workload.kind == "Deployment"
        divide best first

    Prefer::

        for workloads where workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        divide best first
    """
    rules = policy.workloads
    if rules is None or _scores(policy):
        return
    for each in rules.divides:
        if each.levels[-1].word == _BEST_FIRST:
            yield Finding(each.tree.span, "no `score` says which cluster is the best", "add `score …`: more is better")


@rule("P0393")
def score_of_no_use(policy: CheckedPolicy) -> Iterator[Finding]:
    """The scores decide nothing: without `choose` every cluster gets its part, and the part does not follow from the
    score. To fill the best cluster first, write `divide best first`; to divide in proportion, `divide by EXPR`.

    Avoid::

        for workloads where workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        divide evenly

    Prefer::

        for workloads where workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        divide best first
    """
    rules = policy.workloads
    scores = _scores(policy)
    if rules is None or not scores or rules.chooses or not rules.divides:
        return
    bounded = any(each.least is not None or each.condition is not None for each in rules.divides)
    by_score = any(each.levels[-1].word in (_BEST_FIRST, _AS_PLACEMENT) for each in rules.divides)
    if not bounded and not by_score and not any(each.margin is not None for each in rules.rebalances):
        message = f"`{short(rules.divides[0].tree.span)}` does not ask for the score"
        what = scores[0].kind.value
        yield Finding(scores[0].tree.span, message, f"write `divide best first`, or remove the `{what}`")


@rule("P0394")
def moves_all_at_once(policy: CheckedPolicy) -> Iterator[Finding]:
    """A `rebalance` without `at most` moves all replicas of a workload in one pass, as soon as another cluster is
    better.

    Avoid::

        for workloads where workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        divide best first
        rebalance rest 10min

    Prefer::

        for workloads where workload.kind == "Deployment"
        score -(cluster.price ?? 9)
        divide best first
        rebalance at most 2 rest 10min
    """
    for each in policy.workloads.rebalances if policy.workloads is not None else ():
        if each.most is None:
            message = "this moves all replicas of a workload in one pass"
            yield Finding(each.tree.span, message, "add how many may move in a pass: `at most 2`")


@rule("P0395")
def metric_takes_away(policy: CheckedPolicy) -> Iterator[Finding]:
    """A filter that says `also running` follows a metric: a spike takes running replicas away, everywhere at once if
    all clusters are busy. Without `also running`, busy clusters get no more replicas; `rebalance` moves some, at a
    pace.

    Avoid::

        for workloads where workload.kind == "Deployment"
        metric load = promql("cluster:cpu:ratio") by cluster
        filter load ?? 1 < 0.8 also running
        divide by cluster.room

    Prefer::

        for workloads where workload.kind == "Deployment"
        metric load = promql("cluster:cpu:ratio") by cluster
        filter load ?? 1 < 0.8
        divide by cluster.room
        rebalance at most 2
    """
    for test in _filters(policy):
        takes_away = isinstance(test.tree, syntax.Filter) and test.tree.also_running
        if takes_away and test.value.info.depends & Depends.SIGNAL:
            message = "a spike of the metric takes running replicas away"
            yield Finding(test.tree.span, message, "remove `also running`; to move replicas, write `rebalance`")


@rule("P0396")
def afresh_by_what_changes(policy: CheckedPolicy) -> Iterator[Finding]:
    """With `keep nothing`, each decision divides all replicas afresh. If the parts follow from metrics, scores or the
    room of clusters, replicas move each time that these change. Without it, `rebalance` moves some, at a pace.

    Avoid::

        for workloads where workload.kind == "Deployment"
        keep nothing
        divide by cluster.room

    Prefer::

        for workloads where workload.kind == "Deployment"
        divide by cluster.room
        rebalance at most 2
    """
    rules = policy.workloads
    if rules is None or rules.keeps_running:
        return
    keep = next(each for each in policy.statements if isinstance(each, syntax.Keep))
    values = [level.value for each in rules.divides for level in each.levels if level.value is not None]
    if any(each.levels[-1].word == _BEST_FIRST for each in rules.divides) or rules.chooses:
        values += [
            clause.value for clause in policy.clauses if isinstance(clause, Test) and clause.kind is ClauseKind.SCORE
        ]
    changing = next((value for value in values if value.info.depends & _CHANGING), None)
    if changing is not None:
        message = f"replicas move each time that `{short(changing.span)}` changes"
        yield Finding(keep.span, message, "remove it; to move replicas at a pace, write `rebalance at most 2`")


@rule("P0397")
def part_that_can_be_missing(policy: CheckedPolicy) -> Iterator[Finding]:
    """The value after `divide by` can be missing. A cluster without a value gets no replicas: if a metric has no fresh
    sample for any cluster, none is placed. Add a default value.

    Avoid::

        for workloads where workload.kind == "Deployment"
        metric fit = promql("app_fit") by cluster
        divide by fit

    Prefer::

        for workloads where workload.kind == "Deployment"
        metric fit = promql("app_fit") by cluster default 1
        divide by fit
    """
    for each in policy.workloads.divides if policy.workloads is not None else ():
        for level in each.levels:
            cause = missing_part(level.value) if level.value is not None else None
            if cause is not None:
                message = f"a cluster for which `{short(cause.span)}` is missing gets no replicas"
                yield Finding(cause.span, message, f"add a default value: `{remedy(cause)}`")


@rule("P0398")
def evicted_come_back(policy: CheckedPolicy) -> Iterator[Finding]:
    """Without the filter ClusterEviction, replicas that Karmada evicts from a cluster can be placed there again: the
    eviction never ends, and the workload has too few replicas.

    Avoid::

        for workloads where workload.kind == "Deployment"
        use karmada without ClusterEviction
        divide evenly

    Prefer::

        for workloads where workload.kind == "Deployment"
        use karmada without TaintToleration
        divide evenly
    """
    for statement in policy.statements:
        for plugin in statement.without if isinstance(statement, syntax.UseKarmada) else ():
            if plugin.name == _EVICTION:
                message = f"without `{plugin.name}` evicted replicas can be placed in the same cluster again"
                yield Finding(plugin.span, message, "remove it from the list")


def _filters(policy: CheckedPolicy) -> list[Test]:
    return [clause for clause in policy.clauses if isinstance(clause, Test) and clause.kind is ClauseKind.FILTER]


def _scores(policy: CheckedPolicy) -> list[Clause]:
    """Return the clauses that score clusters."""
    return [
        clause
        for clause in policy.clauses
        if clause.kind is ClauseKind.SCORE or (isinstance(clause, Grouping) and clause.max_skew is None)
    ]
