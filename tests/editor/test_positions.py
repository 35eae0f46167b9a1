from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.editor.positions import Encoding, Lines

TEXTS = st.text(st.sampled_from("ab \t\n\r\u2028é𝔸"), max_size=60)


@given(TEXTS, st.sampled_from(Encoding))
def test_every_offset_survives_a_way_through_the_protocol(text: str, encoding: Encoding) -> None:
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n" or offset == 0:
            assert lines.offset(*lines.position(offset)) == offset


@given(TEXTS, st.sampled_from(Encoding))
def test_lines_end_where_the_protocol_says(text: str, encoding: Encoding) -> None:
    lines = Lines(text, encoding)
    assert [lines.line(number) for number in range(len(lines))] == re.split(r"\r\n|\r|\n", text)


@given(TEXTS, st.integers(-2, 70), st.integers(-2, 70), st.sampled_from(Encoding))
def test_places_that_do_not_exist_are_the_nearest_before(text: str, line: int, column: int, encoding: Encoding) -> None:
    lines = Lines(text, encoding)
    there = lines.position(lines.offset(line, column))
    assert there <= (max(0, line), max(0, column)) or line < 0


@pytest.mark.parametrize(
    ("encoding", "column"), [(Encoding.UTF16, 4), (Encoding.UTF8, 7), (Encoding.UTF32, 3)], ids=lambda each: str(each)
)
def test_columns_are_code_units(encoding: Encoding, column: int) -> None:
    assert Lines("x\né𝔸b\r\n", encoding).position(5) == (1, column)
