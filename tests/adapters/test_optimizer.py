"""The search: what it proposes, what it keeps, and going on after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.compute.optimizer import Optimizer, OptimizerError, Range
from kube_policy_scheduler.adapters.process.parallel import workers

RANGES = [Range("w", 0.1, 10.0, True), Range("t", -1.0, 1.0, False)]
TODAY = {"w": 5.0, "t": 0.0}


def optimizer(file: Path | None = None, *, fingerprint: str = "a") -> Optimizer:
    return Optimizer(RANGES, seed=1, rounded=lambda name, value: round(value, 2), file=file, fingerprint=fingerprint)


def search(made: Optimizer, batches: int) -> list[dict[str, float]]:
    for _ in range(batches):
        first = TODAY if not made.done() else None
        for number, values in enumerate(made.propose(4, first=first)):
            made.report(number, values, [(values["w"] - 1) ** 2 + abs(values["t"] - 0.5)])
    return [dict(each.values) for each in made.done()]


def test_todays_numbers_come_first_and_all_are_inside_their_ranges() -> None:
    tried = search(optimizer(), 5)

    assert len(tried) == 20
    assert tried[0] == TODAY
    assert all(0.1 <= each["w"] <= 10 and -1 <= each["t"] <= 1 for each in tried)


def test_it_comes_near_the_best() -> None:
    made = optimizer()
    search(made, 25)
    assert min(each.costs[0] for each in made.done()) < 0.2


def test_a_search_that_goes_on_makes_the_trials_that_it_would_have_made(tmp_path: Path) -> None:
    whole = search(optimizer(), 4)
    search(optimizer(tmp_path / "record"), 2)
    assert search(optimizer(tmp_path / "record"), 2)[:12] == whole[:12]


def test_proposals_without_costs_are_not_kept(tmp_path: Path) -> None:
    made = optimizer(tmp_path / "record")
    search(made, 1)
    made.propose(4)  # stopped here
    assert len(optimizer(tmp_path / "record").done()) == 4


def test_a_record_of_something_else_is_refused(tmp_path: Path) -> None:
    optimizer(tmp_path / "record")
    with pytest.raises(OptimizerError, match="other policies, traces or options"):
        optimizer(tmp_path / "record", fingerprint="b")


@pytest.mark.parametrize(
    "text", ["no json\n", "[1]\n", '{"op_code": 99}\n', '{"op_code": 0}\n', "\x00" * 100, "[" * 5000]
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    with pytest.raises(OptimizerError, match="is not a record of a search"):
        optimizer(tmp_path / "record")
    assert (tmp_path / "record").read_text() == text


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_workers_give_results_in_the_order_of_the_arguments(jobs: int) -> None:
    with workers("processes", jobs=jobs) as run_all:
        assert list(run_all(abs, [-3, -1, 2])) == [3, 1, 2]
