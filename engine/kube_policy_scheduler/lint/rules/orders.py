"""Orders of the queue that do not do what their policy says of them."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.lang.checked import CheckedPolicy, Ordering
from kube_policy_scheduler.lang.checking.inference import constant_of
from kube_policy_scheduler.lint.rule import Finding, rule


@rule("P0383")
def idle_backfill(policy: CheckedPolicy) -> Iterator[Finding]:
    """There is a `backfill`, but no order is `strict`, so no pod waits behind another one; or all pods run for the same
    time, so that pods seldom end in time to pass the first one.

    Avoid::

        order by pod.priority desc, pod.queued
        backfill lasts 1h

    Prefer::

        order by pod.priority desc, pod.queued strict
        backfill lasts duration(pod.annotation.runtime)
    """
    found = policy.backfill
    if found is None:
        return
    if not any(isinstance(clause, Ordering) and clause.strict for clause in policy.clauses):
        message = "`backfill` has no effect: no pod waits behind another one, because no order is `strict`"
        yield Finding(found.tree.span, message, "write `order by … strict`")
    if constant_of(found.lasts) is not None:
        message = "`lasts` is the same for all pods, so it is not known which of them end in time"
        advice = "use what the pod says of itself: `duration(pod.annotation.runtime)`"
        yield Finding(found.tree.lasts.span, message, advice)
