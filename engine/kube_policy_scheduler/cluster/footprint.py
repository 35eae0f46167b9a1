"""How many bytes things take that are kept: found by going over what is in them, so no class says it of itself.

Columns count, and the items of containers. An array that is read-only, or a part of a larger one, is somebody else's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, ClassVar, Final, cast

import numpy as np

from kube_policy_scheduler.remembered import remembered

_COLLECTION_BYTES: Final = 64
"""Of a collection or mapping without its items."""
_PLACE_BYTES, _MEMBER_BYTES = 8, 48
"""Of an item of a list or tuple, and of a set."""
_ITEM_BYTES: Final = 96
"""Of a key with its value, which are small."""
_FEW: Final = 16
"""Of more items, the first one says what they have in them: they are alike."""
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_TEXTS: Final = frozenset({str, bytes})
_MAPPINGS: Final = frozenset({dict, OrderedDict})
_ITEM_BYTES_OF: Final[Mapping[type, int]] = {
    list: _PLACE_BYTES,
    tuple: _PLACE_BYTES,
    set: _MEMBER_BYTES,
    frozenset: _MEMBER_BYTES,
    dict: _ITEM_BYTES,
    OrderedDict: _ITEM_BYTES,
}


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
    return walk.own(things), walk.shared


class _Walk:
    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.shared: dict[Shared, int] = {}

    def own(self, things: Iterable[object]) -> int:
        """Return the bytes of things, and of what is in them, without those of `Shared` ones."""
        found, todo = 0, list(things)
        while todo:  # a loop, as most things are small: a call for each takes longer than it does
            thing = todo.pop()
            kind = type(thing)
            if kind in _PLAIN:
                continue
            if kind in _TEXTS:
                found += len(thing)  # type: ignore[arg-type]  # it is a text
            elif kind in _ITEM_BYTES_OF:
                items: Collection[Any] = thing.values() if kind in _MAPPINGS else thing  # type: ignore[attr-defined, assignment]
                found += _COLLECTION_BYTES + len(items) * _ITEM_BYTES_OF[kind]
                if len(items) <= _FEW:
                    todo += items
                elif (of_each := _ITEM_BYTES_OF.get(type(first := next(iter(items))))) is None:
                    todo += () if _is_empty(first) else items
                elif _is_flat(first):
                    found += len(items) * _COLLECTION_BYTES + sum(map(len, items)) * of_each
                else:
                    todo += items
            elif isinstance(thing, np.ndarray):
                base = thing.base
                is_part = isinstance(base, np.ndarray) and base.nbytes > thing.nbytes
                if thing.flags.writeable and not is_part and self._note(thing if base is None else base):
                    found += thing.nbytes
            elif isinstance(thing, Measured) and self._note(thing):
                if isinstance(thing, Shared):
                    self.shared[thing] = 0
                    self.shared[thing] = self.own(_attributes(thing))
                else:
                    todo += _attributes(thing)
        return found

    def _note(self, thing: object) -> bool:
        """Note a thing; return whether it was not met before."""
        is_new = id(thing) not in self._seen
        self._seen.add(id(thing))
        return is_new


def _is_flat(collection: Any) -> bool:
    """Return whether there are items in a collection or mapping, and nothing in them that counts."""
    items = collection.values() if type(collection) in _MAPPINGS else collection
    return bool(items) and _is_empty(next(iter(items)))


def _is_empty(thing: object) -> bool:
    """Return whether there is nothing in a thing that counts."""
    kind = type(thing)
    return not (kind in _TEXTS or kind in _ITEM_BYTES_OF or isinstance(thing, np.ndarray | Measured))


def _attributes(thing: Measured) -> list[object]:
    borrowed = thing.borrowed
    slots = [getattr(thing, name, None) for name in _slots(cast("Hashable", type(thing))) if name not in borrowed]
    return slots + [value for name, value in getattr(thing, "__dict__", {}).items() if name not in borrowed]


@remembered(most=256)
def _slots(kind: type[object]) -> tuple[str, ...]:
    """Return the names of the slots of a class."""
    found: dict[str, None] = {}
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        found |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    return tuple(name for name in found if name not in ("__weakref__", "__dict__"))
