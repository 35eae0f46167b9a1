"""Who asks, what they may do, and the reviews that answer just that: identities, tokens, role-based access control."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import ApiError, Json
from kube_policy_scheduler.embedded.requests import NonResource, Target
from kube_policy_scheduler.embedded.store import Store

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


_API = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]


def _role(name: str, *rules: Json) -> Json:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def _rule(groups: Iterable[str], resources: Iterable[str], verbs: Iterable[str], **more: list[str]) -> Json:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **more}


def _binding(name: str, role: str, *subjects: tuple[str, str]) -> Json:
    return {
        "apiVersion": _API,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject} for kind, subject in subjects
        ],
    }


_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_SCHEDULER_READS = {
    "": [
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicationcontrollers",
        "services",
    ],
    "apps": ["replicasets", "statefulsets"],
    "policy": ["poddisruptionbudgets"],
    "resource.k8s.io": ["deviceclasses", "resourceclaims", "resourceslices"],
    "storage.k8s.io": ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"],
}

OBJECTS: tuple[Json, ...] = (
    _role("cluster-admin", _rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}),
    _role("system:discovery", {"nonResourceURLs": [*_DISCOVERY, *_HEALTH], "verbs": ["get"]}),
    _role("system:public-info-viewer", {"nonResourceURLs": _HEALTH, "verbs": ["get"]}),
    _role(
        "system:basic-user",
        _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
        _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
    ),
    _role(
        "system:auth-delegator",
        _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ),
    _role(
        "system:kube-scheduler",
        *(_rule([group], resources, _READ) for group, resources in _SCHEDULER_READS.items()),
        _rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
        _rule([""], ["pods"], ["delete"]),
        _rule([""], ["bindings", "pods/binding"], ["create"]),
        _rule([""], ["pods/status"], ["patch", "update"]),
        _rule(["coordination.k8s.io"], ["leases"], ["create"]),
        _rule(["coordination.k8s.io"], ["leases"], [*_READ, "update"], resourceNames=["kube-scheduler"]),
        _rule([""], ["persistentvolumeclaims", "persistentvolumes"], ["patch", "update"]),
    ),
    _binding("cluster-admin", "cluster-admin", ("Group", MASTERS)),
    _binding("system:discovery", "system:discovery", ("Group", AUTHENTICATED)),
    _binding("system:basic-user", "system:basic-user", ("Group", AUTHENTICATED)),
    _binding(
        "system:public-info-viewer", "system:public-info-viewer", ("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)
    ),
    _binding("system:kube-scheduler", "system:kube-scheduler", ("User", "system:kube-scheduler")),
)


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
        return impersonated(user, name, groups)

    def _authenticated(self, authorization: str, certificate: Any) -> User:
        user = of_certificate(certificate)
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
    rules = list(guard.authorizer.rules_of(user, namespace))
    if guard.allows(user, Attributes("*", "*", "*")):
        rules.append(everything)
    return {
        "resourceRules": [rule for rule in rules if "resources" in rule],
        "nonResourceRules": [rule for rule in rules if "nonResourceURLs" in rule],
        "incomplete": False,
    }
