"""Queues that contradict each other, or do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Label
from kube_policy_scheduler.lang.checked import QueueDeclaration
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
