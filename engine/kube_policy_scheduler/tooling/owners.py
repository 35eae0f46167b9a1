"""Owners in a configuration, checked with the language: what its schema cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.owner_settings import OwnerSettings, owner_of
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.policy.owners import scope_problem


def scope_problems(document: Document, owners: Sequence[OwnerSettings]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the conditions of the owners' pods in a configuration."""
    for at, settings in enumerate(owners):
        bad = scope_problem(owner_of(settings, owners=len(owners))) if settings.pods is not None else None
        if bad is not None:
            message = f"policies.owners[{at}].pods is not a condition on pods: {bad.message}"
            yield document.error(("policies", "owners", at, "pods"), WRONG_VALUE, message=message, advice=bad.help)
