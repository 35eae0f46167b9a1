"""YAML or JSON text to plain values that remember where they stand. Knows no schema.

The values are those of YAML's JSON schema: `yes`, `on`, `12:30` and `2026-11-21` are texts, keys are texts, and a
key stands once in its mapping.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span, in_order, render
from kube_policy_scheduler.documents.bounded_files import (
    UnreadableFileError,
    encoding_problem,
    problem_of,
    read_bounded,
)
from kube_policy_scheduler.documents.codes import SYNTAX, UNREADABLE
from kube_policy_scheduler.documents.quick_values import json_value, yaml_values
from kube_policy_scheduler.documents.yaml_nodes import (
    MAX_DEPTH,
    Construction,
    HopelessError,
    Loader,
    Node,
    Step,
    Value,
    entries,
    is_empty,
    node_span,
    too_deep_at,
)
from kube_policy_scheduler.lang.codes import Code


class DocumentError(Exception):
    """A file is not what it should be; the text is its rendered diagnostics."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        super().__init__()
        self.diagnostics = in_order(diagnostics)

    def __str__(self) -> str:
        return "\n".join(for_terminal(diagnostic) for diagnostic in self.diagnostics)


def for_terminal(diagnostic: Diagnostic, *, colour: bool = False, width: int = 100) -> str:
    """Return a diagnostic for people; of a file that has no text to point at, what commands say of any argument."""
    if diagnostic.code == UNREADABLE.id and not diagnostic.span.source.text:
        return f"Error: {diagnostic.message}"
    return render(diagnostic, colour=colour, width=width)


class Document:
    """One document of a file: its value, and the span of every part of it."""

    def __init__(self, source: Source, *, value: Value, root: Node | Roots | None, index: int = 0) -> None:
        """Take a value; without a root the text is read again, once a place in it is asked for."""
        self.source = source
        self.value = value
        self.index = index
        """Which document of the file it is, from 0."""
        self._root = Roots(source) if root is None else root
        self._entries: dict[int, dict[str, tuple[Node, Node]]] = {}
        """Of mappings in which places were asked for."""

    def span(self, path: Sequence[Step] = (), *, key: bool = False) -> Span:
        """Return where a part of the value stands, or its key; of what is not there, the nearest that is."""
        node = self._node()
        found = node
        for step in path:
            entry = None if found is None else self._entry(found, step)
            if entry is None:
                break
            key_node, value_node = entry
            # an empty value has no text of its own: the key stands for it
            node = key_node if key_node is not None and (key or is_empty(value_node)) else value_node
            found = value_node
        if node is None:
            return Span(self.source, 0, 0)
        return node_span(self.source, node)

    def error(
        self, path: Sequence[Step], code: Code, *, message: str, key: bool = False, advice: str = ""
    ) -> Diagnostic:
        """Return an error that points at a part of this document."""
        return code.at(self.span(path, key=key), message, help=advice)

    def _entry(self, node: Node, step: Step) -> tuple[Node | None, Node] | None:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return None, node.value[step]
        if not isinstance(node, yaml.MappingNode):
            return None
        known = self._entries.get(id(node))
        if known is None:
            known = self._entries[id(node)] = {}
            for key, value in entries(node):
                known.setdefault(str(key.value), (key, value))
        return known.get(str(step))

    def _node(self) -> Node | None:
        return self._root.of(self.index) if isinstance(self._root, Roots) else self._root


