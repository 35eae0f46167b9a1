"""A serving certificate with its own CA, whose key is discarded: no other certificate can be signed with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, KeyUsage

LIFETIME = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """All in PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes
    """Who is to be trusted: the authority of this certificate, and those of earlier ones that have not ended."""


def issue(names: Sequence[str], *, now: datetime, earlier: bytes = b"") -> IssuedCertificate:
    """Return a certificate for host names with a new authority.

    Args:
        names: the first is the one shown.
        now: when it begins.
        earlier: authorities that were trusted so far, in PEM; others may still serve by them.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"policy-scheduler webhook {serial:x}"[:64])])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + LIFETIME)
        )

    authority = (
        builder(issuer, authority_key.public_key())
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .add_extension(_for_signing(), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]), key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    still = [one for one in _certificates(earlier) if one.not_valid_after_utc > now]
    return IssuedCertificate(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(one.public_bytes(Encoding.PEM) for one in (authority, *still)),
    )


def is_good(issued: IssuedCertificate, names: Iterable[str], *, now: datetime) -> bool:
    """Tell whether a certificate is for all these names, by an authority it comes with, and ends not too soon."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        key = load_pem_private_key(issued.key, password=None)
        signed_by = [one for one in _certificates(issued.authorities) if one.subject == certificate.issuer]
        certificate.verify_directly_issued_by(signed_by[0])
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_pair = certificate.public_key() == key.public_key()
    except (ValueError, TypeError, IndexError, InvalidSignature, x509.ExtensionNotFound):
        return False
    lasts = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEW_BEFORE
    return is_pair and lasts and {*names} <= {*covered.get_values_for_type(x509.DNSName)}


def _certificates(pem: bytes) -> list[Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError:
        return []


def _for_signing() -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
