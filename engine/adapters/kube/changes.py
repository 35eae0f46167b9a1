"""What a reflector tells its handler, and what it says of itself. Knows no I/O."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

Obj = TypeVar("Obj", covariant=True)
Taken = TypeVar("Taken", contravariant=True)


class Added(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """An object came into view."""

    new: Obj


class Modified(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """An object changed."""

    new: Obj


class Deleted(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """An object left the view: it is gone, or no longer matches the selector.

    last is its last state; where the end itself was missed, it has name, namespace and UID only.
    """

    last: Obj


Change: TypeAlias = Added[Obj] | Modified[Obj] | Deleted[Obj]


class Handler(Protocol[Taken]):
    """Told what changed, in the event loop, without awaiting."""

    def replaced(self, objects: Sequence[Taken], /) -> None:
        """Forget all objects of this reflector and take these: the first list, or the end of a confusion."""

    def changed(self, changes: Sequence[Change[Taken]], /) -> None:
        """Take changes, in order; one call per chunk that was read."""


class Phase(enum.Enum):
    """What a reflector is doing."""

    STARTING = "starting"  # nothing delivered yet
    WATCHING = "watching"
    RETRYING = "retrying"  # what was delivered may be old
    ABSENT = "absent"  # the server does not have this resource
    FORBIDDEN = "forbidden"  # RBAC does not let us list or watch it


@dataclass(frozen=True, slots=True)
class Status:
    """Phase with the reason for it, "" while all is well."""

    phase: Phase
    problem: str = ""
