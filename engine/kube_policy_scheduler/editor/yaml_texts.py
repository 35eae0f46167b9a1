"""YAML files that have a schema, as an editor sees them: where an offset is, what can be written there, what it means.

Knows no file by name: all of it follows from a JSON schema. The keywords `names` and `keys` of ours say what the text
of a value, or the keys of a mapping, are the names of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.documents.schema import EXPECTED
from kube_policy_scheduler.documents.yaml_nodes import Loader, Step, too_deep_at
from kube_policy_scheduler.editor.completion import Item, ItemKind
from kube_policy_scheduler.editor.hover import Hover

NAMES = "names"
"""Keyword of ours in a schema: what a text is the name of."""
KEYS = "keys"
"""Keyword of ours in a schema: what the keys of a mapping are the names of."""
MOST_CHARACTERS = 256 * 1024
"""Of a file that is completed in; each answer reads it once to five times."""
_MARK = "Qz7Mark"
_MOST_BRANCHES = 200
_WORD = re.compile(r"[\w./$-]*$")
_PLAIN = re.compile(r"[A-Za-z0-9_/.$][\w/.${} -]*")

Schema = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]
"""What can be named, by the word that the schema has for it."""


@dataclass(frozen=True, slots=True)
class YamlPlace:
    """Where an offset is."""

    path: tuple[Step, ...]
    """Of the mapping or list for a key, of the value otherwise."""
    is_key: bool
    span: Span
    taken: frozenset[str] = frozenset()
    """The keys that the mapping has."""


def place_at(source: Source, offset: int) -> YamlPlace | None:
    """Return the key or the plain value at an offset of a text; None where none is, or the text is no YAML."""
    for root in _compose(source.text):
        found = _find(root, (), lambda node: node.start_mark.index <= offset <= node.end_mark.index)
        if found is not None:
            path, is_key, node, taken = found
            return YamlPlace(path, is_key, Span(source, node.start_mark.index, node.end_mark.index), taken)
    return None


def scalars(source: Source, *, key: str) -> Iterator[tuple[str, Span]]:
    """Yield the texts behind a key, wherever it stands, with their places."""
    for value in _behind(source.text, key):
        if isinstance(value, yaml.ScalarNode):
            yield str(value.value), Span(source, value.start_mark.index, value.end_mark.index)


def keys_below(source: Source, *, key: str) -> Iterator[tuple[str, Span]]:
    """Yield the keys of the mappings behind a key, wherever it stands, with their places, without quotes."""
    for value in _behind(source.text, key):
        for one, _ in value.value if isinstance(value, yaml.MappingNode) else ():
            if isinstance(one, yaml.ScalarNode):
                inside = len(one.style or "") if one.style in ("'", '"') else 0
                start, end = one.start_mark.index + inside, one.end_mark.index - inside
                yield str(one.value), Span(source, start, end)


def _behind(text: str, key: str) -> Iterator[Any]:
    """Yield the nodes behind a key, wherever it stands; what aliases repeat only once."""
    stack = _compose(text)
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                stack.append(value)
                if getattr(name, "value", None) == key:
                    yield value


def _compose(text: str) -> list[Any]:
    if len(text) > MOST_CHARACTERS or too_deep_at(text) is not None:
        return []
    try:
        return [root for root in yaml.compose_all(text, Loader=Loader) if root is not None]
    except (yaml.YAMLError, ValueError, RecursionError):
        return []


def _find(root: Any, path: tuple[Step, ...], is_it: Any) -> tuple[tuple[Step, ...], bool, Any, frozenset[str]] | None:
    """Return the first scalar that is meant, with its path."""
    stack: list[tuple[Any, tuple[Step, ...]]] = [(root, path)]
    seen: set[int] = set()
    while stack:
        node, at = stack.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            if is_it(node):
                return at, False, node, frozenset()
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((item, (*at, index)) for index, item in enumerate(node.value))
        else:
            keys = frozenset(str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if is_it(key):
                        return at, True, key, keys
                    stack.append((value, (*at, str(key.value))))
    return None


# --- schemas ---------------------------------------------------------------------------------------------


def schemas_at(schema: Schema, path: Sequence[Step]) -> list[Schema]:
    """Return what a schema says of the value at a path: all alternatives that it has."""
    here = list(_expanded(schema, schema))
    for step in path:
        inner: list[Schema] = []
        for one in here:
            inner += [each for below in _below(one, step) for each in _expanded(below, schema)]
        here = inner[:_MOST_BRANCHES]
    return here


def _below(schema: Schema, step: Step) -> Iterator[Schema]:
    if isinstance(step, int):
        items = schema.get("items")
        if isinstance(items, Mapping):
            yield items
        return
    properties = schema.get("properties", {})
    if step in properties:
        yield properties[step]
        return
    patterns = [each for pattern, each in schema.get("patternProperties", {}).items() if re.search(pattern, step)]
    yield from patterns
    rest = schema.get("additionalProperties")
    if not patterns and isinstance(rest, Mapping):
        yield rest


def _expanded(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield a schema and all of its alternatives, references resolved."""
    stack, seen = [schema], 0
    while stack and seen < _MOST_BRANCHES:
        one = stack.pop()
        seen += 1
        yield one
        reference = one.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) else {}
            if isinstance(target, Mapping):
                stack.append(target)
        for word in ("anyOf", "oneOf", "allOf"):
            stack.extend(each for each in reversed(one.get(word, ())) if isinstance(each, Mapping))


def _first(schemas: Sequence[Schema], key: str) -> str:
    return next((str(each[key]) for each in schemas if key in each), "")


