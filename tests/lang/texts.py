"""Policies as texts in tests: several files in one text, and everything that is said about them."""

from __future__ import annotations

import re

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Diagnostic, Source, in_order
from kube_policy_scheduler.lang.load import Checked, check_sources
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.lint.runner import lint

ENVIRONMENT = environment()
_OWNER = re.compile(r"# owner (\S+)$", re.MULTILINE)
_FILE = re.compile(r"^# in (\S+\.policy)\S*.*$", re.MULTILINE)


def sources(text: str, *, name: str = "test.policy") -> list[Source]:
    """Return the sources in a text: lines `# in NAME.policy` begin another file."""
    found = list(_FILE.finditer(text))
    if not found:
        return [Source(name, text)]
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [Source(match[1], text[match.end() + 1 : end]) for match, end in zip(found, ends, strict=True)]


def checked(text: str) -> Checked:
    """Check policies; a first line `# owner NAME` makes them those of an owner that may govern the namespace NAME."""
    named = _OWNER.match(text)
    owner = Owner(named[1], (named[1],)) if named is not None else None
    return check_sources(sources(text), ENVIRONMENT, owner=owner)


def said(text: str, *, select: set[str] | None = None) -> list[Diagnostic]:
    """Return the diagnostics of checking and of all lint rules, or some."""
    result = checked(text)
    return list(in_order([*result.diagnostics, *lint(result, select=select)]))


def codes(text: str, *, select: set[str] | None = None) -> list[str]:
    return [diagnostic.code for diagnostic in said(text, select=select)]
