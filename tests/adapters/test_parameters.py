"""Parameters of requests, and answers of lines that have an end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kube_policy_scheduler.adapters.http import parameters


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ({"pod": "", "node": "", "outcome": ""}, 100)),
        ("pod=shop/web&outcome=bound&limit=7", ({"pod": "shop/web", "node": "", "outcome": "bound"}, 7)),
        ("limit=0", ({"pod": "", "node": "", "outcome": ""}, 0)),
    ],
)
def test_what_is_asked_for(query: str, wanted: tuple[dict[str, str], int]) -> None:
    request = make_mocked_request("GET", f"/debug/decisions?{query}")
    assert parameters.selection(request, ("pod", "node"), outcomes=("bound", "failed")) == wanted


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("pods=web", "unknown parameter pods; the parameters are: pod, node, outcome, limit"),
        (f"{'x' * 99}=1", f"unknown parameter {'x' * 40}; the parameters are: pod, node, outcome, limit"),
        ("outcome=lost", "expected outcome to be one of bound, failed, got lost"),
        ("limit=many", "expected limit to be a number such as 100, got many"),
        ("limit=-1", "expected limit to be a number such as 100, got -1"),
        ("limit=99999999", "expected limit to be a number such as 100, got 99999999"),
        ("limit=%D9%A3", "expected limit to be a number such as 100, got ٣"),
    ],
)
def test_what_cannot_be_asked_for_is_said(query: str, why: str) -> None:
    request = make_mocked_request("GET", f"/debug/decisions?{query}")
    with pytest.raises(web.HTTPBadRequest) as caught:
        parameters.selection(request, ("pod", "node"), outcomes=("bound", "failed"))
    assert caught.value.text == f"{why}\n"


def joined(newest_first: Iterator[bytes]) -> tuple[bytes, int]:
    """Return the answer, and after how many steps it is there."""
    steps, lines = 0, parameters.last_lines(newest_first)
    while True:
        try:
            next(lines)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def test_lines_come_oldest_first_and_no_more_than_fit_an_answer() -> None:
    assert joined(iter((b"3\n", b"2\n", b"1\n"))) == (b"1\n2\n3\n", 3)
    answer, _ = joined(bytes(1 << 20) for _ in range(64))
    assert len(answer) == 16 << 20
