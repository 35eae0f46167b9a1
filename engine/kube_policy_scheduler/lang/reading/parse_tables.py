"""The parser's tables, built ahead and kept with the grammar: building them takes ten times as long as reading them."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib import resources
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

_OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "lexer": "contextual",
    "keep_all_tokens": True,
    "maybe_placeholders": False,
}
_FILES = resources.files("kube_policy_scheduler.grammar")


def parser(transformer: object) -> Lark:
    """Return a parser of `grammar/policy.lark`; `grammar/tables.json` is used if it was made from exactly that."""
    kept = _FILES.joinpath("tables.json")
    if kept.is_file():
        tables = json.loads(kept.read_bytes())
        if tables["made_from"] == _fingerprint():
            return _loaded(tables, transformer)
    return Lark(_grammar(), transformer=transformer, **_OPTIONS)


def tables_text() -> str:
    """Return what `grammar/tables.json` is to hold."""
    data, memo = Lark(_grammar(), **_OPTIONS).memo_serialize([TerminalDef, Rule])
    return json.dumps({"made_from": _fingerprint(), "data": data, "memo": memo}, separators=(",", ":")) + "\n"


def _grammar() -> str:
    return _FILES.joinpath("policy.lark").read_text(encoding="utf-8")


def _fingerprint() -> str:
    """Of everything that the tables depend on."""
    return sha256(f"{lark.__version__} {_OPTIONS} {_grammar()}".encode()).hexdigest()


def _loaded(tables: dict[str, Any], transformer: object) -> Lark:
    data = tables["data"]
    data["options"]["transformer"] = transformer
    lalr = data["parser"]["parser"]
    # JSON has no numbers as keys
    lalr["tokens"] = _numbered(lalr["tokens"])
    lalr["states"] = {number: _numbered(actions) for number, actions in _numbered(lalr["states"]).items()}
    return Lark.load({"data": data, "memo": _numbered(tables["memo"])})


def _numbered(mapping: dict[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in mapping.items()}
