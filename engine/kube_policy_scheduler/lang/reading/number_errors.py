"""Numbers as other languages and people write them: `5 minutes`, `1h30m`, `1_000`, `1,5`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.place import NEAR, Place


def number_error(place: Place) -> Diagnostic | None:
    """Return the diagnostic of a number that is written as elsewhere; None if there is none at the place."""
    looks = (_glued, _separated, _pieces, _unit, _unit_apart)
    return next((found for look in looks if (found := look(place)) is not None), None)


_GLUED = re.compile(r"[\w.]+")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+")
_UNDERSCORES = re.compile(r"\d{1,3}(?:_\d{3})+(?=[A-Za-z%]*$)")
_DURATIONS = re.compile(r"(?:\d+(?:\.\d+)?(?:w|d|h|min|m|s))+")
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}


def _glued(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `0x10`, `1_000` and `1h30m`: numbers as others write them."""
    text = place.line.text
    around = next((m for m in _GLUED.finditer(text) if m.start() < place.at < m.end()), None)
    if around is None or not around[0][0].isdigit():
        return None
    word, written = around[0], ""
    if _HEXADECIMAL.fullmatch(word):
        written = str(int(word, 0))
    elif _UNDERSCORES.match(word):
        written = word.replace("_", "")
    elif _DURATIONS.fullmatch(word) and len(word) < NEAR:
        pieces = re.findall(r"([\d.]+)([a-z]+)", word)
        written = _duration((float(number), unit) for number, unit in pieces)
    if not written:
        return None
    span, fix = place.range(*around.span()), Fix(f"write {written}", (Edit(place.range(*around.span()), written),))
    message = f"`{word}` is not a number or quantity"
    return codes.NUMBER.at(span, message, help=f"write `{written}`", fix=fix)


_WHOLE_NUMBER = re.compile(
    r"\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:[,' ]\d{3})+(?![\d,'])|\d+,\d+(?![\d,'])"
    r"|\d+(?:\.\d{3}){2,}(?![\d.])"
)


def _separated(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `1,5`, `1,000`, `1 000`, `1'000` and `1.000.000`: only a point separates digits."""
    text, at = place.line.text, place.at
    start = max(0, at - NEAR)
    around = (m for m in _WHOLE_NUMBER.finditer(text, start, at + NEAR) if m.start() < at < m.end())
    found = next(
        (m for m in around if not m.start() or not (text[m.start() - 1].isalnum() or text[m.start() - 1] in "._")), None
    )
    if found is None:
        return None
    span, shown = place.range(*found.span()), found[0]
    message = f"`{shown}` is not a number or quantity"
    whole = re.sub(r"[,' .]", "", shown)
    if mixed := re.fullmatch(r"(\d+(?:[.,]\d{3})+)[.,](\d+)", shown):
        written = f"{re.sub('[.,]', '', mixed[1])}.{mixed[2]}"
        fix = Fix(f"write {written}", (Edit(span, written),))
        return codes.NUMBER.at(span, message, help=f"write `{written}`, with a point", fix=fix)
    if re.fullmatch(r"\d+,\d+", shown) and not re.fullmatch(r"[1-9]\d{0,2},\d{3}", shown):
        written = shown.replace(",", ".")
        fix = Fix(f"write {written}", (Edit(span, written),))
        return codes.NUMBER.at(span, message, help=f"write `{written}`, with a point", fix=fix)
    if re.fullmatch(r"\d+,\d+", shown):
        advice = f"write `{whole}`, or `{shown.replace(',', '.')}` if you mean a fraction"
        return codes.NUMBER.at(span, message, help=advice)
    fix = Fix(f"write {whole}", (Edit(span, whole),))
    return codes.NUMBER.at(span, message, help=f"write `{whole}`, without separators", fix=fix)


_IN_PIECES = re.compile(r"(?<![\w.])\d+\s*[A-Za-z]+(?:\s+(?:and\s+)?\d+\s*[A-Za-z]+)+")


def _pieces(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `1 hour 30 min`."""
    start = max(0, place.at - NEAR)
    around = (m for m in _IN_PIECES.finditer(place.line.text, start, place.at + NEAR) if m.start() < place.at < m.end())
    found = next(around, None)
    if found is None:
        return None
    pieces = [
        (number, foreign.UNITS.get(unit.lower())) for number, unit in re.findall(r"(\d+)\s*([A-Za-z]+)", found[0])
    ]
    if not all(unit in _SECONDS for _, unit in pieces):
        return None
    written, span = _duration((float(number), str(unit)) for number, unit in pieces), place.range(*found.span())
    fix = Fix(f"write {written}", (Edit(span, written),))
    return codes.NUMBER.at(span, f"`{found[0]}` is not a duration", help=f"write `{written}`", fix=fix)


def _duration(pieces: Iterable[tuple[float, str]]) -> str:
    """Return a sum of durations as one, in the largest unit that gives a whole number."""
    seconds = sum(number * _SECONDS[unit] for number, unit in pieces)
    unit = next(unit for unit in ("w", "d", "h", "min", "s") if not seconds % _SECONDS[unit] or unit == "s")
    return f"{seconds / _SECONDS[unit]:g}{unit}"


_APART = {
    "NUMBER": (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+(%)\s*$"), "share"),
    "DOMAINS": (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+(min)\s*$"), "duration"),
}
"""Units that are something else behind a space, by the token that the parser expects then: `%` is the remainder, `min`
begins `min domains`."""


def _unit_apart(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `80 %` or `5 min`."""
    for token, (pattern, meant) in _APART.items():
        apart = pattern.search(place.near) if token in place.accepts else None
        if apart is None:
            continue
        start = place.at - len(place.near) + apart.start(1)
        span, written = place.range(start, start + len(apart[0].rstrip())), f"{apart[1]}{apart[2]}"
        fix = Fix(f"write {written}", (Edit(span, written),))
        return codes.NUMBER.at(span, f"`{span.text}` is not a {meant}", help=f"write `{written}`", fix=fix)
    return None


_NUMBER_BEFORE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+$")


def _unit(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `5 minutes`."""
    number = _NUMBER_BEFORE.search(place.near)
    unit = foreign.UNITS.get(place.word.lower())
    if number is None or unit is None:
        return None
    if place.keyword == "limit" and place.before.split() == ["limit", number[1]]:
        rest = place.line.text[place.at + len(place.word) :].rstrip()
        domain = re.fullmatch(r"\s+(?:per|on|for|in)\s+(?:each\s+)?([a-z]+)", rest)
        if domain is not None:
            return place.unexpected(f"write `limit count() to {number[1]} over {domain[1]}`")
        return place.unexpected(f"write `limit count(){rest} to {number[1]}`")
    span = place.range(place.at - len(place.near) + number.start(1), place.at + len(place.word))
    written = f"{number[1]}{unit}"
    message = f"`{span.text}` is not a number or quantity"
    return codes.NUMBER.at(
        span, message, help=f"write `{written}`", fix=Fix(f"write {written}", (Edit(span, written),))
    )
