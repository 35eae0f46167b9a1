"""The shape of a policy: colours of its words, its symbols, what can be folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.editor import names
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.reading.layout import lay_out
from kube_policy_scheduler.lang.reading.parse_tokens import Token, keywords, signs, tokens
from kube_policy_scheduler.wording import one_line


class Colour(Enum):
    """What a word is, by the name that editors have for it."""

    KEYWORD = "keyword"
    OPERATOR = "operator"
    FUNCTION = "function"
    VARIABLE = "variable"
    PARAMETER = "parameter"
    PROPERTY = "property"
    NUMBER = "number"
    STRING = "string"
    COMMENT = "comment"
    NAMESPACE = "namespace"
    ENUM_MEMBER = "enumMember"


@dataclass(frozen=True, slots=True)
class Coloured:
    """A word and its colour."""

    start: int
    end: int
    colour: Colour
    defines: bool = False


def colours(project: Project, name: str) -> tuple[Coloured, ...]:
    """Return the colours of a source, by place; of statements that cannot be read, those up to the error."""
    source, file = project.sources[name], project.files[name]
    words = tokens(source)
    defined = names.definitions(project, name)
    places = {each.span.start: each for each in names.occurrences(file)}
    found = [
        Coloured(word.start, word.end, *_colour(project, words, index, defined, places))
        for index, word in enumerate(words)
        if word.kind not in _PUNCTUATION
    ]
    found += [Coloured(each.span.start, each.span.end, Colour.COMMENT) for each in lay_out(source).comments]
    return tuple(sorted(found, key=lambda each: each.start))


_PUNCTUATION = frozenset({"DOT", "COMMA", "LPAR", "RPAR", "LSQB", "RSQB"})


def _colour(
    project: Project,
    words: tuple[Token, ...],
    index: int,
    defined: object,
    places: dict[int, names.Occurrence],
) -> tuple[Colour, bool]:
    word = words[index]
    known = places.get(word.start)
    called = index + 1 < len(words) and words[index + 1].kind == "LPAR"
    if known is not None and known.name == word.text:
        defines = known.defines
        match known.kind:
            case names.NameKind.LOCAL:
                return Colour.PARAMETER, defines
            case names.NameKind.POLICY:
                return Colour.NAMESPACE, defines
            case names.NameKind.DEF:
                return Colour.FUNCTION, defines
            case _:
                return (Colour.FUNCTION if called else Colour.VARIABLE), defines
    if word.kind == "NAME" or word.kind == "POD":
        if word.text in project.environment.builtins and called:
            return Colour.FUNCTION, False
        return (Colour.FUNCTION if called else Colour.VARIABLE), False
    if word.kind == "MEMBER":
        return Colour.PROPERTY, False
    if word.kind in ("LABEL_KEY", "LABEL_VALUE", "OBJECT_NAME"):
        return Colour.ENUM_MEMBER, False
    if word.kind == "NUMBER":
        return Colour.NUMBER, False
    if word.kind == "STRING":
        return Colour.STRING, False
    if word.kind in signs():
        return Colour.OPERATOR, False
    assert word.kind in keywords(), word.kind
    return Colour.KEYWORD, False


@dataclass(frozen=True, slots=True)
class DocumentSymbol:
    """A statement in the outline."""

    name: str
    detail: str
    kind: str
    """The keyword of the statement."""
    span: Span
    name_span: Span


def symbols(project: Project, name: str) -> tuple[DocumentSymbol, ...]:
    """Return the statements of a source for an outline: definitions and clauses by their names."""
    return tuple(_symbol(statement) for statement in project.files[name].statements)


def _symbol(statement: syntax.Statement) -> DocumentSymbol:
    span = statement.span
    text = one_line(span.text, 60)
    keyword = text.split(maxsplit=1)[0] if text.strip() else ""
    name_span = getattr(statement, "name_span", span)
    name = getattr(statement, "name", None) or text
    return DocumentSymbol(name, keyword if name == text else text, keyword, span, name_span)


def folds(project: Project, name: str) -> Iterator[tuple[int, int, str]]:
    """Yield the ranges that can be folded, as offsets of begin and end, with their kind: statements and comments."""
    source = project.sources[name]
    for statement in project.files[name].statements:
        span = statement.span
        if "\n" in span.text:
            yield span.start, span.end, "region"
    block: list[Span] = []
    for comment in (*lay_out(source).comments, None):
        follows = (
            comment is not None
            and comment.own_line
            and block
            and not source.text[block[-1].end : comment.span.start].strip()
            and source.text.count("\n", block[-1].end, comment.span.start) == 1
        )
        if not follows:
            if len(block) > 1:
                yield block[0].start, block[-1].end, "comment"
            block = []
        if comment is not None and comment.own_line:
            block.append(comment.span)
