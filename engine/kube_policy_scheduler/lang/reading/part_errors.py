"""Parts of statements in another order or spelling: quotas of queues, label tests, names, items without a comma."""

from __future__ import annotations

import re

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix
from kube_policy_scheduler.lang import codes
from kube_policy_scheduler.lang.reading.place import Place
from kube_policy_scheduler.wording import one_line


def part_error(place: Place) -> Diagnostic | None:
    """Return the diagnostic of a part that is written as elsewhere; None if none is at the place."""
    looks = (_quota, _label_value, _is_text, _signed, _item, _name_with_dash, _quoted_name, _function_head)
    return next((found for look in looks if (found := look(place)) is not None), None)


def _written(place: Place, start: int, end: int, message: str, written: str) -> Diagnostic:
    """Return the diagnostic of a range of the statement, with the fix that writes something else there."""
    span = place.range(start, end)
    fix = Fix(f"write {one_line(written, 60)}", (Edit(span, written),))
    return codes.UNEXPECTED.at(span, message, help=f"write `{one_line(written, 60)}`", fix=fix)


_AMOUNT_FIRST = re.compile(r"(\d[\w.]*)\s+([A-Za-z][\w./-]*)")
_AMOUNT_WITH_SIGN = re.compile(r"([A-Za-z][\w./-]*)\s*[:=]\s*(\d[\w.]*)")


def _quota(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `min 4 cpu`, `min cpu: 4` and `min cpu 4 memory 8Gi` of a queue."""
    text = place.line.text
    if place.keyword != "queue" or not re.search(r"\b(?:min|max|lend)\b", place.before):
        return None
    start = place.at - len(place.near)
    for pattern, message in (
        (_AMOUNT_FIRST, "a resource comes before its amount"),
        (_AMOUNT_WITH_SIGN, "a resource and its amount have no sign between them"),
    ):
        for found in pattern.finditer(text, max(0, start)):
            is_first = pattern is _AMOUNT_FIRST
            before = text[: found.start()].rstrip()
            if found.start() <= place.at < found.end() and (
                before.endswith(("min", "max", "lend", ",")) or not is_first
            ):
                written = f"{found[2]} {found[1]}" if is_first else f"{found[1]} {found[2]}"
                return _written(place, *found.span(), message, written)
    if "COMMA" in place.accepts and re.match(r"[a-z][\w./-]*\s+\d", text[place.at :]):
        end = len(place.before.rstrip())
        return _written(place, end, place.at, f"a comma is missing before `{place.word}`", ", ")
    return None


_LABEL_BEFORE = re.compile(r"\blabel\s+(\"[^\"]*\"|[\w./-]+)(\s*:\s*|\s+)$")
_VALUE = re.compile(r"\s*[A-Za-z0-9][\w.-]*")


def _label_value(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `label disk ssd`, `label disk: ssd` and `labels disk=ssd`."""
    text = place.line.text
    at = place.at + (1 if place.word == ":" else 0)
    found = _LABEL_BEFORE.search(place.near + (":" if place.word == ":" else ""))
    value = _VALUE.match(text, at)
    if found is not None and value is not None and (place.word == ":" or "ASSIGN" in place.accepts):
        start = place.at - len(place.near) + found.start(1)
        written = f"{found[1]}={value[0].strip()}"
        return _written(place, start, value.end(), "the value of a label stands behind `=`", written)
    if place.last == "labels" and re.match(r"[\w./-]+\s*=", text[place.at :]):
        start = len(place.before.rstrip()) - len("labels")
        return _written(place, start, start + len("labels"), "`labels` is no test", "label")
    return None


_IS = re.compile(r"\bis(\s+not)?\s+$")


def _is_text(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `node.zone is not "a"`."""
    found = _IS.search(place.near)
    if found is None or not (place.word == '"' or place.word.isdigit()):
        return None
    start = place.at - len(place.near) + found.start()
    message = "`is` is only for `is missing` and `is not missing`"
    return _written(place, start, start + len(found[0].rstrip()), message, "!=" if found[1] else "==")


def _signed(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `+2`."""
    number = re.match(r"\+\s*(\d[\w.]*)", place.line.text[place.at :])
    if place.word != "+" or number is None or "NUMBER" not in place.accepts:
        return None
    return _written(place, place.at, place.at + len(number[0]), "numbers have no `+`", number[1])


def _item(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `["a" "b"]` and `fits(cpu mem)`."""
    inside = "RSQB" in place.accepts or "RPAR" in place.accepts
    is_item = place.word == '"' or (place.word.isalnum() and place.last not in ("", "not", "in", "is"))
    behind = place.before.rstrip()[-1:]
    if not inside or "COMMA" not in place.accepts or not is_item or not (behind == '"' or behind.isalnum()):
        return None
    if place.word != '"' and not re.fullmatch(r"[\s\w]*", place.before[place.before.rfind("(") + 1 :]):
        return None
    end = len(place.before.rstrip())
    span = place.range(end, place.at)
    fix = Fix("write a comma", (Edit(span, ", "),))
    return codes.UNEXPECTED.at(place.span, "a comma is missing before this", help="separate them with commas", fix=fix)


_DEFINED = re.compile(r"(let|def|metric)\s+([A-Za-z_]\w*(?:-\w+)+)")


def _name_with_dash(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `let my-name = 5`."""
    found = _DEFINED.match(place.line.text)
    if found is None or not found.start(2) <= place.at < found.end(2):
        return None
    written = found[2].replace("-", "_")
    message = f"`-` means minus, so `{found[2]}` is no name"
    return codes.DASH.at(place.range(*found.span(2)), message, help=f"write `{written}`, also where it is used")


_QUOTED = re.compile(r'"([A-Za-z0-9][\w.-]*)"')


def _quoted_name(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `queue "team"` and `metric "load" = …`."""
    found = _QUOTED.match(place.line.text, place.at)
    if found is None or place.last != place.keyword or place.keyword not in ("queue", "metric", "let", "def"):
        return None
    return _written(place, *found.span(), "a name stands without quotes", found[1])


_HEAD = re.compile(r"def\s+(\w+)\s+([A-Za-z_]\w*(?:(?:\s*,\s*|\s+)[A-Za-z_]\w*)*)\s*=")


def _function_head(place: Place) -> Diagnostic | None:
    """Return the diagnostic of `def f x = …` and `def f(x) -> …`."""
    text = place.line.text
    head = _HEAD.match(text)
    if place.keyword != "def":
        return None
    if head is not None and place.at < head.end():
        names = ", ".join(re.findall(r"\w+", head[2]))
        return _written(place, 0, head.end(), "parameters stand in parentheses", f"def {head[1]}({names}) =")
    for arrow in ("->", "=>"):
        if text.startswith(arrow, place.at) and place.accepts == {"ASSIGN"}:
            return _written(place, place.at, place.at + 2, f"`{arrow}` does not define a function", "=")
    return None
