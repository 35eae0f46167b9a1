"""Which fields and functions compile at a place: the checker is asked about each kind.

A statement that is only begun is ended first, in the shortest way that the grammar allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.checking.check import check
from kube_policy_scheduler.lang.environment import Environment, Field, Key
from kube_policy_scheduler.lang.expressions import AGGREGATES
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.reading.parse_tokens import Token, accepted_after
from kube_policy_scheduler.lang.signature import Builtin, Parameter, Receives
from kube_policy_scheduler.lang.types import Kind

_NOT_HERE = frozenset(
    code.id
    for code in (
        codes.UNKNOWN_NAME,
        codes.UNKNOWN_FIELD,
        codes.NO_NODE,
        codes.NOT_HERE,
        codes.NOT_CONSTANT,
        codes.KEY,
        codes.UNSTABLE,
    )
)
"""What is wrong with a value at a place, whatever is written around it: types and units are not among it."""
_KEYS = {Key.RESOURCE: "cpu", Key.LABEL: "app", Key.ANNOTATION: "note", Key.CONDITION: "Ready"}
_MOST_PIECES = 12
_KEPT_PLACES = 64
_COLLECTIONS = ("node.pods", "cluster.nodes")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A statement up to a place where a value is to be written."""

    text: str
    """Up to the path or name of the value."""
    endings: tuple[str, ...]
    """What makes a whole statement of it, behind the value; several where it does not say what an aggregate goes over.
    Empty where nothing does: then all is possible."""


def beginning(text: str, before: Iterable[Token], behind: str) -> Beginning:
    """Return the beginning of a statement with its endings; behind: the rest of the line."""
    tokens = tuple(before)
    variable = _variable(text, tokens)
    known = re.search(rf"\bfor[ \t]+{re.escape(variable)}[ \t]+in[ \t]+([\w.()\"/-]+)", behind) if variable else None
    collections = (known[1],) if known is not None else _COLLECTIONS if variable else ("",)
    endings = (_ending(text, variable, collection) for collection in collections)
    return Beginning(text, tuple(each for each in endings if each is not None))


def _variable(text: str, before: tuple[Token, ...]) -> str:
    """Return the name that the innermost open aggregate has not bound yet: `sum(n.`; "" if there is none."""
    depth = 0
    for index in range(len(before) - 1, -1, -1):
        kind = before[index].kind
        if kind in ("RPAR", "RSQB"):
            depth += 1
        elif kind in ("LPAR", "LSQB"):
            if depth:
                depth -= 1
                continue
            called = before[index - 1].text if index else ""
            inside = before[index + 1 :]
            names = [a.text for a, b in pairwise(inside) if a.kind == "NAME" and b.kind == "DOT"]
            is_bound = any(token.kind in ("IN", "FOR") for token in inside)
            return names[0] if called in AGGREGATES and names and not is_bound else ""
    return ""


def _ending(text: str, variable: str, collection: str) -> str | None:
    """Return the shortest text that ends a statement behind a value; None if none is found."""
    ending = f" for {variable} in {collection}" if variable else ""
    for _ in range(_MOST_PIECES):
        accepts = accepted_after(f"{text}x{ending}")
        if "$END" in accepts:
            return ending
        piece = next((piece for terminal, piece in _PIECES.items() if terminal in accepts), None)
        if piece is None:
            return None
        ending += piece
    return None


_PIECES: Mapping[str, str] = {
    "RPAR": ")", "RSQB": "]", "THEN": " then 1", "ELSE": " else 1", "TO": " to 1", "SIZE": " size 1",
    "WHERE": " where true", "NODES": " nodes", "OF": " of role=a", "FOR": " for pods where true",
}  # fmt: skip
"""By the terminal that is possible: what is written for it, the surest first."""


def fields_there(place: Beginning, root: str, fields: Iterable[Field], environment: Environment) -> frozenset[str]:
    """Return the paths of those fields that can be read at a place by a root: `pod`, `p`, "" for fields without one."""
    found: set[str] = set()
    known: dict[tuple[object, ...], bool] = {}
    for field in fields:
        # all of a kind have one answer
        kind = (field.shape, field.depends, field.gives.kind, field.gives.unit, field.key)
        if kind not in known:
            rest = field.path.partition(".")[2]
            key = f".{_KEYS[field.key]}" if field.key is not None else ""
            known[kind] = _compiles(place, f"{root}.{rest}{key}" if root else f"{rest}{key}", environment)
        if known[kind]:
            found.add(field.path)
    return frozenset(found)


def builtins_there(place: Beginning, builtins: Iterable[Builtin], environment: Environment) -> frozenset[str]:
    """Return the names of those functions that can be called at a place."""
    found: set[str] = set()
    known: dict[tuple[object, ...], bool] = {}
    for each in builtins:
        kind = (each.shape, each.depends, each.gives.kind, each.scores_only, each.receives)
        if kind not in known:
            known[kind] = _compiles(place, call_of(each), environment)
        if known[kind]:
            found.add(each.name)
    return frozenset(found)


def aggregates_there(place: Beginning, environment: Environment) -> bool:
    """Return whether pods can be counted at a place."""
    subject = environment.subject
    return _compiles(place, f"count(q in {subject.everything}.{subject.collections[0]})", environment)


def call_of(each: Builtin) -> str:
    """Return a call of a function, with arguments of the types that it takes."""
    taken = [one for one in each.parameters if one.required or one.variadic]
    given = [_argument(one) for one in taken]
    if each.receives is Receives.INPUTS:
        given = ['promql("up")', *given[1:]]
    elif each.words.reads_text:
        given = [next(f'"{text}"' for text in _TEXTS if _is_read(each.kernel(text)))]
    return f"{each.name}({', '.join(given)})"


_TEXTS = ("a", "10:00", "UTC", "1", "4Gi", "1h", "1.2", "2026-01-01", "up")


def _is_read(value: object) -> bool:
    """Return whether a function could read a text: what it cannot is None or NaN."""
    return value is not None and value == value


def _argument(one: Parameter) -> str:
    takes = one.takes
    if takes.word:
        return "cpu"
    match takes.kind:
        case Kind.NUMBER:
            seconds, size = takes.unit is not None and takes.unit.seconds, takes.unit is not None and takes.unit.bytes
            return "1s" if seconds else "1Gi" if size else "1"
        case Kind.TRUTH:
            return "true"
        case Kind.LIST:
            return '["a"]'
        case _:
            return f'"{_text_for(takes.prepare)}"'


def _text_for(prepare: object) -> str:
    """Return a constant text that a parameter takes."""
    for text in _TEXTS:
        try:
            if callable(prepare):
                prepare(text)
        except ValueError:
            continue
        return text
    return "a"


def _compiles(place: Beginning, value: str, environment: Environment) -> bool:
    """Return whether a value has no error of its own at a place."""
    return not place.endings or any(_is_right(place.text, value, each, environment) for each in place.endings)


@lru_cache(maxsize=_KEPT_PLACES * 64)
def _is_right(before: str, value: str, ending: str, environment: Environment) -> bool:
    source = Source("statement.policy", f"{before}{value}{ending}")
    file, found = parse(source)
    if found:
        return True  # not a statement: nothing is known
    _, problems, _ = check(file.statements, environment, source=source, name="statement")
    start, end = len(before), len(before) + len(value)
    return not any(each.code in _NOT_HERE and _is_within(each, start, end) for each in problems)


def _is_within(each: Diagnostic, start: int, end: int) -> bool:
    return start <= each.span.start and each.span.end <= end
