"""What a reflector is doing follows from what is known of its view, whatever happens in whatever order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.changes import Phase
from kube_policy_scheduler.adapters.kube.view_state import OPEN, TABLE, Step, ViewState

Happening: TypeAlias = tuple[object, ...]

VERSIONS = st.integers(0, 12)
AGES = st.sampled_from([0.0, 0.5, 3.0, math.inf])
HAPPENINGS: st.SearchStrategy[Happening] = st.one_of(
    st.tuples(st.sampled_from(Step), AGES),
    st.tuples(st.just("reached"), VERSIONS),
    st.tuples(st.just("answered"), VERSIONS, AGES),
    st.tuples(st.just("believe")),
    st.tuples(st.just("require"), AGES),
    st.tuples(st.just("promise"), AGES, st.none() | VERSIONS),
)


def told(happenings: Sequence[Happening]) -> tuple[ViewState, list[Phase]]:
    """Let it all happen, a second apart; what cannot happen in a phase does not. Return the state and what was told."""
    phases: list[Phase] = []
    state = ViewState(lambda: phases.append(state.phase))
    position = 0
    for second, (what, *more) in enumerate(happenings, 1):
        now = float(second)
        match what, *more:
            case Step() as step, float(age):
                if (state.phase, step) in TABLE:
                    state.take(step, now, known=now - age if age < math.inf else None, position=position)
            case "reached", int(version):
                position = version
                state.reached(version, now)
            case "answered", int(version), float(age):
                state.answered(now - age, version, position=position, now=now)
            case ("believe",):
                state.believe(now)
            case "require", float(age):
                state.require(now - age, now)
            case "promise", float(age), version:
                assert version is None or isinstance(version, int)
                state.promise(now - age, now, version=version, position=position)
        check(state)
    return state, phases


def check(state: ViewState) -> None:
    recency = state.recency
    if state.phase in OPEN:
        assert (state.phase is Phase.WATCHING) == (recency.as_of >= recency.required)
    assert recency.target is None or recency.asked >= recency.required, "an answer that says too little is none"
    assert (state.late_since is None) == (state.phase is Phase.WATCHING or state.status.since is None)


@given(st.lists(HAPPENINGS, max_size=30))
def test_an_open_watch_is_watching_exactly_while_the_view_is_as_new_as_it_must_be(
    happenings: list[Happening],
) -> None:
    state, phases = told(happenings)
    assert state.losses <= len(phases)


@pytest.mark.parametrize(
    "how",
    [
        [("reached", 9)],
        [("answered", 5, 0.0)],
        [("answered", 9, 0.0), ("reached", 9)],
        [("answered", 9, 0.0), ("believe",)],
        [("promise", 0.0, 5)],
        [("answered", 9, 0.0), ("promise", 0.0, 5)],
        [("promise", 0.0, 9), ("answered", 11, 0.5), ("reached", 9)],
    ],
)
def test_each_way_to_prove_a_view_ends_catching_up(how: list[Happening]) -> None:
    catching_up = [(Step.BEGIN, math.inf), (Step.LIST, math.inf), (Step.LISTED, 3.0), ("reached", 5)]
    catching_up += [("promise", 0.0, 7), (Step.OPEN, math.inf)]
    state, phases = told(catching_up)
    assert state.phase is Phase.CATCHING_UP
    if how == [("reached", 9)]:
        state, phases = told([*catching_up, *how])
    else:
        state, phases = told([*catching_up[:-2], ("require", 0.0), (Step.OPEN, math.inf), *how])
    assert state.phase is Phase.WATCHING
    assert phases[-2:] == [Phase.CATCHING_UP, Phase.WATCHING]


def test_what_is_not_in_the_table_cannot_happen() -> None:
    state = ViewState()
    state.take(Step.BEGIN, 1.0)
    with pytest.raises(ValueError, match="a reflector that is starting cannot open"):
        state.take(Step.OPEN, 2.0)


def test_from_each_phase_a_way_leads_to_a_current_view() -> None:
    leads = {phase: {TABLE[phase, step] for step in Step if (phase, step) in TABLE} for phase in Phase}
    for phase in Phase:
        seen, front = set[Phase](), {phase}
        while front:
            seen |= front
            front = set[Phase]().union(*(leads[each] for each in front)) - seen
        assert seen & OPEN, phase


def test_a_loss_is_counted_once() -> None:
    begun = [(Step.BEGIN, math.inf), (Step.LIST, math.inf), (Step.LISTED, 0.0), (Step.OPEN, math.inf)]
    assert told(begun)[0].losses == 0
    assert told([*begun, (Step.CLOSE, 0.0), (Step.CONNECT, math.inf), (Step.OPEN, math.inf)])[0].losses == 0
    assert told([*begun, ("require", 0.0), (Step.CLOSE, math.inf), (Step.OPEN, math.inf)])[0].losses == 1
    assert told([*begun, (Step.FAIL, math.inf), ("require", 0.0), (Step.CONNECT, math.inf)])[0].losses == 1
