"""Owners as the checker knows them: whether the condition of the pods that one may govern is one."""

from __future__ import annotations

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Diagnostic, Severity
from kube_policy_scheduler.lang.checking.owners import scope_of
from kube_policy_scheduler.lang.owner import Owner


def scope_problem(owner: Owner) -> Diagnostic | None:
    """Return the first error in the condition of an owner's pods, None where there is none."""
    _, found = scope_of(owner, environment())
    return next((each for each in found if each.severity is Severity.ERROR), None)
