"""The message about a pod that fits nowhere: kube-scheduler's words, and whose rule it was where a policy refuses.

What kube-scheduler's own plugins refuse is told in its words to the letter. Where a clause of a policy has a part in
it, the policy is named, and each clause that its reason does not name already.
"""

from __future__ import annotations

from kube_policy_scheduler.framework.diagnosis import Diagnosis
from kube_policy_scheduler.framework.profile import Profile

CLAUSE_NAMED = "policy clause "
"""Reasons that are made of a clause's source have this before it."""


def refusing_clauses(diagnosis: Diagnosis, profile: Profile) -> list[str]:
    """Return the names of the clauses that stand between the pod and a node, in the order in which they were asked."""
    rejectors = diagnosis.rejectors()
    return [plugin.name for plugin in profile.filters if plugin.name in rejectors and plugin.name in profile.clauses]


def refusal_message(diagnosis: Diagnosis, profile: Profile, *, after: str = "") -> str:
    """Return the message; `after` is what PostFilter said."""
    clauses = refusing_clauses(diagnosis, profile)
    if not clauses:
        return diagnosis.message(after)
    reasons = diagnosis.reasons()
    unnamed = [name for name in clauses if not any(CLAUSE_NAMED in reason for reason in reasons.get(name, ()))]
    who = by_policy("Refused", profile.name, unnamed)
    return diagnosis.message(f"{who} {after}" if after else who)


def by_policy(what: str, policy: str, clauses: list[str]) -> str:
    """Return a sentence that names a policy, and clauses of it."""
    names = ", ".join(f"`{name}`" for name in clauses)
    which = "" if not clauses else f", clause {names}" if len(clauses) == 1 else f", clauses {names}"
    return f"{what} by policy {policy}{which}."
