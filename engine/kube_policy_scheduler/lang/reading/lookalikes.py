"""Characters from outside ASCII that are taken for those of the language, and what to write instead."""

from __future__ import annotations

import unicodedata

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
        return f"{article} {named} (U+{ord(char):04X}) is no space here", " "
    plain = _LETTERS.get(char) or unicodedata.normalize("NFKC", char)
    if char in _SIGNS:
        return f"`{char}` ({name}) has no meaning here", _SIGNS[char]
    if plain.isascii() and plain.isprintable() and len(plain) == 1:
        return f"`{char}` ({name}) looks like `{plain}`, but is another character", plain
    return None
