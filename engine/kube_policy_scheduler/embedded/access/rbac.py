"""Role-based access control: who may do what, decided from the stored roles and bindings alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.access.identity import MASTERS, User
from kube_policy_scheduler.embedded.errors import ApiError, Json
from kube_policy_scheduler.embedded.storage.store import Store

_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("clusterrolebindings", "rolebindings", "clusterroles", "roles")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for. `namespace` is empty at the cluster scope; a `path` is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """Return the resource as rules name it: `pods/binding`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Authorizer:
    """Decides from roles and bindings in a store, read again whenever one of them has changed."""

    def __init__(self, store: Store) -> None:
        self._collections = {kind: store.collection(f"{_GROUP}/{kind}") for kind in _KINDS}
        self._read_at: tuple[int, ...] = ()
        self._roles: dict[tuple[str, str], list[Json]] = {}
        self._bindings: list[tuple[str, Json]] = []

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether a user may do what is asked."""
        if MASTERS in user.groups:
            return True
        self._refresh()
        for namespace, binding in self._bindings:
            if namespace and namespace != asked.namespace:
                continue
            if not any(_is_subject(subject, user, namespace) for subject in binding.get("subjects") or ()):
                continue
            if any(rule_allows(rule, asked) for rule in self._rules(binding["roleRef"], namespace)):
                return True
        return False

    def rules_of(self, user: User, namespace: str) -> Iterator[Json]:
        """Yield the rules that hold for a user in a namespace."""
        self._refresh()
        for bound_in, binding in self._bindings:
            if bound_in in ("", namespace) and any(
                _is_subject(subject, user, bound_in) for subject in binding.get("subjects") or ()
            ):
                yield from self._rules(binding["roleRef"], bound_in)

    def _rules(self, reference: Json, namespace: str) -> Iterable[Json]:
        scope = namespace if reference.get("kind") == "Role" else ""
        return self._roles.get((scope, reference.get("name", "")), ())

    def _refresh(self) -> None:
        versions = tuple(collection.version for collection in self._collections.values())
        if versions == self._read_at:
            return
        self._read_at = versions
        self._roles = {
            entry.key: entry.decode().get("rules") or []
            for kind in ("clusterroles", "roles")
            for entry in self._collections[kind].scan()
        }
        self._bindings = [
            (entry.key[0], entry.decode())
            for kind in ("clusterrolebindings", "rolebindings")
            for entry in self._collections[kind].scan()
        ]


def _is_subject(subject: Json, user: User, namespace: str) -> bool:
    name = subject.get("name", "")
    match subject.get("kind"):
        case "User":
            return bool(name == user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
        case _:
            return False


def rule_allows(rule: Json, asked: Attributes) -> bool:
    """Whether one policy rule allows what is asked."""
    if not _covers(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_covers(path, asked.path) for path in rule.get("nonResourceURLs") or ())
    if not _covers(rule.get("apiGroups"), asked.group):
        return False
    resources = rule.get("resources") or ()
    named = asked.full_resource in resources or "*" in resources
    if not named and not (asked.subresource and f"*/{asked.subresource}" in resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or asked.name in names


def _covers(values: Iterable[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or ())


def _path_covers(rule: str, path: str) -> bool:
    return path.startswith(rule[:-1]) if rule.endswith("*") else path == rule


def refusal(user: User, asked: Attributes) -> ApiError:
    """Return the answer to a request that is not allowed."""
    if asked.path:
        text = f'User "{user.name}" cannot {asked.verb} path "{asked.path}"'
        return ApiError(403, "Forbidden", f"forbidden: {text}", details={})
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    text = (
        f'User "{user.name}" cannot {asked.verb} resource "{asked.full_resource}" in API group "{asked.group}" {scope}'
    )
    return errors.forbidden(text, name=asked.name, group=asked.group, plural=asked.resource)
