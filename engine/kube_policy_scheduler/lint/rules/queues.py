"""Queues that contradict each other, or do nothing."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator

from kube_policy_scheduler.diagnostics import Label
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Ordering, QueueDeclaration
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.lint.facts import Effort, Facts, always, holding
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
    given = Facts(effort=Effort(_EFFORT_PER_QUEUE * len(queues)))
    beside: defaultdict[str | None, _Taking] = defaultdict(_Taking)
    for queue in queues:
        known = beside[queue.tree.parent]
        earlier = known.taking_all(queue, given)
        if earlier is not None:
            message = f"no pod belongs to queue `{queue.name}`: `{earlier.name}` takes all of them"
            label = Label(earlier.tree.span, "asked first")
            yield Finding(queue.tree.span, message, "put it first, or narrow the condition of the other", (label,))
        if queue.key is None:
            known.add(queue)


_EFFORT_PER_QUEUE = 100
"""Expressions that proofs may look at, for all queues together: to compare one with some dozens."""


class _Taking:
    """The queues beside each other so far, found by a text that their pods must have."""

    def __init__(self) -> None:
        self._everybody: QueueDeclaration | None = None
        self._by_word: defaultdict[tuple[Hashable, str], list[tuple[int, QueueDeclaration]]] = defaultdict(list)
        """Those that take pods with one of some texts only, by what has the text, and each of the texts."""
        self._others: list[tuple[int, QueueDeclaration]] = []
        self._count = 0

    def add(self, queue: QueueDeclaration) -> None:
        """Note a queue; the earlier ones are asked first."""
        self._count += 1
        if queue.pods is None:
            self._everybody = self._everybody or queue
            return
        texts = next(_texts(queue.pods), None)
        if texts is None:
            self._others.append((self._count, queue))
        else:
            what, words = texts
            for word in words:
                self._by_word[what, word].append((self._count, queue))

    def taking_all(self, queue: QueueDeclaration, given: Facts) -> QueueDeclaration | None:
        """Return the first queue that is proved to take every pod of another one, None where there is none."""
        if queue.pods is None or self._everybody is not None:
            return self._everybody
        facts = holding(queue.pods, given=given)
        if facts is None:
            return None
        # who takes them all takes those with any one of their texts
        some = [(what, min(words.allowed)) for what, words in facts.words.items() if words.allowed]
        possible = heapq.merge(
            self._others, *(self._by_word[each] for each in some if each in self._by_word), key=_place
        )
        return next((each for _, each in possible if each.pods is not None and always(each.pods, facts)), None)


def _place(numbered: tuple[int, QueueDeclaration]) -> int:
    return numbered[0]


def _texts(condition: typed.Typed) -> Iterator[tuple[Hashable, frozenset[str]]]:
    """Yield texts of which something must have one where a condition holds, as far as that is plain to see."""
    match typed.inner(condition):
        case typed.Logic(operator="and", operands=operands):
            for operand in operands:
                yield from _texts(operand)
        case typed.Same(left=left, right=right, negated=False) if left.info.type.kind is Kind.TEXT:
            for mine, other in ((left, right), (right, left)):
                constant = typed.inner(other)
                if isinstance(constant, typed.Constant) and not isinstance(typed.inner(mine), typed.Constant):
                    yield typed.key(mine), frozenset({constant.value})
        case typed.Contained(item=item, list=items, negated=False) if item.info.type.kind is Kind.TEXT:
            listed = typed.inner(items)
            if isinstance(listed, typed.Constant) and not isinstance(typed.inner(item), typed.Constant):
                yield typed.key(item), frozenset(listed.value)


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
    children: defaultdict[str | None, list[QueueDeclaration]] = defaultdict(list)
    for queue in queues:
        if queue.key is None:
            children[queue.tree.parent].append(queue)
    yield from ((parent, children[parent.name]) for parent in queues if parent.name in children)
