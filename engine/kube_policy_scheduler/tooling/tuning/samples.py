"""The parts of a trace on which numbers are found, judged and confirmed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from kube_policy_scheduler.tooling.simulation.scenario import Arrival, Scenario
from kube_policy_scheduler.wording import plural

WINDOWS = 10
"""Parts of a trace with times: by the number of arrivals, in the order of time."""
_LAST_OF_SEARCH, _LAST_OF_JUDGING = 4, 8
_EXPERIMENTS_JUDGED = 2
"""With an experiment, seeds that judge for each seed that searches."""
MIN_ARRIVALS = 2 * WINDOWS


class Purpose(Enum):
    """What a part of a trace is for."""

    SEARCH = "search"
    JUDGE = "judge"
    CONFIRM = "confirm"
    """Not looked at before numbers were chosen and judged."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One simulation: a part of a trace with a seed. All policies get the same."""

    purpose: Purpose
    name: str
    scenario: Scenario
    seed: int


class TooShortError(ValueError):
    """The trace has too few pods to be split."""


def by_time(scenario: Scenario, seeds: Sequence[int]) -> list[Sample]:
    """Return the windows of a trace, each with all seeds: the first for the search, the last to confirm.

    A window begins with the pods that came before it and would run still, so that its cluster is as full as it was.

    Raises:
        TooShortError: there are too few arrivals.
    """
    arrivals = scenario.arrivals
    if len(arrivals) < MIN_ARRIVALS:
        raise TooShortError(f"{plural(len(arrivals), 'pod')} arrive, at least {MIN_ARRIVALS} are needed to split them")
    edges = [len(arrivals) * number // WINDOWS for number in range(WINDOWS + 1)]
    found = []
    for number, (first, last) in enumerate(pairwise(edges), start=1):
        purpose = (
            Purpose.SEARCH if number <= _LAST_OF_SEARCH
            else Purpose.JUDGE if number <= _LAST_OF_JUDGING else Purpose.CONFIRM
        )  # fmt: skip
        window = replace(scenario, arrivals=_window(arrivals, first, last))
        start = arrivals[first].at
        window = replace(window, starts_at=scenario.starts_at + start, node_events=scenario.node_events.after(start))
        found += [Sample(purpose, f"window {number}, seed {seed}", window, seed) for seed in seeds]
    return found


def _window(arrivals: Sequence[Arrival], first: int, last: int) -> list[Arrival]:
    start = arrivals[first].at
    before = [
        replace(each, at=0.0, lasts=each.lasts - (start - each.at) if each.lasts is not None else None)
        for each in arrivals[:first]
        if each.lasts is None or each.at + each.lasts > start
    ]
    return [*before, *(replace(each, at=each.at - start) for each in arrivals[first:last])]


def by_seed(made: Callable[[int], Scenario], seeds: Sequence[int]) -> list[Sample]:
    """Return experiments, which have no time: each seed draws another list; the first for the search."""
    count = len(seeds)
    first = seeds[0]
    found = []
    for number in range((2 + _EXPERIMENTS_JUDGED) * count):
        purpose = (
            Purpose.SEARCH if number < count
            else Purpose.JUDGE if number < (1 + _EXPERIMENTS_JUDGED) * count else Purpose.CONFIRM
        )  # fmt: skip
        found.append(Sample(purpose, f"seed {first + number}", made(first + number), first + number))
    return found
