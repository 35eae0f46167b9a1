"""Lark's "unexpected token" in words for readers who do not know the grammar.

Where a statement stops being one, what was probably intended there, and its diagnostic.
"""

from __future__ import annotations

import re
import unicodedata

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Source, Span, closest
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.layout import Line
from kube_policy_scheduler.lang.reading.literals import OBJECT_NAME
from kube_policy_scheduler.lang.reading.lookalikes import lookalike, lookalikes_in
from kube_policy_scheduler.lang.reading.number_errors import number_error
from kube_policy_scheduler.lang.reading.part_errors import part_error
from kube_policy_scheduler.lang.reading.place import NEAR, WORD, WORD_OF_KEY, Place
from kube_policy_scheduler.lang.statements import ALONE, BY_KEYWORD, KEYWORDS, WORDS
from kube_policy_scheduler.lang.types import RESOURCE_WORDS
from kube_policy_scheduler.wording import one_line

# --- what was probably meant -----------------------------------------------------------------------------

_KEY_IN = re.compile(r'\(\s*"?([\w./-]+)"?\s*[,)]')


def _key_in(text: str, at: int) -> str:
    """Return the key in the parentheses that open at an offset; `KEY` if there is none."""
    found = _KEY_IN.match(text, at)
    return found[1] if found is not None else "KEY"


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
            return f'write `{method[1]}.{method[2]}["{_key_in(text, place.at)}"]`'
        if method[1].endswith((".label", ".annotation")):
            return f'there are no methods: write `{method[1]}["{_key_in(text, place.at)}"]`'
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
    if place.keyword == "spread" and last == "max" and word.isdigit():
        return f"write `max skew {word}`"
    if place.keyword == "queue" and word in RESOURCE_WORDS and "MAX" in place.accepts and last not in WORDS:
        return f"say what the amount is: `max {word} …`, or `min {word} …` for what is guaranteed"
    if word in _INFIX and (called := _infix(place)):
        return called
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
    if place.keyword == "policy" and len(words := text.split()[1:]) > 1:
        return f"a name is one word without quotes: `{one_line('-'.join(words).lower(), 40)}`"
    if place.keyword in ("policy", "scheduler") or last == "as" or re.search(r"\bas\s+\S+\s*$", place.near):
        return ONE_WORD
    if place.keyword == "use" and last == "use" and place.word[0].isalpha():
        quoted = _ANY_TEXT.search(text, place.at)
        file = quoted[1] if quoted is not None else text[place.at :].strip()
        return "write `use kubernetes`" if word in ("k8s", "kube", "default", "defaults") else f'write `use "{file}"`'
    if place.keyword == "for" and "PODS" in place.accepts:
        return "a policy is for pods, and its statements for every node: `for pods where …`, `filter …`"
    if place.keyword == "for" and (namespace := _IN_NAMESPACE.match(text, place.at)):
        return f'write `for pods where pod.namespace == "{namespace[1]}"`'
    if place.keyword == "for" and "WHERE" in place.accepts:
        return "write `for pods where …`, such as `for pods where pod label app=web`"
    if place.keyword == "hold" and last == "hold" and (time := _TIME_BEHIND.fullmatch(text[place.at :].strip())):
        return f"write `hold if pod.waiting < {time[1]}`"
    if place.keyword == "hold" and "NUMBER" not in place.accepts and last == "hold":
        rest = text[place.at :].strip()
        if word in ("until", "while", "when", "for"):
            rest = rest[len(word) :].strip() or "…"
        rest = one_line(rest, 40)
        return f"write `hold if not ({rest})`" if word == "until" else f"write `hold if {rest}`"
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
        rest = text[place.at :].strip()
        rest = rest[found.end() :] if (found := _PER.match(rest)) is not None else rest
        rest = rest.partition(" by ")[2] or rest
        return f"write `{place.keyword} by {one_line(_PER.sub('over ', rest), 60)}`"
    if word == "max" and place.keyword == "reclaim":
        return "write `reclaim above max`"
    if word == "whole" and place.keyword == "gang":
        return "write `evict whole`"
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
    if place.keyword == "limit" and word in _GROUPS and (key := _PATH_BEHIND.match(text, place.at + len(word))):
        return f"write `by {key[1]}`"
    if place.keyword == "limit" and word in _GROUPS and (key := _WORD_BEHIND.match(text, place.at + len(word))):
        group = f"by pod.{key[1]}" if key[1] == "namespace" else f"by pod.label.{key[1]}"
        over = f"limit count() to 4 over {key[1]}" if "TO" in place.accepts else f"over {key[1]}"
        return f"write `{over}`" if key[1] in _DOMAINS else f"write `{group}`"
    if (place.keyword, word) in foreign.IN_STATEMENTS:
        return foreign.IN_STATEMENTS[place.keyword, word]
    return foreign.WORDS.get(word, "") if "AND" in place.accepts or "$END" in place.accepts else ""


