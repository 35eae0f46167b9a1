"""Lark's "unexpected token" in words for readers who do not know the grammar.

Where a statement stops being one, what was probably intended there, and its diagnostic.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Source, Span, closest
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.layout import Line
from kube_policy_scheduler.lang.reading.literals import OBJECT_NAME
from kube_policy_scheduler.lang.statements import ALONE, BY_KEYWORD, CLAUSES, EXAMPLES, KEYWORDS, WORDS
from kube_policy_scheduler.wording import listed, one_line

_LETTERS = {
    **dict(zip("аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅ", "aeopcyxijshdqwABEKMHOPCTXIJS", strict=True)),
    **dict(zip("οναρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ovapABEZHIKMNOPTYX", strict=True)),
    "ı": "i",
}
"""Cyrillic and Greek letters that most typefaces draw as Latin ones."""
_SIGNS = {
    "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "−": "-", "×": "*", "·": "*", "∗": "*", "÷": "/", "∕": "/",
    "≤": "<=", "≥": ">=", "≠": "!=", "∧": "and", "∨": "or", "¬": "not", "∈": "in", "∉": "not in",
    "‚": ",", "、": ",", "，": ",",
}  # fmt: skip


def lookalike(char: str) -> tuple[str, str] | None:
    """Return what is wrong with a character and what to write for it, or None if nothing is known about it."""
    if char.isascii():
        return None
    name = unicodedata.name(char, "")
    if unicodedata.category(char) in ("Zs", "Zl", "Zp"):
        named = name.lower()
        article = "an" if named[:1] in "aeiou" else "a"
        return f"{article} {named} (U+{ord(char):04X}) is not a space", " "
    plain = _LETTERS.get(char) or unicodedata.normalize("NFKC", char)
    if char in _SIGNS:
        return f"`{char}` ({name}) has no meaning here", _SIGNS[char]
    if plain.isascii() and plain.isprintable() and len(plain) == 1:
        return f"`{char}` ({name}) looks like `{plain}`, but is a different one", plain
    return None


# --- where it stops --------------------------------------------------------------------------------------

WORD = re.compile(r"[A-Za-z_]\w*|\d+|.")
"""A word, the digits of a number, or one other character."""
WORD_OF_KEY = re.compile(r" *([\w./-]+)")
"""The key of a label."""
_OPERANDS = frozenset({"NUMBER", "STRING", "LPAR", "LSQB", "TRUE", "FALSE", "POD"})
_OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "EQ", "NE", "LT", "LE", "GT", "GE", "AND", "OR"})
_QUIET = _OPERANDS | _OPERATORS | {
    "DOT", "OTHERWISE", "IN", "NOT", "IS", "MATCHES", "NOTIN", "MISSING", "LABEL", "NAME", "$END", "FOR", "WHERE",
}  # fmt: skip
"""Terminals not worth naming one by one."""
_NAMED = {
    "RPAR": "`)`", "RSQB": "`]`", "COMMA": "`,`", "LPAR": "`(`", "ASSIGN": "`=`", "STRING": 'a text in quotes',
    "OBJECT_NAME": "a name", "LABEL_KEY": "the key of a label", "LABEL_VALUE": "the value of a label",
    "MEMBER": "a name", "NAME": "a name",
}  # fmt: skip
_SUFFIXES = frozenset(clause.split()[0].upper() for clause in CLAUSES) - {
    "EVERY", "STALE", "DEFAULT", "BY", "FOR", "AFTER",
}  # fmt: skip
_LAST_WORD = re.compile(r"([A-Za-z_]\w*)\s*$")

_NEAR = 120


class Place(msgspec.Struct, frozen=True):
    """Where a statement stops being one."""

    source: Source
    line: Line
    at: int
    """Offset in the line."""
    word: str
    """What is there."""
    accepts: frozenset[str]
    """Terminals that are possible there."""

    @property
    def keyword(self) -> str:
        """Return the word that the statement begins with."""
        found = WORD.match(self.line.text)
        return found[0] if found else ""

    @property
    def before(self) -> str:
        """Return the statement up to the place."""
        return self.line.text[: self.at]

    @property
    def near(self) -> str:
        """Return the last characters before the place: what is looked for at their end is not looked for in more."""
        return self.line.text[max(0, self.at - _NEAR) : self.at]

    @property
    def last(self) -> str:
        """Return the word before the place; "" if something else is there."""
        found = _LAST_WORD.search(self.near)
        return found[1] if found else ""

    @property
    def span(self) -> Span:
        """Return the range of the word at the place."""
        return self.range(self.at, self.at + len(self.word))

    def range(self, start: int, end: int) -> Span:
        """Return the range between two offsets of the line."""
        return Span(self.source, self.line.start + start, self.line.start + end)

    def example(self) -> str:
        """Return how the statement is written, as help."""
        return f"for example: {EXAMPLES[self.keyword]}" if self.keyword in EXAMPLES else ""

    def unexpected(self, advice: str, *, fix: Fix | None = None) -> Diagnostic:
        """Return the diagnostic of a word that is not allowed here."""
        message = f"unexpected `{self.word}`: {self.expected()}"
        return codes.UNEXPECTED.at(self.span, message, help=advice, fix=fix)

    def possible(self) -> frozenset[str]:
        """Return the terminals that are possible here; of suffixes, those that the statement takes."""
        accepts = self.accepts
        if not ("THEN" in accepts or re.search(r"\bthen\b", self.before)):
            statement = BY_KEYWORD.get(self.keyword)
            taken = (*statement.clauses, *statement.joins, *statement.words) if statement is not None else ()
            accepts -= _SUFFIXES - {clause.split()[0].upper() for clause in taken} - {"IF"}
        return accepts

    def expected(self) -> str:
        """Return what is possible here, in words."""
        accepts = self.possible()
        parts = []
        quiet = _QUIET
        if "NUMBER" in accepts:
            parts.append("a value")
            quiet |= {"IF"}
        elif accepts >= {"AND", "PLUS"}:
            parts.append("an operator")
        elif "AND" in accepts:
            parts.append("`and`, `or`")
        named = sorted(accepts - quiet if parts else accepts - {"$END"})
        parts += [_NAMED.get(name, f"`{name.lower().replace('_', ' ')}`") for name in named][:8]
        if "$END" in accepts:
            parts.append("the end of the line")
        if not parts:
            return "nothing is allowed here"
        return "expected " + listed(parts, "or")


# --- what was probably meant -----------------------------------------------------------------------------

_METHOD = re.compile(r"([\w.]+)\.([A-Za-z_]\w*)\s*$")
ONE_WORD = "a name is one word without quotes: letters, digits and `-`"


def advice_for(place: Place) -> str:
    """Return what is probably intended; "" if nothing is known."""
    word, last, text = place.word.lower(), place.last, place.line.text
    if place.word == "(" and (method := _METHOD.search(place.near)):
        if method[1].endswith(".pods"):
            return f"there are no methods: write `any(p in {method[1]} where …)`"
        if method[1].endswith(".nodes"):
            return f"there are no methods: write `count(n in {method[1]} where …)`"
        if method[1] in ("node", "pod") and not text[place.at :].startswith("()"):
            key = _FIRST_TEXT.match(text, place.at)
            return f'write `{method[1]}.{method[2]}["{key[1] if key is not None else "KEY"}"]`'
        if method[2] in ("any", "all", "filter", "count", "exists", "contains", "includes", "has"):
            return f'there are no methods: write `"…" in {method[1]}`'
        if method[2] == "label":
            return f'write `{method[1]}.label["KEY"]`'
        more = "" if text[place.at :].startswith("()") else ", …"
        return f"there are no methods: write `{method[2].lower()}({method[1]}{more})`"
    if place.keyword == "score" and "THEN" in place.accepts:
        return "write `score 10 if …`, or `score if COND then A else B`"
    if place.keyword == "metric" and place.accepts == {"ASSIGN"} and word in ("for", "by", "every", "stale", "default"):
        return f'the query comes first: `metric {last} = promql("…") {word} …`'
    if place.keyword in ("let", "metric") and place.accepts == {"ASSIGN"}:
        return f"write `{place.keyword} {last} = {one_line(text[place.at :].strip(), 40)}`"
    if place.keyword == "spread" and (meant := _target_advice(place)):
        return meant
    if last == "in" and word == "if":
        return "put it in parentheses: `in (if … then … else …)`"
    if place.keyword == "order" and last in ("asc", "desc"):
        return f"`{last}` stands behind the value: `order by pod.priority {last}`"
    if "WHERE" in place.accepts and word in ("if", "with", "when") and last != "evict":
        return "write `where …`"
    if word == "for" and "RSQB" in place.accepts:
        return "there are no list comprehensions: write `sum(… for n in …)`, without brackets"
    if ("FOR" in place.accepts and _DISTINCT.search(place.near)) or word == "distinct":
        return "write `count(distinct p.label.app for p in node.pods)`"
    if last == "for" and place.keyword == "metric":
        return "write `for cluster`; without it, the metric has one value for each node"
    if last == "by" and place.keyword == "metric" and (label := _FIRST_TEXT.match(text, place.at - 1)):
        return f"write the label without quotes: `by {label[1]}`"
    if place.keyword == "spread" and word in ("count", "counted"):
        return "which nodes count is said with `counting all nodes`"
    if last == "is" and word not in foreign.WORDS:
        return "write `==`; `is` is only for `is missing` and `is not missing`"
    if re.search(r"\d\.\.\s*$", place.near):
        return "there are no ranges: write `8 <= x and x < 18`"
    if last == "else" and place.keyword == "score":
        return "write `score if COND then A else B`"
    if last == "else" and place.word[0].isalpha():
        reason = text[place.at :].strip().replace('"', "")
        return f'write `else "{reason}"`'
    if place.keyword in ("policy", "scheduler") or last == "as" or re.search(r"\bas\s+\S+\s*$", place.near):
        return ONE_WORD
    if place.keyword == "use" and last == "use" and place.word[0].isalpha():
        file = text[place.at :].strip()
        return "write `use kubernetes`" if word in ("k8s", "kube", "default", "defaults") else f'write `use "{file}"`'
    if place.keyword == "for" and "PODS" in place.accepts:
        return "a policy is for pods, and its statements for every node: `for pods where …`, `filter …`"
    if place.keyword == "for" and "WHERE" in place.accepts:
        return "write `for pods where …`, such as `for pods where pod label app=web`"
    if place.keyword == "hold" and last == "hold" and (time := _TIME_BEHIND.fullmatch(text[place.at :].strip())):
        return f"write `hold if pod.waiting < {time[1]}`"
    if place.keyword == "hold" and "NUMBER" not in place.accepts and last == "hold":
        rest = one_line(text[place.at :].strip(), 40) if word not in ("until", "while", "when", "for") else "…"
        return f"write `hold if {'not ' if word == 'until' else ''}{rest}`"
    if word == "by" and last in ("avg", "sum", "min", "max", "count", "topk", "quantile"):
        return f'write a query in quotes: `promql("{last} by (node) (…)")`'
    if word == "by" and last in ("spread", "pack"):
        return f"`{last}` is a statement of its own, with a weight: `{last} by pod.label.app weight 2`"
    statement = BY_KEYWORD.get(place.keyword)
    if "BY" in place.accepts and last == place.keyword and statement is not None:
        clause = next((each for each in (*statement.clauses, "size", "to") if each.split()[0] == word), None)
        if clause is not None:
            return f"`{clause}` stands behind the key: `{place.keyword} by … {clause}{'' if clause in ALONE else ' …'}`"
    if "BY" in place.accepts and last == place.keyword and place.word[0].isalpha():
        return f"write `{place.keyword} by {text[place.at :].strip()}`"
    if last == "evict" and place.keyword == "gang":
        return "write `evict whole`: members are evicted all together only"
    if last == "evict":
        return f"write `evict where {text[place.at :].strip().removeprefix('if ')}`"
    if last == "stale":
        return f"write `stale after {text[place.at :].strip()}`"
    if last == "label" and place.word == "(":
        return "write `label KEY=VALUE`"
    if last in ("has", "exists") and "AND" in place.accepts:
        return foreign.WORDS[last]
    if last in ("is", "not") and word in foreign.WORDS:
        return foreign.WORDS[word]
    if last == "of" and place.keyword == "limit":
        return "write `of pods where …`, such as `of pods where pod label tier=batch`"
    if (place.keyword, word) in foreign.IN_STATEMENTS:
        return foreign.IN_STATEMENTS[place.keyword, word]
    return foreign.WORDS.get(word, "") if "AND" in place.accepts or "$END" in place.accepts else ""


_FIRST_TEXT = re.compile(r'.?"([^"\\]*)"')
_DISTINCT = re.compile(r"\bdistinct\b[^()]*$")
_TIME_BEHIND = re.compile(r"for\s+([\d.]+(?:ms|min|s|h|d|w))")
_SHARE_BEHIND = re.compile(r"[\w.-]+\s*[:=]?\s*\d+(?:\.\d+)?\s*%")


def _target_advice(place: Place) -> str:
    """Return how to write the targets of a `spread`; "" if something else is wrong."""
    if re.search(r"\btarget\b", place.near):
        return "write each value with its share: `target spot 70%, on-demand 30%`"
    if _SHARE_BEHIND.match(place.line.text, place.at) and "TARGET" in place.accepts:
        return "write `target` before the shares: `over lifecycle target spot 70%`"
    if re.search(r"\bcounting\b", place.near):
        return "write `counting tainted, filtered nodes`, or `counting all nodes`"
    if place.word == "=" and "TARGET" in place.accepts:
        return "write the key of the label alone: `over lifecycle`; the share of a value with `target spot 70%`"
    return ""


# --- diagnostics -----------------------------------------------------------------------------------------

_COMPARATORS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE", "IN", "MATCHES"})
_NUMBER_BEFORE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s+$")
_SINGLE_QUOTED = re.compile(r"'([^'\"\\]*)'")
_TYPOGRAPHIC = re.compile(r"[“”„«»‘’‚]([^“”„«»‘’‚\"\\]*)[“”„«»‘’]")
_IN_PARENTHESES = re.compile(r"\bin\s*\(([^()\[\]]*)\)")
_QUOTED_NAME = re.compile(f'"({OBJECT_NAME.pattern})"')
_NO_BLOCKS = "there are no blocks: write one statement per line"
_QUOTE = ("this is a typographic quote", 'write texts in straight double quotes, "…"')
_CHARACTERS = {
    "'": ("write texts in double quotes", 'write "…"'),
    ";": ("`;` has no meaning here", "start a new line for each statement"),
    "}": ("`}` has no meaning here", _NO_BLOCKS),
    "^": ("`^` has no meaning here", "there are no powers: write `x * x`; for conditions, `a != b` is exclusive or"),
    "$": ("`$` has no meaning here", "write names without a mark: `load`"),
    "@": ("`@` has no meaning here", "remove it, or put it in quotes"),
    "?": ("`?` is not an operator", "write `if COND then A else B`; a default for a missing value is `?? DEFAULT`"),
    "“": _QUOTE, "”": _QUOTE, "„": _QUOTE, "‘": _QUOTE, "’": _QUOTE, "«": _QUOTE, "»": _QUOTE,
}  # fmt: skip


def explain(error: UnexpectedInput, source: Source, line: Line) -> Diagnostic:
    """Return the diagnostic for a statement that could not be parsed."""
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        return _character(Place(source, line, at, line.text[at], frozenset()))
    assert isinstance(error, UnexpectedToken)
    token, accepts = error.token, frozenset(error.accepts or error.expected)
    if token.type == "$END":
        return _unfinished(Place(source, line, len(line.text), "", accepts))
    shown = WORD.match(str(token))
    return _token(Place(source, line, token.start_pos or 0, shown[0] if shown else str(token), accepts), token.type)


def unknown_statement(source: Source, line: Line, word: str) -> Diagnostic:
    """Return the diagnostic of a line that begins with no keyword."""
    if line.text.startswith(("//", "--", "/*")) and not line.text.startswith("---"):
        return _comment(source, line.start)
    shown = "---" if line.text.startswith("---") else word or line.text[:1]
    span = Span(source, line.start, line.start + len(shown))
    message, fix = f"no statement starts with `{shown}`", None
    advice = foreign.STATEMENTS.get(shown.lower(), "")
    meant = word.lower() if word.lower() in KEYWORDS else closest(word, KEYWORDS) if word else None
    rest = line.text[len(shown) :].lstrip()
    if meant == word.lower() and meant:
        advice, fix = f"write `{meant}`", Fix(f"write {meant}", (Edit(span, meant),))
    elif rest.startswith(("=", ":=")) and not rest.startswith("==") and word:
        value = rest.lstrip(":=").strip()
        advice = f"write `let {word} = {one_line(value, 40) or '…'}`"
        sign = len(line.text) - len(rest.lstrip(":="))
        if value and OBJECT_NAME.fullmatch(word):
            whole = Span(source, line.start, line.start + sign)
            fix = Fix(f"write let {word} =", (Edit(whole, f"let {word} ="),))
    elif meant and not advice:
        advice = f"did you mean `{meant}`?"
    elif not advice:
        advice = f"statements start with {', '.join(KEYWORDS)}"
    return codes.UNKNOWN_STATEMENT.at(span, message, help=advice, fix=fix)


def _comment(
    source: Source, start: int, *, advice: str = "comments start with `#`", end: int | None = None
) -> Diagnostic:
    span = Span(source, start, start + 2)
    fix = Fix("write #", (Edit(span, "#"),)) if span.text != "/*" and advice == "comments start with `#`" else None
    rest = source.text[start:end] if end is not None else source.text[start:].split("\n", 1)[0]
    if span.text == "/*" and "\n" not in rest and rest.rstrip().endswith("*/"):
        written = f"#{rest.rstrip()[2:-2].rstrip()}"
        fix = Fix("write #", (Edit(Span(source, start, start + len(rest.rstrip())), written),))
    return codes.FOREIGN_OPERATOR.at(span, f"`{span.text}` does not start a comment", help=advice, fix=fix)


def _unfinished(place: Place) -> Diagnostic:
    """Return the diagnostic of a statement that ends too early."""
    second = WORD.match(place.line.text, len(place.keyword) + 1)
    if "THEN" in place.accepts and second is not None and second[0] == "if":
        span = place.range(second.start(), second.end())
        message = f"the value of this `{place.keyword}` is missing before `if`"
        return codes.UNEXPECTED.at(span, message, help=place.example())
    if (comma := _comma_before_clause(place)) is not None:
        return comma
    message = f"this `{place.keyword}` is incomplete: {place.expected()}"
    advice = place.example()
    if place.keyword == "spread":
        advice = _target_advice(place) or advice
    elif place.keyword == "limit" and (bound := _BOUND.search(place.near)):
        advice = f"write the limit with `to`: `{place.before[: len(place.before) - len(bound[0])]} to {bound[1]}`"
    return codes.UNEXPECTED.at(place.range(place.at, place.at), message, help=advice)


_BOUND = re.compile(r"\s*<=?\s*(\S+)$")
_MEMBERS = re.compile(r"\b(any|all)\((\w+) in ([\w.]+)\s*$")


def _token(place: Place, kind: str) -> Diagnostic:
    """Return the diagnostic of something that is allowed elsewhere."""
    text, at = place.line.text, place.at
    if text.startswith("//", at - 1):
        return _comment(place.source, place.line.start + at - 1, advice="comments start with `#`; divide with `/`")
    looks = (
        _comma_before_clause,
        _role,
        _field_called,
        _dashes,
        _glued,
        _operator,
        _assignment,
        _comma,
        _capitals,
        _unit,
    )
    found = next((found for look in looks if (found := look(place)) is not None), None)
    if found is not None:
        return found
    if kind in _COMPARATORS and "AND" in place.accepts and not place.accepts & _COMPARATORS:
        advice = "join two comparisons with `and`: `1 < x and x < 5`"
        if members := _MEMBERS.search(place.near):
            test = one_line(text[at:].partition(")")[0].strip(), 40)
            advice = f"write `{members[1]}({members[2]} {test} for {members[2]} in {members[3]})`"
        return codes.CHAIN.at(place.span, "a comparison cannot be compared again", help=advice)
    advice = advice_for(place) or _misspelt(place) or place.example()
    quoted = _QUOTED_NAME.match(text, at) if place.word == '"' and advice == ONE_WORD else None
    if quoted is not None:
        fix = Fix("remove the quotes", (Edit(place.range(*quoted.span()), quoted[1]),))
        return place.unexpected(f"write `{quoted[1]}`, without quotes", fix=fix)
    return place.unexpected(advice)


def _misspelt(place: Place) -> str:
    """Return the question for a word of the language that is possible here; "" where none is like it."""
    behind = place.line.text[place.at + len(place.word) : place.at + len(place.word) + 1]
    if len(place.word) < 3 or not place.word.isalpha() or behind in (".", "(", "["):
        return ""
    words = (name.lower() for name in sorted(place.possible()) if name.lower() in WORDS)
    meant = closest(place.word, (word for word in words if word[0] == place.word[0].lower()))
    return f"did you mean `{meant}`?" if meant is not None and meant != place.word else ""


_COMMA_BEFORE = re.compile(r",\s*([a-z]+)\b[^,]*$")


def _comma_before_clause(place: Place) -> Diagnostic | None:
    """Return the diagnostic of a comma before a clause: `score 10 if node.ready, weight 5`."""
    statement = BY_KEYWORD.get(place.keyword)
    words = {clause.split()[0] for clause in statement.clauses} if statement is not None else set()
    behind = WORD_OF_KEY.match(place.line.text, place.at + 1)
    start, word = place.at, behind[1] if behind is not None else ""
    if place.word != ",":
        found = _COMMA_BEFORE.search(place.near)
        if found is None or found[1] == place.word or re.search(r"\bthen\b", found[0]):
            return None
        start, word = place.at - len(place.near) + found.start(), found[1]
    if word not in words:
        return None
    span = place.range(start, start + 1)
    fix = Fix("remove the comma", (Edit(span, ""),))
    return codes.UNEXPECTED.at(span, f"no comma is allowed before `{word}`", help="remove it", fix=fix)


_ROLE_NUMBER = re.compile(r"(?:\bwith|,)\s*(\d+)\s+$")
_ROLE_LABEL = re.compile(r"(?:\bwith|,)\s*(?:pod\s+)?(?:label\s+)?([A-Za-z][\w./-]*)\s*$")
_SELECTOR = re.compile(r"(?:pod\s+)?(?:label\s+)?([A-Za-z][\w./-]*(?:\s*==?\s*[\w.-]+)?)")


def _role(place: Place) -> Diagnostic | None:
    """Return the diagnostic of a role of a gang without its number, without `of`, or without a comma before it."""
    if place.keyword != "gang" or not re.search(r"\bwith\b", place.before):
        return None
    text, at = place.line.text, place.at
    selector = _SELECTOR.match(text, at)
    if (number := _ROLE_NUMBER.search(place.near)) and selector is not None:
        written = f"{number[1]} of {selector[1]}"
        fix = Fix(f"write {written}", (Edit(place.range(*selector.span()), f"of {selector[1]}"),))
        return codes.UNEXPECTED.at(place.span, "a role needs `of` after its number", help=f"write `{written}`", fix=fix)
    label = _ROLE_LABEL.search(place.near)
    if label is not None and (not place.word.isalnum() or "OF" in place.accepts):
        start = at - len(place.near) + label.start(1)
        selector = _SELECTOR.match(text, start)
        shown = selector[1] if selector is not None else label[1]
        span = place.range(start, start + len(label[1]))
        return codes.UNEXPECTED.at(span, "a role needs its number of pods", help=f"write `with 1 of {shown}`")
    if re.search(r"\bof\s+\S+\s+$", place.near) and place.word.isdigit():
        return place.unexpected("separate roles with a comma: `with 1 of role=driver, 2 of role=worker`")
    return None


_FIELD_CALLED = re.compile(r"\b(?:node|pod)\.[A-Za-z_]\w*$")


def _field_called(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `node.ready()`."""
    called = _FIELD_CALLED.search(place.near) if place.line.text.startswith("()", place.at) else None
    if called is None:
        return None
    fix = Fix("remove the parentheses", (Edit(place.range(place.at, place.at + 2), ""),))
    message = f"`{called[0]}` is a field, not a function"
    return codes.UNEXPECTED.at(place.range(place.at, place.at + 2), message, help=f"write `{called[0]}`", fix=fix)


