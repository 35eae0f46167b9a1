"""SchedulingPolicy objects: one policy each, in the namespace of the owner that wrote it. Read, and told how they fare.

Knows texts and namespaces, not what policies say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.files.policy_sources import (
    OWNER_LIMITS,
    SUFFIX,
    PolicySources,
    PolicySourcesError,
    policies_of_config_map,
)
from kube_policy_scheduler.adapters.kube.changes import Change, Deleted
from kube_policy_scheduler.adapters.kube.client import JSON, MERGE_PATCH, Client
from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.outbox import FromOutbox, Outbox, OutboxLimits
from kube_policy_scheduler.adapters.kube.resources import Read, Resource
from kube_policy_scheduler.adapters.kube.status_patch import patch_status
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.wording import shortened

GROUP = "policy-scheduler.dev"
KIND = "SchedulingPolicy"
MESSAGE_CHARACTERS = 1024
KEPT_TEXTS = 100
"""Of one namespace."""


class Spec(msgspec.Struct):
    """What its author writes."""

    policy: str | None = ""
    """None: dropped, as there were too many."""


class Condition(msgspec.Struct, rename="camel", omit_defaults=True):
    """One condition of its status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""


class Status(msgspec.Struct, rename="camel"):
    """What the scheduler writes."""

    conditions: list[Condition] | None = None
    owner: str = ""
    hash: str = ""
    """Of all policies of the owner, as `/policies` and the metrics have it."""


class SchedulingPolicy(msgspec.Struct):
    """policy-scheduler.dev/v1alpha1."""

    metadata: ObjectMeta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


SCHEDULING_POLICIES = Resource("schedulingpolicies", SchedulingPolicy, GROUP, "v1alpha1", Read.WHERE_SERVED)
_decode = decoder_of(SchedulingPolicy)


class _List(msgspec.Struct):
    items: list[SchedulingPolicy] | None = None


_decode_list = decoder_of(_List)


class SchedulingPolicies:
    """The objects of some namespaces, as a watch shows them."""

    def __init__(self, namespaces: Sequence[str], *, changed: Callable[[str], None]) -> None:
        """Note the namespaces. changed: told of one whose policies are others; called on the event loop."""
        self._changed = changed
        self._objects: dict[str, dict[str, SchedulingPolicy]] = {namespace: {} for namespace in namespaces}

    def objects(self, namespace: str) -> Mapping[str, SchedulingPolicy]:
        """Return the objects of a namespace by name."""
        return self._objects.get(namespace, {})

    def sources(self, namespace: str) -> PolicySources | PolicySourcesError:
        """Return the policies of a namespace as one set, or why they are none."""
        objects, limits = self.objects(namespace), OWNER_LIMITS
        if len(objects) > limits.files:
            return PolicySourcesError(
                f"namespace {namespace} has {len(objects)} SchedulingPolicies; at most {limits.files} are allowed"
            )
        dropped = next((name for name, each in objects.items() if each.spec.policy is None), None)
        if dropped is not None:
            return PolicySourcesError(
                f"SchedulingPolicy {namespace}/{dropped} came when there were more than {KEPT_TEXTS}: apply it again"
            )
        texts = {f"{name}{SUFFIX}": each.spec.policy or "" for name, each in objects.items()}
        if sum(map(len, texts.values())) > limits.total_bytes:
            return PolicySourcesError(
                f"the SchedulingPolicies of namespace {namespace} have more than {limits.total_bytes >> 10} KiB"
            )
        try:
            return policies_of_config_map(texts, {}, shown=f"namespace {namespace}", limits=OWNER_LIMITS)
        except PolicySourcesError as error:
            return error

    def replaced(self, objects: Sequence[SchedulingPolicy], /) -> None:
        """Take a whole list."""
        for known in self._objects.values():
            known.clear()
        for each in objects:
            self._put(each)
        for namespace in self._objects:
            self._changed(namespace)

    def changed(self, changes: Sequence[Change[SchedulingPolicy]], /) -> None:
        """Take changes in their order."""
        touched: dict[str, None] = {}
        for change in changes:
            each = change.last if isinstance(change, Deleted) else change.new
            namespace = each.metadata.namespace
            if namespace not in self._objects:
                continue
            before = self._objects[namespace].pop(each.metadata.name, None)
            if not isinstance(change, Deleted):
                self._put(each)
            if isinstance(change, Deleted) or before is None or before.spec.policy != each.spec.policy:
                touched[namespace] = None
        for namespace in touched:
            self._changed(namespace)

    def _put(self, each: SchedulingPolicy) -> None:
        known = self._objects.get(each.metadata.namespace)
        if known is None:
            return
        if len(known) >= KEPT_TEXTS:  # a tenant may write thousands, and of so many none is used
            each.spec.policy = None
        known[each.metadata.name] = each


