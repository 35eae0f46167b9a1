"""A JSON schema's verdict on a document, as diagnostics. The only module that knows jsonschema."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.diagnostics import Diagnostic, closest, in_order
from kube_policy_scheduler.documents.codes import MISSING_KEY, UNKNOWN_KEY, WRONG_VALUE
from kube_policy_scheduler.documents.yaml_document import Document
from kube_policy_scheduler.documents.yaml_nodes import MAX_PROBLEMS, Step, Value

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

Schema = Mapping[str, Any]

EXPECTED = "expected"
"""Keyword of ours in a schema: what to say that was expected, such as "a duration such as 15s"."""

HINTS = "hints"
"""Keyword of ours in a schema: advice by the pattern of a text that people write there by mistake."""

_TYPES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_MAX_SHOWN = 60


class DocumentSchema:
    """A schema, checked once, for many documents."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Validator:
        from jsonschema import Draft202012Validator, validators  # 40 ms, for nothing where there is no document

        Draft202012Validator.check_schema(self._schema)
        types = Draft202012Validator.TYPE_CHECKER
        numbers = types.redefine("number", lambda of, value: types.is_type(value, "number") and not _is_nan(value))
        validator = validators.extend(Draft202012Validator, type_checker=numbers)  # type: ignore[no-untyped-call]
        made: Validator = validator(self._schema)
        return made

    def check(
        self, document: Document, *, at: Sequence[Step] = (), instead: Value | None = None
    ) -> tuple[Diagnostic, ...]:
        """Return what is wrong with a document, or with the part of it at a path: the first of very many problems.

        `instead` is checked in the place of that part: what was made from it.
        """
        value = document.value
        for step in at:
            value = value[step]
        if instead is not None:
            value = instead
        found = (
            _diagnostics(document, error, at=tuple(at), root=self._schema)
            for error in self._validator.iter_errors(value)
        )
        return in_order(islice((diagnostic for several in found for diagnostic in several), MAX_PROBLEMS))

    def foreign_keys(self, value: Value) -> list[tuple[Step, ...]]:
        """Return the paths of keys that are none of this schema and resemble none, as those of a later version do.

        A key that was probably mistyped, or that belongs somewhere else, is not foreign.
        """
        return list(_foreign(self._schema, value, (), frozenset(_names(self._schema))))


