"""Users, and the reviews of what they may do: here each client is the administrator, and may do everything."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import NonResource, Target

AUTHENTICATED, MASTERS = "system:authenticated", "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)


ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
"""May do everything."""


def service_account(namespace: str, name: str) -> User:
    """Return the identity of a pod that runs under a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


class Tokens:
    """Bearer tokens and their users."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def issue(self, user: User) -> str:
        """Return a new token for a user."""
        token = secrets.token_urlsafe(24)
        self._users[token] = user
        return token

    def revoke(self, token: str) -> None:
        """Make a token worthless."""
        self._users.pop(token, None)

    def user_of(self, authorization: str) -> User | None:
        """Return the user of an Authorization header; None for an unknown token."""
        scheme, _, token = authorization.partition(" ")
        return self._users.get(token.strip()) if scheme.lower() == "bearer" else None


def impersonated(user: User, name: str | None, groups: Sequence[str]) -> User:
    """Return the impersonated user (`kubectl --as`)."""
    return user if not name else User(name, (*groups, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is requested. `namespace` is empty at the cluster scope; a `path` is not a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Guard:
    """Treats each client as the administrator. A subclass may identify clients, and refuse their requests."""

    authenticates: ClassVar[bool] = False
    """Whether clients must authenticate."""

    def __init__(self) -> None:
        self.tokens = Tokens()

    def identify(self, headers: Mapping[str, str], certificate: Any, *, groups: Sequence[str] = ()) -> User:
        """Return the user of a request; `groups` are those of an `Impersonate-User`.

        Raises:
            ApiError: 401.
        """
        return impersonated(ADMIN, headers.get("Impersonate-User"), groups)

    def check(self, user: User, target: Target | NonResource) -> None:
        """Refuse what a user may not do.

        Raises:
            ApiError: 403.
        """

    def allows(self, user: User, asked: Attributes) -> bool:
        """Return whether a user may make a request."""
        return True

    def rules_of(self, user: User, namespace: str) -> Iterable[Json]:
        """Return the rules that hold for a user in a namespace, besides the rule that allows everything."""
        return ()


def answer(review: Json, user: User, guard: Guard) -> Json:
    """Return a review with its status."""
    done = {**review, "metadata": {"creationTimestamp": None}}
    spec = review.get("spec") or {}
    match review.get("kind"):
        case "SelfSubjectReview":
            done["status"] = {"userInfo": _info(user)}
        case "SelfSubjectRulesReview":
            done["status"] = _rules(user, guard, spec.get("namespace", ""))
        case "TokenReview":
            known = guard.tokens.user_of(f"Bearer {spec.get('token', '')}")
            done["status"] = {"authenticated": True, "user": _info(known)} if known else {"user": {}}
        case "SelfSubjectAccessReview":
            done["status"] = _verdict(user, guard, spec)
        case _:
            groups = tuple(spec.get("groups") or ())
            done["status"] = _verdict(User(spec.get("user", ""), groups), guard, spec)
    return done


def _info(user: User) -> Json:
    return {"username": user.name, "groups": list(user.groups or (AUTHENTICATED,))}


def _verdict(user: User, guard: Guard, spec: Json) -> Json:
    asked = spec.get("resourceAttributes")
    if asked is not None:
        keys = ("group", "resource", "subresource", "namespace", "name")
        wanted = Attributes(asked.get("verb", ""), *(asked.get(key, "") for key in keys))
    else:
        path = spec.get("nonResourceAttributes") or {}
        wanted = Attributes(path.get("verb", ""), path=path.get("path", ""))
    return {"allowed": guard.allows(user, wanted)}


def _rules(user: User, guard: Guard, namespace: str) -> Json:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    rules = list(guard.rules_of(user, namespace))
    if guard.allows(user, Attributes("*", "*", "*")):
        rules.append(everything)
    return {
        "resourceRules": [rule for rule in rules if "resources" in rule],
        "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
        "incomplete": False,
    }
