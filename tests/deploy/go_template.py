"""As much of Helm's templates as the chart uses, so that it is rendered where helm is not installed.

Held against helm itself where it is (test_chart.py). Unknown words raise, so a template cannot use more than is here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

_ACTION = re.compile(
    r"\s*\{\{-\s+(?P<trimmed>.*?)\s+(?P<cut>-?)\}\}(?=(?P<after>\s*))|\{\{\s+(?P<plain>.*?)\s+\}\}", re.DOTALL
)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+')

Data = Mapping[str, Any]


def render(text: str, data: Data) -> str:
    """Return a template with the values of a chart: `Values`, `Release`, `Chart`, `Files`."""
    parts = [*_parts(text)]
    out, rest = _block(parts, 0, data, data)
    assert rest == len(parts), "an `end` without `if`"
    return out


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield texts and actions in turn."""
    at = 0
    for found in _ACTION.finditer(text):
        yield "text", text[at : found.start()]
        action = found["plain"] if found["plain"] is not None else found["trimmed"]
        yield "action", action
        at = found.end() + (len(found["after"]) if found["cut"] else 0)
    yield "text", text[at:]


def _block(parts: list[tuple[str, str]], at: int, data: Data, dot: Any) -> tuple[str, int]:
    """Return a block's text up to its `end`, and where it ends."""
    out = []
    while at < len(parts):
        kind, part = parts[at]
        at += 1
        if kind == "text":
            out.append(part)
        elif part == "end":
            return "".join(out), at
        elif part.startswith(("if ", "with ")):
            word, _, condition = part.partition(" ")
            value = _value(condition, data, dot)
            inside, at = _block(parts, at, data, value if word == "with" else dot)
            out.append(inside if value else "")
        elif not part.startswith("/*"):
            out.append(str(_value(part, data, dot)))
    return "".join(out), at


def _value(expression: str, data: Data, dot: Any) -> Any:
    words = _WORD.findall(expression)
    value = _pipe(words, data, dot)
    assert not words, f"not understood: {expression}"
    return value


def _pipe(words: list[str], data: Data, dot: Any) -> Any:
    """Take words up to a closing parenthesis: calls, each with the result of the one before as its last argument."""
    value = _call(words, data, dot, ())
    while words and words[0] == "|":
        words.pop(0)
        value = _call(words, data, dot, (value,))
    return value


def _call(words: list[str], data: Data, dot: Any, last: tuple[Any, ...]) -> Any:
    arguments: list[Any] = []
    function: Callable[..., Any] | None = None
    while words and words[0] not in ("|", ")"):
        word = words.pop(0)
        if word == "(":
            arguments.append(_pipe(words, data, dot))
            assert words.pop(0) == ")"
        elif word.startswith('"'):
            arguments.append(json.loads(word))
        elif word.isdecimal():
            arguments.append(int(word))
        elif word == ".":
            arguments.append(dot)
        elif word == ".Files.Get":
            function = data["Files"].__getitem__
        elif word.startswith("."):
            arguments.append(_path(word, data))
        else:
            function = _tpl(data) if word == "tpl" else _FUNCTIONS[word]
    if function is not None:
        return function(*arguments, *last)
    (value,) = (*arguments, *last)
    return value


def _path(word: str, data: Data) -> Any:
    value: Any = data
    for name in word[1:].split("."):
        value = value[name]
    return value


def _tpl(data: Data) -> Callable[[str, Any], str]:
    return lambda text, dot: render(text, data)


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, width=1_000_000).strip()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "toYaml": _to_yaml,
    "toJson": json.dumps,
    "nindent": lambda spaces, text: "\n" + "\n".join(" " * spaces + line if line else "" for line in text.split("\n")),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "default": lambda fallback, value: value or fallback,
    "printf": lambda form, *values: form % values,
    "int": int,
    "eq": lambda a, b: a == b,
    "gt": lambda a, b: a > b,
    "not": lambda value: not value,
    "and": lambda *values: all(values),
}
