"""Former versions of a ConfigMap with policies, kept as ControllerRevisions: what `policyctl rollout undo` returns to.

A scheduler keeps what it has accepted while the ConfigMap holds it, however it came there, and writes no ConfigMap. As
with Deployments each version is kept once, under the number of its last coming into use. Knows policies by their hash.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.config_maps import ConfigMapData, get_config_map
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import (
    Conflict,
    KubeError,
    MalformedAnswer,
    NotFound,
    ServerError,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from kube_policy_scheduler.adapters.kube.nesting import bounded
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.policy_sources import PolicySources, PolicySourcesError, policies_of_config_map

logger = logging.getLogger(__name__)

KEPT = 10
CONFIG_MAP_LABEL = "policy-scheduler.dev/config-map"
POLICY_SET_LABEL = "policy-scheduler.dev/policy-set"
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of the ConfigMap."""

    number: int
    policy_set: str
    """Hash of its policies."""
    since: str
    """When it came into use, as the API server writes times."""
    texts: Mapping[str, str]
    binaries: Mapping[str, bytes]


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    creation_timestamp: str = ""
    labels: dict[str, str] = {}


class _Entries(msgspec.Struct, rename="camel"):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class _ControllerRevision(msgspec.Struct):
    metadata: _Metadata
    revision: int
    data: _Entries


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_decode_list = bounded(msgspec.json.Decoder(_List).decode)
_decode_revision = bounded(msgspec.json.Decoder(_ControllerRevision).decode)


class PolicyHistory:
    """Versions of one ConfigMap; `run` stores those that `accepted` receives."""

    def __init__(self, transport: Transport, *, namespace: str, name: str) -> None:
        """name: of the ConfigMap."""
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._collection = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/controllerrevisions"
        self._accepted = ""
        self._stirred = asyncio.Event()

    def accepted(self, policy_set: str) -> None:
        """Say which policies came into use; returns at once."""
        self._accepted = policy_set
        self._stirred.set()

    async def run(self) -> None:
        """Keep versions for ever; end by cancellation."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            try:
                await self._keep(self._accepted)
            except (Unreachable, UnknownOutcome, TooManyRequests, ServerError):
                self._stirred.set()
                await asyncio.sleep(RETRY_SECONDS)
            except (KubeError, PolicySourcesError) as error:
                logger.warning("failed to store policies %s for rollback: %s", self._accepted, error)

    async def revisions(self) -> tuple[Revision, ...]:
        """Return what is kept, the newest first. Raises KubeError."""
        selector = quote(f"{CONFIG_MAP_LABEL}={self._name}", safe="")
        answer = await self._transport.request(
            "GET", f"{self._collection}?labelSelector={selector}", resource="controllerrevisions"
        )
        try:
            items = _decode_list(answer).items or []
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"earlier versions of ConfigMap {self._name}: {error}") from error
        found = []
        for item in items:
            try:
                found.append(_revision(_decode_revision(item)))
            except (
                msgspec.MsgspecError,
                binascii.Error,
                ValueError,
            ) as error:  # others stay usable
                logger.warning("cannot read an earlier version of ConfigMap %s: %s", self._name, error)
        return tuple(sorted(found, key=lambda each: each.number, reverse=True))

    async def accepted_before(self, *, proof: PolicyProof | None) -> list[tuple[Revision, PolicySources]]:
        """Return what is kept with its policies, the newest first; waits until the API server answers.

        proof: what has to vouch for the policies; None: nothing.
        """
        while True:
            try:
                revisions = await self.revisions()
                break
            except (Unreachable, UnknownOutcome, TooManyRequests, ServerError) as error:
                logger.warning("cannot read earlier versions of ConfigMap %s yet: %s", self._name, error)
                await asyncio.sleep(RETRY_SECONDS)
            except KubeError as error:
                logger.error("cannot read earlier versions of ConfigMap %s: %s", self._name, error)
                return []
        found = []
        for each in revisions[:KEPT]:
            shown = f"revision {each.number} of configMap {self._namespace}/{self._name}"
            try:
                found.append((each, policies_of_config_map(each.texts, each.binaries, shown=shown, proof=proof)))
            except PolicySourcesError as error:
                logger.warning("%s", error)
        return found

    async def _keep(self, policy_set: str) -> None:
        now = await get_config_map(self._transport, self._namespace, self._name)
        shown = f"configMap {self._namespace}/{self._name}"
        if policies_of_config_map(now.texts, now.binaries, shown=shown).hash != policy_set:
            return  # a kubelet is behind: the newer version comes as well, or another replica keeps it
        known = await self.revisions()
        if known and known[0].policy_set == policy_set:
            return
        try:
            await self._create(known[0].number + 1 if known else 1, policy_set, now)
        except Conflict:
            return  # another replica was first
        others = [each.number for each in known if each.policy_set != policy_set]
        for number in {each.number for each in known} - {*others[: KEPT - 1]}:
            with contextlib.suppress(NotFound):
                path = f"{self._collection}/{quote(self._name, safe='')}-{number}"
                await self._transport.request("DELETE", path, resource="controllerrevisions")

    async def _create(self, number: int, policy_set: str, entries: ConfigMapData) -> None:
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{self._name}-{number}",
                "labels": {CONFIG_MAP_LABEL: self._name, POLICY_SET_LABEL: policy_set},
            },
            "revision": number,
            "data": {"data": entries.texts, "binaryData": entries.binaries},  # bytes become base64
        }
        await self._transport.request(
            "POST", self._collection, body=msgspec.json.encode(body), resource="controllerrevisions"
        )


async def read_history(
    namespace: str, name: str, *, kubeconfig: str | None, context: str | None
) -> tuple[ConfigMapData, tuple[Revision, ...]]:
    """Return a ConfigMap and what is kept of it, the newest first.

    Raises:
        KubeError: it is not there, or one of the two may not be read.
        CredentialsError: no usable kubeconfig.
    """
    transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context), max_connections=1)
    try:
        now = await get_config_map(transport, namespace, name)
        return now, await PolicyHistory(transport, namespace=namespace, name=name).revisions()
    finally:
        await transport.close()


def _revision(item: _ControllerRevision) -> Revision:
    binaries = {key: base64.b64decode(text, validate=True) for key, text in item.data.binary_data.items()}
    metadata = item.metadata
    return Revision(
        item.revision,
        metadata.labels.get(POLICY_SET_LABEL, ""),
        metadata.creation_timestamp,
        item.data.data,
        binaries,
    )
