"""The target of a request: its path and query as values. Reads no body and knows no object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.embedded import errors, selectors
from kube_policy_scheduler.embedded.resources import Catalog, Resource

_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Target:
    """The resource a request is about."""

    verb: str
    resource: Resource
    namespace: str | None
    """None: across namespaces, or the resource has none."""
    name: str
    subresource: str
    selected_name: str = ""
    """The only name that a field selector lets pass; authorization takes it for the name, as the API server's does."""


@dataclass(frozen=True, slots=True)
class NonResource:
    """A request for something that is not a resource: discovery, health, version."""

    verb: str
    path: str


def parse(method: str, path: str, query: Mapping[str, str], catalog: Catalog) -> Target | NonResource:
    """Read method and path (percent-decoded) as the target of the request. catalog: what is served.

    Raises:
        ApiError: 404 for a resource that is not served, 405 for a verb it does not have.
    """
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return NonResource(method.lower(), path)
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and (rest[2] not in ("status", "finalize") or len(rest) > 3):
        namespace, rest = rest[1], rest[2:]
    resource = catalog.by_plural.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
        raise errors.path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise errors.path_not_found()
    if resource.namespaced and namespace is None and (name or method not in ("GET", "HEAD", "DELETE", "POST")):
        raise errors.path_not_found()
    verb = _verb(method, query, name=name, subresource=subresource)
    if verb is None or (verb not in resource.verbs and not subresource):
        raise errors.method_not_allowed()
    if resource.namespaced and namespace is None and verb in ("create", "deletecollection"):
        raise errors.method_not_allowed()
    return Target(verb, resource, namespace, name, subresource, "" if name else _selected_name(query))


def _selected_name(query: Mapping[str, str]) -> str:
    try:
        tests = selectors.parse_fields(query.get("fieldSelector", ""))
    except selectors.SelectorError:
        return ""  # refused where objects are selected
    return next((test.value for test in tests if test.field == "metadata.name" and test.equal), "")


def _verb(method: str, query: Mapping[str, str], *, name: str, subresource: str) -> str | None:
    if not name:
        verb = _COLLECTION_VERBS.get(method)
        return "watch" if verb == "list" and flag(query, "watch") else verb
    if method == "POST":
        return "create" if subresource else None
    return _OBJECT_VERBS.get(method)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Read a boolean of the query as the API server does: present and not false."""
    return query.get(name, "false").lower() not in ("false", "0", "")


def integer(query: Mapping[str, str], name: str, default: int) -> int:
    """Read an integer of the query.

    Raises:
        ApiError: 400 when it is none.
    """
    text = query.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(
            f'strconv.ParseInt: parsing "{text}": invalid syntax'  # the text clients know
        ) from None


def resource_version(text: str) -> int:
    """Read a resourceVersion that a client sends back.

    Raises:
        ApiError: 400 when it is not one of ours.
    """
    try:
        return int(text) if text else 0
    except ValueError:
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: '
            f'parsing "{text}": invalid syntax'
        ) from None


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true of an object for a request to be carried out."""

    uid: str | None = None
    resource_version: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Preconditions:
        """Read the preconditions of DeleteOptions."""
        given = options.get("preconditions") or {}
        return cls(given.get("uid"), given.get("resourceVersion"))
