"""Earlier versions of policies, stored as ControllerRevisions: what `policyctl rollout undo` and a restart go back to.

The versions of a ConfigMap are stored beside it, with all of its entries, and only while the ConfigMap still contains
them. An owner without a ConfigMap (SchedulingPolicy objects, a folder) has its versions in the scheduler's namespace,
where its people cannot write. As with Deployments, each version is stored once, under the number of its last use.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Mapping, Sequence
from itertools import accumulate
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import (
    LIMITS,
    OWNER_LIMITS,
    FolderLimits,
    PolicySources,
    PolicySourcesError,
    policies_of_config_map,
)
from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.config_maps import ConfigMapData, get_config_map
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
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.scheduling_policies import SchedulingPolicies, get_scheduling_policies
from kube_policy_scheduler.cluster.objects import ObjectMeta

logger = logging.getLogger(__name__)

KEPT = 10
OWNER_KEPT_BYTES = 1 << 20
"""Of the texts of one owner without a ConfigMap: a hundred hostile owners fill a tenth of a small etcd, not all."""
OWNER_REST_SECONDS = 10.0
"""Between two versions of such an owner that are stored; of those that come meanwhile, only the newest is."""
CONFIG_MAP_LABEL = "policy-scheduler.dev/config-map"
OWNER_LABEL = "policy-scheduler.dev/owner"
POLICY_SET_LABEL = "policy-scheduler.dev/policy-set"
RETRY_SECONDS = 5.0
REFUSED_SECONDS = 60.0
"""The same after a refusal, as by an admission webhook or for want of a permission."""


class RevisionsOf(msgspec.Struct, frozen=True):
    """Which policies the versions belong to: those of a ConfigMap, or those of an owner that has none."""

    namespace: str
    """Of the ControllerRevisions: that of the ConfigMap, or the scheduler's."""
    config_map: str = ""
    owner: str = ""
    """Set if the policies have no ConfigMap."""
    limits: FolderLimits = LIMITS

    @classmethod
    def of_owner(cls, namespace: str, owner: str) -> RevisionsOf:
        """Return those of an owner without a ConfigMap. namespace: the scheduler's."""
        return cls(namespace, owner=owner, limits=OWNER_LIMITS)

    @property
    def label(self) -> tuple[str, str]:
        """Return name and value of the label that all of them have."""
        return (OWNER_LABEL, self.owner) if self.owner else (CONFIG_MAP_LABEL, self.config_map)

    @property
    def prefix(self) -> str:
        """Return what comes before the number in their names."""
        return f"policy-owner.{self.owner}" if self.owner else self.config_map

    def __str__(self) -> str:
        return f"owner {self.owner}" if self.owner else f"configMap {self.namespace}/{self.config_map}"


class Revision(msgspec.Struct, frozen=True):
    """One version of the policies."""

    number: int
    policy_set: str
    """Hash of its policies."""
    since: str
    """When it came into use, as the API server writes times."""
    texts: Mapping[str, str]
    binaries: Mapping[str, bytes]


class _Entries(msgspec.Struct, rename="camel"):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class _ControllerRevision(msgspec.Struct):
    metadata: ObjectMeta
    revision: int
    data: _Entries


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


_decode_list = decoder_of(_List)
_decode_revision = decoder_of(_ControllerRevision)


