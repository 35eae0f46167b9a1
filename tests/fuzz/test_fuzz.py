"""A short run of `python -m tests.fuzz`, and that it finds planted errors."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import __main__ as fuzz
from tests.fuzz.examination import Wrong, examine
from tests.fuzz.findings import Findings
from tests.fuzz.followed import FOLLOWED
from tests.fuzz.mutation import mutated
from tests.fuzz.sensible import sensible
from tests.fuzz.targets import policy_texts, targets


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(sensible())
def test_policies_that_mean_something_are_answered_at_every_stage(text: str) -> None:
    examine(text)


@pytest.mark.long
def test_policies_of_this_repository_are_answered_at_every_stage() -> None:
    texts = policy_texts()
    assert len(texts) > 100
    for text in texts:
        examine(text)


@pytest.mark.parametrize("name", [name for name in targets() if name != "policies"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=3, deadline=None)
def test_what_strangers_write_is_understood_or_refused(name: str, seed: int) -> None:
    target, rng = targets()[name], Random(seed)
    seeds = target.seeds()
    assert len(seeds) > 5
    for _ in range(20):
        text = rng.choice(seeds)
        target.examine(text)
        target.examine(mutated(text, seeds, rng)[: target.longest])


def test_every_target_is_followed() -> None:
    assert FOLLOWED.keys() == targets().keys()


def test_a_finding_is_reported_once_and_made_small() -> None:
    def picky(text: bytes) -> None:
        if b"x" in text and b"y" in text:
            raise Wrong("x and y")

    findings = Findings(picky)
    assert [findings.look_at(text) for text in (b"abc", b"a x b y c " * 9, b"y x")] == [True, False, False]
    (finding,) = findings.found.values()
    assert findings.examined == 3
    assert sorted(findings.smaller(finding, seconds=10).data) == sorted(b"xy")


@pytest.mark.parametrize("chosen", [["policies"], ["quantities", "headers"]])
def test_a_run_says_its_seed_and_ends_with_its_time(
    chosen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", *chosen, "--minutes", "0.02", "--only", "random", "--seed", "7"])
    assert fuzz.main() == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "seed 7"
    assert [line.partition(":")[0] for line in shown[1:-1]] == chosen
    assert shown[-1] == "0 findings"
