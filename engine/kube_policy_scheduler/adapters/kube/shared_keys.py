"""Dictionaries of texts that share their keys, as those of many nodes: each then takes 200 bytes instead of 500.

Python shares keys between the attributes of all objects of a class (PEP 412), and with the copies of such a dictionary.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_MOST_KEYS = 30
"""With so many Python shares none."""


def with_shared_keys(texts: dict[str, str]) -> dict[str, str]:
    """Return the same texts, in the same order; the result and its copies share keys until they get other keys."""
    if len(texts) >= _MOST_KEYS or not _SPECIAL.isdisjoint(texts):
        return texts
    holder = _holder(tuple(texts))()
    for key, text in texts.items():
        setattr(holder, key, text)
    found: dict[str, str] = vars(holder)
    return found


@lru_cache(maxsize=256)
def _holder(keys: tuple[str, ...]) -> type[Any]:
    """Return the class whose objects have these attributes."""
    holder = type("Texts", (), {})
    first = holder()
    for key in keys:
        setattr(first, key, "")
    for _ in range(_MOST_KEYS):
        holder()  # each object that is made leaves less room for further keys, down to none
    return holder


_SPECIAL = frozenset(dir(_holder(())))
"""Attributes that Python itself reads."""
