"""What a live fleet answers when it is examined: which APIs its engine serves, and how its members can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NeededApi:
    """A kind that the decision maker reads or writes."""

    group: str
    version: str
    """That it uses, and that is tested."""
    plural: str
    """With its subresource: `workloads/status`."""
    fields: tuple[str, ...] = ()
    """That it writes, or that users set for it: paths such as `spec.clusters.name`; through lists to their items."""
    otherwise: str = ""
    """What it does without; empty: it does not work."""

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}"


@dataclass(frozen=True, slots=True)
class ServedApi:
    """What an API server says about a kind."""

    versions: tuple[str, ...] = ()
    """Of the group, that it prefers first; empty: it is not served at all."""
    is_served: bool = False
    """Whether the kind is there in the version that is needed."""
    unknown: tuple[str, ...] = ()
    """Fields that the server does not know, and drops."""
    problem: str = ""
    """Why it could not be asked."""
    unchecked: str = ""
    """Why it is not known which fields it knows; "" if that is."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """What came of looking at a member cluster."""

    cluster: str
    problem: str = ""
    """Why it cannot be read; "" if it can."""
    seconds: float = 0.0
    """That one answer took."""
    is_verified: bool = True
    """Whether the certificate of its API server is verified."""
    may_list: Mapping[str, bool | str] = field(default_factory=dict)
    """By resource: whether its credentials allow to list it, or why that is not known."""
