"""Operations on values at run time: numbers with NaN for missing, three-valued truth, dictionary-coded texts.

Truth that can be missing is coded 0 false, 1 missing, 2 true: `and` is the smaller, `or` the larger, `not x` is
2 - x, which are Kleene's tables. Truth that cannot be missing is plain bool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.lang.environment import Lists, TextChanges, Texts

FALSE, MISSING, TRUE = 0, 1, 2
_MOST = sys.float_info.max
TextValue: TypeAlias = Texts | str | None


class AbsentList(tuple[Any, ...]):
    """A list that is missing: it has no items."""

    __slots__ = ()


ABSENT_LIST = AbsentList()


def to_kleene(value: Any) -> Any:
    """Return bool as three-valued truth."""
    if isinstance(value, np.ndarray):
        return value.view(np.uint8) << 1 if value.dtype == np.bool_ else value.astype(np.uint8)
    return TRUE if value else FALSE


def full(value: Any, size: int) -> Any:
    """Return one number or truth as a column; a column as it is."""
    return value if isinstance(value, np.ndarray) else np.full(size, value)


def is_nan(value: Any) -> Any:
    """Return where a number is missing."""
    return np.isnan(value) if isinstance(value, np.ndarray) else value != value


def finite(value: Any) -> Any:
    """Return a number with overflow turned into missing."""
    if isinstance(value, np.ndarray):
        return np.where(np.isfinite(value), value, np.nan)
    return value if -_MOST <= value <= _MOST else float("nan")


def divide(left: Any, right: Any) -> Any:
    """Return the quotient; missing where the divisor is zero or the result too large."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        with np.errstate(all="ignore"):
            quotient = np.true_divide(left, right)
        return np.where(np.isfinite(quotient), quotient, np.nan)
    return finite(left / right) if right else float("nan")


