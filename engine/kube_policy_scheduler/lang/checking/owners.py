"""Policies of an owner kept within what the administrator allows: which pods, which statements, how much priority."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span
from kube_policy_scheduler.lang import codes, syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, values_of
from kube_policy_scheduler.lang.checking.check import check
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.owner import ADMINISTRATORS, ALWAYS_ALLOWED, Owner
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.types import TRUTH, Info


def governed_by(owner: Owner, environment: Environment) -> tuple[typed.Typed | None, tuple[Diagnostic, ...]]:
    """Return the condition of the pods that an owner may govern, None for all, and its errors."""
    if not owner.scope:
        return None, ()
    source = Source(f"pods of owner {owner.name}", f"for pods where {owner.scope}")
    file, found = parse(source)
    policy, more, _ = check(file.statements, environment, source=source, name=owner.name)
    return policy.governs, (*found, *more)


def keep_within(
    policies: Sequence[CheckedPolicy], owner: Owner, environment: Environment, memo: Memo
) -> tuple[list[CheckedPolicy], list[Diagnostic]]:
    """Return an owner's policies under the owner's name, for the owner's pods only, and what is not allowed."""
    scope, found = memo(governed_by, owner, environment)
    refused = [*found]
    for policy in policies:
        refused += memo(_not_allowed, policy, owner)
    return [memo(_kept_within, policy, owner, scope) for policy in policies], refused


def _kept_within(policy: CheckedPolicy, owner: Owner, scope: typed.Typed | None) -> CheckedPolicy:
    governs = policy.governs if scope is None else scope
    if scope is not None and policy.governs is not None:
        parts = (scope, policy.governs)
        depends = scope.info.depends | policy.governs.info.depends
        info = Info(TRUTH, maybe=any(part.info.maybe for part in parts), depends=depends)
        governs = typed.Logic(info, policy.governs.span, "and", parts)
    return msgspec.structs.replace(policy, name=f"{owner.name}/{policy.name}", owner=owner.name, governs=governs)


def _not_allowed(policy: CheckedPolicy, owner: Owner) -> tuple[Diagnostic, ...]:
    return tuple(_found(policy, owner))


def _found(policy: CheckedPolicy, owner: Owner) -> Iterator[Diagnostic]:
    advice = "remove it, or ask the administrator to allow it (`policies.owners` of the configuration)"
    for statement in policy.statements:
        match statement:
            case syntax.SchedulerName(name=name):
                if name not in owner.schedulers:
                    listed = ", ".join(f"`{each}`" for each in sorted(owner.schedulers)) or "none"
                    message = f"owner `{owner.name}` may not serve the scheduler `{name}`"
                    yield codes.NOT_ALLOWED.at(statement.span, message, help=f"remove the line; allowed: {listed}")
            case syntax.Priority():
                if policy.priority > owner.max_priority:
                    message = (
                        f"owner `{owner.name}` may use priorities up to {owner.max_priority}, this is {policy.priority}"
                    )
                    yield codes.PRIORITY_TOO_HIGH.at(
                        statement.span, message, help=f"write `priority {owner.max_priority}` or less"
                    )
            case _:
                word = _word(statement)
                if word in ADMINISTRATORS:
                    message = f"only the administrator may use `{word}`: it is about the pods of all owners"
                    help_ = "remove it; the quotas of the administrator also apply to pods that your policies govern"
                    if word not in ("queue", "reclaim"):
                        message = f"only the administrator may use `{word}`: it is about all workloads of a fleet"
                        help_ = "remove it, or write `for pods where …`"
                    yield codes.NOT_ALLOWED.at(statement.span, message, help=help_)
                elif word not in ALWAYS_ALLOWED and word not in owner.allowed:
                    yield codes.NOT_ALLOWED.at(
                        statement.span, f"owner `{owner.name}` may not use `{word}`", help=advice
                    )
    if policy.inputs and "promql" not in owner.allowed:
        message = f"owner `{owner.name}` may not query metrics"
        yield codes.NOT_ALLOWED.at(_first_query(policy), message, help=advice)


def _word(statement: syntax.Statement) -> str:
    """Return the administrator's name of a statement."""
    match statement:
        case syntax.UseKubernetes(without=without):
            return "use kubernetes without" if without else "use"
        case syntax.UseScores():
            return "use kubernetes scores"
        case syntax.UseKarmada():
            return "use karmada"
        case syntax.ForWorkloads():
            return "for workloads"
        case _:
            return statement.span.text.split(None, 1)[0]


def _first_query(policy: CheckedPolicy) -> Span:
    """Return where a policy first reads a metric."""
    for clause in policy.clauses:
        for root in values_of(clause):
            for part in typed.below(root):
                if isinstance(part, typed.Apply) and part.inputs:
                    return part.span
    named = next((s for s in policy.statements if isinstance(s, syntax.Metric)), None)
    return named.span if named is not None else Span(policy.source, 0, 0)
