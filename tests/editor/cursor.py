"""A text with a cursor in it, as `|`, in a set of policies."""

from __future__ import annotations

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.project import Project, look_at
from tests.lang.texts import ENVIRONMENT

NAME = "team/test.policy"


def at_cursor(text: str, **others: str) -> tuple[Project, str, int]:
    """Return the policies, the name of the one with the cursor, and where it is."""
    offset = text.index("|")
    return project(text[:offset] + text[offset + 1 :], **others), NAME, offset


def project(text: str, **others: str) -> Project:
    """Return policies of one folder, checked; others by their names without the suffix."""
    more = [Source(f"team/{name}.policy", other) for name, other in others.items()]
    return look_at([Source(NAME, text), *more], ENVIRONMENT)
