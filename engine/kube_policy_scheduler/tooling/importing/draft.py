"""What a plugin of a profile becomes: lines of a policy, and notes where it cannot be said in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Draft:
    """What a plugin adds to a policy."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_as_by_default: bool = False
    """Its score is that of `use kubernetes scores`."""

    def score(self, expression: str, weight: int) -> None:
        """Add a score clause."""
        self.lines.append(f"score {expression}" + (f" weight {weight}" if weight != 1 else ""))


Translate: TypeAlias = Callable[[Arguments, int, Draft], None]
"""Arguments of a plugin and its weight; what they come to is added to the draft."""
