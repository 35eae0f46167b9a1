"""How far the inputs of a model are from those of its training."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.lang.model_card import input_card
from kube_policy_scheduler.tooling.models.drift import HALF_LIFE_SECONDS, InputDrift, stability_index

DAY = 86_400.0
RANDOM = Random(5)
TRAINED = input_card("load", [RANDOM.random() for _ in range(5000)])
SHARES = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3)


def drifted(*days: tuple[float, float, float], a_day: int = 500) -> float | None:
    """The index after days with values between two numbers, each from a moment on."""
    found, random = InputDrift(TRAINED), Random(1)
    for begins, low, high in days:
        for number in range(a_day + 1):
            found.add(random.uniform(low, high), DAY * (begins + number / a_day))
    return found.index()


def test_the_index_of_two_distributions() -> None:
    assert stability_index([0.5, 0.5], [10, 10]) == 0.0
    # (0.8 - 0.5) ln(1.6) + (0.2 - 0.5) ln(0.4)
    assert stability_index([0.5, 0.5], [8, 2]) == pytest.approx(0.4159, abs=1e-4)


@given(SHARES, SHARES)
def test_the_index_is_never_negative_and_symmetric(one: list[float], other: list[float]) -> None:
    one, other = [each / sum(one) for each in one], [each / sum(other) for each in other]
    assert stability_index(one, other) >= 0
    assert stability_index(one, other) == pytest.approx(stability_index(other, one), abs=1e-9)


def test_values_as_in_the_training_are_no_drift_and_others_are() -> None:
    same, narrow, outside = (drifted((0, *values)) for values in ((0, 1), (0, 0.6), (0.05, 1.2)))
    assert same is not None
    assert narrow is not None
    assert outside is not None
    assert same < 0.1
    assert narrow > 0.25
    assert outside > 0.25


def test_it_is_not_known_for_the_first_day_nor_of_few_values() -> None:
    found = InputDrift(TRAINED)
    for number in range(1000):
        found.add(5.0, 80.0 * number)
    assert found.index() is None
    found.add(5.0, DAY)
    assert found.index() is not None
    assert drifted((0, 5, 6), a_day=100) is None


def test_what_is_long_ago_is_forgotten() -> None:
    assert HALF_LIFE_SECONDS == DAY
    later = [drifted((0, 5, 6), *((day, 0, 1) for day in range(1, days))) for days in (2, 5, 9)]
    assert later == sorted(later, reverse=True, key=lambda each: each or 0)
    assert later[-1] is not None
    assert later[-1] < 0.1


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    found = InputDrift(TRAINED)
    for number in range(500):
        found.add(0.5, DAY * number / 499)
    before = found.index()
    found.add(0.5, 0.0)
    assert found.index() == pytest.approx(before, abs=0.01)
