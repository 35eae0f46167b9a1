"""Health checks: what the probes of a server ask. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec


class Remark(str):
    """What a check that passes has to say to `?verbose`."""

    __slots__ = ()


Check = Callable[[], str | None]
"""Answers None or a Remark when all is well, else a short reason. Called on the event loop; must not block."""


class HealthChecks(msgspec.Struct, frozen=True):
    """Named checks. A name may be in several."""

    live: Mapping[str, Check] = msgspec.field(default_factory=dict)
    """A failing one means that only a restart helps: the kubelet makes one."""
    ready: Mapping[str, Check] = msgspec.field(default_factory=dict)
    """A failing one means that the scheduler does not do its work at present; waiting may help."""
