"""How a member cluster of Karmada is reached: what its Cluster says, and the Secret that this names."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import CredentialsError
from kube_policy_scheduler.adapters.kube.fleet_resources import CLUSTERS
from kube_policy_scheduler.adapters.kube.identity import Credentials, TlsFiles, credentials_of
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.proxy import parse_proxy
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.wording import one_line

TOKEN, AUTHORITY = "token", "caBundle"
"""Keys of the Secret."""
MOST_CHARACTERS = 200
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class SecretName(msgspec.Struct, frozen=True):
    """Where a Secret is."""

    namespace: str = ""
    name: str = ""


class MemberAddress(msgspec.Struct, frozen=True, rename="camel"):
    """What a Cluster says about its API server."""

    api_endpoint: str = ""
    secret_ref: SecretName | None = None
    insecure_skip_tls_verification: bool = msgspec.field(default=False, name="insecureSkipTLSVerification")
    proxy_url: str = msgspec.field(default="", name="proxyURL")
    proxy_header: dict[str, str] | None = None
    """What the proxy is told; a value is a list with commas."""


class _Cluster(msgspec.Struct):
    spec: MemberAddress = MemberAddress()


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


_decode_cluster = decoder_of(_Cluster)
_decode_secret = decoder_of(_Secret)
_SECRETS: Resource[Any] = Resource("secrets", _Secret)


class MemberAccess(msgspec.Struct, frozen=True):
    """How a member is reached."""

    credentials: Credentials
    verified: bool
    """False: the Cluster says that the certificate of its server is not to be verified."""


async def member_access(client: Client, cluster: str) -> MemberAccess:
    """Return how a member is reached, by its Cluster and Secret in the control plane.

    Raises:
        CredentialsError: they do not say it, or not in a way that is supported; no text quotes the Secret.
        KubeError: they cannot be read.
    """
    try:
        address = _decode_cluster(await client.request("GET", CLUSTERS.path(cluster), resource="clusters")).spec
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CredentialsError(f"its Cluster cannot be read: {error}") from error
    where = _secret_of(address)
    path = _SECRETS.path(where.name, namespace=where.namespace)
    try:
        data = _decode_secret(await client.request("GET", path, resource="secrets")).data or {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CredentialsError(f"the Secret {where.namespace}/{where.name} cannot be read") from None
    return _access(cluster, address, where, data)


def _secret_of(address: MemberAddress) -> SecretName:
    """Return the Secret that an address names. Raises CredentialsError."""
    server, where = address.api_endpoint, address.secret_ref
    if not server:
        raise CredentialsError("its Cluster has no spec.apiEndpoint; expected https://HOST:PORT")
    try:
        parts = urlsplit(server)
        is_usable = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not (server.isascii() and server.isprintable()) or parts.query or parts.fragment:
        raise CredentialsError(
            f"spec.apiEndpoint of its Cluster is {one_line(server, MOST_CHARACTERS)!r}; expected https://HOST:PORT"
        )
    if where is None or not (_NAME.fullmatch(where.namespace) and _NAME.fullmatch(where.name)):
        raise CredentialsError("its Cluster has no spec.secretRef with the namespace and name of a Secret")
    return where


def _access(cluster: str, address: MemberAddress, where: SecretName, data: Mapping[str, str]) -> MemberAccess:
    source = f"the Secret {where.namespace}/{where.name}"
    token, authority = (_text(data, key, source) for key in (TOKEN, AUTHORITY))
    if not token:
        raise CredentialsError(f"{source} has no `{TOKEN}`")
    verified = not address.insecure_skip_tls_verification
    credentials = credentials_of(
        address.api_endpoint.rstrip("/"),
        source=source,
        headers=[("Authorization", f"Bearer {token}")],
        tls=TlsFiles(
            authority_pem=authority if verified and authority else None,
            authority_name=f"`{AUTHORITY}`",
            verify=verified,
        ),
        files=(),
    )
    if address.proxy_url:
        credentials = _through_proxy(credentials, address)
    return MemberAccess(credentials, verified)


def _through_proxy(credentials: Credentials, address: MemberAddress) -> Credentials:
    """Return credentials with the proxy of the Cluster: as in Karmada, NO_PROXY does not apply to it.

    Raises:
        CredentialsError: it cannot be used; the text quotes no value of it, as they may be secret.
    """
    parse_proxy(address.proxy_url, name="spec.proxyURL of its Cluster")
    headers = tuple(
        (name, value) for name, listed in (address.proxy_header or {}).items() for value in listed.split(",")
    )
    for name, value in headers:
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise CredentialsError(
                f"spec.proxyHeader of its Cluster: {one_line(name, MOST_CHARACTERS)!r} is no header that can be sent;"
                " expected a name of letters, digits and dashes, and values in ASCII on one line"
            )
    digest = hashlib.sha256(msgspec.json.encode(headers)).hexdigest()
    return msgspec.structs.replace(
        credentials,
        proxy=address.proxy_url,
        no_proxy=None,
        proxy_headers=headers,
        connection_key=(*credentials.connection_key, address.proxy_url, digest),
    )


def _text(data: Mapping[str, str], key: str, source: str) -> str:
    try:
        return base64.b64decode(data.get(key, ""), validate=True).decode().strip()
    except (binascii.Error, ValueError):
        raise CredentialsError(f"`{key}` of {source} is not text in base64") from None
