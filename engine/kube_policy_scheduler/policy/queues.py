"""`queue` and `reclaim` of all policies as the framework uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, QuotaSpec, QuotaTree
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.quota import AboveMaxRule, QueueQuota, QuotaRules, ReclaimRule
from kube_policy_scheduler.framework.quota_promises import QueuePromises
from kube_policy_scheduler.lang.checked import CheckedPolicy, QueueDeclaration, Reclaim
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.lang.compiling.policy import compile_reclaim, namespace_test, template_test, template_text
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.quantities.quantity import column_scale

_UNNAMED = ("cpu", "memory")
"""The resources of shares where no queue names one."""


Evict: TypeAlias = Callable[[Frame, PodInfo], bool]


def quota_tree(policies: Sequence[CheckedPolicy], memo: Memo) -> QuotaTree | None:
    """Return the queues of all policies; None: there are none. The same declarations are the same tree, by `memo`."""
    declared = declared_queues(policies)
    is_fair = any(each.fair for policy in policies if policy.canary is None for each in policy.reclaims)
    return memo(_fair_tree if is_fair else _tree, declared) if declared else None


def _fair_tree(declared: tuple[QueueDeclaration, ...]) -> QuotaTree:
    return msgspec.structs.replace(_tree(declared), shares_decide=True)


def _tree(declared: tuple[QueueDeclaration, ...]) -> QuotaTree:
    ordered = parents_first(declared)
    places = {queue.name: place for place, queue in enumerate(ordered)}
    named = dict.fromkeys(name for queue in declared for name in (*queue.minimum, *queue.maximum))
    resources = tuple(named) or _UNNAMED
    minimums = _minimums(ordered)
    half_lives = [queue.remember_seconds for queue in ordered if queue.remember_seconds is not None]
    return QuotaTree(
        tuple(_spec(queue, places, resources, minimums[queue.name]) for queue in ordered),
        resources,
        max(half_lives, default=None),
    )


def parents_first(declared: Sequence[QueueDeclaration]) -> list[QueueDeclaration]:
    """Return the queues with parents before their children, siblings in their order."""
    ordered: list[QueueDeclaration] = []
    level: list[str | None] = [None]
    while level:
        found = [queue for parent in level for queue in declared if queue.tree.parent == parent]
        ordered += found
        level = [queue.name for queue in found]
    return ordered


def _minimums(ordered: Sequence[QueueDeclaration]) -> dict[str, Mapping[str, float]]:
    """Return the guaranteed amounts by queue; what a parent does not say is the sum of its children's."""
    found: dict[str, dict[str, float]] = {queue.name: {} for queue in ordered}
    for queue in reversed(ordered):
        found[queue.name].update(queue.minimum)
        if queue.tree.parent is not None and queue.key is None:
            above, own = found[queue.tree.parent], next(q for q in ordered if q.name == queue.tree.parent).minimum
            for name, amount in found[queue.name].items():
                if name not in own:
                    above[name] = above.get(name, 0.0) + amount
    return dict(found)


def _spec(
    queue: QueueDeclaration, places: Mapping[str, int], resources: Sequence[str], minimum: Mapping[str, float]
) -> QuotaSpec:
    guaranteed = tuple(_column(name, minimum.get(name, 0.0)) for name in resources)
    kept = tuple(
        amount - min(amount, _column(name, queue.lend[name])) if name in queue.lend else 0
        for name, amount in zip(resources, guaranteed, strict=True)
    )
    compiled = environment()
    return QuotaSpec(
        queue.name,
        places[queue.tree.parent] if queue.tree.parent is not None else None,
        template_test(queue.pods, compiled) if queue.pods is not None else None,
        namespace_test(queue.pods, compiled),
        template_text(queue.key, compiled) if queue.key is not None else None,
        guaranteed,
        tuple(_column(name, queue.maximum[name]) if name in queue.maximum else NO_LIMIT for name in resources),
        kept,
        queue.weight,
    )


def _column(resource: str, amount: float) -> int:
    """Return an amount in cores, bytes or numbers in column units."""
    scale: int = 10 ** column_scale(resource)
    return min(round(amount * scale), NO_LIMIT - 1)


def reclaim_rules(policies: Sequence[CheckedPolicy]) -> tuple[ReclaimRule, ...]:
    """Return what `reclaim` says for pods that need room, of all policies, in order."""
    return tuple(_rule(each) for each in _reclaims(policies) if not each.above_max)


def above_max_rules(policies: Sequence[CheckedPolicy]) -> tuple[AboveMaxRule, ...]:
    """Return what `reclaim above max` says, of all policies, in order."""
    return tuple(_above_max(each) for each in _reclaims(policies) if each.above_max)


def _reclaims(policies: Sequence[CheckedPolicy]) -> list[Reclaim]:
    """Return the `reclaim` statements of all policies, in order; each statement once, without those of canaries."""
    found = {
        (each.tree.span.source.name, each.tree.span.start): each
        for policy in reversed(policies)
        if policy.canary is None
        for each in reversed(policy.reclaims)
    }
    return list(reversed(found.values()))


def _rule(reclaim: Reclaim) -> ReclaimRule:
    compiled = compile_reclaim(reclaim, environment())
    return ReclaimRule(
        compiled.text,
        compiled.fair,
        compiled.after_seconds,
        compiled.rest_seconds,
        compiled.condition,
        _spared(compiled.evict),
    )


def _above_max(reclaim: Reclaim) -> AboveMaxRule:
    compiled = compile_reclaim(reclaim, environment())
    return AboveMaxRule(compiled.text, _spared(compiled.evict))


def _spared(evict: Evict | None) -> Evict | None:
    """Return which victims a frame spares, from those that it may evict."""
    return (lambda frame, victim: not evict(frame, victim)) if evict is not None else None


def with_queues(profile: Profile, rules: QuotaRules) -> Profile:
    """Return a profile that keeps to quotas, to these alone."""
    others = (plugin for plugin in profile.filters if not isinstance(plugin, QueueQuota | QueuePromises))
    keeps = any(any(spec.kept) for spec in rules.tree.queues)
    promises = (QueuePromises(rules.tree),) if keeps else ()
    return msgspec.structs.replace(profile, filters=(QueueQuota(rules.tree), *promises, *others), queues=rules)
