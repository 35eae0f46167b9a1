"""The documentation matches the behavior: its policies are clean, its commands print the shown output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from kube_policy_scheduler.tooling.tester.suite_file import schema_text
from tests.cli.transcript import command, played
from tests.fakes.browser import Browser
from tests.fakes.browser import browser as browser
from tests.lang.texts import sources

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "engine/kube_policy_scheduler"
INDEX = ROOT / "docs/index.md"
_NAVIGATION = "".join(re.findall(r"(?s):hidden:\n(.*?):::", INDEX.read_text()))
SITE = [(INDEX.parent / f"{entry}.md").resolve() for entry in _NAVIGATION.split()]
"""The pages that the navigation of the site lists."""
PAGES = [INDEX, *(page for page in SITE if page.parent.name != "generated")]

_BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)\n```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
_PATH = re.compile(r"`((?:engine|tests|deploy|grammar|\.github|\.ci)/[\w./-]*)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the file that it represents, if any."""

    language: str
    text: str
    file: str | None


def blocks(page: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(page.read_text()):
        yield Block(found["language"], found["text"], found["file"])


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # as in a pipe: lines as long as they are
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text + "\n")
        elif block.language == "console":
            assert played(block.text, tmp_path).rstrip("\n") == block.text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_policies_have_no_errors(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page)):
        if block.language == "policy":
            folder = tmp_path / str(number)
            folder.mkdir()
            for source in sources(block.text + "\n", name="shown.policy"):
                (folder / source.name).write_text(source.text)
            printed, code = command(f"policyctl lint {folder}", folder)
            assert code == 0, printed


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    made = "generated/"  # when the site is built, which checks these links
    links = _LINK.findall(text)
    assert not [link for link in links if made not in link and not (page.parent / link).exists()]
    assert not [path for path in _PATH.findall(text) if not (ROOT / path).exists()]


def test_the_folder_map_is_whole_and_true() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    shown = text[text.index("engine/kube_policy_scheduler/\n  diagnostics.py") :].partition("```")[0]
    lines = [line.split() for line in shown.splitlines()[1:] if re.match("  [a-z]", line)]
    told = {
        word.partition("/")[0] for words in lines for word in takewhile(re.compile(r"[\w/]+(/|\.py)$").match, words)
    }
    there = {path.name for path in ENGINE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert told == there - {"__pycache__", "grammar", "__init__.py"}


def test_the_way_of_a_pod_names_modules_that_exist() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    way = text[text.index("## One pod") :].partition("\n## ")[0]
    modules = re.findall(r"`([\w/]+\.py)`", way)
    assert len(modules) > 8
    found = {path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*.py")}
    missing = [module for module in modules if not any(f"/{path}".endswith(f"/{module}") for path in found)]
    assert not missing


def test_each_line_of_the_first_policy_is_a_policy_on_its_own(tmp_path: Path) -> None:
    (card,) = [block.text for block in blocks(ROOT / "README.md") if block.file == "card.policy"]
    for number, line in enumerate(card.splitlines()):
        file = tmp_path / f"line-{number}.policy"
        file.write_text(line + "\n")
        printed, code = command(f"policyctl lint {file}", tmp_path)
        assert code == 0, printed


def test_the_reference_of_test_files_names_every_key() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "policies/TEST-FILES.md").read_text(), flags=re.DOTALL)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    schema = json.loads(schema_text())
    parts = (schema, *schema["$defs"].values())
    assert {key for part in parts for key in part.get("properties", {})} <= named


def test_the_page_on_installing_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"(?m)^\|(.*)\|$", (ROOT / "docs/start/install.md").read_text())
    assert set(project["optional-dependencies"]) - {"dev", "fuzz"} <= set(re.findall(r"`([\w-]+)`", " ".join(rows)))


def test_the_page_of_policies_names_every_one() -> None:
    page = ROOT / "policies/library/README.md"
    shown = {(page.parent / link).resolve() for link in _LINK.findall(page.read_text()) if link.endswith(".policy")}
    assert shown >= {*page.parent.glob("*.policy"), *(ROOT / "policies/queues").glob("*.policy")}


def test_the_page_of_commands_has_the_headings_and_commands_of_the_help(tmp_path: Path) -> None:
    helped, _ = command("policyctl --help", tmp_path)
    text = (ROOT / "docs/start/commands.md").read_text()
    parts = re.findall(r"(?ms)^(\w[^\n]*):\n(.*?)(?=^\w|\Z)", helped)
    sections = {
        title: re.findall(r"(?m)^  ([a-z-]+)  ", body) for title, body in parts if title not in ("Usage", "Options")
    }
    assert len(sections) > 3
    for title, commands in sections.items():
        cells = "".join(re.findall(r"(?m)^\|([^|]+)\|", text.partition(f"## {title}\n")[2].partition("\n## ")[0]))
        assert set(commands) <= set(re.findall(r"[a-z][a-z-]+", cells)), title


def test_the_makefile_has_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"(?m)(?:`|^ {4})make ([a-z-]+)\b", page.read_text())}
    assert named <= targets


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-c", "docs", "-d", str(folder / "trees"), "."]
    done = subprocess.run([*build, str(folder / "site")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


@pytest.mark.long
def test_the_site_has_every_page_and_needs_no_network(site: Path) -> None:
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    for page in PAGES:
        address = name(page)
        assert (site / address).with_suffix(".html").exists()
        assert (site / address).read_bytes() == page.read_bytes()
        assert f"({address})" in listed
    assert re.findall(r"(?m)^## (.*)$", listed) == [
        "Tutorial",
        "How-to guides: policies",
        "How-to guides: clusters",
        "How-to guides: this project",
        "Reference",
        "Explanation",
    ]
    loaded = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', (site / "README.html").read_text())
    assert loaded == []


@pytest.mark.parametrize("page", ["docs/index", "deploy/OPERATIONS", "policies/TEST-FILES", "docs/generated/commands"])
def test_a_page_fits_the_window_of_a_phone(site: Path, browser: Browser, page: str) -> None:
    with browser.open(site / f"{page}.html", width=400) as view:
        assert view.overflow_px() == 0
        assert view.troubles == []


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("promql", "grammar/README.html#promql"),
        ("P0102", "docs/generated/codes.html#p0102"),
        ("policyctl impact", "docs/generated/commands.html#policyctl-impact"),
    ],
)
def test_the_search_leads_to_the_section_of_a_name(site: Path, browser: Browser, asked: str, first: str) -> None:
    with browser.open(site / "search.html") as view:
        view.run(lambda page: page.goto(f"{page.url}?q={asked}"))
        found = view.run(lambda page: page.locator("ul.search li a").first.get_attribute("href"))
    assert found is not None
    assert found.startswith(first)
