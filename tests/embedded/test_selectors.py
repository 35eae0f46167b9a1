"""Label and field selectors: what they select, and invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.embedded import selectors
from kube_policy_scheduler.embedded.selectors import SelectorError

LABELS = {"app": "web", "tier": "front", "n": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier", True),
        ("app=db", False),
        ("app!=db", True),
        ("absent!=x", True),
        ("!absent", True),
        ("!app", False),
        ("app", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("absent notin (db)", True),
        ("empty=", True),
        ("empty in ()", True),
        ("absent=", False),
        ("n>4", True),
        ("n<5", False),
        ("app>4", False),
        ("example.com/a!=b", True),
    ],
)
def test_label_selectors_select(text: str, selected: bool) -> None:
    assert selectors.matches_labels(selectors.parse_labels(text), LABELS) is selected


@pytest.mark.parametrize("text", ["a b", "a in (b", "a in b", "=b", "a=b,", "a=b c", "!", "a>x", "-a", "a=-", "a=b=c"])
def test_what_is_not_a_label_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        selectors.parse_labels(text)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("name=a", True),
        ("name==a,node=", True),
        ("node!=", False),
        ("name!=a", False),
        (r"odd=x\,y\=z", True),
    ],
)
def test_field_selectors_select(text: str, selected: bool) -> None:
    test = selectors.compile_fields(selectors.parse_fields(text), {"name": 0, "node": 1, "odd": 2})
    assert (test is None or test(("a", "", "x,y=z"))) is selected


def test_a_field_that_cannot_be_selected_by_is_refused() -> None:
    with pytest.raises(SelectorError, match="field label not supported: other"):
        selectors.compile_fields(selectors.parse_fields("other=x"), {"name": 0})


def test_a_field_selector_needs_an_operator() -> None:
    with pytest.raises(SelectorError):
        selectors.parse_fields("name")


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y"])),
    st.sampled_from("abc"),
    st.sampled_from("xy"),
)
def test_in_and_notin_are_opposites(labels: dict[str, str], key: str, value: str) -> None:
    chosen = selectors.matches_labels(selectors.parse_labels(f"{key} in ({value})"), labels)
    left = selectors.matches_labels(selectors.parse_labels(f"{key} notin ({value})"), labels)
    assert chosen is not left


def test_selector_objects_select_and_none_selects_nothing() -> None:
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    compiled = selectors.from_object(selector)
    assert compiled is not None
    assert selectors.matches_labels(compiled, LABELS)
    assert selectors.from_object(None) is None
