"""Queues that contradict each other, or do nothing."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator

from kube_policy_scheduler.diagnostics import Label
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Ordering, Preemption, QueueDeclaration, Reclaim
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.lint.facts import Effort, Facts, always, holding
from kube_policy_scheduler.lint.rule import Finding, set_rule


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
    if len(queues) < 2 or any(not each.above_max for each in _reclaims(checked)):
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
    reclaims = any(not each.above_max for each in _reclaims(checked))
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
    for reclaim in _reclaims(checked):
        if not reclaim.fair and not reclaim.above_max:
            message = "this `reclaim` never evicts a pod: no queue has a `min`"
            yield Finding(reclaim.tree.span, message, "guarantee something with `min`, or write `reclaim fair`")


@set_rule("P0380")
def nothing_to_share(checked: Checked) -> Iterator[Finding]:
    """A queue has a `weight` or `remember`, or there is a `reclaim fair`, but there is no other queue to compare with.

    Shares are compared among the queues beside each other. Queues by a key that stand alone all have the same weight.

    Avoid::

        queue team by pod.namespace max cpu 40 weight 2
        order by queue.share, pod.queued

    Prefer::

        queue team by pod.namespace max cpu 40
        order by queue.share, pod.queued
    """
    queues = declared_queues(checked.policies)
    beside = Counter(queue.tree.parent for queue in queues)
    by_key = any(queue.key is not None for queue in queues)
    for queue in queues:
        if queue.tree.weight is not None and beside[queue.tree.parent] == 1:
            why = "all queues by its key have the same weight" if queue.key is not None else "it stands alone"
            message = f"`weight` of queue `{queue.name}` has no effect: {why}"
            yield Finding(queue.tree.weight.span, message, "remove it, or declare a queue beside it")
        alone = len(queues) == 1 and queue.key is None
        if queue.tree.remember is not None and alone:
            message = f"`remember` of queue `{queue.name}` has no effect: there is no other queue"
            yield Finding(queue.tree.remember.span, message, "remove it, or declare a queue beside it")
    if queues and not by_key and max(beside.values()) == 1:
        for reclaim in _reclaims(checked):
            if reclaim.fair:
                message = "`reclaim fair` never evicts a pod: no queue stands beside another one"
                yield Finding(reclaim.tree.span, message, "declare a queue beside it, or remove `fair`")


@set_rule("P0381")
def priority_across_fair_queues(checked: Checked) -> Iterator[Finding]:
    """With `reclaim fair`, shares decide among pods that borrow in different queues, and not priorities. A `preempt if`
    that asks for priorities, and for what tells queues apart, has no effect there: it evicts pods of the same queue
    only.

    If both decided, two queues could evict each other's pods for ever.

    Avoid::

        queue research for pods where pod.namespace == "research" min cpu 40
        queue production for pods where pod.namespace == "production" min cpu 40
        reclaim fair
        preempt if pod.priority > 100 evict where victim.namespace == "research"

    Prefer::

        queue research for pods where pod.namespace == "research" min cpu 20
        queue production for pods where pod.namespace == "production" min cpu 60
        reclaim fair
        preempt if pod.priority > 100 evict where victim.namespace == pod.namespace
    """
    queues = declared_queues(checked.policies)
    fair = next((each for each in _reclaims(checked) if each.fair and each.condition is None), None)
    if fair is None or not queues:
        return
    tell_apart = _facts(each for queue in queues for each in (queue.pods, queue.key))
    for clause in (clause for policy in checked.policies for clause in policy.clauses):
        if not isinstance(clause, Preemption) or clause.condition is None:
            continue
        facts = _facts((clause.condition, clause.evict))
        if ("priority", None) in facts and facts & tell_apart:
            message = "this `preempt` never evicts pods of another queue: `reclaim fair` lets shares decide there"
            label = Label(fair.tree.span, "shares decide")
            advice = "guarantee more to the queue with `min`, or leave out `fair`"
            yield Finding(clause.tree.span, message, advice, (label,))


def _facts(values: Iterable[typed.Typed | None]) -> set[tuple[str, str | None]]:
    """Return what some values read of pods, whether of one that waits or of a victim: the field, and its key.

    What must be the same of both is left out.
    """
    parts = [part for value in values if value is not None for part in typed.below(value)]
    found = {_fact(part) for part in parts if isinstance(part, typed.Read)}
    for part in parts:
        if isinstance(part, typed.Same) and not part.negated:
            match part.left, part.right:
                case typed.Read() as one, typed.Read() as other if _fact(one) == _fact(other):
                    found.discard(_fact(one))
    return found


def _fact(read: typed.Read) -> tuple[str, str | None]:
    return read.field.path.partition(".")[2], read.key


def _reclaims(checked: Checked) -> Iterator[Reclaim]:
    yield from (each for policy in checked.policies if policy.canary is None for each in policy.reclaims)


def _lent(queue: QueueDeclaration, resource: str) -> bool:
    return queue.lend.get(resource, queue.minimum[resource]) > 0
