"""Who sends a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
"""May do everything; everybody is it where no authentication is configured."""
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
