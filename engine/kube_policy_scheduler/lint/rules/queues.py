"""Queues that contradict each other, or do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Label
from kube_policy_scheduler.lang.checked import Ordering, QueueDeclaration
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lint.facts import Facts, always, holding
from kube_policy_scheduler.lint.rule import Finding, set_rule


@set_rule("P0371")
def queue_min_over_parent(checked: Checked) -> Iterator[Finding]:
    """The children of a queue are guaranteed more than the queue itself: not all of them can get it at the same time.

    The `min` of a queue includes the `min` of its children.

    Avoid::

        queue company min cpu 64
        queue research of company for pods where pod.namespace == "research" min cpu 40
        queue production of company for pods where pod.namespace == "production" min cpu 40

    Prefer::

        queue company min cpu 80
        queue research of company for pods where pod.namespace == "research" min cpu 40
        queue production of company for pods where pod.namespace == "production" min cpu 40
    """
    for parent, children in _families(checked):
        for bound, amounts in (("min", parent.minimum), ("max", parent.maximum)):
            for resource, amount in amounts.items():
                together = sum(child.minimum.get(resource, 0.0) for child in children)
                if together > amount and not (bound == "max" and resource in parent.minimum):
                    message = f"the queues of `{parent.name}` are guaranteed {together:g} {resource} together, but its"
                    labels = tuple(
                        Label(child.tree.span, f"{child.minimum[resource]:g}")
                        for child in children
                        if child.minimum.get(resource)
                    )[:4]
                    advice = f"write a larger `{bound}`, or guarantee less to its children"
                    yield Finding(parent.tree.span, f"{message} `{bound}` is {amount:g}", advice, labels)


@set_rule("P0372")
def unreachable_queue(checked: Checked) -> Iterator[Finding]:
    """No pod belongs to the queue: an earlier one beside it takes all of its pods.

    A pod belongs to the first queue at each level that takes it.

    Avoid::

        queue everybody max cpu 64
        queue research for pods where pod.namespace == "research" min cpu 40

    Prefer::

        queue research for pods where pod.namespace == "research" min cpu 40
        queue everybody max cpu 64
    """
    queues = declared_queues(checked.policies)
    for at, queue in enumerate(queues):
        beside = (each for each in queues[:at] if each.tree.parent == queue.tree.parent and each.key is None)
        for earlier in beside:
            if earlier.pods is None or _implies(queue, earlier):
                message = f"no pod belongs to queue `{queue.name}`: `{earlier.name}` takes all of them"
                label = Label(earlier.tree.span, "asked first")
                yield Finding(queue.tree.span, message, "put it first, or narrow the condition of the other", (label,))
                break


@set_rule("P0373")
def lend_without_reclaim(checked: Checked) -> Iterator[Finding]:
    """Queues guarantee resources and lend them, but no policy has a `reclaim`: what is lent returns only when the pods
    of the borrowers end.

    Avoid::

        queue research for pods where pod.namespace == "research" min cpu 40
        queue production for pods where pod.namespace == "production" min cpu 40
        order by queue.share, pod.priority desc

    Prefer::

        queue research for pods where pod.namespace == "research" min cpu 40
        queue production for pods where pod.namespace == "production" min cpu 40
        order by queue.share, pod.priority desc
        reclaim after 30s
    """
    queues = declared_queues(checked.policies)
    if len(queues) < 2 or any(policy.reclaims for policy in checked.policies):
        return
    lending = next((queue for queue in queues if any(_lent(queue, name) for name in queue.minimum)), None)
    if lending is not None:
        message = f"queue `{lending.name}` lends its `min`, but nothing gives it back: there is no `reclaim`"
        yield Finding(lending.tree.span, message, "add `reclaim after 30s`, or keep the amounts with `lend … 0`")


@set_rule("P0374")
def unused_queue_share(checked: Checked) -> Iterator[Finding]:
    """A queue has a `weight` or `remember`, but nothing compares the shares of queues.

    `order by queue.share` compares them, with past usage; `reclaim` compares them to choose who is evicted.

    Avoid::

        queue research for pods where pod.namespace == "research" max cpu 40 weight 2
        queue production for pods where pod.namespace == "production" max cpu 40

    Prefer::

        queue research for pods where pod.namespace == "research" max cpu 40 weight 2
        queue production for pods where pod.namespace == "production" max cpu 40
        order by queue.share, pod.queued
    """
    orders = any(
        isinstance(clause, Ordering) and clause.share is not None
        for policy in checked.policies
        for clause in policy.clauses
    )
    if orders:
        return
    reclaims = any(policy.reclaims for policy in checked.policies)
    for queue in declared_queues(checked.policies):
        advice = "add `order by queue.share`, or remove it"
        if queue.tree.remember is not None:
            message = f"`remember` of queue `{queue.name}` has no effect: no policy has `order by queue.share`"
            yield Finding(queue.tree.remember.span, message, advice)
        if queue.tree.weight is not None and not reclaims:
            message = f"`weight` of queue `{queue.name}` has no effect: there is no `order by queue.share` or `reclaim`"
            yield Finding(queue.tree.weight.span, message, advice)


@set_rule("P0375")
def queue_max_over_parent(checked: Checked) -> Iterator[Finding]:
    """A queue may use more than the queue above it, so its own `max` is never reached.

    A limit of a queue applies to all queues below it.

    Avoid::

        queue company max cpu 64
        queue research of company for pods where pod.namespace == "research" max cpu 80

    Prefer::

        queue company max cpu 64
        queue research of company for pods where pod.namespace == "research" max cpu 48
    """
    by_name = {queue.name: queue for queue in declared_queues(checked.policies)}
    for queue in by_name.values():
        for resource, amount in queue.maximum.items():
            above = by_name.get(queue.tree.parent or "")
            while above is not None:
                limit = above.maximum.get(resource)
                if limit is not None and amount > limit:
                    message = f"`max {resource}` of queue `{queue.name}` is never reached: {amount:g}, but"
                    label = Label(above.tree.span, f"at most {limit:g}")
                    advice = "write a smaller `max`, or leave it out"
                    yield Finding(queue.tree.span, f"{message} `{above.name}` has {limit:g}", advice, (label,))
                    break
                above = by_name.get(above.tree.parent or "")


@set_rule("P0376")
def reclaim_without_guarantee(checked: Checked) -> Iterator[Finding]:
    """There is a `reclaim`, but no queue has a `min`: no pod has a guarantee that could be given back.

    `reclaim fair` also evicts without a guarantee.

    Avoid::

        queue research for pods where pod.namespace == "research" max cpu 40
        reclaim after 30s

    Prefer::

        queue research for pods where pod.namespace == "research" min cpu 20 max cpu 40
        reclaim after 30s
    """
    if any(queue.minimum for queue in declared_queues(checked.policies)):
        return
    for reclaim in (each for policy in checked.policies if policy.canary is None for each in policy.reclaims):
        if not reclaim.fair:
            message = "this `reclaim` never evicts a pod: no queue has a `min`"
            yield Finding(reclaim.tree.span, message, "guarantee something with `min`, or write `reclaim fair`")


def _lent(queue: QueueDeclaration, resource: str) -> bool:
    return queue.lend.get(resource, queue.minimum[resource]) > 0


def _families(checked: Checked) -> Iterator[tuple[QueueDeclaration, list[QueueDeclaration]]]:
    queues = declared_queues(checked.policies)
    for parent in queues:
        children = [each for each in queues if each.tree.parent == parent.name and each.key is None]
        if children:
            yield parent, children


def _implies(queue: QueueDeclaration, other: QueueDeclaration) -> bool:
    """Return whether every pod that a queue takes is one that another takes, as far as that can be proved."""
    if queue.pods is None or other.pods is None:
        return False
    facts: Facts | None = holding(queue.pods)
    return facts is not None and always(other.pods, facts)
