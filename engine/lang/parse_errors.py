"""Lark's "unexpected token" in the words of someone who does not know the grammar."""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from engine.diagnostics import Diagnostic, Source, Span
from engine.lang import codes_syntax as codes
from engine.lang.layout import Line
from engine.lang.lookalikes import lookalike
from engine.lang.lower_statements import PARTS
from engine.lang.statements import EXAMPLES

_OPERANDS = frozenset({"NUMBER", "STRING", "LPAR", "LSQB", "TRUE", "FALSE", "POD"})
_OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "EQ", "NE", "LT", "LE", "GT", "GE", "AND", "OR"})
_COMPARATORS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE", "IN", "MATCHES"})
_QUIET = _OPERANDS | _OPERATORS | {
    "DOT", "OTHERWISE", "IN", "NOT", "IS", "MATCHES", "NOTIN", "MISSING", "LABEL", "NAME", "IF", "$END", "FOR", "WHERE",
}  # fmt: skip
"""Terminals not worth naming one by one."""
_WORDS = {
    "RPAR": "`)`", "RSQB": "`]`", "COMMA": "`,`", "LPAR": "`(`", "ASSIGN": "`=`", "STRING": 'a text in quotes',
    "OBJECT_NAME": "a name", "LABEL_KEY": "the key of a label", "LABEL_VALUE": "the value of a label",
    "MEMBER": "a name", "NAME": "a name",
}  # fmt: skip
_SUFFIXES = frozenset({"AS", "IF", "ELSE", "WEIGHT", "OVER", "MAX", "MIN", "WITHIN"})
_WORD = re.compile(r"[A-Za-z_]\w*|\d+|.")
_FOREIGN = {
    "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or", "<>": "!=", "===": "==", "=~": "matches",
    "=": "==", "?:": "??", "!~": "not … matches",
}  # fmt: skip
_NO_BLOCKS = "there are no blocks: one statement a line"
_QUOTE = ("this is a typographic quote", 'texts stand in straight double quotes, "…"')
_FOREIGN_CHARACTERS = {
    "'": ("texts stand in double quotes", 'write "…"'),
    ";": ("`;` has no meaning here", "begin a new line for a new statement"),
    "{": ("`{` has no meaning here", _NO_BLOCKS),
    "}": ("`}` has no meaning here", _NO_BLOCKS),
    "“": _QUOTE, "”": _QUOTE, "„": _QUOTE,
}  # fmt: skip


def explain(error: UnexpectedInput, source: Source, line: Line) -> Diagnostic:
    """Return the diagnostic for a statement that could not be parsed."""
    keyword = line.text.split(None, 1)[0]
    if isinstance(error, UnexpectedCharacters):
        return _characters(source, line, error.pos_in_stream or 0)
    assert isinstance(error, UnexpectedToken)
    token, accepts = error.token, _accepts(error)
    if token.type == "$END":
        at = line.start + len(line.text)
        second = _WORD.match(line.text, len(keyword) + 1)
        if "THEN" in accepts and second is not None and second[0] == "if":
            span = Span(source, line.start + second.start(), line.start + second.end())
            message = f"the value of this `{keyword}` is missing before `if`"
            return codes.UNEXPECTED.at(span, message, help=_example(keyword))
        message = f"this `{keyword}` is not finished: {_expected(accepts, keyword)}"
        return codes.UNEXPECTED.at(Span(source, at, at), message, help=_example(keyword))
    shown = _WORD.match(str(token))
    text = shown[0] if shown else str(token)
    start = line.start + token.start_pos
    span = Span(source, start, start + len(text))
    if line.text.startswith("//", token.start_pos - 1):
        return _comment(source, start - 1)
    foreign = _foreign(source, line, token.start_pos, accepts)
    if foreign is not None:
        return foreign
    if token.type in _COMPARATORS and "AND" in accepts and not accepts & _COMPARATORS:
        advice = "join two comparisons with `and`: `1 < x and x < 5`"
        return codes.CHAIN.at(span, "a comparison can't be compared again", help=advice)
    message = f"unexpected `{text}`: {_expected(accepts, keyword)}"
    return codes.UNEXPECTED.at(span, message, help=_hint(text, accepts) or _example(keyword))


def _accepts(error: UnexpectedToken) -> frozenset[str]:
    return frozenset(error.accepts or error.expected)


def _expected(accepts: frozenset[str], keyword: str) -> str:
    """Return what could stand here; of suffixes, those that the statement takes."""
    accepts -= _SUFFIXES - {word.split()[0].upper() for word in PARTS.get(keyword, ())}
    parts = []
    if "NUMBER" in accepts:
        parts.append("a value")
    elif accepts >= {"AND", "PLUS"}:
        parts.append("an operator")
    elif "AND" in accepts:
        parts.append("`and`, `or`")
    named = sorted(accepts - _QUIET if parts else accepts - {"$END"})
    parts += [_WORDS.get(name, f"`{name.lower().replace('_', ' ')}`") for name in named][:8]
    if "$END" in accepts:
        parts.append("the end of the line")
    if not parts:
        return "nothing can stand here"
    return "expected " + (", ".join(parts[:-1]) + " or " + parts[-1] if len(parts) > 1 else parts[0])


def _example(keyword: str) -> str:
    return f"for example: {EXAMPLES[keyword]}" if keyword in EXAMPLES else ""


def _hint(text: str, accepts: frozenset[str]) -> str:
    if "THEN" not in accepts and text in ("unless", "when"):
        return "write `if not …`" if text == "unless" else "write `if …`"
    return ""


def foreign_comment(source: Source, line: Line) -> Diagnostic | None:
    """Return the diagnostic of a line that is a comment in other languages."""
    if line.text.startswith(("//", "--", "/*")):
        return _comment(source, line.start)
    return None


def _comment(source: Source, start: int) -> Diagnostic:
    span = Span(source, start, start + 2)
    return codes.FOREIGN_OPERATOR.at(span, f"`{span.text}` begins no comment here", help="comments begin with `#`")


def _foreign(source: Source, line: Line, at: int, accepts: frozenset[str]) -> Diagnostic | None:
    """Return the diagnostic where another language's operator stands at an offset of the line."""
    for operator in sorted(_FOREIGN, key=len, reverse=True):
        if line.text.startswith(operator, at):
            if operator in ("!", "=") and line.text.startswith(("!=", "=="), at):
                return None
            if operator == "=" and "EQ" not in accepts:
                return None
            span = Span(source, line.start + at, line.start + at + len(operator))
            meant = _FOREIGN[operator]
            return codes.FOREIGN_OPERATOR.at(span, f"`{operator}` is no operator here", help=f"write `{meant}`")
    return None


def _characters(source: Source, line: Line, at: int) -> Diagnostic:
    operators = frozenset({"EQ"})
    foreign = _foreign(source, line, at, operators)
    if foreign is not None:
        return foreign
    char = line.text[at]
    span = Span(source, line.start + at, line.start + at + 1)
    if char in _FOREIGN_CHARACTERS:
        message, advice = _FOREIGN_CHARACTERS[char]
        return codes.FOREIGN_CHARACTER.at(span, message, help=advice)
    known = lookalike(char)
    if known is not None:
        return codes.FOREIGN_CHARACTER.at(span, known[0], help=known[1])
    if char.isascii() and (char.isalnum() or char in '_"()[]<>=+-*/%.,?'):
        return codes.UNEXPECTED.at(span, f"unexpected `{char}`", help=_example(line.text.split(None, 1)[0]))
    return codes.FOREIGN_CHARACTER.at(span, f"`{char}` has no meaning here", help="remove it, or put it in quotes")
