"""Policies from files, folders and ConfigMaps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli.files import is_below, root_of
from kube_policy_scheduler.cli.owners import owners
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, in_order
from kube_policy_scheduler.documents.yaml_document import DocumentError, read_source

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.owners import Part
    from kube_policy_scheduler.policy.policy_set import PolicySet


_ValueT = TypeVar("_ValueT")


def named(option: str) -> tuple[str, str]:
    """Return namespace and name of what stands behind --config-map."""
    namespace, slash, name = option.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(f"--config-map: expected NAMESPACE/NAME, got {option}")
    return namespace, name


def asked(request: Coroutine[Any, Any, _ValueT], *, about: str) -> _ValueT:
    """Return what the API server answers. about: such as `ConfigMap NAMESPACE/NAME`."""
    from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError

    try:
        return asyncio.run(request)
    except Conflict as error:
        raise click.ClickException(
            f"{about} changed since it was read, and was not written: run the command again"
        ) from error
    except KubeError as error:
        raise click.ClickException(f"{about}: {error}") from error


SUFFIX = ".policy"


def linted(sources: Sequence[Source]) -> tuple[Diagnostic, ...]:
    """Return all that is wrong with policies, and what is probably not meant; those of one folder are one set."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.lint.runner import lint

    folders: dict[Path, list[Source]] = {}
    for source in sources:
        folders.setdefault(Path(source.name).parent, []).append(source)
    owned = owners()
    found: list[Diagnostic] = []
    for together in folders.values():
        owner = owned.owner_of(together[0]) if owned is not None else None
        checked = check_sources(together, environment(), library=beside(together), owner=owner)
        found.extend(checked.diagnostics)
        found.extend(lint(checked))
    if owned is not None:
        found.extend(_between_owners(owned.parts(sources)))
    return in_order(found)


def _between_owners(parts: Sequence[Part]) -> list[Diagnostic]:
    """Return what is to be said of given policies beside those of other owners."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.lint.runner import lint_together

    checked = {
        part.name: check_sources(part.sources, environment(), library=beside(part.sources), owner=part.owner)
        for part in parts
    }
    found: dict[tuple[str, Span], Diagnostic] = {}
    for one in parts:
        given = set(one.sources) if one.given else set()
        for other in parts:
            if given and one is not other and _may_meet(one, other):
                pair = checked[one.name], checked[other.name]
                if not any(each.failed for each in pair):
                    said = (each for each in lint_together(pair) if each.span.source in given)
                    found |= {(each.code, each.span): each for each in said}
    return list(found.values())


def _may_meet(one: Part, other: Part) -> bool:
    return one.owner is None or other.owner is None or one.owner.may_meet(other.owner)


def compiled(sources: Sequence[Source]) -> PolicySet:
    """Return the policies, compiled together.

    Raises:
        DocumentError: they have errors.
    """
    return loaded(sources)[0]


def loaded(sources: Sequence[Source]) -> tuple[PolicySet, tuple[Diagnostic, ...]]:
    """Return the policies, compiled together, and what is probably not meant in them.

    Raises:
        DocumentError: they have errors.
    """
    from kube_policy_scheduler.policy.policy_set import PolicySet, load

    if (owned := owners()) is None:
        made = load(sources, library=beside(sources))
        if made.policy_set is None:
            raise DocumentError(made.diagnostics)
        return made.policy_set, made.diagnostics
    sets: list[PolicySet] = []
    said: list[Diagnostic] = []
    for part in owned.parts(sources):
        made = load(part.sources, library=beside(part.sources), owner=part.owner)
        if made.policy_set is None and not part.given:
            owned.left_out(part)
            sets.append(PolicySet.of(()))
            continue
        if made.policy_set is None:
            raise DocumentError(made.diagnostics)
        sets.append(made.policy_set)
        said += made.diagnostics if part.given else ()
    return PolicySet.together(sets), in_order(said)


def beside(sources: Sequence[Source]) -> list[Source]:
    """Return the policies in the folders of the sources, where one of these may take another file in."""
    if not any("use" in source.text for source in sources):
        return []
    folders = dict.fromkeys(Path(source.name).parent for source in sources)
    found = []
    for folder in folders:
        root = root_of(folder)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if not is_below(path, root):
                continue  # a link that leads elsewhere
            try:
                found.append(read_source(path))
            except DocumentError:
                continue  # `use` of it says that there is no such file
    return found
