"""The queues of all policies together: whether they form trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kube_policy_scheduler.diagnostics import Diagnostic, Label, closest
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.checked import CheckedPolicy, QueueDeclaration

MAX_QUEUES = 1000
"""Queues that all policies together may declare; queues `by` a key count once."""
MAX_LEVELS = 8
"""Levels of a tree: what a pod requests is counted at each of them."""


def declared_queues(policies: Iterable[CheckedPolicy]) -> tuple[QueueDeclaration, ...]:
    """Return the queues of some policies, in order of the policies; each statement once, without those of canaries.

    Two policies that include one file declare its queues once.
    """
    found: dict[tuple[str, int], QueueDeclaration] = {}
    for policy in policies:
        if policy.canary is None:
            for queue in policy.queues:
                found.setdefault((queue.tree.span.source.name, queue.tree.span.start), queue)
    return tuple(found.values())


def check_queues(policies: Iterable[CheckedPolicy]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the queues of all policies together."""
    queues = declared_queues(policies)
    if len(queues) > MAX_QUEUES:
        message = f"with this, all policies together declare more than {MAX_QUEUES:,} queues"
        yield codes.TOO_LARGE.at(queues[MAX_QUEUES].tree.span, message, help="declare one queue `by` a key instead")
        return
    by_name: dict[str, QueueDeclaration] = {}
    for queue in queues:
        earlier = by_name.setdefault(queue.name, queue)
        if earlier is not queue:
            label = Label(earlier.tree.name_span, "the other one")
            message, advice = f"two queues have the name `{queue.name}`", "give one of them another name"
            yield codes.QUEUE_TREE.at(queue.tree.name_span, message, help=advice, labels=[label])
    orphans = 0
    for queue in queues:
        orphans += queue.tree.parent is not None and queue.tree.parent not in by_name
        yield from _check_parent(queue, by_name, suggests=orphans <= _MOST_SUGGESTED)


_MOST_SUGGESTED = 20
"""Parents that are not there for which a similar name is looked for, among all."""


def _check_parent(
    queue: QueueDeclaration, by_name: Mapping[str, QueueDeclaration], *, suggests: bool
) -> Iterator[Diagnostic]:
    name, span = queue.tree.parent, queue.tree.parent_span
    if name is None:
        return
    parent = by_name.get(name)
    if parent is None:
        meant = closest(name, [each for each in by_name if each != queue.name]) if suggests else None
        advice = f"did you mean `{meant}`?" if meant else f"declare it: `queue {name}`"
        yield codes.QUEUE_TREE.at(span, f"there is no queue `{name}`", help=advice)
        return
    if parent.key is not None:
        message = f"`{name}` is one queue for each value of a key, so it cannot have children"
        label = Label(parent.tree.span, "declared here")
        yield codes.QUEUE_TREE.at(span, message, help="name another parent, or remove `by`", labels=[label])
    levels, seen = 1, {queue.name}
    above: QueueDeclaration | None = parent
    while above is not None:
        if above.name in seen:
            if above is queue:  # each queue of the ring is reported once
                yield codes.QUEUE_TREE.at(span, f"`{queue.name}` is its own ancestor", help="name another parent")
            return
        seen.add(above.name)
        levels += 1
        above = by_name.get(above.tree.parent) if above.tree.parent is not None else None
    if levels == MAX_LEVELS + 1:
        message = f"`{queue.name}` is below {MAX_LEVELS} other queues; a tree has {MAX_LEVELS} levels at most"
        yield codes.QUEUE_TREE.at(span, message, help="name a parent that is nearer to the top")
