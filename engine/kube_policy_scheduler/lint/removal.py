"""Taking a statement or a comment out of a text, so that no rest of its line stays behind."""

from __future__ import annotations

from kube_policy_scheduler.diagnostics import Edit, Fix, Span


def removal(title: str, span: Span) -> Fix:
    """Return the fix that removes a span: with its line where nothing else stands there."""
    text, start, end = span.source.text, span.start, span.end
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    while end < len(text) and text[end] in " \t":
        end += 1
    first, last = start == 0 or text[start - 1] == "\n", end == len(text) or text[end] in "\r\n"
    if first and last:
        end += 2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0
    elif first:
        start = span.start  # a comment follows, and takes the place
    return Fix(title, (Edit(Span(span.source, start, end), ""),))
