"""How many bytes things take that are kept: found by going over what is in them, so no class says it of itself.

Columns count, and the items of containers. An array that is read-only, or a part of a larger one, is somebody else's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable
from typing import ClassVar, Final, cast

import numpy as np

from kube_policy_scheduler.remembered import remembered

_PLACE_BYTES: Final = 8
"""Of an item of a list, tuple or set."""
_ITEM_BYTES: Final = 96
"""Of a key with its value, which are small."""
_FEW: Final = 16
"""Of more items, the first one says whether any of them has something in it: they are alike."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_TEXTS: Final = frozenset({str, bytes})
_MAPPINGS: Final = frozenset({dict, OrderedDict})
_COLLECTIONS: Final = frozenset({list, tuple, set, frozenset})


class Measured:
    """What counts with all its attributes where it is kept. Attributes of other classes count as nothing."""

    __slots__ = ()
    borrowed: ClassVar[frozenset[str]] = frozenset()
    """Attributes that something else keeps."""


class Shared(Measured):
    """The same where several that are kept may have it in common: it is counted once. Compared by identity."""

    __slots__ = ()


def footprint(*things: object) -> tuple[int, dict[Shared, int]]:
    """Return about how many bytes things take that nothing shares, and those that something may share, with theirs."""
    walk = _Walk()
    return sum([walk.add(thing) for thing in things]), walk.shared


class _Walk:
    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.shared: dict[Shared, int] = {}

    def add(self, thing: object) -> int:
        """Return the bytes of a thing without those of `Shared` ones."""
        kind = type(thing)
        if kind in _PLAIN:
            return 0
        if kind in _TEXTS:
            return len(thing)  # type: ignore[arg-type]  # it is a text
        if isinstance(thing, np.ndarray):
            memory = thing if thing.base is None else thing.base
            if _is_borrowed(thing) or id(memory) in self._seen:
                return 0
            self._seen.add(id(memory))
            return thing.nbytes
        if isinstance(thing, Measured):
            if id(thing) in self._seen:
                return 0
            self._seen.add(id(thing))
            if isinstance(thing, Shared):
                self.shared[thing] = 0
                self.shared[thing] = self._inside(thing)
                return 0
            return self._inside(thing)
        if kind in _MAPPINGS:
            values: Collection[object] = thing.values()  # type: ignore[attr-defined]  # it is a mapping
            return len(values) * _ITEM_BYTES + self._all(values)
        if kind in _COLLECTIONS:
            return len(thing) * _PLACE_BYTES + self._all(thing)  # type: ignore[arg-type]  # it is a collection
        return 0

    def _all(self, things: Collection[object]) -> int:
        if len(things) > _FEW and _is_empty(next(iter(things))):
            return 0
        return sum([self.add(each) for each in things])

    def _inside(self, thing: Measured) -> int:
        return sum([self.add(value) for value in _attributes(thing)])


def _is_borrowed(array: np.ndarray) -> bool:
    base = array.base
    return not array.flags.writeable or (isinstance(base, np.ndarray) and base.nbytes > array.nbytes)


def _is_empty(thing: object) -> bool:
    """Return whether there is nothing in a thing that counts."""
    kind = type(thing)
    if kind in _TEXTS or kind in _MAPPINGS or kind in _COLLECTIONS:
        return False
    return not isinstance(thing, np.ndarray | Measured)


def _attributes(thing: Measured) -> Iterable[object]:
    borrowed = thing.borrowed
    for name in _slots(cast("Hashable", type(thing))):
        if name not in borrowed:
            yield getattr(thing, name, None)
    for name, value in getattr(thing, "__dict__", {}).items():
        if name not in borrowed:
            yield value


@remembered(most=256)
def _slots(kind: type[object]) -> tuple[str, ...]:
    """Return the names of the slots of a class."""
    found: dict[str, None] = {}
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        found |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    return tuple(name for name in found if name not in ("__weakref__", "__dict__"))
