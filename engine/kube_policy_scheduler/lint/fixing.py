"""Fixes made to policies until none is left, and never a text that says less than before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import Diagnostic, Source, apply_fixes, compatible
from kube_policy_scheduler.lang.reading.parse import parse

_PASSES = 100
"""A statement that cannot be read shows one mistake at a time."""

Look = Callable[[Sequence[Source]], Sequence[Diagnostic]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Sources after their fixes."""

    sources: tuple[Source, ...]
    """As they were given, in the same order; what needed no fix is unchanged."""
    made: tuple[Diagnostic, ...]
    """What was fixed, with its place in the text at that time."""
    left: tuple[Diagnostic, ...]
    """What is found in the texts as they are now."""
    refused: Mapping[str, str]
    """By name, the sources left as they were although there are fixes, and why: mistakes of ours."""


def fixed(sources: Sequence[Source], look: Look) -> Fixed:
    """Return the sources with all safe fixes made, looked at again after each pass.

    Args:
        sources: policies by different names.
        look: finds what is wrong with policies that stand together.
    """
    texts = {source.name: source for source in sources}
    refused: dict[str, str] = {}
    made: list[Diagnostic] = []
    found = tuple(look(list(texts.values())))
    for _ in range(_PASSES):
        changed = False
        for source in list(texts.values()):
            chosen = _chosen(source, found) if source.name not in refused else ()
            if not chosen:
                continue
            after = Source(source.name, apply_fixes(source, (d.fix for d in chosen if d.fix is not None)))
            problem = _problem(source, after)
            if problem:
                refused[source.name] = problem
                continue
            texts[source.name], changed = after, True
            made += chosen
        if not changed:
            break
        found = tuple(look(list(texts.values())))
    return Fixed(tuple(texts.values()), tuple(made), found, refused)


def _chosen(source: Source, found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    offered = {d.fix: d for d in found if d.fix is not None and d.fix.safe and d.span.source == source}
    return tuple(offered[fix] for fix in compatible(source, offered))


def _problem(before: Source, after: Source) -> str:
    """Return why a text must not take the place of another; empty where it may."""
    _, old = parse(before)
    _, new = parse(after)
    if len(new) > len(old):
        return f"after the fixes, the file could not be parsed: {new[0]}"
    if after.text == before.text:
        return "the fixes change nothing"
    return ""
