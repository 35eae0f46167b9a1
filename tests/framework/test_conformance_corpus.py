"""Recorded verdicts of the real kube-scheduler, where they are at hand.

`KPS_CONFORMANCE` names the file, or a folder of `*.jsonl.gz`; otherwise `../shared/conformance` beside the
repository is looked for. `KPS_CONFORMANCE_EVERY=1` runs every case instead of each fourth.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.adapters.conformance_files import read_lines
from engine.tooling.conformance import check, parse_case, report

ROOT = Path(__file__).parents[2]
PLACE = Path(os.environ.get("KPS_CONFORMANCE", ROOT.parent / "shared" / "conformance"))
FILES = sorted(PLACE.glob("*.jsonl*")) if PLACE.is_dir() else [PLACE] if PLACE.exists() else []
EVERY = int(os.environ.get("KPS_CONFORMANCE_EVERY", "4"))

pytestmark = pytest.mark.skipif(not FILES, reason=f"no conformance cases in {PLACE}; KPS_CONFORMANCE names them")


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_every_field_of_every_case_agrees(file: Path) -> None:
    lines = [line for position, line in enumerate(read_lines(file)) if position % EVERY == 0]
    families = report(check(parse_case(line, number)) for number, line in lines)

    assert families
    wrong = {name: family.first_differences for name, family in families.items() if family.cases != family.agreements}
    assert not wrong
