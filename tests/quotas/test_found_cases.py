"""Cases that broke an invariant once, as small as they got. `make quotas` finds such."""

from __future__ import annotations

import pytest

from tests.quotas.accounts import Queue
from tests.quotas.evictions import Reclaim
from tests.quotas.examples import few_pods, node, pods, queue
from tests.quotas.invariants import at_rest, violations
from tests.quotas.model import Case
from tests.quotas.product import run

CASES: dict[str, Case] = {
    "who goes only because another one does stays with it, on whatever node that is": Case(
        (few_pods(node(7), 6), few_pods(node(4, name="n1"), 4)),
        (queue("a", cpus=2, lends=1), queue("b"), queue("c"), Queue("c1", "c", {"pods": 1})),
        (
            pods("own", 3, "c", 2),
            pods("high", 2, "b", 2, at=10, priority=10),
            pods("asks", 1, "c1", 3, at=10),
            pods("kept", 2, "a", 1.5, at=10, priority=5),
        ),
        Reclaim.FAIR,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_invariant_is_broken_again(name: str) -> None:
    case = CASES[name]
    trace = run(case)
    assert [*violations(case, trace), *at_rest(case, trace.last)] == []
