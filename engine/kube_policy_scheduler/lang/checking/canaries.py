"""Canaries joined with the policies from which they take pods: what they inherit, and what cannot be joined."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Label, closest
from kube_policy_scheduler.lang import codes, syntax, typed
from kube_policy_scheduler.lang.checked import Canary, CheckedPolicy
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.types import TRUTH, Info

_OWN = syntax.SchedulerName | syntax.ForPods | syntax.Priority


def join_canaries(policies: Sequence[CheckedPolicy], memo: Memo) -> tuple[list[CheckedPolicy], list[Diagnostic]]:
    """Return the policies, canaries with scheduler, pods and priority of their stable policy, and the errors.

    A canary governs the pods that its stable policy governs and for which its own condition is true; the share of
    their workloads is not part of the condition.
    """
    stable = {policy.name: policy for policy in policies if policy.canary is None}
    taken: dict[str, Canary] = {}
    found: list[Diagnostic] = []
    joined = []
    for policy in policies:
        canary = policy.canary
        if canary is None:
            joined.append(policy)
            continue
        found += _own_headers(policy)
        of = stable.get(canary.of)
        if of is None:
            found.append(_no_stable(policy, canary, stable))
        elif (first := taken.setdefault(of.name, canary)) is not canary:
            message = f"`{of.name}` has two canaries"
            label = Label(first.tree.span, "the other one")
            advice = "promote or remove one of them first"
            found.append(codes.SECOND_CANARY.at(canary.tree.span, message, help=advice, labels=[label]))
        joined.append(memo(_joined, policy, canary, of) if of is not None else policy)
    return joined, found


def _joined(policy: CheckedPolicy, canary: Canary, of: CheckedPolicy) -> CheckedPolicy:
    conditions = tuple(each for each in (of.governs, canary.condition) if each is not None)
    governs = conditions[0] if len(conditions) == 1 else None
    if len(conditions) > 1:
        depends = conditions[0].info.depends | conditions[1].info.depends
        info = Info(TRUTH, maybe=any(each.info.maybe for each in conditions), depends=depends)
        governs = typed.Logic(info, canary.tree.span, "and", conditions)
    return msgspec.structs.replace(policy, scheduler=of.scheduler, governs=governs, priority=of.priority)


def _own_headers(policy: CheckedPolicy) -> list[Diagnostic]:
    found = []
    for statement in policy.statements:
        if isinstance(statement, _OWN) and statement.span.source == policy.source:
            word = statement.span.text.split()[0]
            advice = "remove the line: the canary uses that of its stable policy"
            found.append(codes.CANARY_HEADER.at(statement.span, f"`{word}` in a canary", help=advice))
    return found


def _no_stable(policy: CheckedPolicy, canary: Canary, stable: dict[str, CheckedPolicy]) -> Diagnostic:
    if canary.of == policy.name:
        message, advice = f"`{policy.name}` cannot be a canary of itself", "give it another name: `policy NAME`"
        return codes.NO_STABLE.at(canary.tree.of_span, message, help=advice)
    meant = closest(canary.of, stable)
    advice = f"did you mean `{meant}`?" if meant else "also pass the file of the stable policy, or the folder of both"
    return codes.NO_STABLE.at(canary.tree.of_span, f"there is no stable policy `{canary.of}`", help=advice)
