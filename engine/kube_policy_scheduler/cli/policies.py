"""Policies from files, folders and ConfigMaps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli.files import is_below, root_of
from kube_policy_scheduler.diagnostics import Diagnostic, Source, in_order
from kube_policy_scheduler.documents.yaml_document import DocumentError, read_source

if TYPE_CHECKING:
    from kube_policy_scheduler.policy.policy_set import PolicySet


_ValueT = TypeVar("_ValueT")


def named(option: str) -> tuple[str, str]:
    """Return namespace and name of what stands behind --config-map."""
    namespace, slash, name = option.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(f"--config-map: expected NAMESPACE/NAME, got {option}")
    return namespace, name


def asked(request: Coroutine[Any, Any, _ValueT], *, about: str) -> _ValueT:
    """Return what the API server answers. about: the ConfigMap, as NAMESPACE/NAME."""
    from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError

    try:
        return asyncio.run(request)
    except Conflict as error:
        raise click.ClickException(
            f"ConfigMap {about} has changed: nothing was written, run the command again"
        ) from error
    except KubeError as error:
        raise click.ClickException(f"ConfigMap {about}: {error}") from error


SUFFIX = ".policy"


def linted(sources: Sequence[Source]) -> tuple[Diagnostic, ...]:
    """Return all that is wrong with policies, and what is probably not meant; those of one folder are one set."""
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.lint.runner import lint

    folders: dict[Path, list[Source]] = {}
    for source in sources:
        folders.setdefault(Path(source.name).parent, []).append(source)
    found: list[Diagnostic] = []
    for together in folders.values():
        checked = check_sources(together, environment(), library=beside(together))
        found.extend(checked.diagnostics)
        found.extend(lint(checked))
    return in_order(found)


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
    from kube_policy_scheduler.policy.policy_set import load

    made = load(sources, library=beside(sources))
    if made.policy_set is None:
        raise DocumentError(made.diagnostics)
    return made.policy_set, made.diagnostics


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
