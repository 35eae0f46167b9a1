"""`--update`: the scores and placements that came, written where others were expected. Never where a pod goes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_policy_scheduler.diagnostics import Edit
from kube_policy_scheduler.tooling.tester.expectation import Placed, Score
from kube_policy_scheduler.tooling.tester.results import SuiteResult
from kube_policy_scheduler.tooling.tester.texts import number

_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TOLERANT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?P<tolerance> *(±|\+-).*)")
_PLACE = "${"


def updated(result: SuiteResult) -> tuple[str, int]:
    """Return the file's text with what came, and how many values changed.

    Plain numbers are replaced, of a tolerance the middle; a comparison such as `>= 50` is a demand and stays, and so
    does what a table fills in.
    """
    source = result.suite.document.source
    edits: dict[int, Edit] = {edit.span.start: edit for edit in _edits(result)}
    text = source.text
    for start in sorted(edits, reverse=True):
        edit = edits[start]
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text, len(edits)


def _edits(result: SuiteResult) -> Iterator[Edit]:
    for case in result.cases:
        for failure in case.failures:
            value, got = failure.expected.value, failure.mismatch.value
            if not isinstance(value, Score | Placed) or got is None:
                continue
            span = result.suite.document.span(failure.expected.path)
            written = span.text.strip("'\"")
            if _PLACE in written or failure.pod:
                continue
            tolerant = _TOLERANT.fullmatch(written)
            if _PLAIN.fullmatch(written):
                yield Edit(span, number(got))
            elif tolerant is not None:
                yield Edit(span, f"'{number(got)}{tolerant['tolerance']}'")
