"""Charts: texts that can be read and found, the same bytes for the same values, nothing that breaks a page."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from kube_policy_scheduler.pages.charts import (
    Chart,
    bar_chart,
    can_draw,
    heat_map,
    histogram,
    line_chart,
    short_names,
)
from kube_policy_scheduler.pages.environment import coded, page, sentence
from tests.fakes.browser import Browser

CHARTS: dict[str, Callable[[], Chart]] = {
    "line": lambda: line_chart(
        "Utilisation <b>",
        {"cpu": ([0, 1, 2], [0.1, 0.9, 0.4]), "$x$": ([0, 2], [0.3, 0.2])},
        across="minutes",
        up="share",
    ),
    "steps": lambda: line_chart("Pending", {"pods": ([0, 1], [3, 4])}, across="minutes", up="pods", steps=True),
    "bar": lambda: bar_chart("Zones", ["eu-1", "eu-2"], {"old": [1, 2], "new": [3, -1]}, up="pods"),
    "histogram": lambda: histogram("CPU", {"old": [0.1, 0.2], "new": [0.5]}, across="share", up="nodes", within=(0, 1)),
    "empty histogram": lambda: histogram("None", {"old": []}, across="share", up="nodes"),
    "heat map": lambda: heat_map("Heat", [[0, 1], [0.5, 0.25]], rows="nodes", across="hours", up="share"),
}


@pytest.fixture(params=CHARTS)
def chart(request: pytest.FixtureRequest) -> Callable[[], Chart]:
    return CHARTS[request.param]


def test_the_same_values_give_the_same_bytes(chart: Callable[[], Chart]) -> None:
    assert chart().svg == chart().svg


def test_a_chart_is_well_formed_and_has_a_description(chart: Callable[[], Chart]) -> None:
    made = chart()
    root = ElementTree.fromstring(made.svg)
    assert root.get("role") == "img"
    assert (root.get("aria-label") or "").startswith(made.title)
    assert root.findtext("{http://www.w3.org/2000/svg}title") == made.title


def test_a_chart_holds_no_date_and_no_address(chart: Callable[[], Chart]) -> None:
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", chart().svg)
    assert "http" not in text
    assert "20" + "26-" not in text
    assert "<style" not in text, "a style element would hold for the whole page"


def test_names_and_labels_are_text() -> None:
    texts = "".join(ElementTree.fromstring(CHARTS["line"]().svg).itertext())
    for expected in ("minutes", "share", "cpu", "$x$"):
        assert expected in texts


def test_colours_follow_the_page() -> None:
    svg = CHARTS["line"]().svg
    assert "var(--series-1, #2563eb)" in svg
    assert "var(--series-2, #c2610c)" in svg
    assert "#0100" not in svg
    assert "#0101" not in svg
    assert "#0102" not in svg


def test_without_matplotlib_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not can_draw()
    assert CHARTS["bar"]().__html__() == (
        "<p>Not drawn: plots need matplotlib, which the extra `reports` installs.</p>"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_several_charts_share_a_page(browser: Browser, scheme: str) -> None:
    figures = "".join(f'<figure class="chart">{make().svg}</figure>' for make in CHARTS.values())
    html = page("base.html").replace("<main>", f"<main>{figures}").replace("<h1></h1>", "<h1>All charts</h1>")
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    with browser.open(html, width=375, scheme="dark" if scheme == "dark" else "light") as view:
        assert view.troubles == []
        assert view.requests == []
        assert view.overflow_px() == 0, "wide charts scroll by themselves"
        assert view.text("h1") == "All charts"
        ink = view.run(lambda shown: shown.eval_on_selector("svg text", "e => getComputedStyle(e).fill"))
        assert ink == ("rgb(231, 234, 240)" if scheme == "dark" else "rgb(26, 31, 41)")


@pytest.mark.parametrize(
    ("chart", "said"),
    [
        (
            lambda: line_chart("CPU", {"a": ([0], [21.5]), "b": ([0], [3])}, across="s", up="%"),
            "Only one moment was recorded, in %: a 21.5, b 3.",
        ),
        (lambda: line_chart("CPU", {"a": ([], [])}, across="s", up="%"), "No values."),
        (lambda: bar_chart("Nodes", ["x", "y"], {"old": [0, 0]}, up="nodes"), "No nodes: every value is 0."),
    ],
)
def test_what_would_be_an_empty_picture_is_a_sentence(chart: Callable[[], Chart], said: str) -> None:
    assert (chart().svg, chart().__html__()) == ("", f"<p>{said}</p>")


def test_counts_have_no_fractions_beside_their_axis() -> None:
    ticks = re.findall(r">\s*([\d.]+)\s*</text>", bar_chart("Nodes", ["x"], {"n": [2]}, up="nodes").svg)
    assert ticks
    assert not [tick for tick in ticks if "." in tick]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clause `a < b` of `c`", "clause <code>a &lt; b</code> of <code>c</code>"),
        ("<i>`<b>`</i>", "&lt;i&gt;<code>&lt;b&gt;</code>&lt;/i&gt;"),
        ("one ` alone", "one ` alone"),
    ],
)
def test_what_stands_in_backticks_is_shown_as_code_and_everything_is_escaped(text: str, shown: str) -> None:
    assert str(coded(text)) == shown


@pytest.mark.parametrize(("text", "begins"), [("if a node is lost", "If"), ("shop/web fits", "shop/web"), ("", "")])
def test_a_sentence_begins_with_a_capital_and_a_name_as_it_is(text: str, begins: str) -> None:
    assert sentence(text).partition(" ")[0] == begins


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b"], ["a", "b"]),
        (["eu-central-1a", "eu-central-1b"], ["eu-central-1a", "eu-central-1b"]),
        (
            [f"europe-central-1{zone}-availability-zone-with-a-long-name" for zone in "ab"],
            ["…tral-1a-avail…", "…tral-1b-avail…"],
        ),
        (["a-very-long-name-of-a-zone", "x"], ["a-very-lon…-of-a-zone", "x"]),
        (["a-very-long-name-of-a-zone"], ["a-very-lon…-of-a-zone"]),
    ],
)
def test_long_names_below_bars_are_cut_and_still_differ(names: list[str], shown: list[str]) -> None:
    assert short_names(names) == shown


def test_bars_with_long_names_and_series_leave_room_for_the_bars(browser: Browser) -> None:
    names = [f"europe-central-1{zone}-availability-zone-with-a-long-name" for zone in "abc"]
    series = {"can be removed": [3, 4, 5], "the pods on it have no place elsewhere": [1, 2, 3], "at most": [1, 1, 1]}
    svg = bar_chart("Pods by zone", names, series, up="pods").svg
    with browser.open(f"<!doctype html><title>x</title>{svg}") as view:
        boxes = view.run(
            lambda page: page.evaluate(
                "() => { const all = (query) =>"
                " [...document.querySelectorAll(query)].map(e => e.getBoundingClientRect());"
                " const whole = all('svg')[0];"
                " return [whole.height, Math.max(...all('svg path').map(e => e.height).filter(h => h < whole.height)),"
                " Math.max(...all('svg text').map(e => e.right)) - whole.right]; }"
            )
        )
    whole, highest, beyond = boxes
    assert highest > whole / 4
    assert beyond <= 1
