"""The model and the scheduler give what was worked out by hand."""

from __future__ import annotations

import pytest

from tests.quotas.examples import EXAMPLES, Example
from tests.quotas.model import Model
from tests.quotas.product import run
from tests.quotas.trace import Trace


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_model_gives_what_was_worked_out_by_hand(name: str) -> None:
    _check(EXAMPLES[name], Model(EXAMPLES[name].case).run())


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_scheduler_gives_what_was_worked_out_by_hand(name: str) -> None:
    _check(EXAMPLES[name], run(EXAMPLES[name].case))


def _check(example: Example, outcome: Trace) -> None:
    assert {queue: outcome.last.used(queue, example.of) for queue in example.used} == dict(example.used)
    assert dict(outcome.evicted) == dict(example.evicted)
    assert outcome.pending == example.pending