_INFIX = frozenset({"startswith", "endswith", "contains"})
"""Functions of texts that other languages write between two texts."""
_LEFT = re.compile(r'([\w.]+(?:\["[^"\\]*"\])?)\s*$')
_RIGHT = re.compile(r'\w+\s+("[^"\\]*")')
_IN_NAMESPACE = re.compile(r'in\s+(?:the\s+)?namespace\s+"?([a-z0-9-]+)"?\s*$')


def _infix(place: Place) -> str:
    """Return the call for `node.name startswith "gpu"`; "" if something else is meant."""
    left, right = _LEFT.search(place.near), _RIGHT.match(place.line.text, place.at)
    return f"write `{place.word}({left[1]}, {one_line(right[1], 40)})`" if left and right else ""


_GROUPS = frozenset({"per", "each", "for", "on", "across", "in", "foreach"})
_WORD_BEHIND = re.compile(r"(?:\s+each)?\s+([a-z]+)\b(?![.(\[])")
_DOMAINS = frozenset({"node", "zone", "region", "rack", "domain", "host"})
_PATH_BEHIND = re.compile(r"(?:\s+each)?\s+(pod\.[\w.\[\]\"/-]+)")
_PER = re.compile(r"(?:(?<=\s)|^)(?:per|for|on|each|across|with)\s+(?:each\s+)?")
_ANY_TEXT = re.compile(r'"([^"\\]*)"')
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
_SINGLE_QUOTED = re.compile(r"'([^'\"\\]*)'")
_TYPOGRAPHIC = re.compile(r"[“”„«»‘’‚]([^“”„«»‘’‚\"\\]*)[“”„«»‘’]")
_IN_PARENTHESES = re.compile(r"\bin\s*\(([^()\[\]]*)\)")
_QUOTED_NAME = re.compile(f'"({OBJECT_NAME})"')
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
        if value and re.fullmatch(OBJECT_NAME, word):
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
    for look in (_comma_before_clause, part_error, number_error, _null, _label_list):
        if (found := look(place)) is not None:
            return found
    message = f"{place.what} is incomplete: {place.expected()}"
    advice = place.example()
    if place.keyword == "spread":
        advice = _target_advice(place) or advice
    elif place.keyword == "limit" and (number := _NUMBER_FIRST.match(place.line.text)):
        advice = f"write `limit count() {place.line.text[number.end() :]} to {number[1]}`"
    elif place.keyword == "limit" and (part := _BOUND_FIRST.match(place.line.text)):
        advice = f"write the limit with `to`: `limit {part[1]} {one_line(part[3], 60)} to {part[2]}`"
    elif place.keyword == "limit" and (bound := _BOUND.search(place.near)):
        advice = f"write the limit with `to`: `{place.before[: len(place.before) - len(bound[0])]} to {bound[1]}`"
    return codes.UNEXPECTED.at(place.range(place.at, place.at), message, help=advice)


_NUMBER_FIRST = re.compile(r"limit\s+(\d[\w.]*)\s+(?=by\b)")
_BOUND_FIRST = re.compile(r"limit\s+(\S.*?)\s*<=?\s*(\S+)\s+((?:by|over)\s.*)$")
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
        part_error,
        number_error,
        _quotes_inside,
        _dashed_key,
        _null,
        _label_list,
        _operator,
        _assignment,
        _comma,
        _capitals,
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
    advice = advice_for(place) or _misspelt(place) or _call(place) or place.example()
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


_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s+$")
_ARGUMENTS = re.compile(r"[A-Za-z_][\w.]*(?:\s*,\s*[A-Za-z_][\w.]*)*(?![\w.(\[])|\"[^\"\\]*\"")
_MEMBERS_BEHIND = re.compile(r"[a-z]\w*\s+in\s+\w+\.(?:pods|nodes)\b(?:\s+where\b)?")


