"""What a reflector tells its handler, and what it says of itself. Knows no I/O."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar, overload

import msgspec

Obj = TypeVar("Obj", covariant=True)
Taken = TypeVar("Taken", contravariant=True)


class Updated(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """An object came into view, or changed."""

    new: Obj


class Deleted(msgspec.Struct, Generic[Obj], frozen=True, gc=False):
    """An object left the view: it is gone, or no longer matches the selector.

    last is its last state; where the end itself was missed, it has name, namespace and UID only.
    """

    last: Obj


Change: TypeAlias = Updated[Obj] | Deleted[Obj]


class Updates(Sequence[Updated[Obj]]):
    """Objects that came into view, or changed, as changes that are made when they are looked at."""

    __slots__ = ("new",)

    def __init__(self, new: Sequence[Obj]) -> None:
        self.new = new

    def __len__(self) -> int:
        return len(self.new)

    def __iter__(self) -> Iterator[Updated[Obj]]:
        return map(Updated, self.new)

    @overload
    def __getitem__(self, place: int) -> Updated[Obj]: ...

    @overload
    def __getitem__(self, place: slice) -> Updates[Obj]: ...

    def __getitem__(self, place: int | slice) -> Updated[Obj] | Updates[Obj]:
        return Updates(self.new[place]) if isinstance(place, slice) else Updated(self.new[place])


class Handler(Protocol[Taken]):
    """Told what changed, in the event loop, without awaiting."""

    def replaced(self, objects: Sequence[Taken], /) -> None:
        """Forget all objects of this reflector and take these, the beginning of the first list."""

    def changed(self, changes: Sequence[Change[Taken]], /) -> None:
        """Take changes, in order; one call per chunk that was read.

        If it raises, each object comes again, also those that have not changed and those that are gone.
        """


class Phase(enum.Enum):
    """What a reflector is doing. Only while it is WATCHING, the view of its handler is known to be current.

    What may follow what is in `view_state`.
    """

    STARTING = "starting"  # it has not run yet
    LISTING = "listing"  # a list is being read, the first or another
    CONNECTING = "connecting"  # a watch was asked for
    CATCHING_UP = "catching up"  # a watch is open; whether the view is complete is being checked
    WATCHING = "watching"
    RETRYING = "retrying"  # after an error, until the next try
    ABSENT = "absent"  # the server does not have this resource
    FORBIDDEN = "forbidden"  # RBAC does not let us list or watch it


class Status(msgspec.Struct, frozen=True):
    """Phase with the reason for it, "" while all is well."""

    phase: Phase
    problem: str = ""
    since: float | None = None
    """Event loop's time at which the phase began; None before the reflector runs."""
