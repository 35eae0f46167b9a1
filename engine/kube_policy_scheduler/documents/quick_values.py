"""JSON and plain YAML to values, quickly, without positions. What needs a closer look is left to the slow way.

Recorded clusters are tens of megabytes that a program wrote: no aliases, no tags, nothing twice. Their values are
built from the parser's events, without a node for each.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kube_policy_scheduler.documents.yaml_nodes import MAX_DEPTH, Loader, Value, plain_value

_NOTHING: Any = object()
_MOST_KNOWN = 50_000
"""Distinct scalars whose meaning is remembered."""


class _CloserLookError(Exception):
    """Something is not plain, or wrong: the slow way says what."""


def json_value(text: str) -> Value | None:
    """Return the value of JSON; None where it is not JSON, is null, or says something twice."""
    if text.lstrip()[:1] not in ("{", "[") or _is_deep(text):
        return None
    try:
        value: Value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
        if re.search(_HALF_CHARACTER, text) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


_BRACKETS = b"[]{}"
_ALL_OTHERS = bytes(set(range(256)) - set(_BRACKETS))


_TEXT = rb'(?s)"(?:[^"\\]++|\\.)*+"'


def _is_deep(text: str) -> bool:
    """Return whether JSON is nested deeper than it may be; what is done with its value is recursive."""
    content = text.encode(errors="replace")
    return _has_deep_brackets(content) and _has_deep_brackets(re.sub(_TEXT, b"", content))


def _has_deep_brackets(content: bytes) -> bool:
    """Take pairs of brackets out, from the innermost to the outermost: of what programs write a dozen levels."""
    left = content.translate(None, _ALL_OTHERS)
    for _ in range(MAX_DEPTH):
        if not left:
            break
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return bool(left)


_HALF_CHARACTER = r"\\u[dD][89a-fA-F]"
"""One alone is no text, though JSON can write it; two may be one character."""


def _once(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return made


def _refuse(text: str) -> None:
    raise ValueError(text)


def yaml_values(text: str) -> list[tuple[int, Value]] | None:
    """Return the documents of YAML that are not empty, each with its place in the file from 0.

    None where it is not YAML, or holds an anchor, a tag, a merge, a key twice, a key that is no text, or a number
    that is none.
    """
    try:
        return _Builder(Loader(text)).documents()
    except (yaml.YAMLError, _CloserLookError):
        return None


class _Builder:
    def __init__(self, parser: Any) -> None:
        self._next = parser.get_event
        self._known: dict[str, Value] = {}

    def documents(self) -> list[tuple[int, Value]]:
        found: list[tuple[int, Value]] = []
        index = 0
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.StreamStartEvent | yaml.DocumentEndEvent):
                continue
            if not isinstance(event, yaml.DocumentStartEvent):
                raise _CloserLookError
            value = self._document()
            if value is not _NOTHING:
                found.append((index, value))
            index += 1
        return found

    def _document(self) -> Value:
        """Return one document's value; `_NOTHING` where it is empty."""
        event = self._next()
        if event.anchor is not None:
            raise _CloserLookError
        match event:
            case yaml.ScalarEvent(value="", implicit=(True, _)):
                return _NOTHING
            case yaml.ScalarEvent():
                return self._scalar(event)
            case yaml.MappingStartEvent(tag=None):
                root: Value = {}
            case yaml.SequenceStartEvent(tag=None):
                root = []
            case _:
                raise _CloserLookError
        self._fill(root)
        return root

    def _fill(self, root: Value) -> None:  # one loop, no calls: it turns three million times for 5,000 nodes
        advance, scalar = self._next, self._scalar
        scalar_event, mapping_start, sequence_start = yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent
        ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
        within, is_mapping, key = root, isinstance(root, dict), _NOTHING
        around: list[tuple[Value, Value]] = []
        while True:
            event = advance()
            kind = type(event)
            if kind is scalar_event:
                if is_mapping and key is _NOTHING:
                    if event.anchor is not None or event.tag is not None:
                        raise _CloserLookError
                    key = event.value
                    if key in within or key == "<<":
                        raise _CloserLookError
                    continue
                value = scalar(event)
            elif kind in ends:
                if not around:
                    return
                within, key = around.pop()
                is_mapping = key is not None
                key = _NOTHING
                continue
            elif (kind is mapping_start or kind is sequence_start) and event.anchor is None and event.tag is None:
                if (is_mapping and key is _NOTHING) or len(around) >= MAX_DEPTH:
                    raise _CloserLookError
                value = {} if kind is mapping_start else []
            else:
                raise _CloserLookError
            if is_mapping:
                within[key] = value
            else:
                within.append(value)
            if kind is not scalar_event:
                around.append((within, key if is_mapping else None))
                within, is_mapping = value, kind is mapping_start
            key = _NOTHING

    def _scalar(self, event: Any) -> Value:
        if event.anchor is not None or event.tag is not None:
            raise _CloserLookError
        text = event.value
        if not event.implicit[0]:
            return text
        known = self._known
        value = known.get(text, _NOTHING)
        if value is _NOTHING:
            try:
                value = plain_value(text)
            except ValueError as error:
                raise _CloserLookError from error
            if len(known) < _MOST_KNOWN:
                known[text] = value
        return value
