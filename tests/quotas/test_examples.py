"""The model gives what was worked out by hand."""

from __future__ import annotations

import pytest

from tests.quotas.examples import EXAMPLES
from tests.quotas.model import Model


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_model_gives_what_was_worked_out_by_hand(name: str) -> None:
    example = EXAMPLES[name]
    outcome = Model(example.case).run()
    assert {queue: outcome.last.used(queue, example.of) for queue in example.used} == dict(example.used)
    assert dict(outcome.evicted) == dict(example.evicted)
    assert outcome.pending == example.pending
