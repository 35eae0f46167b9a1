"""Table cases: one case written once, with `${column}` in its texts, and a row of values for each time it is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from kube_policy_scheduler.documents.yaml_nodes import Step

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def rows(each: Any) -> list[Mapping[str, Any]]:
    """Return the rows of `each`: a list of rows, or columns with their values, of which every combination is meant."""
    if isinstance(each, Mapping):
        return [dict(zip(each, values, strict=True)) for values in product(*each.values())]
    return list(each)


def filled(form: Any, row: Mapping[str, Any]) -> Any:
    """Return a form with the row's values put in; a text that is nothing but `${column}` becomes the value itself."""
    match form:
        case str():
            whole = _PLACE.fullmatch(form)
            if whole is not None and whole[1] in row:
                return row[whole[1]]
            return _PLACE.sub(lambda found: as_text(row[found[1]]) if found[1] in row else found[0], form)
        case dict():
            return {filled_key(key, row): filled(value, row) for key, value in form.items()}
        case list():
            return [filled(item, row) for item in form]
        case _:
            return form


def filled_key(key: str, row: Mapping[str, Any]) -> str:
    """Return a key with the row's values put in."""
    return _PLACE.sub(lambda found: as_text(row[found[1]]) if found[1] in row else found[0], key)


def unfilled(form: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Yield every `${column}` that is left, as path and column."""
    match form:
        case str():
            yield from ((path, name) for name in _PLACE.findall(form))
        case dict():
            for key, value in form.items():
                yield from (((*path, key), name) for name in _PLACE.findall(key))
                yield from unfilled(value, (*path, key))
        case list():
            for index, item in enumerate(form):
                yield from unfilled(item, (*path, index))
        case _:
            return


def columns_used(form: Any) -> frozenset[str]:
    """Return the columns that a form asks for."""
    return frozenset(name for _, name in unfilled(form))


def label(row: Mapping[str, Any]) -> str:
    """Return what tells a row from the others, for the names of cases."""
    return ", ".join(f"{name} {as_text(value)}" for name, value in row.items())


def columns(table: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a table, in order."""
    return tuple(dict.fromkeys(name for row in table for name in row))


def as_text(value: Any) -> str:
    """Return a value as it is written."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case float() | int():
            return f"{value:.10g}"
        case _:
            return str(value)