def _dashes(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `-- a comment` and `/* a comment */` behind a statement."""
    text = place.line.text
    start = place.before.rfind(" -- ")
    if start >= 0 and '"' not in place.before[start:]:
        return _comment(place.source, place.line.start + start + 1)
    if place.word == "*" and place.before.endswith("/"):
        return _comment(place.source, place.line.start + place.at - 1, end=place.line.start + len(text))
    return None


_GLUED = re.compile(r"[\w.]+")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+")
_UNDERSCORES = re.compile(r"\d{1,3}(?:_\d{3})+(?=[A-Za-z%]*$)")
_DURATIONS = re.compile(r"(?:\d+(?:\.\d+)?(?:w|d|h|min|m|s))+")
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}


def _glued(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `0x10`, `1_000` and `1h30m`: numbers as others write them."""
    text = place.line.text
    around = next((m for m in _GLUED.finditer(text) if m.start() < place.at < m.end()), None)
    if around is None or not around[0][0].isdigit():
        return None
    word, written = around[0], ""
    if _HEXADECIMAL.fullmatch(word):
        written = str(int(word, 0))
    elif _UNDERSCORES.match(word):
        written = word.replace("_", "")
    elif _DURATIONS.fullmatch(word) and len(word) < _NEAR:
        pieces = re.findall(r"([\d.]+)([a-z]+)", word)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in pieces)
        unit = next(unit for unit in ("w", "d", "h", "min", "s") if not seconds % _SECONDS[unit] or unit == "s")
        written = f"{seconds / _SECONDS[unit]:g}{unit}"
    if not written:
        return None
    span, fix = place.range(*around.span()), Fix(f"write {written}", (Edit(place.range(*around.span()), written),))
    message = f"`{word}` is not a number or quantity"
    return codes.NUMBER.at(span, message, help=f"write `{written}`", fix=fix)


