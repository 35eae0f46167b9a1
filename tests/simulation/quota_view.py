"""What a scheduler sees of queues and pods, in the words of the model: `tests/quotas` then says whom it may evict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, product

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, QuotaUsage
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.times import Steady
from tests.quotas.accounts import Node, Pod, Queue, State, Unit
from tests.quotas.evictions import Asker, Reclaim, short_of_its_guarantee, shortage_beside, why_illegal
from tests.quotas.invariants import facts
from tests.quotas.model import placements

MOST_PLACES = 30
"""Ways to place a gang where pods go that are looked at, if nobody says where its other members go."""


def seen(cluster: Cluster, usage: QuotaUsage, now: Steady) -> State:
    """Return what counts on nodes, and what is nominated."""
    pods = {info.uid: _pod(cluster, usage, info, now) for info in cluster.pods.values()}
    for node, there in cluster.nominated.items():
        for info in there.values():
            if info.uid not in pods:
                pods[info.uid] = _pending(usage, info, promised=node)
    return State(tuple(_queues(usage)), tuple(_nodes(cluster)), pods)


def _pod(cluster: Cluster, usage: QuotaUsage, info: PodInfo, now: Steady) -> Pod:
    started = info.started if info.started is not None else now
    node, leaving = cluster.node_of(info.uid) or "", cluster.is_going(info, now)
    return replace(_pending(usage, info), node=node, started=started, leaving=leaving)


def _pending(usage: QuotaUsage, info: PodInfo, *, promised: str = "") -> Pod:
    quota = usage.quota_of(info.template)
    size = int(info.labels.get("size", 1)) if "job" in info.labels else 0
    gang = f"{info.namespace}/{info.labels['job']}" if size > 1 else ""
    requests = {**info.demand.requests, "pods": 1}
    queue = quota.name if quota is not None else ""
    return Pod(info.uid, requests, queue, info.priority, gang, size if gang else 0, promised=promised, uid=info.uid)


def _queues(usage: QuotaUsage) -> list[Queue]:
    found = []
    for quota in usage.queues():
        above = quota.parent
        parent = above.name if above is not None and above.parent is not None else ""

        resources = usage.tree.resources
        minimum = dict(zip(resources, quota.minimum, strict=True))  # also 0: the sum of those below is in it
        maximum = {r: most for r, most in zip(resources, quota.maximum, strict=True) if most < NO_LIMIT}
        lend = {r: minimum[r] - kept for r, kept in zip(resources, quota.kept, strict=True) if kept}
        found.append(Queue(quota.name, parent, minimum, maximum, lend, round(quota.weight)))
    return found


def _nodes(cluster: Cluster) -> list[Node]:
    columns = {name: cluster.nodes.allocatable(name) for name in cluster.nodes.resources()}
    return [
        Node(
            name,
            {resource: int(column[row]) for resource, column in columns.items()},
            not cluster.nodes.infos[row].node.spec.unschedulable,
        )
        for name, row in cluster.nodes.rows.items()
    ]


def _has_mixed_gangs(cluster: Cluster, usage: QuotaUsage, asking: Iterable[PodInfo]) -> bool:
    """Return whether the pods of a gang that runs, that asks, or that room is kept for, are of several queues."""
    queues: dict[str, str] = {}
    nominated = (info for there in cluster.nominated.values() for info in there.values())
    for each in (_pending(usage, info) for info in (*cluster.pods.values(), *nominated, *asking)):
        if each.gang and queues.setdefault(each.gang, each.queue) != each.queue:
            return True
    return False


def reclaim_of(rules: QuotaRules, frame: Frame) -> Reclaim:
    """Return what the policies say about `reclaim` for a pod."""
    rule = rules.reclaim_of(frame)
    if rule is None:
        return Reclaim.NO
    return Reclaim.FAIR if rule.fair else Reclaim.GUARANTEES


def why_not(
    cluster: Cluster,
    pod: PodInfo,
    victims: tuple[PodInfo, ...],
    node: str,
    now: Steady,
    *,
    reclaim: Reclaim,
    members: Sequence[tuple[PodInfo, str]] = (),
    beside: Sequence[PodInfo] = (),
    reserves: bool = False,
) -> str:
    """Return whom a pod must not evict, and why; "" where it may, or nobody can say.

    Args:
        cluster: as the decision saw it.
        pod: for which they go.
        victims: who goes.
        node: where the pod is to run.
        now: when that is.
        reclaim: what applies to the pod, see `reclaim_of`.
        members: others of its gang that get room with it, with their nodes.
        beside: who goes for these; a gang that is in the way may go for several of them.
        reserves: whether room is reserved for another pod, by `backfill`: then a node may have too little besides.
    """
    usage = cluster.quota_usage
    if usage is None or any("solo" in each.labels for each in (pod, *victims)):
        return ""  # room is not all that it needs
    if _has_mixed_gangs(cluster, usage, (pod, *(member for member, _ in members))):
        return ""  # the model has no gangs of several queues
    state, kind = seen(cluster, usage, now), _pending(usage, pod)
    ours = [p for p in state.pods.values() if kind.gang and p.gang == kind.gang]
    nodes = {each.name for each in state.nodes}  # a member whose node is gone is one that the gang has lost
    lacks = kind.size - sum(p.node in nodes and not p.leaving for p in ours) if kind.gang else 0
    missing, known = max(1, lacks), {pod.uid, *(member.uid for member, _ in members)}
    others = [_pending(usage, member, promised=host) for member, host in members]
    others = [*others, *(p for p in ours if not p.holds and p.name not in known)][: missing - 1]
    asking = {pod.uid, *(each.name for each in others)}  # beyond its size each is on its own, with what it was promised
    state = state.evicted(asking & state.pods.keys())
    alike = [replace(kind, name=f"{pod.uid} and {number}") for number in range(1, missing - len(others))]
    unit = Unit(  # the rest is taken to be as this one
        tuple(replace(each, promised="") for each in (kind, *others, *alike)),
        surplus=bool(kind.gang) and missing == 1,
    )
    evicted = [victim.uid for victim in victims if not state.pods[victim.uid].leaving]
    closest, why = evicted, ""
    freed = {state.pods[uid].node for uid in evicted}
    cleared = replace(state, nodes=tuple(each for each in state.nodes if each.name in freed))
    chosen, by_share = {pod.uid: node} | {each.name: each.promised for each in others}, usage.tree.shares_decide
    seated = list(islice(placements(cleared, unit), MOST_PLACES) if alike else [chosen])
    gone = [victim.uid for victim in beside if victim.uid not in evicted]
    views = [state, state.settled()]  # what is leaving a node that takes no more pods counts for what queues share
    views += [state.evicted(gone)] if gone else []
    for view, places in product(views, seated):
        short = shortage_beside(view.settled(), unit, places, by_share=by_share)
        now_short = shortage_beside(view, unit, places, by_share=by_share)
        if reserves or not now_short.resources:  # ports, volumes or others are in the way: priorities alone evict
            now_short = replace(now_short, nodes={**now_short.nodes, "pods": frozenset(places.values())})
        own = short_of_its_guarantee(view, unit, places, evicted, by_share=by_share)
        guaranteed = replace(now_short, queues={**now_short.queues, **own})
        shortages = [short]
        if reserves:  # beside the reserved room, a node may have too little of any requested resource
            there = frozenset(places.values())
            shortages += [replace(short, nodes={**short.nodes, each: there}) for each in unit.resources()]
        askers = [Asker(unit, each, reclaim) for each in shortages]
        for asker in (*askers, Asker(unit, guaranteed, reclaim, by_priority=True)):
            illegal = why_illegal(view, asker, evicted)
            if not illegal:
                return ""
            if not why or len(illegal) < len(closest):
                closest, why = illegal, facts(view, asker, illegal[0])
    if not why:
        return ""
    names = [each.name for each in victims if each.uid in closest]
    return f"evicts {names} for a unit of {len(unit.pods)} of {kind.queue or 'no queue'}: {why}"
