"""The certificate of an admission webhook, kept in a Secret and trusted by its configuration; replicas share it.

A replica that finds it missing or about to end makes a new one; if several do, the API server takes the first. It is
served only after the API server trusts it, and the one before stays trusted until it expires.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import JSON, STRATEGIC_MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, MalformedAnswer
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.tls.issued_certificate import IssuedCertificate, is_good, issue

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 60.0
"""How late the scheduler notices a certificate of another replica, or a removed CA bundle."""
RETRY_SECONDS = 2.0
_TRIES = 5
_CERTIFICATE, _KEY, _AUTHORITIES = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class WebhookNames:
    """Where things are in the cluster."""

    namespace: str
    secret: str
    """It has to be there; its data need not."""
    service: str
    """The certificate is for its names."""
    configuration: str
    """The ValidatingWebhookConfiguration, all of whose webhooks are ours."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names by which the API server and others know the service."""
        return f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local"


class WebhookCertificate:
    """Keeps a file with certificate and key that the API server trusts."""

    def __init__(
        self,
        transport: Transport,
        names: WebhookNames,
        *,
        file: Path,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """file: where certificate and key are written, in PEM, readable for us alone."""
        self._transport = transport
        self._names = names
        self._file = file
        self._clock = clock
        self._served: IssuedCertificate | None = None

    async def ensure(self) -> None:
        """Have a certificate that lasts, trusted, in the file.

        Raises:
            KubeError: the Secret or the webhook's configuration cannot be read or written.
        """
        for _ in range(_TRIES):
            try:
                issued = await self._issued()
                break
            except Conflict:
                continue  # another replica was faster; look at what it made
        else:
            raise MalformedAnswer(f"secret {self._names.secret} is changed by others repeatedly")
        await self._have_trusted(issued.authorities)
        if issued != self._served:
            self._write(issued)
            self._served = issued

    async def keep(self, *, every_seconds: float = LOOK_EVERY_SECONDS) -> None:
        """Ensure for ever; end by cancellation."""
        logged = ""
        while True:
            await asyncio.sleep(every_seconds if not logged else min(every_seconds, RETRY_SECONDS * 5))
            try:
                await self.ensure()
                logged = ""
            except (KubeError, OSError) as error:
                if str(error) != logged:
                    logger.error("failed to maintain the certificate of the webhook: %s", error)
                logged = str(error)

    async def _issued(self) -> IssuedCertificate:
        path = f"/api/v1/namespaces/{self._names.namespace}/secrets/{self._names.secret}"
        secret = await self._request("GET", path, resource="secrets")
        data = secret.get("data") or {}
        found = IssuedCertificate(*(_decoded(data.get(name)) for name in (_CERTIFICATE, _KEY, _AUTHORITIES)))
        now = self._clock()
        if is_good(found, self._names.hosts, now=now):
            return found
        issued = await asyncio.to_thread(issue, self._names.hosts, now=now, earlier=found.authorities)
        contents = {_CERTIFICATE: issued.certificate, _KEY: issued.key, _AUTHORITIES: issued.authorities}
        secret["data"] = {**data, **{name: base64.b64encode(text).decode() for name, text in contents.items()}}
        await self._request("PUT", path, body=secret, resource="secrets")
        logger.info("created a certificate for the webhook", extra={"secret": self._names.secret})
        return issued

    async def _have_trusted(self, authorities: bytes) -> None:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{self._names.configuration}"
        resource = "validatingwebhookconfigurations"
        found = await self._request("GET", path, resource=resource)
        wanted = base64.b64encode(authorities).decode()
        webhooks = [
            {"name": webhook["name"], "clientConfig": {"caBundle": wanted}}
            for webhook in found.get("webhooks") or ()
            if webhook.get("clientConfig", {}).get("caBundle") != wanted
        ]
        if webhooks:
            await self._request(
                "PATCH", path, body={"webhooks": webhooks}, resource=resource, content_type=STRATEGIC_MERGE_PATCH
            )
            logger.info("the API server now trusts the certificate of the webhook")

    def _write(self, issued: IssuedCertificate) -> None:
        """Replace the file at once: certificate and key never come from two generations."""
        beside = self._file.with_name(f".{self._file.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(issued.certificate + issued.key)
        beside.replace(self._file)

    async def _request(
        self, verb: str, path: str, *, resource: str, body: dict[str, Any] | None = None, content_type: str = JSON
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            verb,
            path,
            body=msgspec.json.encode(body) if body is not None else b"",
            resource=resource,
            content_type=content_type,
        )
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"{resource}: the answer is not an object") from error


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""
