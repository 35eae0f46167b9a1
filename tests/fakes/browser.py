"""The system's Chromium opens pages for tests: contents, errors, screenshots.

    def test_page(browser: Browser) -> None:
        with browser.open(html) as view:
            assert view.troubles == []
            assert "3 pods move" in view.text()

Import `browser` from here in a `conftest.py`. Playwright's synchronous interface lives in a thread of its own: it
leaves a running event loop behind in the thread that starts it, which no other test would bear.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import BrowserContext, Page, Playwright

_T = TypeVar("_T")
_FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-gpu", "--disable-dev-shm-usage")
_LIMIT_MS = 20_000


class View:
    """One opened page."""

    def __init__(self, browser: Browser, context: BrowserContext) -> None:
        self._browser, self._context = browser, context
        self._page: Page | None = None
        self.troubles: list[str] = []
        """Errors and warnings on the console, exceptions of scripts, requests that failed; in order."""
        self.requests: list[str] = []
        """URLs that the page asked for, itself excepted; `data:` and `blob:` stay within the page."""

    def start(self, url: str) -> None:
        """Open the page; runs in the browser's thread."""
        page = self._page = self._context.new_page()
        page.set_default_timeout(_LIMIT_MS)
        page.on("console", lambda said: self._console(said.type, said.text))
        page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        page.on("requestfailed", lambda asked: self.troubles.append(f"failed: {asked.url}: {asked.failure}"))
        page.on("request", lambda asked: self._requested(asked.url, url))
        page.goto(url, wait_until="load")

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.troubles.append(f"console {kind}: {text}")

    def _requested(self, asked: str, own: str) -> None:
        if asked != own and not asked.startswith(("data:", "blob:")):
            self.requests.append(asked)

    def run(self, work: Callable[[Page], _T]) -> _T:
        """Do something with playwright's page, in the browser's thread, and return what comes of it."""

        def on_page() -> _T:
            assert self._page is not None
            return work(self._page)

        return self._browser.call(on_page)

    def text(self, selector: str = "body") -> str:
        """Return the text that is shown in the first element that fits."""
        return self.run(lambda page: page.locator(selector).first.inner_text())

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that fit."""
        return self.run(lambda page: [text.strip() for text in page.locator(selector).all_inner_texts()])

    def overflow_px(self) -> int:
        """Return by how much the page is wider than the window: 0 if no sideways scrolling is needed."""
        return self.run(
            lambda page: int(
                page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            )
        )

    def barriers(self) -> list[str]:
        """Return what axe-core finds that keeps people out who do not see, hear or point: its rules, with places."""
        from axe_playwright_python.sync_playwright import Axe

        found = self.run(lambda page: Axe().run(page).response["violations"])
        return [f"{each['id']}: {node['target']}: {node['failureSummary']}" for each in found for node in each["nodes"]]

    def screenshot(self, path: Path) -> Path:
        """Write the whole page as PNG."""
        self.run(lambda page: page.screenshot(path=path, full_page=True))
        return path

    def close(self) -> None:
        """Close the page with all that it kept; runs in the browser's thread."""
        self._context.close()


class Browser:
    """Chromium without a window. One per test process; pages share nothing with each other."""

    def __init__(self, program: str, folder: Path) -> None:
        self._folder, self._pages = folder, 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")
        self._playwright: Playwright | None = None
        try:
            self._chromium: Chromium = self._thread.submit(self._start, program).result()
        except BaseException:
            self.close()
            raise

    def _start(self, program: str) -> Chromium:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        return self._playwright.chromium.launch(executable_path=program, args=list(_FLAGS), headless=True)

    def call(self, work: Callable[[], _T]) -> _T:
        """Run in the browser's thread."""
        return self._thread.submit(work).result()

    @contextmanager
    def open(
        self, page: str | Path, *, width: int = 1200, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Iterator[View]:
        """Open HTML text, a file, or an http(s) URL, in a window of some size."""
        if isinstance(page, str) and not page.startswith(("http://", "https://")):
            self._pages += 1
            text, page = page, self._folder / f"page-{self._pages}.html"
            page.write_text(text, encoding="utf-8")
        url = page.resolve().as_uri() if isinstance(page, Path) else page
        context = self.call(
            lambda: self._chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        )
        view = View(self, context)
        try:
            self.call(lambda: view.start(url))
            yield view
        finally:
            self.call(view.close)

    def close(self) -> None:
        """End the browser and its driver."""

        def end() -> None:
            if self._playwright is not None:
                if hasattr(self, "_chromium"):
                    self._chromium.close()
                self._playwright.stop()

        self._thread.submit(end).result()
        self._thread.shutdown()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of this test process; tests that need it are left out where there is none, except under CI=true."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("not installed: chromium; with CI=true nothing may be missing", pytrace=False)
        pytest.skip("not installed: chromium")
    made = Browser(program, tmp_path_factory.mktemp("pages"))
    try:
        yield made
    finally:
        made.close()
