"""Colours without a server: the grammar for TextMate, made from the table of statements and the parser's grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from kube_policy_scheduler.lang.reading.parse_tokens import keywords, signs
from kube_policy_scheduler.lang.statements import EXPRESSION_WORDS, KEYWORDS

SCOPE = "source.policy"
DEFINING = tuple(word for word in KEYWORDS if word in ("let", "def", "metric"))
CONSTANTS = ("true", "false", "missing")
NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[A-Za-z]+|%)?"
NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def any_of(words: Iterable[str]) -> str:
    """Return a pattern of words or signs, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def further_words() -> tuple[str, ...]:
    """Return the words of the grammar that begin no statement and are no constants."""
    known = {*keywords().values(), *EXPRESSION_WORDS} - {*CONSTANTS, "pod"}
    return tuple(sorted(known))


def operators() -> tuple[str, ...]:
    """Return the signs of the grammar that are no brackets, commas and dots."""
    return tuple(sorted(sign for sign in signs().values() if sign not in "()[],."))


def grammar() -> dict[str, Any]:
    """Return the grammar for editors that colour with TextMate's."""
    behind = r"(?![\w./-])(?!\s*(?:[=.(\[]|==))"
    words = any_of(further_words())
    return {
        "name": "Policy",
        "scopeName": SCOPE,
        "fileTypes": ["policy"],
        "patterns": [
            {"name": "comment.line.number-sign.policy", "match": "#.*$"},
            {
                "name": "string.quoted.double.policy",
                "begin": '"',
                "end": '"|$',
                "patterns": [{"name": "constant.character.escape.policy", "match": r"\\."}],
            },
            {
                "match": rf"^\s*({any_of(DEFINING)})\s+({NAME})",
                "captures": {"1": {"name": "keyword.other.policy"}, "2": {"name": "entity.name.variable.policy"}},
            },
            {"name": "keyword.control.policy", "match": rf"^\s*(?:{any_of(KEYWORDS)})\b{behind}"},
            {
                "match": rf"\b(as)\s+({NAME}[-\w.]*)",
                "captures": {"1": {"name": "keyword.other.policy"}, "2": {"name": "entity.name.tag.policy"}},
            },
            {
                "match": rf"(\.)({NAME})",
                "captures": {
                    "1": {"name": "punctuation.accessor.policy"},
                    "2": {"name": "variable.other.property.policy"},
                },
            },
            {"name": "entity.name.function.policy", "match": rf"\b(?!(?:{words})\b){NAME}(?=\s*\()"},
            {"name": "constant.language.policy", "match": rf"\b(?:{any_of(CONSTANTS)})\b"},
            {
                "name": "keyword.operator.word.policy",
                "match": rf"(?<![\w./-])(?:{any_of(further_words())})\b(?![./-]\w)",
            },
            {"name": "constant.numeric.policy", "match": rf"(?<![\w.]){NUMBER}"},
            {"name": "keyword.operator.policy", "match": any_of(operators())},
            {"name": "variable.other.policy", "match": rf"\b{NAME}"},
        ],
    }


def grammar_text() -> str:
    """Return what `editors/vscode/policy.tmLanguage.json` is to hold."""
    return json.dumps(grammar(), indent=2, ensure_ascii=False) + "\n"
