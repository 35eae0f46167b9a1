"""What a change of queues means for the pods that run: other amounts, pods over them, pods in another queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, Quota, QuotaTree, QuotaUsage
from kube_policy_scheduler.framework.quota import quantity
from kube_policy_scheduler.tooling.queues import members, pods_over
from kube_policy_scheduler.wording import plural


@dataclass(frozen=True, slots=True)
class QueueChange:
    """One thing that differs between the queues of two sets of policies."""

    queue: str
    what: str
    """Such as `guaranteed nvidia.com/gpu`."""
    old: str
    new: str
    text: str = ""
    """What it means for the pods on nodes, for people; "" if nothing."""
    pods: int = 0
    """On nodes that are concerned: those above the new amount."""


def queue_changes(cluster: Cluster, old: QuotaTree | None, new: QuotaTree | None, *, now: float) -> list[QueueChange]:
    """Return what differs, by queue; changes nothing.

    Args:
        cluster: with the pods as they run.
        old: the queues in force; None: there are none.
        new: those that would be.
        now: Unix seconds.
    """
    sides = [cluster.count_queues(tree) if tree is not None else None for tree in (old, new)]
    _, after_usage = sides
    before, after = ({each.name: each for each in side.queues()} if side is not None else {} for side in sides)
    found: list[QueueChange] = []
    for name in dict.fromkeys((*before, *after)):
        was, now_ = before.get(name), after.get(name)
        if was is None or now_ is None:
            found.append(_only_one(name, was, now_))
            continue
        assert old is not None
        assert new is not None
        assert after_usage is not None
        found += _amounts(name, (was, old), (now_, new), usage=after_usage, now=now)
        for what, one, other in (
            ("below", _above(was), _above(now_)),
            ("weight", f"{was.weight:g}", f"{now_.weight:g}"),
            ("pods", str(len(members(was))), str(len(members(now_)))),
        ):
            if one != other:
                found.append(QueueChange(name, what, one, other))
    return found


def _only_one(name: str, was: Quota | None, now: Quota | None) -> QueueChange:
    queue = was or now
    assert queue is not None
    number = len(members(queue))
    running = f"{plural(number, 'pod')} on nodes" if number else ""
    return QueueChange(name, "queue", "declared" if was else "-", "declared" if now else "-", running)


def _amounts(
    name: str, old: tuple[Quota, QuotaTree], new: tuple[Quota, QuotaTree], *, usage: QuotaUsage, now: float
) -> Iterable[QueueChange]:
    for resource in dict.fromkeys((*old[1].resources, *new[1].resources)):
        for what, field in (("guaranteed", "minimum"), ("max", "maximum"), ("kept", "kept")):
            was, will = (_amount(queue, tree, resource, field) for queue, tree in (old, new))
            if was == will:
                continue
            over = 0
            if field != "kept" and will is not None and resource in new[1].resources:
                over = len(pods_over(new[0], usage, new[1].resources.index(resource), will, now=now))
            text = f"{plural(over, 'pod')} over" if over else ""
            yield QueueChange(
                f"{name}", f"{what} {resource}", _shown(was, resource), _shown(will, resource), text, over
            )


def _amount(queue: Quota, tree: QuotaTree, resource: str, field: str) -> int | None:
    if resource not in tree.resources:
        return None if field == "maximum" else 0
    value: int = getattr(queue, field)[tree.resources.index(resource)]
    return None if value == NO_LIMIT else value


def _shown(amount: int | None, resource: str) -> str:
    return quantity(resource, amount) if amount is not None else "no limit"


def _above(queue: Quota) -> str:
    return queue.parent.name if queue.parent is not None and queue.parent.parent is not None else "-"