def _call(place: Place) -> str:
    """Return how to call a function whose arguments stand behind it without parentheses; "" if none does."""
    called = _CALLED.search(place.near)
    if called is None or called[1] in WORDS or "AND" not in place.accepts:
        return ""
    if members := _MEMBERS_BEHIND.match(place.line.text, place.at):
        return f"write `{called[1]}({members[0]}{' …' if members[0].endswith('where') else ''})`"
    given = _ARGUMENTS.match(place.line.text, place.at)
    if given is None or given[0] in WORDS:
        return ""
    advice = f"write the arguments in parentheses: `{called[1]}({one_line(given[0], 40)})`"
    statement = BY_KEYWORD.get(place.keyword)
    return f"{advice}; join conditions with `and`" if statement is not None and statement.condition else advice


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
    if place.word == "=" and place.before.endswith(("==", "!=")):
        span, meant = place.range(at - 2, at + 1), place.before[-2:]
        fix = Fix(f"write {meant}", (Edit(span, meant),))
        return codes.FOREIGN_OPERATOR.at(span, f"`{span.text}` is not an operator", help=f"write `{meant}`", fix=fix)
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
    statement = BY_KEYWORD.get(place.keyword)
    if statement is None:
        return None
    if statement.condition or place.keyword == "score":
        inside = place.before.count("(") > place.before.count(")")
        joined = "join conditions with `and`, or write a line for each" if statement.condition else ""
        return place.unexpected(place.example() if inside or not joined else joined)
    return None


_SINGLE_QUOTED_QUERY = re.compile(r"\bpromql\(\s*('([^'\n\\]*)')")
_QUERY_WITH_QUOTES = re.compile(r'\bpromql\(\s*"([^"\\]*(?:[=~]\s*"[^"\\]*"[^"\\]*)+)"(?=\s*[,)])')
_TEXT_BEFORE = re.compile(r'"([^"\\]*)"\s*$')


