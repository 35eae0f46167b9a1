"""Authentication and authorisation of requests: who it is, and whether they may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.access import identity
from kube_policy_scheduler.embedded.access.identity import ADMIN, ANONYMOUS, Tokens, User
from kube_policy_scheduler.embedded.access.rbac import Attributes, Authorizer, refusal
from kube_policy_scheduler.embedded.requests import NonResource, Target


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """How the cluster tells its clients apart."""

    tls: bool = False
    """HTTPS with a certificate authority made for this cluster; client certificates are then understood."""
    authenticate: bool = False
    """Whether clients must have a token or certificate; without it everybody is the administrator."""
    rbac: bool = False
    """Whether the stored roles decide who may do what; implies `authenticate`."""
    anonymous: bool = False
    """Whether clients without any credential are `system:anonymous` instead of refused."""


class Guard:
    """Lets requests in."""

    def __init__(self, settings: SecuritySettings, authorizer: Authorizer) -> None:
        self.tokens = Tokens()
        self.authorizer = authorizer
        self._settings = settings
        self._authenticates = settings.authenticate or settings.rbac

    @property
    def authenticates(self) -> bool:
        """Whether clients have to say who they are."""
        return self._authenticates

    def identify(self, headers: Mapping[str, str], certificate: Any, *, groups: Sequence[str] = ()) -> User:
        """Return who sends a request; `groups` are those of an `Impersonate-User`.

        Raises:
            ApiError: 401.
        """
        if not self._authenticates:
            user = ADMIN
        else:
            user = self._authenticated(headers.get("Authorization", ""), certificate)
        name = headers.get("Impersonate-User")
        if not name:
            return user
        if self._settings.rbac:
            asked = Attributes("impersonate", resource="users", name=name)
            if not self.authorizer.allows(user, asked):
                raise refusal(user, asked)
        return identity.impersonated(user, name, groups)

    def _authenticated(self, authorization: str, certificate: Any) -> User:
        user = identity.of_certificate(certificate)
        if user is None and authorization:
            user = self.tokens.user_of(authorization)
            if user is None:
                raise errors.unauthorized()
        if user is None:
            if not self._settings.anonymous:
                raise errors.unauthorized()
            user = ANONYMOUS
        return user

    def check(self, user: User, target: Target | NonResource) -> None:
        """Refuse what a user may not do.

        Raises:
            ApiError: 403.
        """
        if not self._settings.rbac:
            return
        asked = attributes(target)
        if not self.authorizer.allows(user, asked):
            raise refusal(user, asked)

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether a user may do what is asked."""
        return not self._settings.rbac or self.authorizer.allows(user, asked)


def attributes(target: Target | NonResource) -> Attributes:
    """Return what a request asks for, as rules describe it."""
    if isinstance(target, NonResource):
        return Attributes(target.verb, path=target.path)
    resource, name = target.resource, target.name or target.selected_name
    namespace = target.namespace or ""
    if resource.plural == "namespaces" and target.name:
        namespace = target.name
    return Attributes(target.verb, resource.group, resource.plural, target.subresource, namespace, name)
