"""Results of pure functions are remembered, and forgotten together: nothing of foreign texts stays for ever."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kube_policy_scheduler import remembered
from kube_policy_scheduler.cel.functions import parse_semver
from kube_policy_scheduler.cluster.label_syntax import is_label_value
from kube_policy_scheduler.lang.versions import version_key
from kube_policy_scheduler.quantities import exact_quantity, quantity


@pytest.mark.parametrize(
    "ask",
    [
        lambda number: is_label_value(f"v{number}"),
        lambda number: quantity.nanos(f"{number}m"),
        lambda number: exact_quantity.parse(f"{number}m"),
        lambda number: parse_semver(f"1.2.{number}"),
        lambda number: version_key(f"v1.2.{number}"),
    ],
)
def test_nothing_is_left_of_texts_that_were_asked_about_once(ask: object) -> None:
    assert callable(ask)
    remembered.forget()
    gc.collect()
    before = len(gc.get_objects())
    answers = [ask(number) for number in range(1000)]
    assert answers == [ask(number) for number in range(1000)]
    del answers
    remembered.forget()
    gc.collect()
    assert len(gc.get_objects()) - before < 50


@pytest.mark.parametrize(
    "make", [lambda text: parse_semver(f"1.2.3-{text}"), lambda text: version_key(f"1.2.3-{text}")]
)
def test_what_follows_from_a_very_long_text_is_not_remembered(make: object) -> None:
    assert callable(make)
    remembered.forget()
    tracemalloc.start()
    try:
        for number in range(50):
            make(f"1.2.3-{number}" + "a" * 20_000)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
