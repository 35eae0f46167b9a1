"""Queues that contradict the cluster: more guaranteed than the nodes offer, queues without pods, pods without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kube_policy_scheduler.cluster.devices.claimed_devices import CLAIMED, device_class
from kube_policy_scheduler.cluster.objects import DeviceClass
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import lead
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, QuotaTree, QuotaUsage
from kube_policy_scheduler.cluster.requests import is_extended
from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.framework.quota import quantity
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.queues import pods_over
from kube_policy_scheduler.tooling.unmet_guarantees import unmet_guarantees
from kube_policy_scheduler.wording import plural, some

LONG_NOMINATED_SECONDS = 600.0
"""Pods that are nominated and older than this should have taken their room: evicted pods end within minutes."""


def queue_findings(inspection: Inspection) -> Iterator[Finding]:
    """Compare the queues with the nodes and the pods."""
    rules = inspection.policy_set.queues
    if rules is None:
        return
    tree, cluster = rules.tree, inspection.state.cluster
    declared = declared_queues(policy.compiled.checked for policy in inspection.policy_set.policies)
    places = {queue.name: str(queue.tree.span) for queue in declared}
    if not cluster.nodes.size:
        yield Finding("queues", plural(len(declared), "queue"), Status.UNCHECKED, "the cluster has no nodes")
        return
    usage = cluster.count_queues(tree)
    pods = [cluster.templates.pod(pod) for pod in inspection.pods]
    yield from _resources(inspection, tree)
    yield from _guarantees(usage, places)
    yield from _members(usage, pods, places)
    yield from _kept(usage)
    yield from _too_large(usage, pods, places)
    yield from _larger_than_guarantee(usage, pods, places)
    yield from _long_nominated(usage, pods, now=inspection.now)
    yield from _over_maximum(usage, places, now=inspection.now)
    yield from _outside(usage, pods)


def _resources(inspection: Inspection, tree: QuotaTree) -> Iterator[Finding]:
    nodes = inspection.state.cluster.nodes
    offered = [name for name in nodes.resources() if nodes.allocatable(name).any()]
    for name in tree.resources:
        if name == "pods" or name in offered:
            continue
        if (wanted := device_class(name)) is not None:
            classes = [each.metadata.name for each in inspection.state.cluster.all(DeviceClass)]
            if wanted not in classes:
                meant = closest(wanted, classes)
                advice = f"did you mean `{meant}{CLAIMED}`?" if meant else "create it, or remove it from the queues"
                text = f"there is no DeviceClass `{wanted}`, so nothing counts"
                yield Finding("queues", f"resource {name}", Status.PROBLEM, text, advice=advice)
            continue
        meant = closest(name, offered)
        advice = f"did you mean `{meant}`?" if meant else "label it as your nodes do, or add nodes that have it"
        yield Finding("queues", f"resource {name}", Status.PROBLEM, "no node offers it", advice=advice)


def _guarantees(usage: QuotaUsage, places: Mapping[str, str]) -> Iterator[Finding]:
    """Compare what is guaranteed below each queue, and in all, with what is there for it."""
    resources, tops = usage.tree.resources, list(usage.top.children.values())
    for unmet in unmet_guarantees(usage):
        place = resources.index(unmet.resource)
        guaranteed = [queue for queue in tops if queue.minimum[place]]
        lacking = [queue for queue in guaranteed if queue.will(place) < queue.minimum[place]]
        names = [f"{each.name} ({quantity(unmet.resource, each.minimum[place])})" for each in lacking or guaranteed]
        advice = f"not all of {some(names)} can get their `min`: guarantee less, or add nodes"
        yield Finding("queues", f"resource {unmet.resource}", Status.PROBLEM, unmet.text, advice=advice)
    for parent in usage.queues():
        children = list(parent.children.values())
        if not any("/" in child.name for child in children):
            continue  # what is declared is compared by lint; queues by key are known here only
        for place, resource in enumerate(resources):
            together, there = sum(child.minimum[place] for child in children), parent.minimum[place]
            if together > there:
                what, has = quantity(resource, together), quantity(resource, there)
                text = f"the {plural(len(children), 'queue')} below it are guaranteed {what} {resource}, itself {has}"
                advice = (
                    "there is one queue for each value of the key: write a larger `min`, or guarantee each of them less"
                )
                yield Finding("queues", f"queue {parent.name}", Status.PROBLEM, text, places[parent.name], advice)


def _kept(usage: QuotaUsage) -> Iterator[Finding]:
    """Compare what queues reserve for themselves with the capacity of the cluster."""
    for place, resource in enumerate(usage.tree.resources):
        keeps = [queue for queue in usage.top.children.values() if queue.kept[place]]
        together, there = sum(queue.kept[place] for queue in keeps), usage.usable(place)
        if together > there:
            names = some([queue.name for queue in keeps])
            text = (
                f"{names} keep {quantity(resource, together)} for themselves, {quantity(resource, there)} can be used"
            )
            advice = "pods of other queues cannot start: let the queues lend more, or add nodes"
            yield Finding("queues", f"resource {resource}", Status.PROBLEM, text, advice=advice)


def _members(usage: QuotaUsage, pods: Sequence[PodInfo], places: Mapping[str, str]) -> Iterator[Finding]:
    every, waiting = usage.count(pods), usage.count(pod for pod in pods if not pod.node_name)
    by_key: Counter[str] = Counter()
    waiting_by_key: Counter[str] = Counter()
    for counts, totals in ((every, by_key), (waiting, waiting_by_key)):
        for name, number in counts.items():
            totals[name if name in places else name.partition("/")[0]] += number
    for name, place in places.items():
        number, waits = by_key[name], waiting_by_key[name]
        if number:
            text = f"has {plural(number, 'pod')}, of which {waits} wait{'s' if waits == 1 else ''}"
            yield Finding("queues", f"queue {name}", Status.OK, text, place)
        else:
            advice = "look at its `for pods where`, and whether an earlier queue takes its pods"
            yield Finding("queues", f"queue {name}", Status.WARNING, "no pod belongs to it", place, advice)


def _too_large(usage: QuotaUsage, pods: Sequence[PodInfo], places: Mapping[str, str]) -> Iterator[Finding]:
    """Find pods that wait for more than a queue may ever use."""
    found: dict[tuple[str, str], list[PodInfo]] = {}
    limits: dict[tuple[str, str], int] = {}
    for pod in pods:
        if pod.node_name:
            continue
        own = usage.quota_of(pod.template)
        for queue in own.path() if own is not None else ():
            for place, amount in usage.amounts(pod):
                if amount > queue.maximum[place]:
                    key = queue.name, usage.tree.resources[place]
                    found.setdefault(key, []).append(pod)
                    limits[key] = queue.maximum[place]
    for (name, resource), waiting in found.items():
        most = max(dict(usage.amounts(pod))[usage.tree.resources.index(resource)] for pod in waiting)
        names = some([pod.key for pod in waiting])
        verb = "requests" if len(waiting) == 1 else "request"
        text = (
            f"{plural(len(waiting), 'pod')} {verb} up to {quantity(resource, most)} {resource}, its `max` is "
            f"{quantity(resource, limits[name, resource])}: {names}"
        )
        where = places.get(name) or places.get(name.partition("/")[0], "")
        advice = "they can never start: write a larger `max`, or smaller requests"
        yield Finding("queues", f"queue {name}", Status.PROBLEM, text, where, advice)


def _larger_than_guarantee(usage: QuotaUsage, pods: Sequence[PodInfo], places: Mapping[str, str]) -> Iterator[Finding]:
    """Find pods that always borrow, because they are larger than what their queue is guaranteed."""
    found: dict[tuple[str, str], list[PodInfo]] = {}
    for pod in pods:
        queue = usage.quota_of(pod.template)
        amounts = usage.amounts(pod)
        leads = lead(usage, queue, amounts) if queue is not None else None
        if queue is None or leads is None:
            continue
        wanted = dict(amounts)[leads]
        if all(wanted > each.minimum[leads] for each in queue.path() if each.minimum[leads]):
            found.setdefault((queue.name, usage.tree.resources[leads]), []).append(pod)
    for (name, resource), large in found.items():
        verb = "requests" if len(large) == 1 else "request"
        place = usage.tree.resources.index(resource)
        most = quantity(resource, max(dict(usage.amounts(pod))[place] for pod in large))
        text = (
            f"{plural(len(large), 'pod')} {verb} up to {most} {resource}, more than its `min`:"
            f" {some([pod.key for pod in large])}"
        )
        advice = "such a pod always borrows, and can be evicted for any guarantee: write a larger `min`"
        where = places.get(name) or places.get(name.partition("/")[0], "")
        yield Finding("queues", f"queue {name}", Status.WARNING, text, where, advice)


def _long_nominated(usage: QuotaUsage, pods: Sequence[PodInfo], *, now: float) -> Iterator[Finding]:
    """Find pods of queues that room is kept for, and that do not take it."""
    long = [
        pod
        for pod in pods
        if pod.nominated_node and not pod.node_name and pod.created and now - pod.created > LONG_NOMINATED_SECONDS
        if usage.quota_of(pod.template) is not None
    ]
    if long:
        verb = "is" if len(long) == 1 else "are"
        text = f"{plural(len(long), 'pod')} {verb} nominated to a node and old: {some([pod.key for pod in long])}"
        advice = "the room of evicted pods is kept for them: `policyctl why` says what they wait for"
        yield Finding("queues", "nominated pods", Status.WARNING, text, advice=advice)


def _over_maximum(usage: QuotaUsage, places: Mapping[str, str], *, now: float) -> Iterator[Finding]:
    for queue in usage.queues():
        for place, resource in enumerate(usage.tree.resources):
            limit = queue.maximum[place]
            if limit == NO_LIMIT or queue.used[place] <= limit:
                continue
            number = len(pods_over(queue, usage, place, limit, now=now))
            used, most = quantity(resource, queue.used[place]), quantity(resource, limit)
            text = f"its pods use {used} {resource}, its `max` is {most}: {plural(number, 'pod')} over"
            where = places.get(queue.name) or places.get(queue.name.partition("/")[0], "")
            advice = "no pod of it starts; `policyctl drift` names the pods, and `reclaim above max` evicts them"
            yield Finding("queues", f"queue {queue.name}", Status.WARNING, text, where, advice)


def _outside(usage: QuotaUsage, pods: Sequence[PodInfo]) -> Iterator[Finding]:
    """Find pods that use what queues guarantee, without a quota."""
    outside = [pod for pod in pods if usage.quota_of(pod.template) is None]
    if not outside:
        return
    using: dict[str, list[str]] = {}
    for pod in outside:
        for place, amount in usage.amounts(pod):
            name = usage.tree.resources[place]
            if amount and is_extended(name):
                using.setdefault(name, []).append(pod.key)
    for name, keys in using.items():
        verb = "requests" if len(keys) == 1 else "request"
        text = f"{plural(len(keys), 'pod')} in no queue {verb} it: {some(keys)}"
        advice = (
            "they have no quota, and guarantees do not count on them: declare a queue for them, such as the last one"
        )
        yield Finding("queues", f"resource {name}", Status.WARNING, text, advice=advice)
    if not using:
        text = f"{plural(len(outside), 'pod')} belong{'s' if len(outside) == 1 else ''} to no queue: no quota applies"
        yield Finding("queues", "other pods", Status.OK, text)