def remainder(left: Any, right: Any) -> Any:
    """Return the remainder, with the sign of the divisor; missing where the divisor is zero."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        with np.errstate(all="ignore"):
            result = np.mod(left, right)
        return np.where(np.isfinite(result), result, np.nan)
    return finite(left % right) if right and left == left and right == right else float("nan")


# --- texts -----------------------------------------------------------------------------------------------


def texts_of(values: Iterable[str | None]) -> Texts:
    """Return a coded column of texts."""
    places: dict[str, int] = {}
    codes = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
    return Texts(np.array(codes, np.int32), list(places), places)


def as_texts(value: TextValue, size: int) -> Texts:
    """Return one text as a column; a column as it is."""
    if isinstance(value, Texts):
        return value
    if value is None:
        return Texts(np.full(size, -1, np.int32), [], {})
    return Texts(np.zeros(size, np.int32), [value], {value: 0})


def of_rows_asked(texts: Texts) -> Texts:
    """Return a column with no other texts than its rows have, if these are fewer."""
    if len(texts.codes) >= len(texts.values):
        return texts
    return texts_of([texts.values[code] if code >= 0 else None for code in texts.codes.tolist()])


def by_value(texts: Texts, function: Callable[[str], Any], *, absent: Any, dtype: Any) -> NDArray[Any]:
    """Return `dtype[rows]`: the function, called once per distinct text."""
    texts = of_rows_asked(texts)
    table = np.empty(len(texts.values) + 1, dtype)
    for place, value in enumerate(texts.values):
        table[place] = function(value)
    table[-1] = absent
    result: NDArray[Any] = table[texts.codes]
    return result


_FEW_SHARE = 8
"""Of fewer than 1/8 of the texts, what is not kept is made without the others."""
_SPARE_SHARE = 8
"""A table that is full grows by 1/8."""


class KeptTable:
    """What a function makes of each text of a column: kept, and made again for the texts that changed.

    Columns are told apart by what notes their changes; that of the column asked about last is kept.
    """

    __slots__ = ("_changes", "_done", "_dtype", "_others", "_seen", "_table")

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._changes: TextChanges | None = None
        self._seen = 0
        """How many changes were seen."""
        self._others: Sequence[Any] = ()
        """All besides the text that the results follow from."""
        self._done = 0
        """The number of texts, from the first, that have a result."""
        self._table: NDArray[Any] = np.empty(1, dtype)
        """By place of the text; the last one is of an absent text."""

    def of(
        self, texts: Texts, function: Callable[[Texts], NDArray[Any]], *, others: Sequence[Any] = ()
    ) -> NDArray[Any]:
        """Return `dtype[rows]`: the function of a column of texts, which looks at each text alone.

        others: all besides the text that the result follows from.
        """
        if texts.changes is None or self._lacks(texts, others) > _FEW_SHARE * len(texts.codes):
            return function(of_rows_asked(texts))
        self.make(texts, function, others=others)
        result: NDArray[Any] = self._table[texts.codes]
        return result

    def make(
        self,
        texts: Texts,
        function: Callable[[Texts], NDArray[Any]],
        *,
        others: Sequence[Any] = (),
        most: int | None = None,
    ) -> bool:
        """Make the results of changed texts, and of at most so many that have none; return whether there were any."""
        changes, size = texts.changes, len(texts.values)
        if changes is None:
            return False
        changed, done, table = self._changed(changes, others), self._done, self._table
        if changed is None:
            changed, done, table = (), 0, np.empty(1, self._dtype)
            table[-1:] = function(texts_of([None]))
        end = size if most is None else min(size, done + most)
        places = [*{place for place in changed if place < done}, *range(done, end)]
        if end >= len(table):
            longer = np.empty(size + size // _SPARE_SHARE + 1, self._dtype)
            longer[:done], longer[-1] = table[:done], table[-1]
            table = longer
        if places:
            table[places] = function(texts_of([texts.values[place] for place in places]))
        self._changes, self._seen, self._others, self._done, self._table = changes, changes.end, others, end, table
        return bool(places)

    def _changed(self, changes: TextChanges, others: Sequence[Any]) -> Sequence[int] | None:
        """Return the places whose text changed since; None: nothing that is kept is of use."""
        return changes.since(self._seen) if self._changes is changes and self._others == others else None

    def _lacks(self, texts: Texts, others: Sequence[Any]) -> int:
        """Return how many texts have no result, at most."""
        assert texts.changes is not None
        changed = self._changed(texts.changes, others)
        return len(texts.values) if changed is None else len(texts.values) - self._done + len(changed)


def map_texts(texts: Texts, function: Callable[[str], str | None]) -> Texts:
    """Return the column of the results of a function for each text."""
    places: dict[str, int] = {}
    texts = of_rows_asked(texts)
    table = np.empty(len(texts.values) + 1, np.int32)
    for place, value in enumerate(texts.values):
        made = function(value)
        table[place] = -1 if made is None else places.setdefault(made, len(places))
    table[-1] = -1
    return Texts(table[texts.codes], list(places), places)


def same_text(left: TextValue, right: TextValue) -> Any:
    """Return whether two texts are equal; an absent one equals nothing."""
    if not isinstance(left, Texts):
        left, right = right, left
    if not isinstance(left, Texts):
        return left is not None and left == right
    if not isinstance(right, Texts):
        if right is None:
            return np.zeros(len(left.codes), np.bool_)
        return left.codes == left.places.get(right, -2)
    mapped = by_value(left, lambda text: right.places.get(text, -2), absent=-2, dtype=np.int32)
    return mapped == right.codes


def select_text(condition: Any, left: TextValue, right: TextValue, size: int) -> TextValue:
    """Return left where the condition holds, else right."""
    if not isinstance(condition, np.ndarray):
        return left if condition else right
    a, b = as_texts(left, size), as_texts(right, size)
    places = dict(a.places)
    moved = by_value(b, lambda text: places.setdefault(text, len(places)), absent=-1, dtype=np.int32)
    return Texts(np.where(condition, a.codes, moved).astype(np.int32), list(places), places)


def contained_text(item: TextValue, items: Sequence[str | None]) -> Any:
    """Return whether a text is in a list of texts; an absent one is in none."""
    if isinstance(item, Texts):
        wanted = [place for text in items if text is not None and (place := item.places.get(text)) is not None]
        if len(wanted) == 1:
            return item.codes == wanted[0]
        table = np.zeros(len(item.values) + 1, np.bool_)
        table[wanted] = True
        return table[item.codes]
    return item is not None and item in items


def contained_in_lists(item: TextValue, lists: Sequence[Sequence[str | None]] | Lists) -> Any:
    """Return whether a text is in each row's list; an absent one is in none."""
    if isinstance(item, Texts):
        pairs = zip(item.codes.tolist(), lists, strict=True)
        return np.fromiter((code >= 0 and item.values[code] in row for code, row in pairs), np.bool_, len(lists))
    if item is None:
        return np.zeros(len(lists), np.bool_)
    if isinstance(lists, Lists):
        return np.fromiter((item in row for row in lists.values), np.bool_, len(lists.values))[lists.codes]
    return np.fromiter((item in row for row in lists), np.bool_, len(lists))


def contained_number(item: float, items: Sequence[float]) -> int:
    """Return, three-valued, whether a number is in a list."""
    if items is ABSENT_LIST or (item != item and items):
        return MISSING
    return TRUE if item in items else MISSING if any(each != each for each in items) else FALSE


def list_rows(value: Any, size: int) -> Any:
    """Return one list as one for each row; lists of rows as they are."""
    return value if isinstance(value, list | Lists) else [value] * size


def are_absent(lists: Any) -> NDArray[np.bool_]:
    """Return which rows have no list."""
    if isinstance(lists, Lists):
        return np.zeros(len(lists), np.bool_)
    return np.fromiter((each is ABSENT_LIST for each in lists), np.bool_, len(lists))
