"""Which taints a toleration matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.objects import Toleration
from kube_policy_scheduler.cluster.taints import TaintKey, tolerates

NUMBERS = st.integers(-(2**63), 2**63 - 1)


def compares(operator: str, limit: str, value: str) -> bool:
    toleration = Toleration(key="sla", operator=operator, value=limit, effect="NoSchedule")
    return tolerates(toleration, TaintKey("sla", value, "NoSchedule"))


@given(NUMBERS, NUMBERS)
def test_lt_and_gt_compare_the_value_of_the_taint_with_that_of_the_toleration(limit: int, value: int) -> None:
    assert compares("Lt", str(limit), str(value)) is (value < limit)
    assert compares("Gt", str(limit), str(value)) is (value > limit)


@pytest.mark.parametrize(
    "text", ["", "x", "+5", "05", "-0", "5.0", " 5", "5\n", "\u0665", "0x5", str(2**63), "9" * 1000]
)
@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_what_is_no_number_matches_nothing(operator: str, text: str) -> None:
    assert not compares(operator, "5", text)
    assert not compares(operator, text, "5")


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        (Toleration(operator="Gt", key="sla", value="5"), True),
        (Toleration(operator="Gt", key="other", value="5"), False),
        (Toleration(operator="Gt", key="sla", value="5", effect="NoExecute"), False),
        (Toleration(operator="Unknown", key="sla", value="6"), False),
    ],
)
def test_key_and_effect_must_match_too(toleration: Toleration, matches: bool) -> None:
    assert tolerates(toleration, TaintKey("sla", "6", "NoSchedule")) is matches
