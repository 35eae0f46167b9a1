"""YAML nodes to plain values, with the problems found on the way. Knows no files and no documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span
from kube_policy_scheduler.documents.codes import DUPLICATE_KEY, SYNTAX

MAX_DEPTH = 200
"""Kubernetes objects nest about 20 deep; the parser itself is recursive."""
MAX_ALIASED = 1_000_000
"""Values that aliases may multiply one file into: a dozen lines can ask for billions."""
MAX_MERGED = 100_000
"""Entries that `<<` may add to the mappings of one file: a dozen lines can ask for billions."""
MAX_PROBLEMS = 10_000
"""Reported of one file: behind these, it is something else altogether."""

Value: TypeAlias = Any
"""None, bool, int, float, str, list of values, dict of str to value."""
Step: TypeAlias = str | int
Node: TypeAlias = yaml.Node

_MERGE = "tag:yaml.org,2002:merge"
_DIGITS = "0123456789"
_SCALARS = (
    # tag, what the whole text looks like, first characters ("": the empty text)
    ("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]),
    (
        "tag:yaml.org,2002:int",
        re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+)$"),
        [*"-+", *_DIGITS],
    ),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        [*"-+.", *_DIGITS],
    ),
    (_MERGE, re.compile(r"<<$"), ["<"]),
)


class HopelessError(Exception):
    """The value can't be built at all; what was found says why."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes nodes; resolves plain scalars by YAML 1.2's rules."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the library's


for _tag, _pattern, _first in _SCALARS:
    Loader.add_implicit_resolver(_tag, _pattern, _first)


class Construction:
    """Builds one document's value, reporting what is wrong with it."""

    def __init__(self, source: Source, found: list[Diagnostic]) -> None:
        self._source = source
        self._found = found
        self._built: dict[int, tuple[Value, int]] = {}
        self._open: set[int] = set()
        self._aliased = 0
        self._merged = 0

    def value(self, node: Node) -> Value:
        """Return the value of a document's root.

        Raises:
            HopelessError: it can't be built; the reason is among what was found.
        """
        return self._build(node, depth=0)[0]

    def _build(self, node: Node, *, depth: int) -> tuple[Value, int]:
        """Return the value and how many values it holds, aliases multiplied out."""
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node), 1
        known = self._built.get(id(node))
        if known is not None:
            self._aliased += known[1]
            if self._aliased > MAX_ALIASED:
                self._fail(node, "aliases expand this file too much")
            return known
        if id(node) in self._open:
            self._fail(node, "this value contains itself")
        if depth > MAX_DEPTH:
            self._fail(node, f"nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(node))
        size = 1
        value: Value
        if isinstance(node, yaml.SequenceNode):
            value = []
            for item in node.value:
                built, count = self._build(item, depth=depth + 1)
                value.append(built)
                size += count
        else:
            self._report_duplicates(node)
            value = {}
            own = len(node.value)
            for number, (key_node, value_node) in enumerate(entries(node)):
                key = self._key(key_node)
                if number >= own:
                    self._merged += 1
                    if self._merged > MAX_MERGED:
                        self._fail(node, "`<<` expands this file too much")
                if key not in value:  # of duplicates the first stays; merged entries come last
                    value[key], count = self._build(value_node, depth=depth + 1)
                    size += count
        self._open.discard(id(node))
        self._built[id(node)] = value, size
        return value, size

    def _key(self, node: Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fail(node, "a key must be a plain text")
        return str(node.value)

    def _report_duplicates(self, node: Node) -> None:
        first: dict[str, Node] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE or not isinstance(key_node, yaml.ScalarNode):
                continue
            earlier = first.setdefault(key_node.value, key_node)
            if earlier is not key_node:
                span, before = node_span(self._source, key_node), node_span(self._source, earlier)
                message = f"key `{key_node.value}` appears here twice"
                label = Label(before, "first here")
                self._add(DUPLICATE_KEY.at(span, message, labels=[label]))

    def _scalar(self, node: yaml.ScalarNode) -> Value:
        try:
            return _value(node.tag, node.value)
        except KeyError:
            self._report(node, f"the tag {node.tag} is not supported")
        except ValueError:
            self._report(node, f"{node.value!r} is not a number")
        return None

    def _report(self, node: Node, message: str) -> None:
        self._add(SYNTAX.at(node_span(self._source, node), message))

    def _add(self, problem: Diagnostic) -> None:
        self._found.append(problem)
        if len(self._found) >= MAX_PROBLEMS:
            raise HopelessError

    def _fail(self, node: Node, message: str) -> None:
        self._report(node, message)
        raise HopelessError


def entries(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield a mapping's own entries, then those it merges with `<<`; of what is merged twice, the first counts."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, yaml.MappingNode):
            continue
        seen.add(id(one))
        merged: list[Node] = []
        for key, value in one.value:
            if key.tag != _MERGE:
                yield key, value
            elif isinstance(value, yaml.SequenceNode):
                merged += value.value
            else:
                merged.append(value)
        waiting += reversed(merged)


def too_deep_at(text: str) -> int | None:
    """Return where a text is nested deeper than `MAX_DEPTH`; None where it is not, or is no YAML before it would be.

    The library builds nodes by recursion in C, which nothing else keeps from overflowing the stack.
    """
    depth = 0
    parser = Loader(text)
    try:
        while True:
            event = parser.get_event()
            match event:
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    depth += 1
                    if depth > MAX_DEPTH:
                        return event.start_mark.index if event.start_mark else 0
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    depth -= 1
                case yaml.StreamEndEvent():
                    return None
    except yaml.YAMLError:
        return None  # the library gets no further either
    finally:
        parser.dispose()


def is_empty(node: Node) -> bool:
    """Return whether nothing is written where the node stands."""
    return bool(node.start_mark.index == node.end_mark.index)


def node_span(source: Source, node: Node) -> Span:
    """Return where a node stands; of a mapping or list that has several lines, the first."""
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, yaml.ScalarNode):
        # the end of a block is where the next thing begins
        line_end = source.text.find("\n", start)
        end = min(end, len(source.text) if line_end < 0 else line_end)
    return Span(source, start, max(start, end))


def plain_value(text: str) -> Value:
    """Return what an unquoted scalar means.

    Raises:
        ValueError: it looks like a number, and is none.
    """
    for tag, pattern in Loader.yaml_implicit_resolvers.get(text[:1], ()):
        if pattern.match(text):
            return _value(tag, text)
    return text


def _value(tag: str, text: str) -> Value:
    match tag.removeprefix("tag:yaml.org,2002:"):
        case "str" | "merge":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, 0)
        case "float":
            return _float(text)
        case _:
            raise KeyError(tag)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
