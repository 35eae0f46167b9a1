"""Names in policies: where each is defined and used, to find and to rename it; what paths are about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.lang import expressions, syntax
from kube_policy_scheduler.lang.load import policy_name, resolved
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.reading.parse_tokens import Token, tokens
from kube_policy_scheduler.lang.walk import children

_KEPT_FILES = 512


class NameKind(Enum):
    """What a name is of."""

    LET = "let"
    DEF = "def"
    METRIC = "metric"
    CLAUSE = "clause"
    POLICY = "policy"
    QUEUE = "queue"
    FILE = "file"
    """The path of a `use`."""
    LOCAL = "variable"
    """A parameter of a `def`, or what an aggregate goes over."""

    @property
    def is_value(self) -> bool:
        """Return whether it is used in expressions by its bare name."""
        return self in (NameKind.LET, NameKind.DEF, NameKind.METRIC)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where a name stands."""

    name: str
    kind: NameKind | None
    """None: it is used as a value here, and what it is follows from its definition."""
    span: Span
    defines: bool = False
    statement: syntax.Statement | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name with all of its places."""

    name: str
    kind: NameKind
    definitions: tuple[Occurrence, ...]
    uses: tuple[Occurrence, ...]

    @property
    def places(self) -> tuple[Occurrence, ...]:
        """Return all places, definitions first."""
        return (*self.definitions, *self.uses)


def occurrences(file: syntax.File) -> tuple[Occurrence, ...]:
    """Return the names in a file, by place; names of fields and builtins are not among them."""
    return _occurrences(file.source, file)


@lru_cache(maxsize=_KEPT_FILES)
def _occurrences(source: Source, file: syntax.File) -> tuple[Occurrence, ...]:
    by_statement = tuple(_tokens_of(file))
    found: list[Occurrence] = []
    for statement, words in by_statement:
        found += _of_statement(statement, words)
    return tuple(sorted(found, key=lambda each: each.span.start))


def _tokens_of(file: syntax.File) -> Iterator[tuple[syntax.Statement, list[Token]]]:
    words = tokens(file.source)
    index = 0
    for statement in sorted(file.statements, key=lambda each: each.span.start):
        while index < len(words) and words[index].start < statement.span.start:
            index += 1
        end = index
        while end < len(words) and words[end].start < statement.span.end:
            end += 1
        yield statement, list(words[index:end])
        index = end


def _of_statement(statement: syntax.Statement, words: list[Token]) -> Iterator[Occurrence]:
    source = statement.span.source
    bound: frozenset[str] = frozenset()
    match statement:
        case syntax.Let() | syntax.Metric() | syntax.Def():
            kinds = {syntax.Let: NameKind.LET, syntax.Metric: NameKind.METRIC, syntax.Def: NameKind.DEF}
            yield Occurrence(statement.name, kinds[type(statement)], statement.name_span, True, statement)
            if isinstance(statement, syntax.Def):
                bound = frozenset(each.name for each in statement.parameters)
                for parameter in statement.parameters:
                    yield Occurrence(parameter.name, NameKind.LOCAL, parameter.span, True, statement)
        case syntax.PolicyName():
            at = next((word for word in words if word.kind == "OBJECT_NAME"), None)
            if at is not None:
                yield Occurrence(statement.name, NameKind.POLICY, Span(source, at.start, at.end), True, statement)
        case syntax.Queue():
            yield Occurrence(statement.name, NameKind.QUEUE, statement.name_span, True, statement)
            if statement.parent is not None:
                yield Occurrence(statement.parent, NameKind.QUEUE, statement.parent_span)
        case syntax.Canary():
            yield Occurrence(statement.of, NameKind.POLICY, statement.of_span)
        case syntax.UseFile():
            yield Occurrence(resolved(source.name, statement.path), NameKind.FILE, statement.path_span)
        case _:
            pass
    for word, after in pairwise(words):
        if word.kind == "AS" and after.kind == "OBJECT_NAME":
            yield Occurrence(after.text, NameKind.CLAUSE, Span(source, after.start, after.end), True, statement)
    yield from _uses(statement, bound)


def _uses(tree: Any, bound: frozenset[str]) -> Iterator[Occurrence]:
    """Yield the names used as values below a tree, but those that something around them binds."""
    stack: list[tuple[Any, frozenset[str]]] = [(tree, bound)]
    while stack:
        top, inside = stack.pop()
        match top:
            case expressions.Name():
                kind = NameKind.LOCAL if top.name in inside else None
                yield Occurrence(top.name, kind, top.span)
                continue
            case expressions.Call():
                yield Occurrence(top.function, None, top.name_span)
            case syntax.Devices():
                if top.word is not None:
                    continue  # the name of a rule, or of a value: only the checker knows
            case syntax.Topology():
                yield Occurrence(top.key, None, top.span)
                continue
            case syntax.Def():
                stack.append((top.value, inside))
                continue
            case expressions.Aggregate():
                stack.append((top.collection, inside))
                within = inside | {top.variable}
                stack += [(each, within) for each in (top.value, top.where) if each is not None]
                continue
        stack += [(child, inside) for child in children(top)]


def definitions(project: Project, name: str) -> Mapping[str, Occurrence]:
    """Return the `let`, `def` and `metric` names that a source can use, each with its definition."""
    found: dict[str, Occurrence] = {}
    for source in sorted(project.together(name), key=lambda each: each != name):
        for each in occurrences(project.files[source]):
            if each.defines and each.kind is not None and each.kind.is_value:
                found.setdefault(each.name, each)
    return found


def clause_names(project: Project, name: str) -> tuple[str, ...]:
    """Return the names that clauses have in a source and in those it can see."""
    files = (project.files[source] for source in sorted(project.together(name)))
    named = (each.name for file in files for each in occurrences(file) if each.kind is NameKind.CLAUSE)
    return tuple(dict.fromkeys(named))


def policy_names(project: Project) -> tuple[str, ...]:
    """Return the names of all policies."""
    return tuple(sorted({policy.name for policy in project.checked.policies}))


def queue_names(project: Project) -> tuple[str, ...]:
    """Return the names of all queues: those of all policies form one tree."""
    named = (each.name for file in project.files.values() for each in occurrences(file) if _declares_queue(each))
    return tuple(dict.fromkeys(named))


def _declares_queue(each: Occurrence) -> bool:
    return each.kind is NameKind.QUEUE and each.defines


def symbol_at(project: Project, name: str, offset: int) -> Symbol | None:
    """Return the symbol at an offset of a source; None where no name stands, or one of a field or builtin."""
    file = project.files.get(name)
    if file is None:
        return None
    at = next((each for each in occurrences(file) if each.span.start <= offset <= each.span.end), None)
    if at is None:
        return None
    match at.kind:
        case NameKind.LOCAL:
            return None
        case NameKind.FILE:
            return _file(project, at)
        case NameKind.POLICY:
            return _policy(project, at)
        case NameKind.QUEUE:
            return _queue(project, at)
        case NameKind.CLAUSE:
            return _everywhere(project, name, at, clause=True)
        case _:
            return _everywhere(project, name, at, clause=False)


def _file(project: Project, at: Occurrence) -> Symbol | None:
    source = project.sources.get(at.name)
    uses = tuple(
        each
        for file in project.files.values()
        for each in occurrences(file)
        if each.kind is NameKind.FILE and each.name == at.name
    )
    there = (Occurrence(at.name, NameKind.FILE, Span(source, 0, 0), True),) if source is not None else ()
    return Symbol(at.name, NameKind.FILE, there, uses)


def _policy(project: Project, at: Occurrence) -> Symbol:
    found = [
        each
        for file in project.files.values()
        for each in occurrences(file)
        if each.kind is NameKind.POLICY and each.name == at.name
    ]
    written = [each for each in found if each.defines]
    by_file = [
        Occurrence(at.name, NameKind.POLICY, Span(source, 0, 0), True)
        for source in project.sources.values()
        if not written and policy_name(source.name) == at.name
    ]
    return Symbol(at.name, NameKind.POLICY, (*written, *by_file), tuple(each for each in found if not each.defines))


def _queue(project: Project, at: Occurrence) -> Symbol:
    found = [
        each
        for file in project.files.values()
        for each in occurrences(file)
        if each.kind is NameKind.QUEUE and each.name == at.name
    ]
    defined, uses = ([each for each in found if each.defines is defines] for defines in (True, False))
    return Symbol(at.name, NameKind.QUEUE, tuple(defined), tuple(uses))


def _everywhere(project: Project, name: str, at: Occurrence, *, clause: bool) -> Symbol | None:
    """Return a name with its places in all sources that see it through each other."""

    def meant(each: Occurrence) -> bool:
        if each.name != at.name:
            return False
        return each.kind is NameKind.CLAUSE if clause else each.kind is None or each.kind.is_value

    mentions = {source: [each for each in occurrences(file) if meant(each)] for source, file in project.files.items()}
    closures = tuple(project.closures())
    reached, waiting = {name}, [name]
    while waiting:
        source = waiting.pop()
        for closure in closures:
            if source in closure:
                more = {other for other in closure if mentions[other]} - reached
                reached |= more
                waiting += more
    places = [each for source in sorted(reached) for each in mentions[source]]
    defined = tuple(each for each in places if each.defines)
    if not defined or defined[0].kind is None:
        return None
    return Symbol(at.name, defined[0].kind, defined, tuple(each for each in places if not each.defines))


_VALUE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class RenameError(ValueError):
    """A name cannot be changed, or not to that one; the text says why."""


def renamed(project: Project, name: str, offset: int, new: str) -> tuple[Symbol, tuple[tuple[Span, str], ...]]:
    """Return the symbol at an offset, and the texts that give it another name.

    Raises:
        RenameError: nothing there can be renamed, or the new name cannot be written or is taken.
    """
    symbol = symbol_at(project, name, offset)
    if symbol is None or symbol.kind is NameKind.FILE:
        raise RenameError("only names of `let`, `def`, `metric`, clauses, queues and policies can be renamed")
    if symbol.kind is NameKind.POLICY and not all(each.span.text for each in symbol.definitions):
        raise RenameError("the policy has the name of its file: write `policy NAME` first")
    pattern = _VALUE_NAME if symbol.kind.is_value else _OBJECT_NAME
    if not pattern.fullmatch(new):
        what = "letters, digits and `_`" if symbol.kind.is_value else "letters, digits, `-`, `.` and `_`"
        raise RenameError(f"`{new[:40]}` cannot be a name: use {what}")
    if symbol.kind.is_value and parse(Source("", f"let {new} = 1\nlet x = {new} + 1"))[1]:
        raise RenameError(f"`{new}` is a word of the language: choose another name")
    _refuse_taken(project, symbol, new)
    return symbol, tuple((each.span, new) for each in symbol.places)


def _refuse_taken(project: Project, symbol: Symbol, new: str) -> None:
    if new == symbol.name:
        return
    for source in {each.span.source.name for each in symbol.places}:
        if symbol.kind.is_value:
            locals_ = {
                each.name for each in occurrences(project.files[source]) if each.kind is NameKind.LOCAL and each.defines
            }
            known = {*definitions(project, source), *locals_, *project.environment.builtins}
            known |= {path.partition(".")[0] for path in project.environment.fields}
            known |= {*project.environment.topologies, "cluster"}
        elif symbol.kind is NameKind.CLAUSE:
            known = set(clause_names(project, source))
        elif symbol.kind is NameKind.QUEUE:
            known = set(queue_names(project))
        else:
            known = set(policy_names(project))
        if new in known:
            raise RenameError(f"the name `{new}` is taken")


# --- paths to fields -----------------------------------------------------------------------------------


def path_before(words: Sequence[Token]) -> tuple[str, ...]:
    """Return the names of the path that ends with the dot at the end: `node.free.` gives node, free."""
    path: list[str] = []
    index = len(words) - 1
    while index >= 1 and words[index].kind == "DOT" and words[index - 1].kind in ("NAME", "POD", "MEMBER"):
        path.append(words[index - 1].text)
        index -= 2
    return tuple(reversed(path))


def subject_of(root: str, words: Sequence[Token]) -> str:
    """Return what a path is about, such as `pod` and `node`, also by a name that an aggregate gives them."""
    if root in ("node", "pod", "cluster", "workload"):
        return root
    if root == "victim":
        return "pod"
    for index in range(len(words) - 1, 0, -1):
        if words[index - 1].text == root and words[index].kind == "IN":
            for token in words[index:]:
                if token.kind == "MEMBER":
                    return {"pods": "pod", "nodes": "node", "clusters": "cluster"}.get(token.text, "")
            break
    return ""
