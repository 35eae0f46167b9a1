"""Verifies policies with a list of checksums beside them, and the signature of the list.

Both are made with common tools:

    sha256sum *.policy > SHA256SUMS
    openssl pkeyutl -sign -rawin -inkey key.pem -in SHA256SUMS | base64 > SHA256SUMS.sig
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, read_bounded

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
_LINE = r"(?P<sum>[0-9a-f]{64}) [ *](?:\./)?(?P<name>[^/]+)"
_SIGNATURE_BYTES = 64
_MOST_KEY_BYTES = 1 << 20


class ProofError(Exception):
    """The policies do not match the checksums or the signature, or these are missing; the text names the file."""


class PolicyProof(msgspec.Struct, frozen=True):
    """What is asked of a set of policies."""

    public_key_file: Path | None = None
    """An Ed25519 public key in PEM, read again for every set; None: checksums without a signature, which find
    what was damaged or left out, and keep nobody out."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that have to be beside the policies."""
        return (SUMS, SIGNATURE) if self.public_key_file is not None else (SUMS,)

    def check(self, policies: Mapping[str, bytes], proofs: Mapping[str, bytes]) -> None:
        """Check that the policies are exactly those in the list, and that the list is signed.

        Args:
            policies: contents by file name.
            proofs: contents of `files`, of those that are there.

        Raises:
            ProofError: they are not.
        """
        for name in self.files:
            if name not in proofs:
                raise ProofError(f"{name} is missing: the configuration requires it beside the policies")
        if self.public_key_file is not None:
            _verify(self.public_key_file, proofs[SIGNATURE], proofs[SUMS])
        listed = _listed(proofs[SUMS])
        for name, content in sorted(policies.items()):
            if name not in listed:
                raise ProofError(f"{SUMS} does not list {name}")
            if listed[name] != sha256(content).hexdigest():
                raise ProofError(f"{name} does not match {SUMS}: it was changed after the list was written")
        if missing := sorted(name for name in listed if name.endswith(".policy") and name not in policies):
            raise ProofError(f"{SUMS} lists {missing[0]}, which does not exist")


def _listed(sums: bytes) -> dict[str, str]:
    found = {}
    for number, line in enumerate(sums.decode("utf-8", "replace").splitlines(), start=1):
        match = re.fullmatch(_LINE, line)
        if match is None:
            raise ProofError(f"{SUMS}:{number}: expected a line as sha256sum writes it")
        found[match["name"]] = match["sum"]
    return found


def _verify(key_file: Path, signature: bytes, content: bytes) -> None:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(read_bounded(key_file, most_bytes=_MOST_KEY_BYTES))
    except UnreadableFileError as error:
        raise ProofError(f"cannot read {key_file}: {error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ProofError(f"{key_file} contains no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ProofError(f"{key_file} contains a key of another type: expected Ed25519")
    try:
        key.verify(_raw(signature), content)
    except InvalidSignature as error:
        raise ProofError(f"{SIGNATURE} is not a signature of {SUMS} by the key in {key_file}") from error


def _raw(signature: bytes) -> bytes:
    """Return a signature that may be written in base64."""
    if len(signature) == _SIGNATURE_BYTES:
        return signature
    try:
        return base64.b64decode(b"".join(signature.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProofError(
            f"{SIGNATURE} is not an Ed25519 signature: expected 64 bytes, or their base64 encoding"
        ) from error
