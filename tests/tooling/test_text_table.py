"""Tables in terminals of any width: every word stays whole and is there, and no line is wider than it must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.tooling.text_table import BOLD, Terminal

ROWS = [
    ("filter", "where", "alone", "first"),
    ('node.label.disk == "ssd"', "web.policy:12", "1200", "3"),
    ("NodeResourcesFit", "", "7", "7"),
]


def shown(width: int | None, rows: list[tuple[str, ...]] = ROWS, right_from: int = 2) -> list[str]:
    return list(Terminal(width=width).table(rows, right_from=right_from))


def test_a_pipe_gets_lines_as_wide_as_they_are() -> None:
    assert shown(None) == [
        "filter                    where          alone  first",
        'node.label.disk == "ssd"  web.policy:12   1200      3',
        "NodeResourcesFit                             7      7",
    ]


def test_texts_are_wrapped_between_words_where_that_is_enough() -> None:
    rows = [ROWS[0], ('node.label.disk == "ssd" and node.free.cpu > 2', *ROWS[1][1:]), ROWS[2]]
    assert shown(60, rows) == [
        "filter                           where          alone  first",
        'node.label.disk == "ssd" and     web.policy:12   1200      3',
        "  node.free.cpu > 2",
        "NodeResourcesFit                                    7      7",
    ]


def test_rows_become_records_where_columns_do_not_fit() -> None:
    assert shown(40) == [
        'node.label.disk == "ssd"',
        "    where: web.policy:12",
        "    alone: 1200",
        "    first: 3",
        "NodeResourcesFit",
        "    alone: 7",
        "    first: 7",
    ]


def test_an_empty_column_and_an_empty_head_are_left_out() -> None:
    assert shown(None, [("", "", ""), ("a", "", "1"), ("bc", "", "20")]) == ["a    1", "bc  20"]


def test_wide_letters_take_two_columns() -> None:
    assert shown(None, [("name", "n"), ("日本", "1"), ("e\u0301", "2")], 1) == ["name  n", "日本  1", "e\u0301     2"]


def test_a_style_is_of_a_whole_row_also_where_it_has_several_lines() -> None:
    lines = list(Terminal(colour=True, width=40).table(ROWS, right_from=2, styles={1: BOLD}))
    assert [line.startswith(BOLD) for line in lines] == [True] * 4 + [False] * 3


def test_a_text_behind_a_mark_is_wrapped_below_itself() -> None:
    text = "a text of several words that is longer than the line"
    assert list(Terminal(width=30).item("  ok  ", text)) == [
        "  ok  a text of several words",
        "      that is longer than the",
        "      line",
    ]


def test_a_text_after_a_wide_mark_starts_on_the_next_line_if_there_is_no_room() -> None:
    assert list(Terminal(width=30).item("  could not check  ", "the cluster is a recorded one")) == [
        "  could not check",
        "    the cluster is a recorded",
        "    one",
    ]


words = st.text("abc-_./äß漢", min_size=1, max_size=30)
cells = st.lists(words, max_size=6).map(" ".join)


@given(st.lists(st.tuples(words, cells, cells, words), min_size=1, max_size=6), st.integers(20, 120))
def test_no_word_is_lost_or_broken_at_any_width(rows: list[tuple[str, ...]], width: int) -> None:
    found = " ".join(shown(width, [("w", "x", "y", "z"), *rows], right_from=3)).split()
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert word in found
