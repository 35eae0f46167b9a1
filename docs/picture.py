"""Makes docs/first-look.gif, the moving picture of the README: `make picture`.

It records the real playground in the system's Chromium, while a policy is typed, and the real output of `policyctl` as
a terminal shows it. So it can be made again after any change of either.
"""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "engine")]

from tests.fakes.browser import Browser, View  # noqa: E402 (after the path is set)
from tests.playground.serving import example, serving  # noqa: E402
from tests.test_docs import blocks  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

TARGET = Path(__file__).with_name("first-look.gif")
SIZE = (960, 690)
"""Pixels."""
_COLOURS = 96
_KEYS_PER_FRAME = 4
_MS_PER_FRAME = 130
_READ_MS = 1_700
"""How long a frame stands whose change should be read."""
_COLUMNS = 104
"""Of the terminal."""

POLICY = (
    "filter node.ready and fits(cpu, mem)",
    'score 2 * (100 - promql("cpu_usage") ?? 50)',
    "spread by pod.label.app",
)
MISTAKE = 'score 40 if node.lable.disk == "ssd"'
COMMANDS = ("policyctl lint", "policyctl why")
"""Of those that the README shows: these are in the picture."""


class Film:
    """Frames with how long each stands."""

    def __init__(self) -> None:
        self._frames: list[Image.Image] = []
        self._ms: list[int] = []

    def add(self, png: bytes, ms: int) -> None:
        """Append a picture; one that equals the last makes that one stand longer."""
        image = Image.open(io.BytesIO(png)).convert("RGB")
        if self._frames and self._frames[-1].tobytes() == image.tobytes():
            self._ms[-1] += ms
            return
        self._frames.append(image)
        self._ms.append(ms)

    def save(self, path: Path) -> None:
        """Write a GIF that repeats; all frames share one palette, so that only what changes takes bytes."""
        step = max(1, len(self._frames) // 12)
        sample = self._frames[::step]
        sheet = Image.new("RGB", (SIZE[0], SIZE[1] * len(sample)))
        for at, frame in enumerate(sample):
            sheet.paste(frame, (0, at * SIZE[1]))
        palette = sheet.quantize(_COLOURS, dither=Image.Dither.NONE)
        shown = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames]
        shown[0].save(path, save_all=True, append_images=shown[1:], duration=self._ms, loop=0, optimize=False)


def film_playground(browser: Browser, film: Film) -> None:
    """Record how a policy is typed, with one mistake that is mended by its suggestion."""
    with serving(example()) as url, browser.open(url, width=SIZE[0], height=SIZE[1]) as view:

        def see(ms: int = _MS_PER_FRAME) -> None:
            film.add(view.run(lambda page: page.screenshot()), ms)

        view.run(lambda page: page.locator("#verdict", has_text="chosen, of").wait_for())
        _do(view, lambda page: page.locator("#mine .cm-content").click())
        _do(view, lambda page: page.keyboard.press("Control+A"))
        _do(view, lambda page: page.keyboard.press("Delete"))
        view.run(lambda page: page.wait_for_timeout(600))
        see(700)
        for line in POLICY:
            _type(view, line, see)
            view.run(lambda page: page.wait_for_timeout(700))
            see(_READ_MS)
            _do(view, lambda page: page.keyboard.press("Enter"))
        _type(view, MISTAKE, see)
        view.run(lambda page: page.locator("#problems .fix").first.wait_for())
        view.run(lambda page: page.wait_for_timeout(300))
        see(2 * _READ_MS)
        view.run(lambda page: page.locator("#problems .fix").first.click())
        view.run(lambda page: page.locator("#problems", has_text="None.").wait_for())
        view.run(lambda page: page.wait_for_timeout(700))
        see(2 * _READ_MS)


def _do(view: View, work: Callable[[Page], object]) -> None:
    view.run(work)


def _type(view: View, line: str, see: Callable[[], None]) -> None:
    for at in range(0, len(line), _KEYS_PER_FRAME):
        keys = line[at : at + _KEYS_PER_FRAME]
        view.run(lambda page, keys=keys: page.keyboard.insert_text(keys))
        view.run(lambda page: page.keyboard.press("Escape"))  # no list of completions over the text
        view.run(lambda page: page.wait_for_timeout(60))
        see()


def film_terminal(browser: Browser, film: Film) -> None:
    """Record commands of the README with its files, and what they print."""
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(ROOT / "README.md"):
            if block.file is not None:
                Path(folder, block.file).write_text(block.text + "\n", encoding="utf-8")
            elif block.language == "console" and block.text.removeprefix("$ ").startswith(COMMANDS):
                command = block.text.splitlines()[0].removeprefix("$ ")
                printed = run_in_terminal(command, Path(folder))
                for typed in (command[: len(command) // 2], command):
                    film.add(_terminal(browser, Text(f"$ {typed}▏")), 450)
                film.add(_terminal(browser, Text(f"$ {command}\n") + Text.from_ansi(printed)), 3 * _READ_MS)


def run_in_terminal(command: str, folder: Path) -> str:
    """Return what a command prints on a terminal, with its colours."""
    parent, child = pty.openpty()
    environment = os.environ | {"COLUMNS": str(_COLUMNS), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT / "engine")}
    words = [sys.executable, "-m", "kube_policy_scheduler.cli", *command.split()[1:]]
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=child, stdout=child, stderr=child) as running:
        os.close(child)
        found = b""
        try:
            while chunk := os.read(parent, 65_536):
                found += chunk
        except OSError:
            pass  # Linux's way to say that the other end is closed
        running.wait(60)
    os.close(parent)
    return found.decode().replace("\r\n", "\n").rstrip()


def _terminal(browser: Browser, text: Text) -> bytes:
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(text, soft_wrap=True)
    inside = console.export_html(inline_styles=True, theme=DIMMED_MONOKAI, code_format="{code}")
    body = (
        "<!doctype html><html lang=en><title>terminal</title><body style='margin:0;background:#191919;color:#d9d9d9'>"
        f"<pre style='margin:20px;font:13.5px/1.5 \"DejaVu Sans Mono\",monospace'>{inside}</pre></body></html>"
    )
    with browser.open(body, width=SIZE[0], height=SIZE[1]) as view:
        return view.run(lambda page: page.screenshot())


def main() -> None:
    """Make the picture."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        sys.exit("not installed: chromium; the picture is recorded in it")
    film = Film()
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, Path(folder))
        try:
            film_playground(browser, film)
            film_terminal(browser, film)
        finally:
            browser.close()
    film.save(TARGET)
    sys.stdout.write(f"wrote {TARGET.relative_to(ROOT)}: {TARGET.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
