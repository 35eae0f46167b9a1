"""Structure-aware mutations: JSON by its structure, other texts by pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308, -0.0, "", " ", "0", "-1",
    "1Ei", "8Ei", "9223372036854775807", "1e400", "1e-400", "NaN", "+Inf", "\x00", "\u202e", "\ud800", "ſ", "²",
    "a" * 300, "2026-11-21T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1_000", [], {}, [[]],
    [None], {"": ""},
)  # fmt: skip
NAMES = ("metadata", "spec", "status", "name", "items")
DEEP = "nested"
"""Stands for something nested until the text is written: Python's own writer would not."""
MOST_DEPTH = 2000
"""More than Python's own limit."""


def mutated(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    """Return a changed text: a line of it, if it has several."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        lines[at] = _mutated_json(lines[at], others, rng)
    except (ValueError, RecursionError):
        return _spliced(data, others, rng)
    if rng.random() < 0.1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(list(others) or [b""]))
    text = b"\n".join(lines)
    return _spliced(text, others, rng) if rng.random() < 0.1 else text


def _mutated_json(line: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    root = [json.loads(line)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = _place(root, rng)
        _change(holder, key, others, rng)
    text = json.dumps(root[0], separators=(",", ":"), ensure_ascii=rng.random() < 0.8)
    depth = rng.choice((1, 10, 100, 500, MOST_DEPTH))
    before, after = rng.choice((("[", "]"), ('{"a":', "}")))
    text = text.replace(json.dumps(DEEP), before * depth + "1" + after * depth)
    return text.encode("utf-8", errors="surrogatepass")


def _place(root: list[Any], rng: Random) -> tuple[Any, Any]:
    """Return a container and the key of one of its values, at any depth."""
    holder, key = root, 0
    while rng.random() < 0.85:
        value: Any = holder[key]
        if isinstance(value, dict) and value:
            holder, key = value, rng.choice(list(value))
        elif isinstance(value, list) and value:
            holder, key = value, rng.randrange(len(value))
        else:
            break
    return holder, key


def _change(holder: Any, key: Any, others: Sequence[bytes], rng: Random) -> None:
    value = holder[key]
    match rng.randrange(9):
        case 0 | 1 | 2:
            holder[key] = rng.choice(ODD)
        case 3:
            if isinstance(holder, dict):
                holder[rng.choice([*map(str, ODD[:20]), *NAMES])] = holder.pop(key)
            else:
                holder.insert(key, value)
        case 4:
            if isinstance(holder, dict) or len(holder) > 1:
                del holder[key]
        case 5:
            holder[key] = _donated(others, rng)
        case 6:
            if isinstance(value, str):
                holder[key] = _spliced(value.encode("utf-8", errors="replace"), (), rng).decode(
                    "utf-8", errors="replace"
                )
            elif isinstance(value, int | float):
                holder[key] = value + rng.choice((-1, 1, 10**9, -(10**9), 2**62))
            elif isinstance(value, list):
                holder[key] = value * rng.choice((2, 3, 30))
            elif isinstance(value, dict):
                holder[key] = {**value, **{f"{name}{n}": each for n in range(5) for name, each in value.items()}}
        case 7:
            for _ in range(rng.choice((1, 3, 60))):
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
        case _:
            holder[key] = DEEP


def _donated(others: Sequence[bytes], rng: Random) -> Any:
    """Return a part of another text."""
    if not others:
        return None
    lines = rng.choice(others).split(b"\n")
    holder, key = _place([json.loads(rng.choice(lines))], rng)
    return holder[key]


def _spliced(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    """Return a text with pieces moved, doubled, taken out, or brought in."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 1, 2, 8, 64)))
        donor = rng.choice(list(others)) if others and rng.random() < 0.5 else data
        at = rng.randrange(len(donor) + 1)
        piece = donor[at : at + rng.choice((0, 1, 4, 32, 200))]
        if rng.random() < 0.2:
            piece = bytes(rng.randrange(256) for _ in range(rng.choice((1, 1, 4))))
        if rng.random() < 0.03:
            piece *= 300
        data = data[:start] + piece + data[end:]
    return data