_LABEL_BEFORE = re.compile(r"(?:\bpod[ ]+)?\blabel[ ]*$")


def _operator(place: Place) -> Diagnostic | None:
    """Return the diagnostic of another language's operator."""
    text, at = place.line.text, place.at
    label = _LABEL_BEFORE.search(place.near) if place.word == "!" and not text.startswith("!=", at) else None
    if label is not None:
        start, written = at - len(label[0]), f"not {' '.join(label[0].split())} "
        sure = Fix(f"write {written}", (Edit(place.range(start, at + 1), written),))
        key = WORD_OF_KEY.match(text, at + 1)
        advice = f"write `{written}{key[1] if key else 'KEY'}`"
        return codes.FOREIGN_OPERATOR.at(place.span, "`!` is no operator here", help=advice, fix=sure)
    if place.word == ">" and place.before.endswith("<"):
        span = place.range(at - 1, at + 1)
        sure = Fix("write !=", (Edit(span, "!="),))
        return codes.FOREIGN_OPERATOR.at(span, "`<>` is no operator here", help="write `!=`", fix=sure)
    if (place.keyword, place.word) in foreign.IN_STATEMENTS:
        return None
    for operator in sorted(foreign.OPERATORS, key=len, reverse=True):
        if not text.startswith(operator, at):
            continue
        if operator in ("!", "=") and text.startswith(("!=", "=="), at):
            return None
        if operator == "=" and place.accepts and "EQ" not in place.accepts:
            return None
        if operator == "!" and not re.match(r"!\s*[\w(\"]", text[at:]):
            return None
        meant, span = foreign.OPERATORS[operator], place.range(at, at + len(operator))
        spaced = f"{meant} " if operator == "!" else meant
        fix = Fix(f"write {meant}", (Edit(span, spaced),)) if operator in foreign.SURE_OPERATORS else None
        message = f"`{operator}` is not an operator"
        return codes.FOREIGN_OPERATOR.at(span, message, help=f"write `{meant}`", fix=fix)
    return None


