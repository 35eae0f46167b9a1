"""What a diagnostic code is. The codes themselves stand in `codes_syntax`, `codes_meaning` and `codes_policy`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from kube_policy_scheduler.diagnostics import Diagnostic, Fix, Label, Severity, Span


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of problem: never renumbered, never reused."""

    id: str
    name: str
    """Reads well after "allow": `unknown-field`."""
    explanation: str
    """What it means and why it is refused, in sentences."""
    bad: str
    """A policy that has the problem and no other."""
    good: str
    """What to write instead."""
    severity: Severity = Severity.ERROR

    def at(
        self,
        span: Span,
        message: str,
        *,
        help: str = "",  # noqa: A002  (the word that people see)
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        fix: Fix | None = None,
    ) -> Diagnostic:
        """Return the diagnostic of this problem at a place."""
        return Diagnostic(self.id, self.severity, message, span, help, tuple(labels), tuple(notes), fix)


def codes_in(module: ModuleType) -> dict[str, Code]:
    """Return the codes defined in a module, by id."""
    found = sorted((v for v in vars(module).values() if isinstance(v, Code)), key=lambda code: code.id)
    return {code.id: code for code in found}


def page(code: Code) -> str:
    """Return the page that `policyctl explain-code` shows, as Markdown."""
    return (
        f"# {code.id}: {code.name} ({code.severity.value})\n\n{code.explanation.strip()}\n\n"
        f"## Refused\n\n{_block(code.bad)}\n\n## Instead\n\n{_block(code.good)}\n"
        if code.severity is Severity.ERROR
        else f"# {code.id}: {code.name} ({code.severity.value})\n\n{code.explanation.strip()}\n\n"
        f"## Avoid\n\n{_block(code.bad)}\n\n## Prefer\n\n{_block(code.good)}\n"
    )


def _block(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip("\n").split("\n"))
