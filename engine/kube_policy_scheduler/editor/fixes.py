"""What can mend a diagnostic: the fix that it has, and the name that it suggests."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Span

_MEANT = re.compile(r"did you mean `([^`]+)`")
_SUGGESTED = re.compile(r"(?:add a unit: |, or )?`([^`]+)`")


def fixes(diagnostic: Diagnostic) -> Iterator[Fix]:
    """Yield what can mend a diagnostic, the surest first."""
    if diagnostic.fix is not None:
        yield diagnostic.fix
    elif (match := _MEANT.search(f"{diagnostic.message} {diagnostic.help}")) is not None:
        yield replacement(diagnostic.span, match[1])
    elif diagnostic.help.startswith("add a unit: "):
        for written in _SUGGESTED.findall(diagnostic.help):
            yield replacement(diagnostic.span, written)


def replacement(span: Span, meant: str) -> Fix:
    """Return the fix that writes what is meant in the place of a span: of a path, only what the span is of it."""
    before = span.source.text[: span.start]
    rest = meant
    for cut in (index + 1 for index in range(len(meant) - 1, -1, -1) if meant[index] == "."):
        if before.endswith(meant[:cut]):
            rest = meant[cut:]
            break
    text = span.text
    if rest == meant and text.startswith('"') and text.endswith('"') and not meant.startswith('"'):
        rest = f'"{meant}"'
    return Fix(f"write `{meant}`", (Edit(span, rest),), safe=False)
