"""Who sends a request, and by which token they are known."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

AUTHENTICATED, UNAUTHENTICATED, MASTERS = "system:authenticated", "system:unauthenticated", "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)


ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
"""May do everything; everybody is it where no authentication is configured."""
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def service_account(namespace: str, name: str) -> User:
    """Return the identity of a pod that runs under a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def of_certificate(certificate: Any) -> User | None:
    """Return the identity in a client certificate, as `SSLObject.getpeercert` gives it; None without one."""
    if not certificate:
        return None
    parts = [pair for name in certificate.get("subject", ()) for pair in name]
    names = [value for key, value in parts if key == "commonName"]
    groups = [value for key, value in parts if key == "organizationName"]
    return User(names[0], (*groups, AUTHENTICATED)) if names else None


class Tokens:
    """Bearer tokens and whose they are."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def issue(self, user: User, *, token: str | None = None) -> str:
        """Return a token for a user: the given one, or a new one."""
        chosen = token or secrets.token_urlsafe(24)
        self._users[chosen] = user
        return chosen

    def revoke(self, token: str) -> None:
        """Make a token worthless."""
        self._users.pop(token, None)

    def user_of(self, authorization: str) -> User | None:
        """Return whose an Authorization header is; None for a token nobody has."""
        scheme, _, token = authorization.partition(" ")
        return self._users.get(token.strip()) if scheme.lower() == "bearer" else None


def impersonated(user: User, name: str | None, groups: Sequence[str]) -> User:
    """Return whom a user acts as (`kubectl --as`)."""
    return user if not name else User(name, (*groups, AUTHENTICATED))