def _about(schemas: Sequence[Schema]) -> str:
    """Return what a value means, and what is expected."""
    said, expected = _first(schemas, "description"), _first(schemas, EXPECTED)
    words = [str(word) for each in schemas for word in _words(each)]
    parts = [said, f"Expected: {expected}." if expected else ""]
    parts.append(
        f"One of: {', '.join(f'`{word}`' for word in dict.fromkeys(words))}." if words and not expected else ""
    )
    return "\n\n".join(part for part in parts if part)


def _words(schema: Schema) -> Iterator[str]:
    for value in (*schema.get("enum", ()), *((schema["const"],) if "const" in schema else ())):
        if value is not None:
            yield {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    kinds = schema.get("type", ())
    if kinds == "boolean" or (not isinstance(kinds, str) and "boolean" in kinds):
        yield from ("true", "false")


# --- answers ---------------------------------------------------------------------------------------------


def hover_in(source: Source, schema: Schema, offset: int) -> Hover | None:
    """Return what the schema says of the key or value at an offset."""
    at = place_at(source, offset)
    if at is None:
        return None
    path = (*at.path, _key_text(at.span)) if at.is_key else at.path
    about = _about(schemas_at(schema, path))
    return Hover(at.span, f"`{path[-1]}`\n\n{about}" if path and about else about) if about else None


def _key_text(span: Span) -> str:
    text = span.text.strip()
    return text[1:-1] if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1 else text


def complete_in(source: Source, schema: Schema, offset: int, names: Names) -> tuple[Item, ...]:
    """Return the keys and values that can be written at an offset."""
    if len(source.text) > MOST_CHARACTERS:
        return ()
    line_start = source.text.rfind("\n", 0, offset) + 1
    written = source.text[line_start:offset]
    if re.search(r"(^|\s)#", written):
        return ()
    word = _WORD.search(written)
    start = offset - len(word[0] if word else "")
    at = _marked(source.text, start, offset)
    if at is None:
        return ()
    path, is_key, taken = at
    found: dict[str, Item] = {}
    if is_key:
        for item in _keys(schemas_at(schema, path), names, start, taken):
            found.setdefault(item.label, item)
    else:
        schemas = schemas_at(schema, path)
        for item in _values(schemas, names, start):
            found.setdefault(item.label, item)
        if not source.text[line_start:start].strip(" -\t"):  # a mapping may begin here
            for item in _keys(schemas, names, start, frozenset()):
                found.setdefault(item.label, item)
    return tuple(sorted(found.values(), key=lambda item: (item.rank, item.label)))


def _keys(schemas: Sequence[Schema], names: Names, start: int, taken: frozenset[str]) -> Iterator[Item]:
    required = {key for each in schemas for key in each.get("required", ())}
    for each in schemas:
        for key, inner in each.get("properties", {}).items():
            if key not in taken and isinstance(inner, Mapping):
                said = str(inner.get("description", ""))
                rank = 1 if key in required else 2
                yield Item(key, ItemKind.FIELD, start, f"{key}: ", said.partition(". ")[0], said, rank)
        for name in names.get(each.get(KEYS, ""), ()):
            if name not in taken:
                yield Item(name, ItemKind.VALUE, start, f"{_quoted(name)}: ", str(each[KEYS]), rank=3)


def _values(schemas: Sequence[Schema], names: Names, start: int) -> Iterator[Item]:
    for each in schemas:
        for word in _words(each):
            yield Item(word, ItemKind.VALUE, start, rank=1)
        for name in names.get(each.get(NAMES, ""), ()):
            yield Item(name, ItemKind.VALUE, start, _quoted(name), str(each[NAMES]), rank=1)
        for example in each.get("examples", ()):
            if isinstance(example, str):
                yield Item(example, ItemKind.VALUE, start, _quoted(example), "an example", rank=3)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.strip() == text and text.lower() not in ("true", "false", "null", "~"):
        return text
    return "'" + text.replace("'", "''") + "'"


def _marked(text: str, start: int, offset: int) -> tuple[tuple[Step, ...], bool, frozenset[str]] | None:
    """Return where a word between two offsets would stand: its path, whether it is a key, and the other keys.

    A file that is being written is seldom YAML: the word is tried as a value and as a key, with the rest of the file
    and without it, with open brackets closed.
    """
    before, line_end = text[:start], text.find("\n", offset)
    rest = text[line_end:] if line_end >= 0 else ""
    closing = _open_brackets(before)
    tail = text[offset : line_end if line_end >= 0 else len(text)]
    tries = (
        before + _MARK + tail + rest,
        before + _MARK + ": 0" + rest if not tail.strip() else "",
        before + _MARK + closing + rest,
        before + _MARK + ": 0" + closing + rest,
        before + _MARK + closing,
        before + _MARK + ": 0" + closing,
    )
    for candidate in tries:
        for root in _compose(candidate) if candidate else ():
            found = _find(root, (), lambda node: str(node.value).startswith(_MARK))
            if found is not None:
                path, is_key, node, keys = found
                return path, is_key, keys - {str(node.value)}
    return None


def _open_brackets(text: str) -> str:
    """Return what closes the flow mappings and lists that are open at the end of a text."""
    stack: list[str] = []
    quote, before = "", "\n"
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and before in " \n\t[{,:":
            quote = character
        elif character == "\n" and not stack:
            before = character
        elif character in "[{" and (stack or before in " \n\t-:"):
            stack.append({"[": "]", "{": "}"}[character])
        elif stack and character == stack[-1]:
            stack.pop()
        before = character
    return (quote if len(quote) == 1 and stack else "") + "".join(reversed(stack))
