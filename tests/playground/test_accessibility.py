"""axe-core judges the states of the page: each part shown, in both colour schemes, on a wide and a narrow window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import pytest

from tests.fakes.browser import Browser, View, browser
from tests.playground.serving import example, serving
from tests.playground.test_page import shows, write

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(example()) as url:
        yield url


def click(selector: str, until: str = "") -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.locator(selector).click()
        if until:
            page.locator(until).first.wait_for()

    return act


def mistype(page: Page) -> None:
    write(page, 'score 30 if node.lable.disk == "ssd"')
    page.locator("#problems .fix").first.wait_for()


def point(page: Page) -> None:
    page.locator("#map-mine").focus()
    for key in ("ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.locator("#node table").wait_for()


def leave(page: Page) -> None:
    page.keyboard.press("Escape")


STEPS: dict[str, tuple[Callable[[Page], None], ...]] = {
    "at the start": (),
    "a pinned node": (point,),
    "who rejected": (lambda page: page.locator("#colour").select_option("rejected") and None,),
    "nodes as a table": (click("#table-button", "#rows tr"),),
    "two policies and a simulation": (
        click("#table-button"),
        click("#compare-button", "#other .cm-content"),
        click("#simulate-button", "#player"),
    ),
    "shortcuts": (click("#help-button", "#shortcuts tr"),),
    "open": (leave, click("#open-button", "#open-path")),
    "share": (leave, click("#share-button", "#share-link")),
    "save as a test": (leave, click("#test-button", "#test-path")),
    "an error": (leave, mistype),
}
"""What is done one after the other, and what is then seen."""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_no_state_of_the_page_keeps_anybody_out(
    address: str, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    with browser.open(address, width=width, scheme=scheme) as view:
        shows(view, "#reason .lead", "")
        assert {name: found for name, steps in STEPS.items() if (found := seen(view, steps))} == {}


def test_a_picture_without_a_name_is_found(browser: Browser) -> None:
    page = '<!doctype html><html lang="en"><title>x</title><main><h1>x</h1><img src="data:,"></main>'
    with browser.open(page) as view:
        assert [each.partition(":")[0] for each in view.barriers()] == ["image-alt"]


def seen(view: View, steps: tuple[Callable[[Page], None], ...]) -> list[str]:
    for step in steps:
        view.run(step)
    return view.barriers()
