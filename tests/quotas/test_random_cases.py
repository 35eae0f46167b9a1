"""Laws of quotas that lend, on random cases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.invariants import at_rest, violations
from tests.quotas.model import Model
from tests.quotas.random_cases import random_case

seeds = st.integers(0, 10**9)


@given(seed=seeds)
def test_the_model_breaks_no_invariant(seed: int) -> None:
    case = random_case(seed)
    trace = Model(case).run()
    assert [*violations(case, trace), *at_rest(case, trace.last)] == []
