"""The page of the playground in a browser, with the real server: typing, the map, keys, what is read aloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.browser import Browser, View, browser
from tests.playground.serving import example, serving

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser"]

EXPECTED = "chosen, of"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server on the example."""
    with serving(example()) as url:
        yield url


@pytest.fixture
def view(address: str, browser: Browser) -> Iterator[View]:
    """The page, once it has a verdict; nothing may be said on its console, no request may fail."""
    with browser.open(address, width=1280) as opened:
        opened.run(lambda page: page.locator("#verdict", has_text=EXPECTED).wait_for())
        yield opened
        assert opened.troubles == []


def picture(page: Page) -> str:
    """Return the cells as they are drawn."""
    return str(page.evaluate("document.querySelector('#map-mine canvas').toDataURL()"))


def write(page: Page, text: str) -> None:
    """Replace the policy by typing."""
    page.locator("#mine .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def shows(view: View, selector: str, text: str) -> None:
    view.run(lambda page: page.locator(selector, has_text=text).first.wait_for())


CAPTION = "selector => getComputedStyle(document.querySelector(selector), '::before').content"


def test_typing_shows_problems_with_their_fixes_and_keeps_the_last_picture(view: View) -> None:
    before = view.run(picture)
    view.run(lambda page: write(page, 'score 30 if node.lable.disk == "ssd"'))
    shows(view, "#problems", "lable")
    shows(view, "#verdict", "the map shows the last policy without errors")
    assert view.run(lambda page: page.locator("main.stale").count()) == 1
    assert view.run(picture) == before
    shows(view, "#reason", "The policies have errors")
    assert "last policy without errors" in view.run(lambda page: page.evaluate(CAPTION, "#node"))
    assert view.run(lambda page: page.evaluate(CAPTION, "#reason")) == "none", "what it says is about this policy"
    view.run(lambda page: page.locator("#problems .fix").first.click())
    shows(view, "#problems", "None.")
    shows(view, "#verdict", EXPECTED)
    assert view.run(lambda page: page.locator("#mine .cm-content").inner_text()).startswith(
        'score 30 if node.label.disk == "ssd"'
    )
    assert view.run(picture) != before


def test_an_error_that_is_undone_leaves_no_sign_beside_its_line(view: View) -> None:
    view.run(lambda page: page.locator("#mine .cm-content").click())
    view.run(lambda page: page.keyboard.press("Control+End"))
    view.run(lambda page: page.keyboard.insert_text("\nfilter node.lable.disk"))
    shows(view, "#problems", "lable")
    view.run(lambda page: page.locator("#mine .cm-lint-marker").wait_for())
    view.run(lambda page: page.keyboard.press("Control+z"))
    shows(view, "#problems", "None.")
    view.run(lambda page: page.locator("#mine .cm-lint-marker").wait_for(state="detached"))


def test_findings_follow_the_verdict_and_move_with_the_text(view: View) -> None:
    view.run(lambda page: write(page, "filter node.free.cpu > 2\nfilter node.free.cpu > 1\n"))
    shows(view, "#problems", "follows from the other filters")
    assert view.text("#problems .place") == "2:8"
    view.run(lambda page: page.keyboard.press("Control+Home"))
    view.run(lambda page: page.keyboard.insert_text("score node.free.cpu / 1core\n"))
    shows(view, "#problems .place", "3:8")
    view.run(lambda page: page.locator("#problems .fix").first.click())
    shows(view, "#problems", "None.")
    assert "> 1" not in view.run(lambda page: page.locator("#mine .cm-content").inner_text())


def test_what_an_edit_does_not_change_is_not_drawn_again(view: View) -> None:
    view.run(lambda page: write(page, "filter node.free.cpu > 2\nfilter node.free.cpu > 1\n"))
    shows(view, "#problems", "follows from the other filters")
    marks = """([said]) => {
        const inside = document.querySelector("#mine").shadowRoot;
        const shown = [...document.querySelectorAll("#problems li"), ...inside.querySelectorAll(".cm-lint-marker")];
        if (said) for (const each of shown) each.kept = said;
        return shown.map((each) => each.kept ?? "new");
    }"""
    assert len(view.run(lambda page: page.evaluate(marks, ["kept"]))) == 2
    view.run(lambda page: page.keyboard.press("Control+Home"))
    view.run(lambda page: page.keyboard.press("End"))
    before = view.text("#mine .note")
    view.run(lambda page: page.keyboard.type("5"))
    view.run(lambda page: page.locator("#mine .note").first.filter(has_not_text=before).wait_for())
    assert view.run(lambda page: page.evaluate(marks, [None])) == ["kept", "kept"]
    shows(view, "#problems", "follows from the other filters")
    view.run(lambda page: page.locator("#problems .fix").first.click())  # where the text is by now
    shows(view, "#problems", "None.")
    assert "> 25" in view.run(lambda page: page.locator("#mine .cm-content").inner_text())


def test_lines_say_what_their_clauses_do(view: View) -> None:
    notes = view.texts("#mine .note")
    assert "rejects 1" in notes
    assert any(note.endswith("on average") for note in notes)


def test_each_colour_of_the_map_has_a_picture_and_a_legend(view: View) -> None:
    seen = set()
    names = view.run(lambda page: page.locator("#colour option").evaluate_all("all => all.map(each => each.value)"))
    assert {"total", "rejected", "change", "clause:0"} <= set(names)
    for name in names:
        view.run(lambda page, name=name: page.locator("#colour").select_option(name))
        view.run(lambda page: page.locator("#legend li").first.wait_for())
        view.run(lambda page: page.wait_for_timeout(150))
        seen.add((view.run(picture), tuple(view.texts("#legend li"))))
    assert len(seen) >= len(names) - 1


def test_a_node_shows_its_sum_by_pointer_and_by_keys(view: View) -> None:
    view.run(lambda page: page.locator("#map-mine").hover(position={"x": 10, "y": 30}))
    view.run(lambda page: page.locator("#tip").wait_for())
    shows(view, "#node h3", view.text("#tip").split(":")[0])
    rows = view.texts("#node tr:not(.total) td:last-child")
    total = float(view.texts("#node tr.total td:last-child")[0])
    parts = [float(text.replace("−", "-").replace("±", "")) for text in rows]
    assert total == pytest.approx(sum(parts), abs=1)

    view.run(lambda page: page.mouse.move(5, 5))
    view.run(lambda page: page.locator("#mine .cm-content").click())
    view.run(lambda page: page.keyboard.press("F6"))
    assert view.run(lambda page: page.evaluate("document.activeElement.id")) == "map-mine"
    chosen = view.text("#verdict").split()[0]
    assert view.text("#cell").startswith(chosen)
    view.run(lambda page: page.keyboard.press("End"))
    last = view.text("#cell")
    assert "row 1" in last
    assert not last.startswith(chosen)
    view.run(lambda page: page.keyboard.press("Enter"))
    shows(view, "#node h3", last.split(":")[0])
    shows(view, "#node", "labels")


def test_a_pinned_node_that_is_rejected_says_what_it_would_need(view: View) -> None:
    view.run(lambda page: write(page, "filter node.free.cpu > 1000\n"))
    shows(view, "#verdict", "0/")
    view.run(lambda page: page.locator("#map-mine").click(position={"x": 10, "y": 30}))
    shows(view, "#node", "What would it need?")
    assert view.texts("#node li")


def test_everything_is_reached_by_keys(view: View) -> None:
    def reached(page: Page) -> list[str]:
        page.evaluate("document.activeElement.blur()")
        found: list[str] = []
        for _ in range(60):
            page.keyboard.press("Tab")
            where = page.evaluate("document.activeElement?.id || document.activeElement?.closest('[id]')?.id || ''")
            if where == "open-button" and found:
                break
            found.append(where)
        return found

    found = view.run(reached)
    wanted = {
        "share-button", "test-button", "command-button", "help-button", "mine", "format-button", "compare-button",
        "colour", "group", "patterns", "table-button", "map-mine", "pods", "yaml", "reason", "seed", "simulate-button",
    }  # fmt: skip
    assert wanted <= set(found)
    view.run(lambda page: page.keyboard.press("F1"))
    assert len(view.texts("#shortcuts tr")) > 10
    view.run(lambda page: page.keyboard.press("Escape"))
    assert view.run(lambda page: page.locator("#help").is_hidden())


def test_the_nodes_as_a_table(view: View) -> None:
    view.run(lambda page: page.keyboard.press("Alt+t"))
    assert len(view.texts("#rows tr")) == 48
    first = view.texts("#rows tr:first-child > *")
    assert first[1] == view.text("#verdict").split()[0]
    view.run(lambda page: page.locator("#find").fill("b0"))
    assert {text[:2] for text in view.texts("#rows th")} == {"b0"}


def test_two_policies_side_by_side(view: View) -> None:
    view.run(lambda page: page.locator("#compare-button").click())
    view.run(lambda page: page.locator("#other .cm-content").click())
    view.run(lambda page: page.keyboard.press("Control+A"))
    view.run(lambda page: page.keyboard.insert_text("score node.free.cpu\n"))
    shows(view, "#verdict", "B: ")
    assert "filter" in view.text("#mine .cm-content")
    shows(view, "#legend", "fits in one of both only")
    assert view.run(lambda page: page.locator("#map-other canvas").count()) == 2


READABLE = (Path(__file__).parent / "readable.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_the_page_can_be_read_by_everybody(address: str, browser: Browser, scheme: Any, width: int) -> None:
    """Contrast of 4.5 to 1, a name for each control, no id twice, and no sideways scrolling on a phone."""
    with browser.open(address, width=width, scheme=scheme) as view:
        shows(view, "#verdict", EXPECTED)
        shows(view, "#reason .lead", "goes to")
        assert view.run(lambda page: page.evaluate(READABLE)) == []
        assert view.overflow_px() == 0
        assert view.run(lambda page: page.locator("[role=status][aria-live=polite]").count()) >= 1
        assert view.run(lambda page: page.locator("h1").count()) == 1
        assert view.troubles == []


def test_a_page_without_a_token_says_what_to_do(address: str, browser: Browser) -> None:
    with browser.open(address.partition("#")[0]) as view:
        shows(view, "#verdict", "this address has no token")


def test_enter_ends_the_line_though_completions_are_listed(view: View) -> None:
    view.run(lambda page: write(page, ""))
    view.run(lambda page: page.keyboard.type("spread by pod.label.ap"))
    shows(view, "#mine .cm-tooltip-autocomplete", "app")
    view.run(lambda page: page.keyboard.press("Enter"))
    assert view.run(lambda page: page.locator("#mine .cm-line").all_inner_texts())[0].startswith(
        "spread by pod.label.ap"
    )
    view.run(lambda page: page.keyboard.press("Backspace"))
    view.run(lambda page: page.keyboard.type("p"))
    view.run(lambda page: page.wait_for_timeout(400))
    assert view.run(lambda page: page.locator("#mine .cm-tooltip-autocomplete").count()) == 0, "the word is whole"


def test_tab_takes_the_first_completion_and_an_arrow_another_one(view: View) -> None:
    view.run(lambda page: write(page, ""))
    view.run(lambda page: page.keyboard.type("filter node.read"))
    shows(view, "#mine .cm-tooltip-autocomplete", "ready")
    view.run(lambda page: page.wait_for_timeout(200))  # the list takes no key at first
    view.run(lambda page: page.keyboard.press("Tab"))
    assert "filter node.ready" in view.text("#mine .cm-content")


def test_equal_totals_have_one_rank_and_the_chosen_node_comes_first(view: View) -> None:
    view.run(lambda page: write(page, "filter node.ready\nscore 7 if label disk=ssd"))
    shows(view, "#problems", "None.")
    view.run(lambda page: page.locator("#table-button").click())
    shows(view, "#rows tr.chosen", "")
    view.run(lambda page: page.locator("#rows tr:first-child.chosen").wait_for())
    ranks = view.texts("#rows tr td:first-child")
    totals = view.texts("#rows tr td:nth-child(4)")
    wanted = {total: str(totals.index(total) + 1) for total in totals if total != "–"}
    assert [rank for rank, total in zip(ranks, totals, strict=True) if total != "–"] == [
        wanted[total] for total in totals if total != "–"
    ]
    view.run(lambda page: page.locator("#find").fill("a0"))
    assert all(
        rank == wanted.get(total, "–")
        for rank, total in zip(
            view.texts("#rows tr td:first-child"), view.texts("#rows tr td:nth-child(4)"), strict=True
        )
    )


def test_what_kubernetes_rejects_and_metrics_without_values_are_seen(view: View) -> None:
    view.run(lambda page: write(page, 'score 5 * promql("nobody_has_this")'))
    shows(view, "#problems .metric", "nobody_has_this")
    assert "NodeUnschedulable" in view.text("#rules") or "TaintToleration" in view.text("#rules")


def test_what_lowers_the_score_is_not_green(view: View) -> None:
    view.run(lambda page: write(page, "score -10\nscore 10 if label disk=ssd"))
    shows(view, "#mine .note", "on average")
    view.run(lambda page: page.wait_for_timeout(300))
    kinds = view.run(lambda page: page.locator("#mine .note").evaluate_all("all => all.map(each => each.className)"))
    assert kinds == ["note ", "note more"]


def test_a_draft_survives_a_reload_and_can_be_taken_back(view: View) -> None:
    view.run(lambda page: page.on("dialog", lambda dialog: dialog.accept()))
    view.run(lambda page: write(page, "score 3 if node.ready"))
    view.run(lambda page: page.reload())
    shows(view, "#mine .cm-content", "score 3 if node.ready")
    view.run(lambda page: page.locator("#revert-button").click())
    shows(view, "#mine .cm-content", "spread by")
    assert view.run(lambda page: page.locator("#revert-button").is_hidden())
    assert all("ERR_ABORTED" in trouble for trouble in view.troubles), "the reload ended what was being asked"
    view.troubles.clear()
