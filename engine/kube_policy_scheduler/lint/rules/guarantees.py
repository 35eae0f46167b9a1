"""Guarantees of queues that cannot be kept, or that other pods take along."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kube_policy_scheduler.diagnostics import Label, Severity
from kube_policy_scheduler.lang.checked import Gang, QueueDeclaration
from kube_policy_scheduler.lang.checking.inference import constant_of
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lint.facts import NO_FACTS, always, holding
from kube_policy_scheduler.lint.rule import Finding, set_rule
from kube_policy_scheduler.quantities.strength import by_strength

_MOST_LABELS = 4


@set_rule("P0371", severity=Severity.ERROR)
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
        for resource, amount in parent.minimum.items():
            together = sum(child.minimum.get(resource, 0.0) for child in children)
            if together > amount:
                yield _too_much(parent, children, resource, together, ("min", amount))


@set_rule("P0379")
def guarantee_over_max(checked: Checked) -> Iterator[Finding]:
    """Queues are guaranteed more than a queue above them may use, so not all of them can get it.

    A `max` applies to the queue and to all queues below it.

    Avoid::

        queue company max cpu 64
        queue research of company for pods where pod.namespace == "research" min cpu 40
        queue production of company for pods where pod.namespace == "production" min cpu 40

    Prefer::

        queue company max cpu 80
        queue research of company for pods where pod.namespace == "research" min cpu 40
        queue production of company for pods where pod.namespace == "production" min cpu 40
    """
    families = list(_families(checked))
    minimums = _minimums(checked)
    for parent, children in families:
        for resource, amount in parent.maximum.items():
            together = sum(minimums[child.name].get(resource, 0.0) for child in children)
            if together > amount and resource not in parent.minimum:  # else another rule says so
                yield _too_much(parent, children, resource, together, ("max", amount))


def _too_much(
    parent: QueueDeclaration,
    children: Sequence[QueueDeclaration],
    resource: str,
    together: float,
    bound: tuple[str, float],
) -> Finding:
    word, amount = bound
    labels = [
        Label(child.tree.span, f"{child.minimum[resource]:g}") for child in children if child.minimum.get(resource)
    ]
    message = (
        f"the queues of `{parent.name}` are guaranteed {together:g} {resource} together, but its `{word}` is {amount:g}"
    )
    advice = f"write a larger `{word}`, or guarantee less to its children"
    return Finding(parent.tree.span, message, advice, tuple(labels[:_MOST_LABELS]))


@set_rule("P0377")
def unkeepable_lend(checked: Checked) -> Iterator[Finding]:
    """Queues keep more for themselves than the queue above them may use, so their `lend` cannot be kept to.

    A queue keeps what it is guaranteed and does not lend.

    Avoid::

        queue company max cpu 64
        queue research of company for pods where pod.namespace == "research" min cpu 40 lend cpu 0
        queue production of company for pods where pod.namespace == "production" min cpu 40 lend cpu 0

    Prefer::

        queue company max cpu 64
        queue research of company for pods where pod.namespace == "research" min cpu 32 lend cpu 0
        queue production of company for pods where pod.namespace == "production" min cpu 32 lend cpu 0
    """
    kept: dict[str, Mapping[str, float]] = {}
    for parent, children in reversed(_parents_first(checked)):
        own = {name: parent.minimum[name] - lent for name, lent in parent.lend.items() if name in parent.minimum}
        below: defaultdict[str, float] = defaultdict(float)
        for child in children:
            for resource, amount in kept[child.name].items():
                below[resource] += amount
        kept[parent.name] = {name: max(own.get(name, 0.0), below[name]) for name in (*own, *below)}
        for resource, amount in parent.maximum.items():
            if below[resource] > amount:
                message = f"the queues of `{parent.name}` keep {below[resource]:g} {resource} for themselves, but its"
                labels = [
                    Label(child.tree.span, f"keeps {kept[child.name][resource]:g}")
                    for child in children
                    if kept[child.name].get(resource)
                ]
                advice = "let them lend more, or write a larger `max`"
                yield Finding(parent.tree.span, f"{message} `max` is {amount:g}", advice, tuple(labels[:_MOST_LABELS]))


@set_rule("P0378")
def resource_taken_along(checked: Checked) -> Iterator[Finding]:
    """A queue guarantees a resource, and a queue beside it guarantees a stronger one and not this: pods of that one
    take the weaker resource along, however much of it is guaranteed here.

    A pod that is guaranteed a GPU also needs cpu, so it is not evicted for a guarantee of cpu. Extended resources are
    stronger than DeviceClasses, these than cpu, then memory, ephemeral-storage and pods. If both queues guarantee the
    weaker resource, you say how much of it each of them gets.

    Avoid::

        queue research for pods where pod.namespace == "research" min nvidia.com/gpu 4, cpu 64
        queue production for pods where pod.namespace == "production" min nvidia.com/gpu 4
        reclaim after 30s

    Prefer::

        queue research for pods where pod.namespace == "research" min nvidia.com/gpu 4, cpu 64
        queue production for pods where pod.namespace == "production" min nvidia.com/gpu 4, cpu 32
        reclaim after 30s
    """
    queues = declared_queues(checked.policies)
    minimums = _minimums(checked)
    named = dict.fromkeys(name for queue in queues for name in (*queue.minimum, *queue.maximum, *queue.lend))
    strength = {name: place for place, name in enumerate(by_strength(tuple(named)))}
    beside: defaultdict[str | None, list[QueueDeclaration]] = defaultdict(list)
    for queue in queues:
        beside[queue.tree.parent].append(queue)
    for siblings in beside.values():
        guaranteed: dict[str, QueueDeclaration] = {}
        """By resource, the first queue that guarantees some of it."""
        for queue in siblings:
            for name, amount in minimums[queue.name].items():
                if amount:
                    guaranteed.setdefault(name, queue)
        for queue in siblings:
            own = [name for name, amount in minimums[queue.name].items() if amount]
            leads = min(own, key=lambda name: strength[name], default=None)
            if leads is None:
                continue
            weaker = (n for n in guaranteed if n not in minimums[queue.name] and strength[n] > strength[leads])
            lacking = next(weaker, None)
            if lacking is not None:
                other = guaranteed[lacking]
                message = (
                    f"queue `{queue.name}` guarantees {leads} and no {lacking}, so its pods take along {lacking} that"
                    f" is guaranteed to `{other.name}`"
                )
                label = Label(other.tree.span, f"guarantees {minimums[other.name][lacking]:g} {lacking}")
                advice = f"name {lacking} in the `min` of `{queue.name}`, too"
                yield Finding(queue.tree.span, message, advice, (label,))


@set_rule("P0382")
def gang_over_queue(checked: Checked) -> Iterator[Finding]:
    """All pods of a queue belong to gangs that are larger than the queue: such a gang never starts if it is above the
    `max`, and always borrows if it is above the `min`, so that it may be evicted at any time.

    A gang counts as a whole.

    Avoid::

        queue training for pods where pod.namespace == "training" min pods 8
        gang by pod.label.job size 16 if pod.namespace == "training"

    Prefer::

        queue training for pods where pod.namespace == "training" min pods 16
        gang by pod.label.job size 16 if pod.namespace == "training"
    """
    gangs = [
        (clause, size)
        for policy in checked.policies
        for clause in policy.clauses
        if isinstance(clause, Gang) and isinstance(size := constant_of(clause.size), int | float)
    ]
    for queue in declared_queues(checked.policies) if gangs else ():
        for word, amounts, what in (
            ("max", queue.maximum, "never starts"),
            ("min", queue.minimum, "always borrows, and may be evicted at any time"),
        ):
            amount = amounts.get("pods")
            found = next((gang for gang, size in gangs if amount and size > amount and _takes_all(gang, queue)), None)
            if found is not None and amount is not None:
                message = f"a gang in queue `{queue.name}` {what}: it has more pods than the `{word}` of {amount:g}"
                label = Label(found.tree.size.span, "its size")
                yield Finding(queue.tree.span, message, f"write a larger `{word} pods`, or a smaller size", (label,))
                break


def _takes_all(gang: Gang, queue: QueueDeclaration) -> bool:
    """Return whether it is proved that each pod of a queue is in a gang."""
    if gang.condition is None:
        return True
    facts = holding(queue.pods) if queue.pods is not None else NO_FACTS
    return facts is not None and always(gang.condition, facts)


def _minimums(checked: Checked) -> dict[str, Mapping[str, float]]:
    """Return what queues guarantee by name and resource: what a parent does not say is the sum of its children's."""
    found: dict[str, Mapping[str, float]] = {}
    for queue, children in reversed(_parents_first(checked)):
        total: defaultdict[str, float] = defaultdict(float)
        for child in children:
            for resource, amount in found[child.name].items():
                total[resource] += amount
        found[queue.name] = {**total, **queue.minimum}
    return found


def _parents_first(checked: Checked) -> list[tuple[QueueDeclaration, list[QueueDeclaration]]]:
    """Return all queues with their children, without those by a key; parents stand before their children."""
    queues = declared_queues(checked.policies)
    below: defaultdict[str | None, list[QueueDeclaration]] = defaultdict(list)
    for queue in queues:
        below[queue.tree.parent].append(queue)
    ordered, level = list[QueueDeclaration](), below[None]
    while level:
        ordered += level
        level = [child for queue in level for child in below[queue.name]]
    return [(queue, [child for child in below[queue.name] if child.key is None]) for queue in ordered]


def _families(checked: Checked) -> Iterator[tuple[QueueDeclaration, list[QueueDeclaration]]]:
    yield from ((parent, children) for parent, children in _parents_first(checked) if children)
