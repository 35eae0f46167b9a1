"""An embedded cluster with TLS, authentication by token or certificate, and roles."""

from __future__ import annotations

import base64
import ipaddress
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube_policy_scheduler.embedded import EmbeddedCluster, User, errors
from kube_policy_scheduler.embedded.access import (
    ADMIN,
    AUTHENTICATED,
    MASTERS,
    Attributes,
    Guard,
    Tokens,
    impersonated,
)
from kube_policy_scheduler.embedded.cluster import kubeconfig_text
from kube_policy_scheduler.embedded.errors import ApiError, Json
from kube_policy_scheduler.embedded.requests import NonResource, Target
from kube_policy_scheduler.embedded.store import Store

UNAUTHENTICATED = "system:unauthenticated"


class SecureCluster(EmbeddedCluster):
    """An embedded cluster with a certificate authority of its own, in which stored roles grant permissions."""

    def __init__(self, **given: Any) -> None:
        self._authority = CertificateAuthority()
        super().__init__(guard=RoleGuard, ssl_context=self._authority.server_context(), **given)
        self.load(OBJECTS)

    @property
    def tokens(self) -> Tokens:
        """The bearer tokens that the server knows; issue and revoke them here."""
        return self.guard.tokens

    @property
    def certificate_authority(self) -> bytes:
        """The certificate that clients have to trust, PEM."""
        return self._authority.certificate

    def kubeconfig(
        self, path: Path | None = None, *, user: User = ADMIN, certificate: bool = False, namespace: str = "default"
    ) -> str:
        """Return a kubeconfig for a user, with a new token or a client certificate, and write it to `path`."""
        if certificate:
            pair = self._authority.client(user)
            given = {"client-certificate-data": _encoded(pair.certificate), "client-key-data": _encoded(pair.key)}
        else:
            given = {"token": self.tokens.issue(user)}
        cluster = {"server": self.url, "certificate-authority-data": _encoded(self._authority.certificate)}
        return kubeconfig_text(path, cluster=cluster, user=given, namespace=namespace)


class RoleGuard(Guard):
    """Admits users with a token or a certificate, as the stored roles allow."""

    authenticates: ClassVar[bool] = True

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._authorizer = Authorizer(store)

    def identify(self, headers: Mapping[str, str], certificate: Any, *, groups: Sequence[str] = ()) -> User:
        """Return the user of a request.

        Raises:
            ApiError: 401, or 403 where a user may not act as another.
        """
        user = of_certificate(certificate) or self.tokens.user_of(headers.get("Authorization", ""))
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        name = headers.get("Impersonate-User")
        if name:
            asked = Attributes("impersonate", resource="users", name=name)
            if not self.allows(user, asked):
                raise refusal(user, asked)
        return impersonated(user, name, groups)

    def check(self, user: User, target: Target | NonResource) -> None:
        """Refuse what a user may not do.

        Raises:
            ApiError: 403.
        """
        asked = attributes(target)
        if not self.allows(user, asked):
            raise refusal(user, asked)

    def allows(self, user: User, asked: Attributes) -> bool:
        """Return whether a user may make a request."""
        return self._authorizer.allows(user, asked)

    def rules_of(self, user: User, namespace: str) -> Iterable[Json]:
        """Return the rules that hold for a user in a namespace."""
        return self._authorizer.rules_of(user, namespace)


def of_certificate(certificate: Any) -> User | None:
    """Return the identity in a client certificate, as `SSLObject.getpeercert` gives it; None without one."""
    if not certificate:
        return None
    parts = [pair for name in certificate.get("subject", ()) for pair in name]
    names = [value for key, value in parts if key == "commonName"]
    groups = [value for key, value in parts if key == "organizationName"]
    return User(names[0], (*groups, AUTHENTICATED)) if names else None


def attributes(target: Target | NonResource) -> Attributes:
    """Return the target of a request, as rules describe it."""
    if isinstance(target, NonResource):
        return Attributes(target.verb, path=target.path)
    resource, name = target.resource, target.name or target.selected_name
    namespace = target.namespace or ""
    if resource.plural == "namespaces" and target.name:
        namespace = target.name
    return Attributes(target.verb, resource.group, resource.plural, target.subresource, namespace, name)


_GROUP = "rbac.authorization.k8s.io"
_KINDS = ("clusterrolebindings", "rolebindings", "clusterroles", "roles")


class Authorizer:
    """Decides from roles and bindings in a store, read again whenever one of them has changed."""

    def __init__(self, store: Store) -> None:
        self._collections = {kind: store.collection(f"{_GROUP}/{kind}") for kind in _KINDS}
        self._read_at: tuple[int, ...] = ()
        self._roles: dict[tuple[str, str], list[Json]] = {}
        self._bindings: list[tuple[str, Json]] = []

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether a user may make a request."""
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
    """Whether one policy rule allows a request."""
    if not _covers(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_covers(path, asked.path) for path in rule.get("nonResourceURLs") or ())
    if not _covers(rule.get("apiGroups"), asked.group):
        return False
    resources = rule.get("resources") or ()
    named = _full_resource(asked) in resources or "*" in resources
    if not named and not (asked.subresource and f"*/{asked.subresource}" in resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or asked.name in names


def _covers(values: Iterable[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or ())


def _path_covers(rule: str, path: str) -> bool:
    return path.startswith(rule[:-1]) if rule.endswith("*") else path == rule


def _full_resource(asked: Attributes) -> str:
    """Return the resource as rules name it: `pods/binding`."""
    return f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource


def refusal(user: User, asked: Attributes) -> ApiError:
    """Return the answer to a request that is not allowed."""
    if asked.path:
        text = f'User "{user.name}" cannot {asked.verb} path "{asked.path}"'
        return ApiError(403, "Forbidden", f"forbidden: {text}", details={})
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'resource "{_full_resource(asked)}" in API group "{asked.group}"'
    text = f'User "{user.name}" cannot {asked.verb} {what} {scope}'
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
    "resource.k8s.io": ["deviceclasses", "devicetaintrules", "resourceclaims", "resourceslices"],
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


_LIFETIME = timedelta(days=1)
_SKEW = timedelta(minutes=5)
"""How long before now certificates begin, for clients whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Signs certificates for one cluster."""

    def __init__(self, *, now: datetime | None = None) -> None:
        self._now = now or datetime.now(UTC)
        self._key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(self._key, common_name="embedded-ca", authority=True)
        self._client_key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return _pem(self._certificate)

    def server(self) -> KeyPair:
        """Return a certificate for 127.0.0.1 and localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        return KeyPair(
            _pem(self._sign(key, common_name="kube-apiserver", addresses=("127.0.0.1", "localhost"))), _key(key)
        )

    def client(self, user: User) -> KeyPair:
        """Return a certificate that identifies a client: name as CN, groups as O."""
        groups = tuple(group for group in user.groups if group != AUTHENTICATED)
        signed = self._sign(self._client_key, common_name=user.name, organizations=groups)
        return KeyPair(_pem(signed), _key(self._client_key))

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server that asks clients for a certificate, and takes them without one too."""
        pair = self.server()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "server.pem")
            path.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(path)
        return context

    def _sign(
        self,
        key: EllipticCurvePrivateKey,
        *,
        common_name: str,
        organizations: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        authority: bool = False,
    ) -> x509.Certificate:
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, item) for item in organizations]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer = subject if authority else self._certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if not authority:
            usage = ExtendedKeyUsageOID.SERVER_AUTH if addresses else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if addresses:
            names = [_general_name(item) for item in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
