"""The parser and the colours for Helix, Neovim and Zed are those of our grammar: the parser is compiled and run."""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tree_sitter
from lark import UnexpectedInput

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.reading import parse_tables
from kube_policy_scheduler.lang.reading.layout import lay_out
from tests.editor import tree_sitter_parser
from tests.shipped import POLICIES

ROOT = Path(__file__).parents[2]
ZED = ROOT / "editors" / "zed"
BROKEN = sorted((ROOT / "tests" / "lang" / "broken").glob("*.policy"))
LIMITS = ("P0002", "P0012")
"""Codes of what is too large, and of hidden characters: limits of the scheduler, not of the grammar."""
needs_cc = pytest.mark.needs("cc")
OURS = parse_tables.parser(None)


def test_the_parser_is_that_of_the_grammar() -> None:
    assert tree_sitter_parser.PARSER.read_text(encoding="utf-8") == tree_sitter_parser.Tables().text(), "make reference"


@pytest.mark.parametrize("file", tree_sitter_parser.HIGHLIGHTS, ids=lambda file: file.parts[-3])
def test_the_colours_are_those_of_the_grammar(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == tree_sitter_parser.highlights(), "make reference"


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> tree_sitter.Language:
    library = tmp_path_factory.mktemp("tree_sitter") / "policy.so"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
    subprocess.run(["cc", *strict, "-shared", "-fPIC", "-o", library, tree_sitter_parser.PARSER], check=True)
    function = ctypes.CDLL(str(library)).tree_sitter_policy
    function.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.argtypes, capsule.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object
    return tree_sitter.Language(capsule(function(), b"tree_sitter.Language", None))


def tree(language: tree_sitter.Language, text: str) -> tree_sitter.Node:
    return tree_sitter.Parser(language).parse(text.encode()).root_node


def is_broken(text: str) -> bool:
    """Return whether our own parser refuses a text."""
    layout = lay_out(Source("test", text))
    if layout.diagnostics:
        return True
    for line in layout.lines:
        try:
            OURS.parse(line.text)
        except UnexpectedInput:
            return True
    return False


@needs_cc
@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_every_shipped_policy_is_read(language: tree_sitter.Language, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = tree(language, text)
    assert not found.has_error, str(found)
    statements = [child for child in found.children if child.is_named and child.type != "comment"]
    expected = [OURS.parse(line.text).data for line in lay_out(Source("test", text)).lines]
    assert [child.type for child in statements] == expected


@needs_cc
def test_what_we_refuse_it_refuses(language: tree_sitter.Language) -> None:
    texts = {file.stem: file.read_text(encoding="utf-8") for file in BROKEN if not file.stem.startswith(LIMITS)}
    assert sum(map(is_broken, texts.values())) > 100
    wrong = [name for name, text in texts.items() if tree(language, text).has_error != is_broken(text)]
    assert not wrong


def edited() -> Iterator[str]:
    """Yield shipped policies with a word or sign that is gone, doubled, or one of another place."""
    chance = random.Random(7)
    every = [re.findall(r"\w+|[^\w\n]| *\n *", file.read_text(encoding="utf-8")) for file in POLICIES]
    for number in range(600):
        words = [*every[number % len(every)]]
        at = chance.choice([place for place, word in enumerate(words) if "\n" not in word])
        other = chance.choice(chance.choice(every))
        words[at : at + 1] = chance.choice(([], [words[at], " ", words[at]], [words[at], f" {other} "]))
        yield "".join(words)


@needs_cc
def test_of_edited_policies_it_reads_those_that_we_read(language: tree_sitter.Language) -> None:
    texts = list(edited())
    assert 120 < sum(map(is_broken, texts)) < len(texts) - 120
    wrong = [text for text in texts if tree(language, text).has_error != is_broken(text)]
    assert not wrong, wrong[0]


@needs_cc
def test_a_broken_statement_leaves_the_others_as_they_are(language: tree_sitter.Language) -> None:
    text = "let a = 1\nfilter fits(cpu, \nscore a weight 2 as b\nscore\nrequire pod.name ==\nqueue c min cpu 1\n"
    found = [child.type for child in tree(language, text).children if child.type != "ERROR"]
    assert {"let", "score", "queue"} <= set(found)


@needs_cc
@pytest.mark.parametrize(
    "file",
    [*tree_sitter_parser.HIGHLIGHTS, *sorted((ZED / "languages" / "policy").glob("[!h]*.scm"))],
    ids=lambda file: f"{file.parts[-3]}-{file.stem}",
)
def test_each_line_of_the_queries_finds_something(language: tree_sitter.Language, file: Path) -> None:
    text = "\n".join(
        (
            *(each.read_text(encoding="utf-8") for each in POLICIES),
            "policy small\nhold if true as night\npack by node as tight\nlimit 1 to 2 as few\nuse kubernetes",
            "spread by node as wide\nfilter node.ready as ready\nrequire true as any\nscore label a=b as liked",
            'def twice(x) = f(x, by=1) != [2]\nmetric m = promql("up")\nlet r = 1',
        )
    )
    query = tree_sitter.Query(language, file.read_text(encoding="utf-8"))
    matches = tree_sitter.QueryCursor(query).matches(tree(language, text))
    assert {number for number, _ in matches} == set(range(query.pattern_count))


@needs_cc
def test_the_outline_names_definitions_queues_and_clauses(language: tree_sitter.Language) -> None:
    text = "let large = 3\nqueue team of all min cpu 1\ndef f(x) = x\nscore 1 as first\nscore 2\n"
    outline = (ZED / "languages" / "policy" / "outline.scm").read_text(encoding="utf-8")
    cursor = tree_sitter.QueryCursor(tree_sitter.Query(language, outline))
    names = [found["name"][0].text for _, found in cursor.matches(tree(language, text))]
    assert names == [b"large", b"team", b"f", b"first"]


def test_the_extension_for_zed_names_what_is_there() -> None:
    manifest = tomllib.loads((ZED / "extension.toml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config = tomllib.loads((ZED / "languages" / "policy" / "config.toml").read_text(encoding="utf-8"))
    crate = tomllib.loads((ZED / "Cargo.toml").read_text(encoding="utf-8"))
    assert manifest["version"] == crate["package"]["version"] == project["version"]
    assert (ROOT / manifest["grammars"][config["grammar"]]["path"] / "src" / "parser.c").is_file()
    assert config["name"] in manifest["language_servers"]["policyctl"]["languages"]
    assert (ZED / crate["lib"]["path"]).is_file()