class Roots:
    """The nodes of a file that was read quickly, without positions, until somebody asks for one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._composed: list[Node] | None = None

    def of(self, index: int) -> Node | None:
        """Return the root of a document; None where it is JSON that is no YAML."""
        if self._composed is None:
            self._composed = []
            with suppress(yaml.YAMLError):
                if too_deep_at(self._source.text) is None:
                    self._composed.extend(yaml.compose_all(self._source.text, Loader=Loader))
        return self._composed[index] if index < len(self._composed) else None


def read_source(path: Path) -> Source:
    """Read a text file, plain or compressed with gzip.

    Raises:
        DocumentError: it is not there, not readable or not UTF-8.
    """
    try:
        content = read_bounded(path)
    except UnreadableFileError as error:
        nowhere = Span(Source(str(path), ""), 0, 0)
        raise DocumentError([UNREADABLE.at(nowhere, problem_of(path, error))]) from error
    return decoded(content, name=str(path))


def decoded(content: bytes, *, name: str) -> Source:
    """Return what a file holds as a text.

    Raises:
        DocumentError: it is not UTF-8.
    """
    try:
        return Source(name, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", errors="replace")
        # the byte itself is shown, too: an error in an empty text would have no place in the file
        span = Span(Source(name, f"{before}\ufffd"), len(before), len(before))
        is_utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        why = ": it is UTF-16, which `>` of Windows PowerShell writes" if is_utf_16 else ""
        raise DocumentError(
            [UNREADABLE.at(span, encoding_problem(content), help=f"save the file as UTF-8{why}")]
        ) from error


def parse_documents(source: Source) -> tuple[Document, ...]:
    """Parse every document of a file; empty ones are left out.

    Raises:
        DocumentError: it is not YAML, or says something twice; all duplicate keys are reported.
    """
    as_json = json_value(source.text)
    plain = [(0, as_json)] if as_json is not None else yaml_values(source.text)
    if plain is not None:
        roots = Roots(source)
        return tuple(Document(source, value=value, root=roots, index=index) for index, value in plain)
    found: list[Diagnostic] = []
    documents = []
    for index, root in enumerate(_compose(source)):
        try:
            value = Construction(source, found).value(root)
        except HopelessError as error:
            raise DocumentError(found) from error
        if not (isinstance(root, yaml.ScalarNode) and is_empty(root)):
            documents.append(Document(source, value=value, root=root, index=index))
    if found:
        raise DocumentError(found)
    return tuple(documents)


def parse_document(source: Source) -> Document:
    """Parse a file that holds one document.

    Raises:
        DocumentError: as `parse_documents`; or it holds none, or several.
    """
    documents = parse_documents(source)
    if len(documents) == 1:
        return documents[0]
    if not documents:
        empty = Span(source, 0, 0)
        raise DocumentError([SYNTAX.at(empty, "the file is empty, expected one document")])
    raise DocumentError(
        [documents[1].error((), SYNTAX, message=f"expected one document, this is the second of {len(documents)}")]
    )


def _compose(source: Source) -> Iterator[Node]:
    try:
        deep = too_deep_at(source.text)
        if deep is not None:
            raise DocumentError([SYNTAX.at(Span(source, deep, deep + 1), f"nested deeper than {MAX_DEPTH} levels")])
        yield from yaml.compose_all(source.text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([_syntax_error(source, error)]) from error
    except yaml.reader.ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(error.character)
        # the first of its kind: `position` counts bytes in libyaml, and characters in PyYAML's own reader
        at = max(0, source.text.find(chr(code)))
        span = Span(source, at, at + 1)
        message = f"the character U+{code:04X} is not allowed in YAML"
        raise DocumentError([SYNTAX.at(span, message)]) from error


def _syntax_error(source: Source, error: yaml.MarkedYAMLError) -> Diagnostic:
    text = source.text
    at = min(len(text), error.problem_mark.index if error.problem_mark else 0)
    if at and at == len(text):  # the end of the file has no line of its own: point at the last thing before it
        at = len(text.rstrip()) or 1
        at -= 1
    problem = error.problem or error.context or "cannot be parsed"
    advice = ""
    line = source.line(source.position(at)[0])
    if "\t" in line[: len(line) - len(line.lstrip())]:
        problem, advice = "a tab cannot indent", "indent with spaces"
    elif "mapping values" in problem:
        advice = 'check the indentation, or quote a text that holds ": "'
    elif "quoted scalar" in (error.context or "") and "end of stream" in problem:
        problem = "a quoted text has no end"
    labels: tuple[Label, ...] = ()
    if error.context and error.context_mark and error.context_mark.line != source.position(at)[0] - 1:
        start = min(len(text), error.context_mark.index)
        labels = (Label(Span(source, start, start + 1), error.context.removeprefix("while ")),)
    message = f"not YAML: {problem}"
    return SYNTAX.at(Span(source, at, at + 1), message, help=advice, labels=labels)
