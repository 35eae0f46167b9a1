"""Kubeconfig files for clients of an embedded cluster."""

from __future__ import annotations

import base64

import yaml

from kube_policy_scheduler.embedded.access.certificates import CertificateAuthority, KeyPair
from kube_policy_scheduler.embedded.errors import Json


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
