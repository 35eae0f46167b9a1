"""Who sends a request, and may they: asked of the API server by TokenReview and SubjectAccessReview.

As kube-scheduler's own port does it: a bearer token that the API server knows, and a rule for the path
(`nonResourceURLs`). Answers are kept for ten seconds. Tokens are kept as hashes, and never logged.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.transport import Transport

KEEP_SECONDS = 10.0
"""kube-scheduler's default for both reviews, whatever the answer."""
TIMEOUT_SECONDS = 10.0
MAX_ASKING = 8
"""Reviews under way: anyone who sends many wrong tokens must not take the scheduler's connections."""
MAX_KEPT = 1024
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

K = TypeVar("K")
V = TypeVar("V")


class Access(Enum):
    """Whether a request may pass."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    """A user that the API server does not know."""
    FORBIDDEN = "forbidden"
    UNDECIDED = "undecided"
    """The API server could not be asked."""


class AccessDecision(msgspec.Struct, frozen=True):
    """The answer to one request."""

    access: Access
    why: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _Kept(Generic[K, V]):
    """A few answers for a short time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._answers.get(key)
        return found[1] if found is not None and 0 <= self._clock() - found[0] < KEEP_SECONDS else None

    def put(self, key: K, value: V) -> None:
        self._answers[key] = (self._clock(), value)
        self._answers.move_to_end(key)
        if len(self._answers) > MAX_KEPT:
            self._answers.popitem(last=False)


class AccessReviewer:
    """Asks the API server who sent a request and whether they may."""

    def __init__(self, transport: Transport, *, clock: Callable[[], float]) -> None:
        """clock: seconds, never going back."""
        self._transport = transport
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._users: _Kept[bytes, _User | None] = _Kept(clock)
        self._unknown: _Kept[bytes, bool] = _Kept(clock)
        self._access: _Kept[tuple[bytes, str, str], bool] = _Kept(clock)

    async def review(self, token: str, *, verb: str, path: str) -> AccessDecision:
        """Return whether the owner of a token may use a path.

        Args:
            token: as sent; "" where none was.
            verb: in lower case, as RBAC has it: get.
            path: without the query.
        """
        if not token:
            return AccessDecision(Access.UNKNOWN, "a bearer token is required")
        try:
            user = await self._user(token)
            if user is None:
                return AccessDecision(Access.UNKNOWN, "the API server rejected this token")
            if await self._may(user, verb=verb, path=path):
                return AccessDecision(Access.ALLOWED)
        except (KubeError, msgspec.MsgspecError) as error:
            return AccessDecision(Access.UNDECIDED, f"cannot reach the API server: {error}")
        return AccessDecision(Access.FORBIDDEN, f'user "{user.username}" cannot {verb} path "{path}"')

    async def _user(self, token: str) -> _User | None:
        key = sha256(token.encode()).digest()
        if self._unknown.get(key):
            return None
        known = self._users.get(key)
        if known is not None:
            return known
        spec = {"token": token}
        answer = await self._ask(_TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec)
        status = msgspec.json.decode(answer, type=_TokenReview).status
        if not status.authenticated or not status.user.username:
            self._unknown.put(key, True)
            return None
        self._users.put(key, status.user)
        return status.user

    async def _may(self, user: _User, *, verb: str, path: str) -> bool:
        who = sha256(msgspec.json.encode(user, order="deterministic")).digest()
        known = self._access.get((who, verb, path))
        if known is not None:
            return known
        spec: dict[str, Any] = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        answer = await self._ask(_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        allowed = msgspec.json.decode(answer, type=_AccessReview).status.allowed
        self._access.put((who, verb, path), allowed)
        return allowed

    async def _ask(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        async with self._asking:
            return await self._transport.request(
                "POST", path, body=body, resource=path.rpartition("/")[2], timeout_seconds=TIMEOUT_SECONDS
            )