async def get_scheduling_policies(client: Client, namespace: str) -> SchedulingPolicies:
    """Return the objects of a namespace as they are now. Raises KubeError."""
    path = SCHEDULING_POLICIES.collection(namespace=namespace, query={"limit": str(KEPT_TEXTS)})
    try:
        found = _decode_list(await client.request("GET", path, resource=SCHEDULING_POLICIES.plural)).items or []
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"SchedulingPolicies of namespace {namespace}: {error}") from error
    objects = SchedulingPolicies([namespace], changed=lambda _: None)
    objects.replaced(found)
    return objects


async def change_scheduling_policies(
    namespace: str,
    *,
    texts: Mapping[str, str | None],
    known: Mapping[str, SchedulingPolicy],
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Write the texts of objects by name, and delete those with None: one after another, deletions last.

    Args:
        namespace: of the objects.
        texts: those that differ.
        known: the objects as they were read.
        kubeconfig: None: as kubectl.
        context: of the kubeconfig; None: the current one.

    Raises:
        Conflict: an object is no longer as it was read. Earlier ones are written.
        KubeError: one may not be changed, or is refused.
        CredentialsError: no usable kubeconfig.
    """
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        for name, text in sorted(texts.items(), key=lambda each: (each[1] is None, each[0])):
            path, now = SCHEDULING_POLICIES.path(name, namespace=namespace), known.get(name)
            version = now.metadata.resource_version if now is not None else ""
            body: dict[str, Any]
            if text is None:
                verb, body = "DELETE", {"preconditions": {"resourceVersion": version}}
            elif now is not None:
                verb, body = "PATCH", {"metadata": {"resourceVersion": version}, "spec": {"policy": text}}
            else:
                verb, path = "POST", SCHEDULING_POLICIES.collection(namespace=namespace)
                kind = {"apiVersion": f"{GROUP}/{SCHEDULING_POLICIES.version}", "kind": KIND}
                body = {**kind, "metadata": {"name": name, "namespace": namespace}, "spec": {"policy": text}}
            await client.request(
                verb,
                path,
                body=msgspec.json.encode(body),
                content_type=MERGE_PATCH if verb == "PATCH" else JSON,
                resource=SCHEDULING_POLICIES.plural,
            )


class PolicyVerdict(msgspec.Struct, frozen=True):
    """What is to be said of one object."""

    uid: str
    generation: int
    """Of the object that was looked at."""
    owner: str
    hash: str
    accepted: tuple[bool, str, str]
    """Whether its newest text is in force, a reason of one word, and a message."""
    active: tuple[bool, str, str]
    """Whether any text of it is."""


class PolicyStatusWriter(FromOutbox):
    """Queues verdicts, the newest per object; `run` sends them."""

    def __init__(
        self,
        transport: Transport,
        *,
        find: Callable[[str, str], SchedulingPolicy | None],
        random: Random,
        clock: Callable[[], float] = time.time,
        fence: Fence = OPEN,
    ) -> None:
        """Set up.

        Args:
            transport: to the API server.
            find: returns an object by namespace and name, as the watch showed it last.
            random: spreads retries.
            clock: Unix seconds.
            fence: asked right before each write goes out: one replica writes.
        """
        self._transport = transport
        self._find = find
        self._clock = clock
        self._fence = fence
        self._outbox: Outbox[tuple[str, str], PolicyVerdict] = Outbox(
            self._send,
            name="scheduling policy status",
            about=lambda key, _: key,
            random=random,
            limits=OutboxLimits(capacity=10_000),
        )

    def put(self, namespace: str, name: str, verdict: PolicyVerdict) -> None:
        """Queue a verdict; returns at once."""
        self._outbox.put((namespace, name), verdict)

    async def run(self) -> None:
        """Send for ever; end by cancellation."""
        await self._outbox.run()

    async def _send(self, key: tuple[str, str], verdict: PolicyVerdict) -> None:
        known = self._find(*key)
        if known is None:
            return
        await patch_status(
            self._transport,
            SCHEDULING_POLICIES,
            known,
            name=key[1],
            namespace=key[0],
            patch=lambda now: self._patch(now, verdict),
            read=_decode,
            fence=self._fence,
            content_type=MERGE_PATCH,
        )

    def _patch(self, now: SchedulingPolicy, verdict: PolicyVerdict) -> dict[str, Any] | None:
        """Return the merge patch that has an object say a verdict, None if it says so already."""
        if now.metadata.uid != verdict.uid:
            return None
        before = {condition.type: condition for condition in now.status.conditions or ()}
        conditions = [
            self._condition(kind, found, verdict.generation, before.get(kind))
            for kind, found in (("Accepted", verdict.accepted), ("Active", verdict.active))
        ]
        status = Status(conditions, verdict.owner, verdict.hash)
        if status == now.status:
            return None
        return {
            "metadata": {"uid": now.metadata.uid, "resourceVersion": now.metadata.resource_version},
            "status": msgspec.to_builtins(status),
        }

    def _condition(
        self, kind: str, found: tuple[bool, str, str], generation: int, before: Condition | None
    ) -> Condition:
        holds, reason, message = found
        status = "True" if holds else "False"
        same = before is not None and before.status == status
        since = before.last_transition_time if before is not None and same else rfc3339(self._clock())
        return Condition(kind, status, reason, shortened(message, MESSAGE_CHARACTERS), generation, since)
