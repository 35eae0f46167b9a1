"""Laws of quotas with borrowing, on random cases."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.invariants import at_rest, violations
from tests.quotas.model import Model
from tests.quotas.product import run
from tests.quotas.random_cases import random_case
from tests.quotas.variations import Runs, differences

seeds = st.integers(0, 10**9)
RUNS: dict[str, Runs] = {"model": lambda case: Model(case).run(), "scheduler": run}


@given(seed=seeds)
def test_the_model_breaks_no_invariant(seed: int) -> None:
    case = random_case(seed)
    trace = Model(case).run()
    assert [*violations(case, trace), *at_rest(case, trace.last, returned=trace.returned)] == []


@pytest.mark.parametrize("seed", range(12))
def test_the_scheduler_breaks_no_invariant(seed: int) -> None:
    """`make quotas` runs 10,000 of them, each with its own seed."""
    case = random_case(seed)
    assert violations(case, run(case)) == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("who", RUNS)
def test_what_is_beside_changes_nothing(who: str, seed: int) -> None:
    """Pods that request nothing that is short, gangs that fit nowhere, and whether equal pods come at one moment."""
    assert list(differences(random_case(seed), RUNS[who], chance=Random(seed))) == []
