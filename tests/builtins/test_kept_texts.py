"""What functions make of the texts of nodes is kept: after any changes it is the same as made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import static_columns
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.static_columns import CodedColumn
from kube_policy_scheduler.lang.compiling.columns import KeptTable, by_value
from kube_policy_scheduler.lang.environment import Texts

VALUES = [None, "1", "2", "3", "x"]
changes = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5), st.sampled_from(VALUES)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.none()),
        st.tuples(st.just("ask"), st.sampled_from(["1", "2"]), st.none()),
    ),
    max_size=40,
)


def times(text: str, factor: str) -> float:
    return float(text) * float(factor) if text.isdigit() else float("nan")


@given(events=changes, most=st.sampled_from([4, 1000]), most_made=st.sampled_from([None, 1, 3]))
def test_kept_results_are_those_of_the_texts_as_they_are(
    events: list[tuple[str, Any, Any]], most: int, most_made: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_columns, "Journal", lambda: Journal(most=most))
        column, kept = CodedColumn[str](["1", "2"]), KeptTable(np.float64)
        for event in events:
            size = len(column.codes)
            match event:
                case ("write", row, value):
                    column.write(min(row, size), value)
                case ("remove", row, _) if row < size:
                    column.remove(row)
                case ("ask", factor, _):
                    texts = Texts(column.codes, column.values, column.index, column.changes)

                    def made(column: Texts, factor: str = factor) -> Any:
                        return by_value(column, lambda text: times(text, factor), absent=-1.0, dtype=np.float64)

                    if most_made is not None:
                        kept.make(texts, made, others=[factor], most=most_made)
                    found, expected = kept.of(texts, made, others=[factor]), made(texts)
                    assert np.array_equal(found, expected, equal_nan=True)


def test_only_new_texts_are_looked_at() -> None:
    column, kept, asked = CodedColumn[str](["1", "2", "3"]), KeptTable(np.float64), list[str]()

    def ask() -> list[float]:
        def noted(text: str) -> float:
            asked.append(text)
            return float(text)

        texts = Texts(column.codes, column.values, column.index, column.changes)
        made = kept.of(texts, lambda column: by_value(column, noted, absent=np.nan, dtype=np.float64))
        found: list[float] = made.tolist()
        return found

    assert ask() == [1, 2, 3]
    asked.clear()
    column.write(1, "5")
    column.write(3, "6")
    assert ask() == [1, 5, 3, 6]
    assert sorted(asked) == ["5", "6"]
