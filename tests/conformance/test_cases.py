"""Every case that the real kube-scheduler decided, decided again here: all fields must agree.

The cases of this folder always run. `KPS_CONFORMANCE` names a further file, or a folder of `*.jsonl.gz`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.files.conformance_files import read_lines
from kube_policy_scheduler.tooling.conformance import RECORDED, check, parse_case, report

BETTER: dict[str, tuple[str, set[str]]] = {
    "volumes-s1-0005": (
        "kube-scheduler counts a volume that is attached there already twice for its own pod",
        {f"filters/node-02/{key}" for key in ("code", "plugin", "reasons")} | {"scores/node-02", "hosts"},
    ),
    "constraints-s1-0086": (
        "kube-scheduler 1.36.2 gives a request two devices with one value of its `distinctAttribute`",
        {"scores/node-0/DynamicResources", "scores/node-0/total", "hosts", "allocations/node-1"}
        | {"writes/calls", "writes/host"},
    ),
    "partitionable-s1-0074": (
        "to kube-scheduler 1.36, a broken pool with counters of node-0 is one of node-1, too",
        {"filters/node-1/code", "filters/node-1/reasons"},
    ),
    "partitionable-s1-0076": (
        "to kube-scheduler 1.36, a broken pool with counters of node-1 is one of node-2, too",
        {"filters/node-2/reasons"},
    ),
}
"""Cases of 1.36 by id in which this scheduler is to decide otherwise: why, and all fields in which it does. For people,
`deploy/MIGRATION.md` lists these differences."""
OWN = Path(__file__).parent
MORE = os.environ.get("KPS_CONFORMANCE")
PARTS = 4
"""Of each file, so that several workers share it."""


def files() -> list[Path]:
    found = sorted(OWN.glob("*.jsonl.gz"))
    if MORE:
        extra = Path(MORE)
        found += sorted(extra.glob("*.jsonl*")) if extra.is_dir() else [extra]
    return found


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("file", files(), ids=lambda file: file.name)
def test_every_field_of_every_case_agrees(file: Path, part: int) -> None:
    lines = [line for position, line in enumerate(read_lines(file)) if position % PARTS == part]
    cases = [parse_case(line, number) for number, line in lines]
    better = {case.id for case in cases if case.id in BETTER and case.rules == RECORDED}
    results = [check(case) for case in cases]
    families = report(result for result in results if result.id not in better)

    assert families
    wrong = {name: family.first_differences for name, family in families.items() if family.cases != family.agreements}
    assert not wrong
    for result in results:
        if result.id in better:
            why, fields = BETTER[result.id]
            assert {difference.path for difference in result.differences} == fields, why
