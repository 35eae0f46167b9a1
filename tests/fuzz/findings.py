"""What was found, each once, by the place in the engine where it shows, with a text as small as can be."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    place: str
    data: bytes
    error: BaseException


@dataclass
class Findings:
    examine: Callable[[bytes], None]
    found: dict[str, Finding] = field(default_factory=dict)
    examined: int = 0

    def look_at(self, data: bytes) -> bool:
        """Examine a text; return whether it was understood or refused."""
        self.examined += 1
        finding = self._finding(data)
        if finding is not None:
            self.found.setdefault(finding.place, finding)
        return finding is None

    def note(self, data: bytes, told: str) -> None:
        """Keep a text for which the fuzzer ended the process."""
        place = next(iter(re.findall(r"(?:ERROR|SUMMARY): .*", told)), "the fuzzer ended")
        self.found.setdefault(place, Finding(place, data, RuntimeError(told)))

    def _finding(self, data: bytes) -> Finding | None:
        try:
            self.examine(data)
        except Exception as error:
            return Finding(_place(error), data, error)
        return None

    def smaller(self, finding: Finding, *, seconds: float) -> Finding:
        """Return the finding with what is not needed for it left out."""
        end = time.monotonic() + seconds
        size = max(1, len(finding.data) // 2)
        while size and time.monotonic() < end:
            at = 0
            while at < len(finding.data) and time.monotonic() < end:
                shorter = self._finding(finding.data[:at] + finding.data[at + size :])
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
