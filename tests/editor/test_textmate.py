"""Colours without the server come from the same words as the parser: TextMate's grammar, and the lexer for Pygments."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from kube_policy_scheduler.editor import textmate
from kube_policy_scheduler.editor.pygments_lexer import PolicyLexer
from kube_policy_scheduler.lang.reading.parse_tokens import keywords
from kube_policy_scheduler.lang.statements import KEYWORDS, WORDS

ROOT = Path(__file__).parents[2]
EDITORS = ROOT / "editors"
VSCODE = EDITORS / "vscode"
GRAMMAR = VSCODE / "policy.tmLanguage.json"
WORDS_SCRIPT = ROOT / "engine/kube_policy_scheduler/playground/page/words.js"


def test_the_grammar_is_that_of_the_language() -> None:
    assert GRAMMAR.read_text(encoding="utf-8") == textmate.grammar_text(), "make reference"


def test_the_playground_has_the_same_words() -> None:
    assert WORDS_SCRIPT.read_text(encoding="utf-8") == textmate.words_script(), "make reference"


def test_all_words_are_those_of_the_parser() -> None:
    """`pod` is a name, as `node` is."""
    assert {*KEYWORDS, *textmate.further_words(), *textmate.CONSTANTS} == {*keywords().values(), *WORDS} - {"pod"}


def scope(text: str, word: str) -> str:
    """Return the scope of a word, by the first pattern that takes it, as TextMate goes on."""
    at = 0
    patterns = textmate.grammar()["patterns"]
    while at < len(text):
        found = [(m.start(), n, m) for n, each in enumerate(patterns) if (m := _search(each, text, at))]
        if not found:
            break
        _, number, match = min(found, key=lambda each: each[:2])
        each = patterns[number]
        if "captures" in each:
            for group, capture in each["captures"].items():
                if match[int(group)] == word:
                    return str(capture["name"])
        elif match[0].strip() == word:
            return str(each["name"])
        at = max(match.end(), at + 1)
    return ""


def _search(each: dict[str, str], text: str, at: int) -> re.Match[str] | None:
    pattern = each.get("match", r'"(?:[^"\\]|\\.)*"?')
    return re.compile(pattern, re.MULTILINE).search(text, at)


@pytest.mark.parametrize("word", KEYWORDS)
def test_each_statement_has_its_colour(word: str) -> None:
    assert scope(f"{word} x", word) == "keyword.control.policy"
    other = "score" if word == "filter" else "filter"
    assert scope(f"{other} {word} == 3", word) in ("variable.other.policy", "keyword.control.policy")


@pytest.mark.parametrize("word", sorted(WORDS - {*KEYWORDS, *textmate.CONSTANTS, "pod"}))
def test_each_further_word_has_its_colour(word: str) -> None:
    assert scope(f"score 3 {word} x", word) == "keyword.control.policy"
    assert scope(f"score node.{word} + 3", word) == "variable.other.property.policy"


def test_pygments_reads_any_text() -> None:
    text = "filter \x00 'x' é ;\n"
    assert "".join(value for _, value in PolicyLexer().get_tokens(text)) == text


def test_pygments_finds_the_lexer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["pygments.lexers"]["policy"].partition(":")
    assert getattr(importlib.import_module(module), name) is PolicyLexer


def test_the_extension_names_what_is_there() -> None:
    manifest = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
    for part in (*manifest["contributes"]["grammars"], *manifest["contributes"]["languages"]):
        assert (VSCODE / (part.get("path") or part["configuration"])).is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert manifest["version"] == project["version"]
    assert manifest["contributes"]["grammars"][0]["scopeName"] == textmate.SCOPE
    source = (VSCODE / "src" / "extension.ts").read_text(encoding="utf-8")
    used = set(re.findall(r'registerCommand\("([^"]+)"', source))
    assert used == {each["command"] for each in manifest["contributes"]["commands"]}


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((VSCODE / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 50
    assert not [name for name, each in lock["packages"].items() if "resolved" in each]


def test_the_settings_in_the_manual_can_be_read() -> None:
    text = (EDITORS / "README.md").read_text(encoding="utf-8")
    (helix,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    languages = {each["name"]: each for each in tomllib.loads(helix)["language"]}
    assert languages["policy"]["scope"] == textmate.SCOPE
    first, second = map(json.loads, re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    servers = tomllib.loads((EDITORS / "zed" / "extension.toml").read_text(encoding="utf-8"))["language_servers"]
    assert first["languages"]["YAML"]["language_servers"] == [*servers, "..."]
    assert list(second["lsp"]) == list(servers)


if __name__ == "__main__":
    GRAMMAR.write_text(textmate.grammar_text(), encoding="utf-8")
    WORDS_SCRIPT.write_text(textmate.words_script(), encoding="utf-8")
