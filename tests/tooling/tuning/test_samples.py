"""How traces are split: by time, for three purposes; what runs at the beginning of a window."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from kube_policy_scheduler.tooling.tuning.samples import Purpose, TooShortError, by_seed, by_time

POD = objects.Pod(metadata=objects.ObjectMeta(name="pod"))


def scenario(count: int, *, lasts: float | None) -> Scenario:
    return Scenario((), [Arrival(10.0 * at, f"p{at}", POD, lasts) for at in range(count)], starts_at=1000.0)


def test_windows_follow_each_other_and_have_all_seeds() -> None:
    found = by_time(scenario(100, lasts=1.0), [3, 4])

    assert [each.purpose for each in found[::2]] == ([Purpose.SEARCH] * 4 + [Purpose.JUDGE] * 4 + [Purpose.CONFIRM] * 2)
    assert {each.seed for each in found} == {3, 4}
    assert [each.scenario.starts_at for each in found[::2]] == [1000.0 + 100 * number for number in range(10)]
    names = [arrival.name for each in found[::2] for arrival in each.scenario.arrivals]
    assert names == [f"p{at}" for at in range(100)]


def test_a_window_begins_with_the_pods_that_run_still() -> None:
    window = by_time(scenario(100, lasts=25.0), [0])[1].scenario

    assert [(each.name, each.at, each.lasts) for each in window.arrivals[:4]] == [
        ("p8", 0.0, 5.0), ("p9", 0.0, 15.0), ("p10", 0.0, 25.0), ("p11", 10.0, 25.0),
    ]  # fmt: skip


def test_pods_that_never_leave_are_in_every_later_window() -> None:
    assert [len(each.scenario.arrivals) for each in by_time(scenario(100, lasts=None), [0])] == list(range(10, 101, 10))


def test_too_few_pods_cannot_be_split() -> None:
    with pytest.raises(TooShortError, match="19 pods arrive, at least 20"):
        by_time(scenario(19, lasts=None), [0])


def test_no_seed_of_an_experiment_serves_two_purposes() -> None:
    drawn: list[int] = []

    def made(seed: int) -> Scenario:
        drawn.append(seed)
        return scenario(1, lasts=None)

    found = by_seed(made, range(5, 8))
    assert drawn == list(range(5, 17))
    assert [each.purpose for each in found] == [Purpose.SEARCH] * 3 + [Purpose.JUDGE] * 6 + [Purpose.CONFIRM] * 3
