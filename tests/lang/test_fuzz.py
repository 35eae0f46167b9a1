"""A short run of the fuzzer, always the same; `python -m tests.lang.fuzz` goes on."""

from __future__ import annotations

import time
from itertools import islice

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from tests.lang.fuzz import SECONDS_PER_CASE, cases, run


def test_any_text_gives_diagnostics_or_a_policy_that_decides() -> None:
    for text in islice(cases(20_261_121), 900):
        started = time.process_time()
        run(text)
        assert time.process_time() - started < 20 * SECONDS_PER_CASE, text


def test_the_fuzzer_reaches_policies_that_decide() -> None:
    texts = list(islice(cases(3), 300))

    assert sum(load([Source("f.policy", text)]).policy_set is not None for text in texts) > 15
