"""Which numbers are chosen, and what refuses them."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.tooling.tuning.judging import Comparison, Trial, chosen, compared, refusals
from kube_policy_scheduler.tooling.tuning.parameters import Parameter
from kube_policy_scheduler.tooling.tuning.samples import Purpose

W = Parameter("w", Span(Source("a.policy", "let w = 2"), 8, 9), "", 2.0, 0.5, 8.0)


def runs(**values: list[float]) -> list[dict[str, float]]:
    return [dict(zip(values, each, strict=True)) for each in zip(*values.values(), strict=True)]


def judged(today: list[dict[str, float]], tuned: list[dict[str, float]], *, w: float = 3.0) -> list[str]:
    found: list[Comparison] = compared(today, tuned, Purpose.JUDGE)
    return refusals("wait", found, [W], {"w": w})


def test_a_gain_in_each_pair_is_accepted_though_the_pairs_differ_much() -> None:
    assert judged(runs(wait=[10.0, 100.0, 1000.0]), runs(wait=[9.0, 99.0, 999.0])) == []


def test_a_gain_within_two_standard_errors_is_refused() -> None:
    (why,) = judged(runs(wait=[10.0, 12.0, 11.0, 9.0]), runs(wait=[8.0, 13.0, 10.5, 8.9]))
    assert "within noise" in why


def test_a_single_pair_is_never_enough() -> None:
    (why,) = judged(runs(wait=[10.0]), runs(wait=[1.0]))
    assert "within noise" in why


def test_another_measure_must_not_become_worse_by_two_per_cent() -> None:
    today = runs(wait=[10.0, 11.0, 12.0], nodes=[0.5, 0.5, 0.5])
    assert judged(today, runs(wait=[9.0, 10.0, 11.0], nodes=[0.505, 0.505, 0.505])) == []
    (why,) = judged(today, runs(wait=[9.0, 10.0, 11.0], nodes=[0.52, 0.52, 0.52]))
    assert why == "`nodes` becomes worse by +2.000 % on the judging part"


def test_a_loss_on_the_confirming_part_refuses() -> None:
    found = compared(runs(wait=[10.0, 11.0]), runs(wait=[9.0, 10.0]), Purpose.JUDGE)
    found += compared(runs(wait=[10.0, 11.0]), runs(wait=[12.0, 13.0]), Purpose.CONFIRM)
    (why,) = refusals("wait", found, [W], {"w": 3.0})
    assert why == "`wait` becomes worse by +2.00 s on the confirming part"


def test_a_number_at_an_end_of_its_range_is_refused() -> None:
    (why,) = judged(runs(wait=[10.0, 11.0]), runs(wait=[9.0, 10.0]), w=8.0)
    assert why.startswith("`w` = 8 is at the end of its range")


def test_todays_numbers_are_no_finding() -> None:
    assert judged([], [], w=2.0) == ["no numbers were better than today's in the search"]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([(10, 10), (5, 5), (5, 5)], 2.5),  # equally good: the nearest to today's 2
        ([(10, 10), (5, 5), (4, 4.5)], 8.0),  # better by more than noise
        ([(10, 10), (6, 4), (4, 5.5)], 2.5),  # better only within noise
    ],
)
def test_the_numbers_nearest_to_todays_are_chosen_among_equals(
    costs: list[tuple[float, float]], expected: float
) -> None:
    trials = [Trial({"w": w}, each) for w, each in zip((2.0, 2.5, 8.0), costs, strict=True)]
    assert chosen(trials, [W]).values["w"] == expected
