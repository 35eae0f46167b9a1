"""How a pod's queue stands: what it uses of what is guaranteed to it, who borrows, and what `reclaim` says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, Quota, QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.standing import standing_after, standing_on
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.quota import quantity
from kube_policy_scheduler.wording import amount, listed, plural

_MOST_BORROWERS = 3
_INSUFFICIENT = "Insufficient "
"""How the reasons of NodeResourcesFit begin."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """One resource that the pod requests, in its queue. Amounts are Kubernetes quantities."""

    queue: str
    above: tuple[str, ...]
    """The queues above it, the nearest first."""
    resource: str
    requested: str
    used: str
    """By other pods of the queue."""
    guaranteed: str
    most: str
    """The lowest `max` of the queue and those above it, "" without one."""
    share: float
    borrowers: tuple[tuple[str, str], ...]
    """Other queues without children that borrow the resource, and how much, those that borrow most first."""

    def sentence(self) -> str:
        """Return it in one sentence, without an end."""
        below = f", below {listed(self.above)}" if self.above else ""
        most = f"at most {self.most}, " if self.most else ""
        who = f"; borrowed by {listed([f'{name} ({number})' for name, number in self.borrowers])}"
        return (
            f"Queue {self.queue}{below}: {self.used} {self.resource} used, {self.guaranteed} guaranteed, {most}"
            f"share {amount(self.share, 3)}, and this pod requests {self.requested}{who if self.borrowers else ''}"
        )


def standings(frame: Frame, profile: Profile) -> Iterator[QueueStanding]:
    """Yield how the pod's queue stands in each resource that it requests, on the cluster without it."""
    rules = profile.queues
    if rules is None:
        return
    usage = frame.cluster.track_usage(rules.tree)
    queue = usage.quota_of(frame.template)
    for place, wanted in usage.amounts(frame.pod) if queue is not None else ():
        assert queue is not None
        yield _standing(usage, queue, place, wanted)


def _standing(usage: QuotaUsage, queue: Quota, place: int, wanted: int) -> QueueStanding:
    resource, path = usage.tree.resources[place], list(queue.path())
    most = min(each.maximum[place] for each in path)
    others = (
        (each.over(place), each.name)
        for each in usage.queues()
        if not each.children and each.over(place) > 0 and each.name != queue.name
    )
    largest = sorted(others, key=lambda each: (-each[0], each[1]))[:_MOST_BORROWERS]
    return QueueStanding(
        queue.name,
        tuple(each.name for each in path[1:]),
        resource,
        quantity(resource, wanted),
        quantity(resource, queue.used[place]),
        quantity(resource, queue.minimum[place]),
        quantity(resource, most) if most < NO_LIMIT else "",
        usage.share(queue),
        tuple((name, quantity(resource, over)) for over, name in largest),
    )


def short_resources(frame: Frame, profile: Profile, decision: Decision) -> tuple[str, ...]:
    """Return the resources of which there is too little for a pod, each once: on the nodes, and in its queues.

    Only these say who may be evicted for it.
    """
    rules = profile.queues
    if rules is None:
        return ()
    if decision.reclaim is not None and decision.reclaim.short:
        return decision.reclaim.short
    usage = frame.cluster.track_usage(rules.tree)
    queue = usage.quota_of(frame.template)
    found = [usage.tree.resources[place] for place, _ in usage.short(queue, usage.amounts(frame.pod))] if queue else []
    reasons = decision.diagnosis.counts() if decision.diagnosis is not None else {}
    insufficient = [reason.removeprefix(_INSUFFICIENT) for reason in reasons if reason.startswith(_INSUFFICIENT)]
    return tuple(dict.fromkeys((*found, *sorted(insufficient))))


def rank_sentence(frame: Frame, profile: Profile, *, bound: str | None) -> str:
    """Return whether a pod is guaranteed or borrowed, and by which resource; "" if it belongs to no queue.

    bound: the node that it was taken off; None: it has none.
    """
    rules = profile.queues
    if rules is None:
        return ""
    found = standing_after(frame, rules) if bound is None else standing_on(frame, rules, bound)
    if found is None:
        return ""
    what = ("It is" if bound is not None else "It would be") + f" {found.text}"
    if len(found.unit.pods) > 1:
        what += f", with {plural(len(found.unit.pods) - 1, 'more pod')} of its gang"
    if found.resource and found.queue != found.own:
        return (
            f"{what}: queues below {found.queue} may take its place for what is guaranteed to them, others only for"
            " what is guaranteed by the same resource or a stronger one"
        )
    if found.resource:
        return f"{what}: only what is guaranteed by the same resource or a stronger one may take its place"
    return f"{what}: pods that are guaranteed what it holds may take its place"


def reclaim_message(decision: Decision) -> str:
    """Return why `reclaim` evicts nobody for the pod, "" if it does or has no say."""
    return decision.reclaim.message if decision.reclaim is not None else ""
