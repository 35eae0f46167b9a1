"""A certificate authority in memory, and the kubeconfigs that hold its certificates. Needs `cryptography`."""

from __future__ import annotations

import base64
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from kube_policy_scheduler.embedded.access import AUTHENTICATED, User
from kube_policy_scheduler.embedded.errors import Json

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

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
        from cryptography.hazmat.primitives.asymmetric import ec

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
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return KeyPair(
            _pem(self._sign(key, common_name="kube-apiserver", addresses=("127.0.0.1", "localhost"))), _key(key)
        )

    def client(self, user: User) -> KeyPair:
        """Return a certificate that says who a client is: name as CN, groups as O."""
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
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def render(
    url: str,
    *,
    authority: CertificateAuthority | None = None,
    token: str | None = None,
    client: KeyPair | None = None,
    namespace: str = "default",
) -> str:
    """Return a kubeconfig with one context; credentials are inside it, not beside it."""
    cluster: Json = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = _encoded(authority.certificate)
    user: Json = {}
    if token is not None:
        user["token"] = token
    if client is not None:
        user["client-certificate-data"] = _encoded(client.certificate)
        user["client-key-data"] = _encoded(client.key)
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": namespace}}
            ],
            "current-context": "embedded",
        },
        sort_keys=False,
    )


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
