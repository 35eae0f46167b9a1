"""A little of `python -m tests.fuzz` in every test run, and that it would find what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import __main__ as fuzz
from tests.fuzz.examination import Wrong, examine
from tests.fuzz.findings import Findings
from tests.fuzz.sensible import sensible


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sensible())
def test_policies_that_mean_something_are_answered_at_every_stage(text: str) -> None:
    examine(text)


def test_policies_of_this_repository_are_answered_at_every_stage() -> None:
    texts = fuzz.corpus()
    assert len(texts) > 100
    for text in texts:
        examine(text)


def test_a_finding_is_reported_once_and_made_small() -> None:
    def picky(text: str) -> None:
        if "x" in text and "y" in text:
            raise Wrong("x and y")

    findings = Findings(picky)
    for text in ("abc", "a x b y c " * 9, "y x"):
        findings.look_at(text)
    (finding,) = findings.found.values()
    assert findings.examined == 3
    assert sorted(findings.smaller(finding, seconds=10).text) == ["x", "y"]


def test_a_run_says_its_seed_and_ends_with_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--minutes", "0.02", "--only", "random", "--seed", "7"])
    assert fuzz.main() == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "seed 7"
    assert shown[-1] == "0 findings"
