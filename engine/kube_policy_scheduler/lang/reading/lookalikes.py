"""Characters that look like others, and invisible ones."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_LETTERS = {
    **dict(zip("аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅ", "aeopcyxijshdqwABEKMHOPCTXIJS", strict=True)),
    **dict(zip("οναρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ovapABEZHIKMNOPTYX", strict=True)),
    "ı": "i",
}
"""Cyrillic and Greek letters that most typefaces draw as Latin ones."""
_SIGNS = {
    "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "−": "-", "×": "*", "·": "*", "∗": "*", "÷": "/", "∕": "/",
    "≤": "<=", "≥": ">=", "≠": "!=", "∧": "and", "∨": "or", "¬": "not", "∈": "in", "∉": "not in",
    "‚": ",", "、": ",", "，": ",",
}  # fmt: skip


def lookalike(char: str) -> tuple[str, str] | None:
    """Return what is wrong with a character and what to write for it, or None if nothing is known about it."""
    if char.isascii():
        return None
    name = unicodedata.name(char, "")
    if unicodedata.category(char) in ("Zs", "Zl", "Zp"):
        named = name.lower()
        article = "an" if named[:1] in "aeiou" else "a"
        if unicodedata.category(char) != "Zs":
            return f"{article} {named} (U+{ord(char):04X}) does not end a line here", "\n"
        return f"{article} {named} (U+{ord(char):04X}) is not a space", " "
    plain = _LETTERS.get(char) or unicodedata.normalize("NFKC", char)
    if char in _SIGNS:
        return f"`{char}` ({name}) has no meaning here", _SIGNS[char]
    if plain.isascii() and plain.isprintable() and len(plain) == 1:
        return f"`{char}` ({name}) looks like `{plain}`, but is a different one", plain
    return None


_TEXTS = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[“”„«»‘’‚][^“”„«»‘’‚"\n]*[“”„«»‘’]|#[^\n]*')
"""What may contain any character: texts, also in typographic quotes, and comments."""


def lookalikes_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offsets of characters that look like others, and what to write for each, outside of texts."""
    at = 0
    for piece in (*_TEXTS.finditer(text), None):
        end = len(text) if piece is None else piece.start()
        for offset in range(at, end):
            known = None if text[offset].isascii() else lookalike(text[offset])
            if known is not None:
                yield offset, known[1]
        at = end if piece is None else piece.end()
