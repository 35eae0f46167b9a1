"""A ConfigMap of the live cluster, as commands are told of it and tell what went wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

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
        raise click.ClickException(f"ConfigMap {about} was changed meanwhile: nothing is done, run it again") from error
    except KubeError as error:
        raise click.ClickException(f"ConfigMap {about}: {error}") from error
