"""The permissions of an account, and the requests that it made."""

from __future__ import annotations

from collections.abc import Iterable

from tests.integration.front import Front
from tests.integration.objects import Json

Permission = tuple[str, str, str]
"""Group, resource with its subresource, verb."""


def granted_by(manifests: Iterable[Json], *, account: str) -> set[Permission]:
    """Return what manifests allow a service account by the roles that are bound to it."""
    objects = list(manifests)
    bound = {
        (o["roleRef"]["kind"], o["roleRef"]["name"])
        for o in objects
        if o["kind"] in ("ClusterRoleBinding", "RoleBinding")
        and any(subject["name"] == account for subject in o["subjects"])
    }
    return {
        (group, resource, verb)
        for o in objects
        if (o["kind"], o["metadata"]["name"]) in bound
        for rule in o["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(front: Front) -> set[Permission]:
    """Return what was asked for, but for the version and which resources there are: anybody may ask who is known."""
    asked = [exchange for exchange in front.exchanges if not exchange.resource.startswith(("/apis", "/version"))]
    return {(exchange.group, exchange.resource, exchange.verb) for exchange in asked}