def without(value: Value, paths: Iterable[tuple[Step, ...]]) -> Value:
    """Return a value without the keys at these paths."""
    below: dict[Step, list[tuple[Step, ...]]] = {}
    for first, *rest in paths:
        below.setdefault(first, []).append(tuple(rest))
    if not below:
        return value
    if isinstance(value, dict):
        return {key: without(inner, below.get(key, ())) for key, inner in value.items() if () not in below.get(key, ())}
    return [without(inner, below.get(at, ())) for at, inner in enumerate(value)] if isinstance(value, list) else value


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, and its alternatives."""
    if isinstance(schema, Mapping):
        yield schema
        for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from _parts(alternative)


def _names(schema: Any) -> Iterator[str]:
    """Yield the names of all keys, wherever they belong."""
    for part in _parts(schema):
        for name, inner in part.get("properties", {}).items():
            yield name
            yield from _names(inner)
        yield from _names(part.get("items"))


def _foreign(schema: Any, value: Value, path: tuple[Step, ...], names: Container[str]) -> Iterator[tuple[Step, ...]]:
    parts = list(_parts(schema))
    if isinstance(value, list):
        for at, inner in enumerate(value):
            for part in parts:
                yield from _foreign(part.get("items"), inner, (*path, at), names)
    if not isinstance(value, dict):
        return
    known = {name: inner for part in parts for name, inner in part.get("properties", {}).items()}
    is_closed = any(part.get("additionalProperties") is False for part in parts)
    for key, inner in value.items():
        if key in known:
            yield from _foreign(known[key], inner, (*path, key), names)
        elif is_closed and key not in names and closest(key, known) is None:
            yield *path, key


def _diagnostics(
    document: Document, error: ValidationError, *, at: tuple[Step, ...], root: Schema
) -> Iterator[Diagnostic]:
    path = (*at, *error.absolute_path)
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    place = path_text(path)
    wanted: Any = error.validator_value
    given: Any = error.instance
    match error.validator:
        case "additionalProperties" | "unevaluatedProperties" if isinstance(error.instance, dict):
            known = list(schema.get("properties", {}))
            for key in error.instance:
                if key not in known and not _matches_pattern(key, schema):
                    yield document.error(
                        (*path, key),
                        UNKNOWN_KEY,
                        message=f"unknown key `{key}`" + (f" in {place}" if place else ""),
                        key=True,
                        advice=_belongs(key, schema, root)
                        or _stands_above(key, error.absolute_path, root)
                        or _did_you_mean(key, known),
                    )
        case "required":
            for key in wanted:
                if isinstance(error.instance, dict) and key not in error.instance:
                    yield document.error(
                        path,
                        MISSING_KEY,
                        message=f"key `{key}` is missing" + (f" in {place}" if place else ""),
                        key=True,
                        advice=_described(schema, key),
                    )
        case "dependentRequired":
            for key, needed in wanted.items():
                for other in needed:
                    if key in given and other not in given:
                        yield document.error(
                            (*path, key),
                            MISSING_KEY,
                            message=f"key `{key}` requires `{other}`",
                            key=True,
                        )
        case "uniqueItems":
            for index, item in enumerate(given):
                if item in given[:index]:
                    message = f"{place}: {shown(item)} appears here twice"
                    yield document.error((*path, index), WRONG_VALUE, message=message)
        case "anyOf" | "oneOf" if error.context and EXPECTED not in schema:
            branches = _branches(error)
            fitting = [branch for branch in branches if not any(_of_another_type(one, error) for one in branch)]
            if fitting:
                for inner in min(fitting, key=len):
                    yield from _diagnostics(document, inner, at=at, root=root)
            else:
                choices = dict.fromkeys(_expected(one, one.schema) for branch in branches for one in branch[:1])
                text = f"expected {' or '.join(choices)}, got {shown(given)}"
                message = f"{place}: {text}" if place else text
                yield document.error(path, WRONG_VALUE, message=message)
        case _:
            text = f"expected {_expected(error, schema)}, got {shown(given)}"
            yield document.error(
                path,
                WRONG_VALUE,
                message=f"{place}: {text}" if place else text,
                advice=_word_advice(error),
            )


def _branches(error: ValidationError) -> list[list[ValidationError]]:
    """Return the errors of each alternative."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    return list(branches.values())


def _of_another_type(inner: ValidationError, error: ValidationError) -> bool:
    """Tell whether an alternative was surely not meant: the value itself is another kind of thing."""
    if inner.absolute_path != error.absolute_path:
        return False
    return inner.validator == "type" or (
        inner.validator in ("enum", "const") and isinstance(inner.instance, dict | list)
    )


def _expected(error: ValidationError, schema: Any) -> str:
    wanted: Any = error.validator_value
    if isinstance(schema, Mapping) and EXPECTED in schema:
        return str(schema[EXPECTED])
    match error.validator:
        case "type":
            types = [wanted] if isinstance(wanted, str) else list(wanted)
            return " or ".join(_TYPES[one] for one in types if one != "null" or len(types) == 1)
        case "enum":
            return _one_of(wanted)
        case "const":
            return shown(wanted)
        case "minimum":
            return f"at least {wanted}"
        case "maximum":
            return f"at most {wanted}"
        case "exclusiveMinimum":
            return f"more than {wanted}"
        case "exclusiveMaximum":
            return f"less than {wanted}"
        case "minLength":
            return "a text that is not empty" if wanted == 1 else f"at least {wanted} characters"
        case "maxLength":
            return f"at most {wanted} characters"
        case "minItems" | "minProperties":
            return f"at least {'one item' if wanted == 1 else f'{wanted} items'}"
        case "maxItems" | "maxProperties":
            return f"at most {'one item' if wanted == 1 else f'{wanted} items'}"
        case "pattern":
            return f"a text such as {wanted}"
        case _:
            return f"something else ({error.validator})"