def _assignment(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `score = 5`, `weight=2`, `let x == 5`, `x ** 2` and the like."""
    text, at = place.line.text, place.at
    if place.word == "*" and place.before.endswith("*"):
        message = "`**` is not an operator"
        return codes.FOREIGN_OPERATOR.at(place.range(at - 1, at + 1), message, help="write `x * x`")
    if place.word == "=" and place.last in (place.keyword, "weight", "size", "to", "priority", "within", "every"):
        fix = Fix("remove =", (Edit(place.range(len(place.before.rstrip()), at + 1), " "),))
        fix = fix if text[at + 1 : at + 2].strip() else Fix("remove =", (Edit(place.span, ""),))
        message = f"no `=` is allowed after `{place.last}`"
        return codes.UNEXPECTED.at(place.span, message, help=f"write `{place.last} …`", fix=fix)
    if place.word == "+" and text.startswith("+=", at):
        message, advice = "`+=` is not an operator", "scores are added automatically: write `score …`"
        return codes.FOREIGN_OPERATOR.at(place.range(at, at + 2), message, help=advice)
    if place.word == ">" and place.before.endswith("=") and place.before.count("(") > place.before.count(")"):
        message, advice = "anonymous functions are not supported", "write `any(p in node.pods where …)`"
        return codes.FOREIGN_OPERATOR.at(place.range(at - 1, at + 1), message, help=advice)
    if place.word in ("=", ">") and place.before.endswith("="):
        span = place.range(at - 1, at + 1)
        message, fix = f"`{span.text}` does not define a name here", Fix("write =", (Edit(span, "="),))
        return codes.FOREIGN_OPERATOR.at(span, message, help="write `=`", fix=fix)
    return None


def _comma(place: Place) -> Diagnostic | None:
    """Return the diagnostic of a comma where no list is."""
    if place.word != ",":
        return None
    for match in _IN_PARENTHESES.finditer(place.line.text):
        if match.start(1) <= place.at < match.end(1):
            items, span = match[1].strip(), place.range(match.start(1) - 1, match.end(1) + 1)
            fix = (
                Fix("write brackets", (Edit(span, f"[{items}]"),)) if span.text == match[0][-len(span.text) :] else None
            )
            advice = f"write `in [{items}]`; only `label KEY in (a, b)` has parentheses"
            return codes.UNEXPECTED.at(span, "write lists in brackets", help=advice, fix=fix)
    if re.search(r"\bin\s+[^\[(]*$", place.near):
        return place.unexpected('write lists in brackets: `in ["a", "b"]`')
    if "ELSE" in place.accepts and place.line.text[place.at + 1 :].lstrip().startswith('"'):
        return place.unexpected('write a reason with `else "…"`')
    statement = BY_KEYWORD[place.keyword]
    if statement.condition or place.keyword == "score":
        inside = place.before.count("(") > place.before.count(")")
        joined = "join conditions with `and`, or write a line for each" if statement.condition else ""
        return place.unexpected(place.example() if inside or not joined else joined)
    return None


def _capitals(place: Place) -> Diagnostic | None:
    lower = place.word.lower()
    if lower == place.word or lower not in WORDS or "STRING" in place.accepts - {"NUMBER"}:
        return None
    fix = Fix(f"write {lower}", (Edit(place.span, lower),))
    return codes.FOREIGN_OPERATOR.at(place.span, f"`{place.word}` is not a keyword", help=f"write `{lower}`", fix=fix)


def _unit(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `5 minutes`."""
    number = _NUMBER_BEFORE.search(place.near)
    unit = foreign.UNITS.get(place.word.lower())
    if number is None or unit is None:
        return None
    if place.keyword == "limit" and place.before.split() == ["limit", number[1]]:
        rest = place.line.text[place.at + len(place.word) :].rstrip()
        return place.unexpected(f"write `limit count(){rest} to {number[1]}`")
    span = place.range(place.at - len(place.near) + number.start(1), place.at + len(place.word))
    written = f"{number[1]}{unit}"
    message = f"`{span.text}` is not a number or quantity"
    return codes.NUMBER.at(
        span, message, help=f"write `{written}`", fix=Fix(f"write {written}", (Edit(span, written),))
    )


def _character(place: Place) -> Diagnostic:
    """Return the diagnostic of a character that no token begins with."""
    found = _operator(place)
    if found is not None:
        return found
    char, text, at, fix = place.word, place.line.text, place.at, None
    if char in _CHARACTERS:
        message, advice = _CHARACTERS[char]
        quoted = _SINGLE_QUOTED.match(text, at) or _TYPOGRAPHIC.match(text, at)
        if quoted is not None:
            fix = Fix("write straight double quotes", (Edit(place.range(*quoted.span()), f'"{quoted[1]}"'),))
            advice = f'write `"{quoted[1]}"`' if char == "'" else advice
        elif char == ";":
            rest = text[at + 1 :]
            end = at + 1 + len(rest) - len(rest.lstrip())
            fix = Fix("start a new line", (Edit(place.range(at, end), "\n" if rest.strip() else ""),))
        return codes.FOREIGN_CHARACTER.at(place.span, message, help=advice, fix=fix)
    if char in ":{":
        return _block(place, char)
    known = lookalike(char)
    if known is not None:
        message, written = known
        fix = Fix(f"write {written}", (Edit(place.span, written),))
        advice = f"write `{written}`" if written.strip() else "write a plain space"
        return codes.FOREIGN_CHARACTER.at(place.span, message, help=advice, fix=fix)
    if char.isascii() and (char.isalnum() or char in '_"()[]<>=+-*/%.,'):
        return codes.UNEXPECTED.at(place.span, f"unexpected `{char}`", help=advice_for(place) or place.example())
    return codes.FOREIGN_CHARACTER.at(
        place.span, f"`{char}` has no meaning here", help="remove it, or put it in quotes"
    )


def _block(place: Place, char: str) -> Diagnostic:
    """Return the diagnostic of a colon or an opening brace."""
    fix, advice = None, _NO_BLOCKS
    if char == "{":
        if place.last == "in":
            advice = 'write lists in brackets: `["a", "b"]`'
        elif place.last and place.before.endswith(place.last) and place.last != place.keyword:
            advice = f'write a query in quotes: `promql("{place.last}{{…}}")`'
        elif place.keyword == "def":
            advice = "write `def NAME(a, b) = …`"
    elif re.search(r"\b\d{1,2}$", place.near):
        advice = 'times of day stand in quotes: `between("22:00", "06:00")`'
    elif re.search(r"\w+ in [\w.]+$", place.near):
        advice = "write the value first: `sum(n.free.cpu for n in cluster.nodes)`"
    elif place.keyword == "let":
        advice = "types are inferred: write `let NAME = …`"
    elif place.keyword == "def":
        advice = "write `def NAME(a, b) = …`"
    elif place.last == place.keyword and place.line.text[place.at + 1 :].strip(" -"):
        advice, fix = f"remove it: `{place.keyword} …`", Fix("remove :", (Edit(place.span, ""),))
    elif "?" in place.before or re.search(r"\bif\b", place.before):
        advice = "write `if COND then A else B`"
    message = f"`{char}` has no meaning here"
    return codes.FOREIGN_CHARACTER.at(place.span, message, help=advice, fix=fix)
