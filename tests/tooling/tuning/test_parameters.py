"""Numbers that policies declare for tuning, and the policies with other numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.tooling.tuning.parameters import Declared, declared_in, with_values

POLICY = """\
let spare = 20% from 5% to 50%   # kept free
let w = 2 from 0.5 to 8
let tilt = -1 from -5 to 0
let least = 2Gi
    from 1Gi to 64Gi
let unused = 1 from 0 to 2
let mixed = 500m from 0.1 to 1
let fixed = 3
filter node.used_fraction.cpu <= 1 - spare and node.free.mem > least
score w * least_allocated() + tilt * fixed * count(p in node.pods) + mixed
"""


def declared(text: str) -> Declared:
    checked = check_sources([Source("a.policy", text)], environment())
    return declared_in(checked.policies)


def test_numbers_with_a_range_are_found_with_their_units() -> None:
    found = declared(POLICY)

    shown = [(each.name, each.today, each.low, each.high, each.unit, each.logarithmic) for each in found.parameters]
    assert shown == [
        ("spare", 20, 5, 50, "%", True),
        ("w", 2, 0.5, 8, "", True),
        ("tilt", -1, -5, 0, "", False),
        ("least", 2, 1, 64, "Gi", True),
    ]
    assert (found.unused, found.unlike) == (("unused",), ("mixed",))


def test_other_numbers_change_nothing_else_of_the_text() -> None:
    found = declared(POLICY)
    (made,) = with_values([Source("a.policy", POLICY)], found.parameters, {"spare": 7.5, "tilt": -0.25, "least": 2})

    assert made.text == POLICY.replace("= 20%", "= 7.5%").replace("= -1 ", "= -0.25 ")
    assert not check_sources([made], environment()).failed


def test_todays_numbers_give_the_same_source() -> None:
    source = Source("a.policy", POLICY)
    assert with_values([source], declared(POLICY).parameters, {"w": 2})[0] is source


@given(st.floats(0.5, 8))
def test_a_rounded_number_is_inside_its_range_and_is_read_as_it_is(value: float) -> None:
    w = next(each for each in declared(POLICY).parameters if each.name == "w")
    rounded = w.rounded(value)

    assert w.low <= rounded <= w.high
    assert rounded == pytest.approx(value, rel=0.06)
    (made,) = with_values([Source("a.policy", POLICY)], [w], {"w": rounded})
    again = next(each for each in declared(made.text).parameters if each.name == "w")
    assert again.today == rounded


@pytest.mark.parametrize(("value", "end"), [(0.5, 0.5), (0.51, 0.5), (2, None), (4, None), (7.9, 8.0), (8, 8.0)])
def test_a_number_at_an_end_of_its_range_is_seen(value: float, end: float | None) -> None:
    w = next(each for each in declared(POLICY).parameters if each.name == "w")
    assert w.bound(value) == end


def test_a_declared_number_at_an_end_may_stay_there() -> None:
    (w,) = declared("let w = 8 from 0.5 to 8\nscore w * least_allocated()").parameters
    assert w.bound(8) is None