def _word_advice(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    hints: Mapping[str, str] = error.schema.get(HINTS, {}) if isinstance(error.schema, Mapping) else {}
    for pattern, advice in hints.items():
        if re.search(pattern, shown(error.instance)):
            return advice
    if isinstance(error.instance, str):
        if error.validator == "enum":
            return _did_you_mean(error.instance, [str(one) for one in wanted if one is not None], list_all=False)
        if error.validator == "type" and "boolean" in wanted and error.instance in _BOOLEAN_WORDS:
            return "write true or false: these files are YAML 1.2, where yes, no, on and off are texts"
    if error.validator == "type" and "string" in wanted and _is_scalar(error.instance):
        return f'quote it: "{shown(error.instance)}"'
    return ""


_BOOLEAN_WORDS = frozenset({"yes", "no", "on", "off", "Yes", "No", "On", "Off", "y", "n"})


def _belongs(key: str, schema: Schema, root: Schema) -> str:
    """Return below which keys of a mapping an unknown key belongs; "" if below none or below many."""
    places = [name for name, inner in schema.get("properties", {}).items() if key in _keys(inner, root)]
    return f"write it below `{places[0]}`" if len(places) == 1 else ""


def _stands_above(key: str, path: Iterable[Step], root: Schema) -> str:
    """Return beside which key of an enclosing mapping an unknown key belongs; "" if beside none.

    path: of the mapping that has the key, from the value that `root` describes.
    """
    parts, beside = list(_resolved(root, root)), ""
    for step in path:
        if isinstance(step, str):
            if any(key in part.get("properties", {}) for part in parts):
                beside = step
            inner = [part["properties"][step] for part in parts if step in part.get("properties", {})]
        else:
            inner = [part["items"] for part in parts if "items" in part]
        parts = [each for schema in inner for each in _resolved(schema, root)]
    return f"write it beside `{beside}`" if beside else ""


def _resolved(schema: Any, root: Schema) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a schema, also of one that it refers to."""
    for part in _parts(schema):
        yield part
        reference = str(part.get("$ref", ""))
        if reference.startswith(_DEFINITIONS):
            yield from _parts(root.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS), {}))


def _keys(schema: Any, root: Schema) -> Iterator[str]:
    """Yield the keys of the mapping that a schema describes, also where it refers to another one."""
    for part in _parts(schema):
        reference = str(part.get("$ref", ""))
        if reference.startswith(_DEFINITIONS):
            yield from root.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS), {}).get("properties", {})
        yield from part.get("properties", {})


_DEFINITIONS = "#/$defs/"


def _did_you_mean(word: str, known: Sequence[str], *, list_all: bool = True) -> str:
    meant = closest(word, known)
    if meant is not None:
        return f"did you mean `{meant}`?"
    return f"known keys: {', '.join(known)}" if list_all and known else ""


def _described(schema: Mapping[str, Any], key: str) -> str:
    inner = schema.get("properties", {}).get(key, {})
    if not isinstance(inner, Mapping):
        return ""
    if EXPECTED in inner:
        return f"expected {inner[EXPECTED]}"
    if "const" in inner:
        return f"write `{key}: {inner['const']}`"
    return f"expected {_one_of(inner['enum'])}" if "enum" in inner else ""


def _matches_pattern(key: str, schema: Mapping[str, Any]) -> bool:
    return any(re.search(pattern, key) for pattern in schema.get("patternProperties", {}))


def _one_of(words: Iterable[Any]) -> str:
    *most, last = [shown(word) for word in words if word is not None]
    return f"{', '.join(most)} or {last}" if most else last


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and value != value


def _is_scalar(value: Value) -> bool:
    return isinstance(value, bool | int | float)


def shown(value: Value) -> str:
    """Return a value as it is named in a message."""
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list" if value else "an empty list"
        case None:
            return "nothing"
        case "":
            return "an empty text"
        case str():
            return value if len(value) <= _MAX_SHOWN and value.isprintable() else json.dumps(value)[:_MAX_SHOWN] + "…"
        case _:
            return json.dumps(value)


def path_text(path: Sequence[Step]) -> str:
    """Return where a value stands, such as `http.tls` or `owners[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
