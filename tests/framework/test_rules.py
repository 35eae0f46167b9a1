"""Kubernetes' rules, one sentence per case, in `rules/*.yaml`, with the results of kube-scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.tooling.conformance import check, parse_case
from tests.framework.rule_cases import rule_cases

CASES = rule_cases()


@pytest.mark.parametrize("line", [line for _, line in CASES], ids=[name for name, _ in CASES])
def test_rule(line: dict[str, Any]) -> None:
    assert line["want"], "a case that wants nothing cannot fail"
    found = check(parse_case(line, 1)).differences

    assert not found, "\n".join(f"{d.path}: want {d.want!r}, got {d.got!r}" for d in found)