class PolicyHistory:
    """Versions of the policies of one ConfigMap or owner; `run` stores those that `accepted` receives."""

    def __init__(self, client: Client, of: RevisionsOf, *, fence: Fence = OPEN) -> None:
        """Set up.

        Args:
            client: to the API server.
            of: whose versions.
            fence: which replica stores the versions of an owner without a ConfigMap. Those of a ConfigMap are stored by
                every replica, as each sees whether the ConfigMap still contains them.
        """
        self._client = client
        self._of = of
        self._fence = fence if of.owner else OPEN
        self._collection = f"/apis/apps/v1/namespaces/{quote(of.namespace, safe='')}/controllerrevisions"
        self._accepted: PolicySources | None = None
        self._stirred = asyncio.Event()

    def accepted(self, sources: PolicySources) -> None:
        """Say which policies came into use; returns at once."""
        self._accepted = sources
        self._stirred.set()

    async def run(self) -> None:
        """Store versions for ever; end by cancellation. What is refused is tried again, less often."""
        logged = ""
        while True:
            await self._stirred.wait()
            assert self._accepted is not None
            if not self._fence.allows():
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._stirred.clear()
            sources = self._accepted
            try:
                await self._keep(sources)
                if self._of.owner:
                    await asyncio.sleep(OWNER_REST_SECONDS)
            except (Unreachable, UnknownOutcome, TooManyRequests, ServerError):
                self._stirred.set()
                await asyncio.sleep(RETRY_SECONDS)
            except (KubeError, PolicySourcesError) as error:
                if sources.hash != logged:
                    logged = sources.hash
                    logger.warning("failed to store policies %s of %s for rollback: %s", sources.hash, self._of, error)
                if isinstance(error, KubeError) and not self._stirred.is_set():
                    await self._wait_for_others(REFUSED_SECONDS)

    async def _wait_for_others(self, seconds: float) -> None:
        """Return once there are other policies to store, or after this long to try these again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        self._stirred.set()

    async def revisions(self) -> tuple[Revision, ...]:
        """Return what is kept, the newest first. Raises KubeError."""
        selector = quote("=".join(self._of.label), safe="")
        answer = await self._client.request(
            "GET", f"{self._collection}?labelSelector={selector}", resource="controllerrevisions"
        )
        try:
            items = _decode_list(answer).items or []
        except msgspec.MsgspecError as error:
            raise MalformedAnswer(f"earlier versions of {self._of}: {error}") from error
        found = []
        for item in items:
            try:
                found.append(_revision(_decode_revision(item)))
            except (
                msgspec.MsgspecError,
                binascii.Error,
                ValueError,
            ) as error:  # others stay usable
                logger.warning("cannot read an earlier version of %s: %s", self._of, error)
        return tuple(sorted(found, key=lambda each: each.number, reverse=True))

    async def accepted_before(self, *, proof: PolicyProof | None) -> list[tuple[Revision, PolicySources]]:
        """Return what is stored with its policies, the newest first; waits until the API server answers.

        proof: what has to vouch for the policies; None: nothing.
        """
        while True:
            try:
                revisions = await self.revisions()
                break
            except (Unreachable, UnknownOutcome, TooManyRequests, ServerError) as error:
                logger.warning("cannot read earlier versions of %s yet: %s", self._of, error)
                await asyncio.sleep(RETRY_SECONDS)
            except KubeError as error:
                logger.error("cannot read earlier versions of %s: %s", self._of, error)
                return []
        found = []
        for each in revisions[:KEPT]:
            shown = self.origin(each)
            try:
                sources = policies_of_config_map(
                    each.texts, each.binaries, shown=shown, proof=proof, limits=self._of.limits
                )
                found.append((each, sources))
            except PolicySourcesError as error:
                logger.warning("%s", error)
        return found

    def origin(self, revision: Revision) -> str:
        """Return how people know a version."""
        return f"revision {revision.number} of {self._of}"

    async def _keep(self, sources: PolicySources) -> None:
        entries = await self._entries(sources)
        if entries is None:
            return
        known = await self.revisions()
        if known and known[0].policy_set == sources.hash:
            return
        try:
            await self._create(known[0].number + 1 if known else 1, sources.hash, entries)
        except Conflict:
            return  # another replica was first
        for number in self._outdated(known, sources):
            with contextlib.suppress(NotFound):
                path = f"{self._collection}/{quote(self._of.prefix, safe='')}-{number}"
                await self._client.request("DELETE", path, resource="controllerrevisions")

    async def _entries(self, sources: PolicySources) -> ConfigMapData | None:
        """Return what to store; None if the ConfigMap no longer contains these policies."""
        of = self._of
        if of.owner:
            return ConfigMapData(dict(sources.files), {}, "")
        now = await get_config_map(self._client, of.namespace, of.config_map)
        found = policies_of_config_map(now.texts, now.binaries, shown=str(of), limits=of.limits)
        # if they differ, a kubelet is behind: the newer version comes as well, or another replica stores it
        return now if found.hash == sources.hash else None

    def _outdated(self, known: Sequence[Revision], sources: PolicySources) -> list[int]:
        """Return the numbers of the versions to delete, now that another one is stored. known: the newest first."""
        others = [each for each in known if each.policy_set != sources.hash]
        kept = others[: KEPT - 1]
        if self._of.owner:
            room = OWNER_KEPT_BYTES - _size(dict(sources.files))
            sizes = accumulate(_size(each.texts) for each in kept)
            kept = [each for each, size in zip(kept, sizes, strict=True) if size <= room]
        return sorted({each.number for each in known} - {each.number for each in kept})

    async def _create(self, number: int, policy_set: str, entries: ConfigMapData) -> None:
        label, value = self._of.label
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{self._of.prefix}-{number}",
                "labels": {label: value, POLICY_SET_LABEL: policy_set},
            },
            "revision": number,
            "data": {"data": entries.texts, "binaryData": entries.binaries},  # bytes become base64
        }
        await self._client.request(
            "POST", self._collection, body=msgspec.json.encode(body), resource="controllerrevisions"
        )


def _size(texts: Mapping[str, str]) -> int:
    return sum(map(len, texts.values()))


async def read_history(
    namespace: str, name: str, *, kubeconfig: str | None, context: str | None
) -> tuple[ConfigMapData, tuple[Revision, ...]]:
    """Return a ConfigMap and its stored versions, the newest first.

    Raises:
        KubeError: it is not there, or one of the two may not be read.
        CredentialsError: no usable kubeconfig.
    """
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        now = await get_config_map(client, namespace, name)
        return now, await PolicyHistory(client, RevisionsOf(namespace, name)).revisions()


async def read_owner_history(
    namespace: str, owner: str, *, home: str, kubeconfig: str | None, context: str | None
) -> tuple[SchedulingPolicies, tuple[Revision, ...]]:
    """Return the SchedulingPolicies of an owner and their stored versions, the newest first.

    Args:
        namespace: the scheduler's, where the versions are.
        owner: its name.
        home: the namespace of its SchedulingPolicies.
        kubeconfig: None: as kubectl.
        context: of the kubeconfig; None: the current one.

    Raises:
        KubeError: one of the two may not be read.
        CredentialsError: no usable kubeconfig.
    """
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        now = await get_scheduling_policies(client, home)
        return now, await PolicyHistory(client, RevisionsOf.of_owner(namespace, owner)).revisions()


def _revision(item: _ControllerRevision) -> Revision:
    binaries = {key: base64.b64decode(text, validate=True) for key, text in item.data.binary_data.items()}
    metadata = item.metadata
    return Revision(
        item.revision,
        (metadata.labels or {}).get(POLICY_SET_LABEL, ""),
        metadata.creation_timestamp or "",
        item.data.data,
        binaries,
    )
