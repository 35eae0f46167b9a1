"""`# policy: ignore P0303 because …`: which warnings a policy suppresses, and why."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, Span
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.lint.rule import removal

_MARK = re.compile(r"#\s*policy:\s*(.*)", re.IGNORECASE)
_IGNORE = re.compile(r"ignore\s+(P\d+(?:\s*,\s*P\d+)*)(?:\s+because\s+(\S.*))?", re.IGNORECASE)

MALFORMED = Code(
    "P0501",
    "unreadable-ignore",
    "A comment that starts with `policy:` is an instruction. The only instruction is `ignore`, with codes and a"
    " reason.",
    bad="# policy: ignore everything\nfilter node.ready",
    good="# policy: ignore P0302 because the fleet has older nodes soon\nfilter node.requested.cpu >= 0",
    severity=Severity.WARNING,
)
WITHOUT_REASON = Code(
    "P0502",
    "ignore-without-reason",
    "To ignore a warning, you must give a reason for the next reader of the policy.",
    bad="# policy: ignore P0302\nfilter node.requested.cpu >= 0",
    good="# policy: ignore P0302 because it documents the intent\nfilter node.requested.cpu >= 0",
    severity=Severity.WARNING,
)
UNUSED = Code(
    "P0503",
    "unused-ignore",
    "The statement below (or on the same line) no longer has the problem, so the comment only hides future ones.",
    bad="# policy: ignore P0302 because it was so\nfilter node.ready",
    good="filter node.ready",
    severity=Severity.WARNING,
)
NOT_IGNORABLE = Code(
    "P0504",
    "ignored-error",
    "You can ignore only warnings, not errors.",
    bad="# policy: ignore P0301 because I know better\nfilter node.free.cpu > 8 and node.free.cpu < 4",
    good="filter node.free.cpu > 8",
    severity=Severity.WARNING,
)


class _Ignore(msgspec.Struct, eq=False):
    """One code that one comment asks to ignore."""

    code: str
    comment: Span
    source: Source
    first_line: int
    last_line: int
    used: bool = False


def apply(
    found: Sequence[Diagnostic], files: Iterable[syntax.File], *, known: Container[str], judge: bool
) -> list[Diagnostic]:
    """Return the diagnostics that are not ignored and, if `judge`, what is wrong with the ignores themselves."""
    ignores: list[_Ignore] = []
    problems: list[Diagnostic] = []
    for file in files:
        _collect(file, ignores, problems, known)
    places: defaultdict[tuple[str, Source], list[_Ignore]] = defaultdict(list)
    for ignore in ignores:
        places[ignore.code, ignore.source].append(ignore)
    for each in places.values():
        each.sort(key=lambda ignore: ignore.first_line)
    kept = []
    for diagnostic in found:
        match = _match(places.get((diagnostic.code, diagnostic.span.source), ()), diagnostic)
        if match is None:
            kept.append(diagnostic)
            continue
        match.used = True
        if diagnostic.severity is Severity.ERROR:
            kept.append(diagnostic)
            message = f"`{match.code}` is an error and cannot be ignored"
            problems.append(NOT_IGNORABLE.at(match.comment, message, help="correct the error"))
    codes = Counter(ignore.comment for ignore in ignores)
    for ignore in ignores:
        if not ignore.used and ignore.code in known:
            fix = removal("remove the comment", ignore.comment) if codes[ignore.comment] == 1 else None
            message = f"there is no {ignore.code} to ignore here"
            problems.append(UNUSED.at(ignore.comment, message, help="remove the comment", fix=fix))
    return kept + problems if judge else kept


def _match(ignores: Sequence[_Ignore], diagnostic: Diagnostic) -> _Ignore | None:
    """Return the first ignore of a diagnostic; they come by line, and none overlaps another, as statements do not."""
    if not ignores:
        return None
    line = diagnostic.span.source.position(diagnostic.span.start)[0]
    after = bisect_right(ignores, line, key=lambda ignore: ignore.first_line)
    if not after or ignores[after - 1].last_line < line:
        return None
    return ignores[bisect_left(ignores, ignores[after - 1].first_line, key=lambda ignore: ignore.first_line)]


def _collect(file: syntax.File, ignores: list[_Ignore], problems: list[Diagnostic], known: Container[str]) -> None:
    position = file.source.position
    marks = [(comment, mark) for comment in file.comments if (mark := _MARK.fullmatch(comment.text))]
    lines = [(position(s.span.start)[0], position(s.span.end)[0]) for s in file.statements] if marks else []
    for comment, mark in marks:
        match = _IGNORE.fullmatch(mark[1])
        if match is None:
            message = "this instruction is not valid"
            advice = "write `# policy: ignore P0302 because …`"
            problems.append(MALFORMED.at(comment.span, message, help=advice))
            continue
        if match[2] is None:
            advice = f"write `# policy: ignore {match[1]} because …`"
            problems.append(WITHOUT_REASON.at(comment.span, "the reason is missing", help=advice))
        first, last = _about(lines, comment, position(comment.span.start)[0])
        for code in dict.fromkeys(code.strip().upper() for code in match[1].split(",")):
            if code not in known:
                problems.append(MALFORMED.at(comment.span, f"there is no code {code}", help="correct the code"))
            ignores.append(_Ignore(code, comment.span, file.source, first, last))


def _about(lines: Sequence[tuple[int, int]], comment: syntax.Comment, line: int) -> tuple[int, int]:
    """Return the lines of the statement that a comment is about: that on its line, else the next one."""
    at = bisect_left(lines, line, key=lambda ends: ends[1])
    if at < len(lines) and (lines[at][0] <= line or comment.own_line):
        return lines[at]
    return line, line
