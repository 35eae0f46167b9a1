"""What was found, each once, by the place in the engine where it shows, with a text as small as can be."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    place: str
    text: str
    error: BaseException


@dataclass
class Findings:
    examine: Callable[[str], None]
    found: dict[str, Finding] = field(default_factory=dict)
    examined: int = 0

    def look_at(self, text: str) -> None:
        self.examined += 1
        finding = self._finding(text)
        if finding is not None and finding.place not in self.found:
            self.found[finding.place] = finding

    def _finding(self, text: str) -> Finding | None:
        try:
            self.examine(text)
        except Exception as error:
            return Finding(_place(error), text, error)
        return None

    def smaller(self, finding: Finding, *, seconds: float) -> Finding:
        """Return the finding with what is not needed for it left out."""
        end = time.monotonic() + seconds
        size = max(1, len(finding.text) // 2)
        while size and time.monotonic() < end:
            at = 0
            while at < len(finding.text) and time.monotonic() < end:
                shorter = self._finding(finding.text[:at] + finding.text[at + size :])
                if shorter is not None and shorter.place == finding.place:
                    finding = shorter
                else:
                    at += size
            size //= 2
        return finding


def _place(error: BaseException) -> str:
    """Return the kind of an error and the innermost line of ours that it went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/engine/" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/engine/')[2]}:{frames[-1].lineno}" if frames else str(error)[:40]
    return f"{type(error).__name__} in {where}"
