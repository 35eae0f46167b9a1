"""Laws of quotas with borrowing, on random cases."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.backfill.beside import BesideReservation
from kube_policy_scheduler.framework.plugin import SKIP
from kube_policy_scheduler.framework.preempt.victims import Budgets
from tests.quotas.accounts import Node, Pod, State
from tests.quotas.invariants import at_rest, violations
from tests.quotas.model import Case, Model
from tests.quotas.product import run
from tests.quotas.random_cases import random_case, varied_case
from tests.quotas.trace import Evicted, Trace
from tests.quotas.variations import Runs, differences

seeds = st.integers(0, 10**9)
RUNS: dict[str, Runs] = {"model": lambda case: Model(case).run(), "scheduler": run}


@given(seed=seeds)
def test_the_model_breaks_no_invariant(seed: int) -> None:
    case = random_case(seed)
    trace = Model(case).run()
    assert [*violations(case, trace), *at_rest(case, trace)] == []


TELLING = (91000329, 97000969)
"""Seeds of cases that few others are like: victims that may go only together with some that stay after all; workers
beyond the size of a gang that needs its only leader.
"""


@pytest.mark.parametrize("seed", [*range(16), *TELLING])
def test_the_scheduler_breaks_no_invariant(seed: int) -> None:
    """`make quotas` runs 10,000 of them, each with its own seed."""
    case = varied_case(seed)
    assert violations(case, run(case)) == []


@pytest.mark.parametrize(
    ("seed", "of", "what", "invariant"),
    [
        (91000099, BesideReservation, "pre_filter", "23 first is delayed"),
        (91000708, Budgets, "split", "22 budget"),
    ],
)
def test_the_judge_sees_who_is_delayed_and_who_is_not_spared(
    monkeypatch: pytest.MonkeyPatch, seed: int, of: type, what: str, invariant: str
) -> None:
    """The scheduler knows no reservations, or no budgets."""
    monkeypatch.setattr(of, what, lambda self, asked: SKIP if what == "pre_filter" else ([], list(asked)))
    case = varied_case(seed)
    assert invariant in {finding.invariant for finding in violations(case, run(case))}


@pytest.mark.parametrize(("victims", "seen"), [(("one",), []), (("one", "two"), ["7 not minimal"] * 2)])
def test_the_judge_sees_that_a_gang_more_goes_for_a_gang_than_needs_to(
    victims: tuple[str, ...], seen: list[str]
) -> None:
    """Also where nobody says which nodes the members were to have."""

    def gang(name: str, **facts: Any) -> list[Pod]:
        return [Pod(f"{name}-{at}", {"cpu": 1_000, "pods": 1}, gang=name, size=2, **facts) for at in range(2)]

    nodes = (Node("n", {"cpu": 4_000, "pods": 9}),)
    pods = (*gang("one", node="n"), *gang("two", node="n"), *gang("asks", priority=10))
    state = State((), nodes, {pod.name: pod for pod in pods})
    gone = tuple(pod.name for pod in pods if pod.gang in victims)
    trace = Trace([Evicted(0.0, "asks-0", gone, "", state, state.evicted(gone), 1)])
    assert [finding.invariant for finding in violations(Case(nodes, (), ()), trace)] == seen


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("who", RUNS)
def test_what_is_beside_changes_nothing(who: str, seed: int) -> None:
    """Pods that request nothing that is short, gangs that fit nowhere, and whether equal pods come at one moment."""
    assert list(differences(random_case(seed), RUNS[who], chance=Random(seed))) == []
