"""A record of who asked for what, with which result. For tests of permissions and request budgets."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from kube_policy_scheduler.embedded.requests import Target

_KEPT = 100_000
"""Requests remembered one by one; counts go on beyond."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request needs: a verb on a resource, the subresource behind a slash."""

    verb: str
    group: str
    resource: str

    @classmethod
    def of(cls, target: Target) -> Permission:
        """Return what a request needs."""
        resource = target.resource
        sub = f"/{target.subresource}" if target.subresource else ""
        return cls(target.verb, resource.group, resource.plural + sub)


@dataclass(frozen=True, slots=True)
class Record:
    """One request for a resource. Code 0: the connection was ended without an answer."""

    user: str
    permission: Permission
    namespace: str
    name: str
    code: int


class RequestLog:
    """Counts of all requests, and the latest ones one by one."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Permission, int]] = Counter()
        self._latest: deque[Record] = deque(maxlen=_KEPT)

    def add(self, record: Record) -> None:
        """Remember a request."""
        self._counts[record.user, record.permission, record.code] += 1
        self._latest.append(record)

    def clear(self) -> None:
        """Forget everything."""
        self._counts.clear()
        self._latest.clear()

    def latest(self) -> tuple[Record, ...]:
        """Return the latest requests, oldest first."""
        return tuple(self._latest)

    def count(
        self,
        *,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        code: int | None = None,
    ) -> int:
        """Return how many requests there were of a kind; what is not given is not asked for."""
        return sum(
            number
            for (who, permission, result), number in self._counts.items()
            if (user in (None, who) and verb in (None, permission.verb))
            and (resource in (None, permission.resource) and code in (None, result))
        )

    def used(self, user: str) -> frozenset[Permission]:
        """Return the permissions a user has made use of."""
        return frozenset(what for who, what, code in self._counts if who == user and code not in (401, 403))

    def denied(self, user: str | None = None) -> frozenset[Permission]:
        """Return the permissions that were missing, of one user or of all."""
        return frozenset(what for who, what, code in self._counts if code == 403 and user in (None, who))
