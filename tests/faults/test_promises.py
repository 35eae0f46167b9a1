"""The table of faults in this folder's docstring names tests that there are, and all of this folder."""

from __future__ import annotations

import re
from pathlib import Path

import tests.faults

HERE = Path(__file__).parent


def names(folder: str) -> set[str]:
    texts = (file.read_text() for file in (HERE.parent / folder).glob("test_*.py") if file != Path(__file__))
    return {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}


def test_the_table_of_faults_is_whole() -> None:
    told = set(re.findall(r"\btest_\w+\b(?!\.py)", tests.faults.__doc__ or ""))
    assert told - names("faults") - names("integration") - names("daemon") == set()
    assert names("faults") - told == set()
