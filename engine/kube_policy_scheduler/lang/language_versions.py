"""The versions of the language: what changed in each, and how a policy of an older one says the same in a newer one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.lang import syntax

Rewrite: TypeAlias = Callable[[syntax.Statement], syntax.Statement]


class LanguageVersion(msgspec.Struct, frozen=True):
    """One version of the language."""

    number: int
    changed: str
    """What a policy of the version before would say differently, in a sentence that begins in lower case."""
    rewrite: Rewrite
    """Returns what a statement of the version before is in this one; the statement itself if nothing changed."""


class Rewriting(msgspec.Struct, frozen=True):
    """A statement that has to be written differently in a newer version."""

    before: syntax.Statement
    after: syntax.Statement
    version: LanguageVersion
    """Since which it has to be."""


def _as_it_is(statement: syntax.Statement) -> syntax.Statement:
    return statement


def _count_all_nodes(statement: syntax.Statement) -> syntax.Statement:
    """Say of a hard `spread` that all domains count, as they did before version 2."""
    if isinstance(statement, syntax.Spread) and statement.max_skew is not None and statement.counting is None:
        return msgspec.structs.replace(statement, counting=syntax.Counting(("all",), statement.span))
    return statement


VERSIONS: tuple[LanguageVersion, ...] = (
    LanguageVersion(1, "the first version", _as_it_is),
    LanguageVersion(
        2,
        "a `spread` with `max skew` counts only domains with a node that the pod could use;"
        " `counting all nodes` counts every domain, as version 1 did",
        _count_all_nodes,
    ),
)
"""By number, from 1 on without gaps. The grammar of the newest version reads the policies of all of them."""

NEWEST = VERSIONS[-1].number
"""The version of a policy that does not say one."""


def version_of(file: syntax.File) -> int:
    """Return the version that a file is written in."""
    return next((s.version for s in file.statements if isinstance(s, syntax.Language)), NEWEST)


def upgraded(file: syntax.File) -> tuple[syntax.File, tuple[Rewriting, ...]]:
    """Return a file in the newest version, where it means the same, and what is written differently.

    A file of the newest version is returned as it is.
    """
    old = version_of(file)
    if old == NEWEST:
        return file, ()
    statements: list[syntax.Statement] = []
    changed: list[Rewriting] = []
    for statement in file.statements:
        if isinstance(statement, syntax.Language):
            statements.append(msgspec.structs.replace(statement, version=NEWEST))
            continue
        for version in VERSIONS[old:]:
            before, statement = statement, version.rewrite(statement)
            if statement != before:
                changed.append(Rewriting(before, statement, version))
        statements.append(statement)
    return replace(file, statements=tuple(statements)), tuple(changed)
