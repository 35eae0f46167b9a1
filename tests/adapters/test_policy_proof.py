"""Checksums and signatures of policies, as common tools make them: which are accepted, and the errors of the others."""

from __future__ import annotations

import asyncio
import base64
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_proof import SIGNATURE, SUMS, PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import (
    PolicySources,
    PolicySourcesError,
    policies_of_config_map,
    read_policies,
)
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.patience import PATIENCE_SECONDS

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
POLICIES = {"a.policy": b"filter node.ready\n", "b.policy": b"score 10\n"}


def sums(files: dict[str, bytes]) -> bytes:
    return "".join(f"{sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()


def signed(files: dict[str, bytes], *, key: Ed25519PrivateKey = KEY) -> dict[str, bytes]:
    listed = sums(files)
    return {**files, SUMS: listed, SIGNATURE: base64.encodebytes(key.sign(listed))}


@pytest.fixture
def public_key(tmp_path: Path) -> Path:
    file = tmp_path / "public.pem"
    file.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return file


@pytest.fixture
def volume(tmp_path: Path) -> ConfigMapVolume:
    return ConfigMapVolume(tmp_path / "policies")


def test_what_is_signed_is_read_as_without(volume: ConfigMapVolume, public_key: Path) -> None:
    volume.update(signed(POLICIES))
    found = read_policies(volume.path, proof=PolicyProof(public_key))
    assert found == read_policies(volume.path, proof=PolicyProof()) == read_policies(volume.path)
    assert found == policies_of_config_map({}, signed(POLICIES), shown="", proof=PolicyProof(public_key))
    assert [name for name, _ in found.files] == ["a.policy", "b.policy"]


OTHER = {**POLICIES, "a.policy": b"filter not node.ready\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (POLICIES, "SHA256SUMS is missing"),
        ({**POLICIES, SUMS: sums(POLICIES)}, "SHA256SUMS.sig is missing"),
        ({**signed(POLICIES), "a.policy": OTHER["a.policy"]}, "a.policy does not match SHA256SUMS"),
        ({**signed(POLICIES), "c.policy": b"score 1\n"}, "SHA256SUMS does not list c.policy"),
        ({n: c for n, c in signed(POLICIES).items() if n != "b.policy"}, "lists b.policy, which does not exist"),
        # who can write policies but has no key: new checksums do not help
        ({**signed(POLICIES), **OTHER, SUMS: sums(OTHER)}, "is not a signature of SHA256SUMS by the key in"),
        (signed(OTHER, key=Ed25519PrivateKey.from_private_bytes(b"m" * 32)), "is not a signature of"),
        ({**signed(POLICIES), SIGNATURE: b"\xff\xfe"}, "expected 64 bytes, or their base64 encoding"),
        ({**signed(POLICIES), SIGNATURE: b""}, "is not a signature of"),
    ],
)
def test_anything_else_is_refused(
    volume: ConfigMapVolume, public_key: Path, files: dict[str, bytes], said: str
) -> None:
    volume.update(files)
    with pytest.raises(PolicySourcesError) as refusal:
        read_policies(volume.path, proof=PolicyProof(public_key))
    assert said in str(refusal.value)
    assert str(volume.path) in str(refusal.value)
    with pytest.raises(PolicySourcesError) as refusal:
        policies_of_config_map({}, files, shown="configMap a/b", proof=PolicyProof(public_key))
    assert said in str(refusal.value)


@pytest.mark.parametrize("line", ["", "x  a.policy", f"{'0' * 64} a/b.policy", "\xff" * 70])
def test_an_invalid_list_is_reported(volume: ConfigMapVolume, line: str) -> None:
    volume.update({**POLICIES, SUMS: f"{sums(POLICIES).decode()}{line}\nx".encode("latin-1")})
    with pytest.raises(PolicySourcesError, match="SHA256SUMS:3: expected a line as sha256sum writes it"):
        read_policies(volume.path, proof=PolicyProof())


def test_invalid_keys_are_named(volume: ConfigMapVolume, tmp_path: Path) -> None:
    volume.update(signed(POLICIES))
    rsa = generate_private_key(public_exponent=65537, key_size=1024).public_key()
    (tmp_path / "rsa.pem").write_bytes(rsa.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "text.pem").write_text("key")
    for name, said in {"none.pem": "no such file", "rsa.pem": "another type", "text.pem": "no public key"}.items():
        with pytest.raises(PolicySourcesError, match=said):
            read_policies(volume.path, proof=PolicyProof(tmp_path / name))


def test_a_single_file_cannot_be_vouched_for(volume: ConfigMapVolume) -> None:
    volume.update(POLICIES)
    with pytest.raises(PolicySourcesError, match="a directory"):
        read_policies(volume.path / "a.policy", proof=PolicyProof())


async def test_a_forged_set_changes_nothing_and_the_signature_that_comes_later_does(
    volume: ConfigMapVolume, public_key: Path
) -> None:
    volume.update({**signed(POLICIES), "a.policy": OTHER["a.policy"]})
    told: list[PolicySources | PolicySourcesError] = []
    directory = PolicyDirectory(volume.path, deliver=told.append, proof=PolicyProof(public_key), poll_seconds=0.02)
    async with directory:
        assert isinstance(told[-1], PolicySourcesError)
        volume.update(signed(OTHER))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(told[-1], PolicySources):  # noqa: ASYNC110 - what is told is the condition
                await asyncio.sleep(0.01)
    assert isinstance(told[-1], PolicySources)
    assert dict(told[-1].files)["a.policy"] == OTHER["a.policy"].decode()