def _quotes_inside(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `promql("up{job="x"}")`, as pasted from PromQL, and of other quotes inside a text."""
    text, at = place.line.text, place.at
    for query in _QUERY_WITH_QUOTES.finditer(text):
        if query.start(1) <= at <= query.end(1):
            inner = [query.start(1) + i for i, char in enumerate(query[1]) if char == '"']
            span = place.range(inner[0], inner[0] + 1)
            message, advice = (
                "this quote ends the query",
                f"write `'` inside: `{one_line(query[1].replace(chr(34), chr(39)), 60)}`",
            )
            fix = Fix("write ' inside the query", tuple(Edit(place.range(i, i + 1), "'") for i in inner))
            return codes.UNEXPECTED.at(span, message, help=advice, fix=fix)
    for query in _SINGLE_QUOTED_QUERY.finditer(text):
        if query.start(1) <= at < query.end(1) and '"' in query[2]:
            written = '"' + query[2].replace('"', "'") + '"'
            fix = Fix("exchange the quotes", (Edit(place.range(*query.span(1)), written),))
            message, advice = "write texts in double quotes", f"write `{one_line(written, 60)}`"
            return codes.FOREIGN_CHARACTER.at(place.span, message, help=advice, fix=fix)
    before = _TEXT_BEFORE.search(place.near)
    if before is None or at == 0 or text[at - 1] != '"' or not place.word.isalnum() or '"' not in text[at:]:
        return None
    return codes.UNEXPECTED.at(
        place.range(at - 1, at), "this quote ends the text", help=r"write `\"` for a quote inside a text"
    )


_DASHED_KEY = re.compile(r"((?:\w+\.)*(?:label|annotation))\.(\w+(?:-\w+)+)(?![\w.(\[-])")


def _dashed_key(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `pod.label.opt-in`, where a part of the key is a word of the language."""
    for key in _DASHED_KEY.finditer(place.line.text, max(0, place.at - NEAR), place.at + NEAR):
        if key.start(2) < place.at <= key.end():
            written, span = f'{key[1]}["{key[2]}"]', place.range(*key.span())
            message = f"`-` means minus here, it is not a part of the key `{key[2]}`"
            fix = Fix(f"write {written}", (Edit(span, written),))
            return codes.DASH.at(span, message, help=f"write `{written}`", fix=fix)
        if key.start() > place.at:
            break
    return None


_NULL = re.compile(r"(==|!=|is\s+not|is)\s+(null|none|nil|undefined|missing)\b", re.IGNORECASE)


def _null(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `IS NOT NULL` and `is none`."""
    start = max(0, place.at - 20)
    found = next((m for m in _NULL.finditer(place.line.text, start) if m.start() <= place.at < m.end()), None)
    if found is None or found[1][0] in "=!":
        return None
    written = "is not missing" if found[1].lower().endswith("not") else "is missing"
    span = place.range(*found.span())
    fix = Fix(f"write {written}", (Edit(span, written),))
    if found[1].islower():
        return place.unexpected(f"write `{written}`", fix=fix)
    message = f"`{found[0]}` is no test of this language"
    return codes.FOREIGN_OPERATOR.at(span, message, help=f"write `{written}`", fix=fix)


_LABEL_ITEMS = re.compile(r"\blabel\s+[\w./\"-]+\s+(?:not\s+)?(?:in|notin)\s*\([^()]*$")
_LABEL_EQUALS = re.compile(r"\blabel\s+[\w./\"-]+\s*(==?|!=)\s*$")
_LABEL_IN = re.compile(r"\blabel\s+(?:\"[^\"]*\"|[\w./-]+)\s+(?:not\s+)?(?:in|notin)\s*$")
_BRACKETS = re.compile(r"\[([^()\[\]]*)\]")


def _label_list(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `label zone in [a, b]` and `label zone in a`."""
    items = _BRACKETS.match(place.line.text, place.at)
    if "COMMA" in place.accepts and place.word.isalnum() and _LABEL_ITEMS.search(place.near):
        return place.unexpected(f"separate the values with commas: `…, {place.word}`")
    if items is not None and items[1].strip() and (sign := _LABEL_EQUALS.search(place.near)):
        written = f"{'not in' if sign[1] == '!=' else 'in'} ({items[1]})"
        start = place.at - len(place.near) + sign.start(1)
        fix = Fix(f"write {written}", (Edit(place.range(start, place.at + len(items[0])), written),))
        message = "a label is compared with one value; several values need `in`"
        return codes.UNEXPECTED.at(
            place.range(*items.span()), message, help=f"write `{one_line(written, 40)}`", fix=fix
        )
    if not _LABEL_IN.search(place.near):
        return None
    if items is None or not items[1].strip():
        example = place.word if place.word.isalnum() else "a"
        return codes.UNEXPECTED.at(
            place.span, "a label test needs its values in parentheses", help=f"write `in ({example}, …)`"
        )
    span, written = place.range(*items.span()), f"({items[1]})"
    fix = Fix("write parentheses", (Edit(span, written),))
    message = "the values of a label test stand in parentheses"
    return codes.UNEXPECTED.at(span, message, help=f"write `in {one_line(written, 40)}`", fix=fix)


def _capitals(place: Place) -> Diagnostic | None:
    lower = place.word.lower()
    if lower == place.word or lower not in WORDS or "STRING" in place.accepts - {"NUMBER"}:
        return None
    fix = Fix(f"write {lower}", (Edit(place.span, lower),))
    return codes.FOREIGN_OPERATOR.at(place.span, f"`{place.word}` is not a keyword", help=f"write `{lower}`", fix=fix)


def _character(place: Place) -> Diagnostic:
    """Return the diagnostic of a character that no token begins with."""
    for look in (_quotes_inside, part_error, number_error, _operator):
        if (found := look(place)) is not None:
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
        edits = tuple(Edit(place.range(i, i + 1), plain) for i, plain in lookalikes_in(text))
        advice = {" ": "write a plain space", "\n": "start a new line"}.get(written, f"write `{written}`")
        fix = Fix(advice.replace("`", "") if len(edits) == 1 else f"{advice.replace('`', '')}, and so on", edits)
        return codes.FOREIGN_CHARACTER.at(place.span, message, help=advice, fix=fix)
    if unicodedata.category(char) in ("Cf", "Cc", "Cn", "Co"):
        fix = Fix(f"remove U+{ord(char):04X}", (Edit(place.span, ""),))
        return codes.HIDDEN_CHARACTER.at(place.span, f"hidden character U+{ord(char):04X}", help="remove it", fix=fix)
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
