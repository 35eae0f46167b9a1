"""Evicts the victims of a preemption: says why in their status, then deletes them. Decides nothing.

As kube-scheduler does it, with one difference: the deletion carries the victim's UID, so that a pod of the same
name that was created later is never hit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from kube_policy_scheduler.adapters.kube.client import STRATEGIC_MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import ApiError, Conflict, Invalid, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.pod_view import PodView
from kube_policy_scheduler.adapters.kube.resources import PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.times import rfc3339

_encode = msgspec.json.Encoder().encode
_CANNOT_BE_ASKED = "does not support dry run"
"""How the API server's message ends, if a webhook has side effects."""
_decode_pod = decoder_of(Pod)


class Evictor:
    """Evicts pods, one call each."""

    def __init__(
        self,
        transport: Transport,
        *,
        controller: str,
        clock: Callable[[], float] = time.time,
        fence: Fence = OPEN,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            controller: the scheduler's name, shown in the victim's condition.
            clock: Unix seconds.
            fence: asked right before each request goes out, so that a former leader evicts nobody.
        """
        self._transport = transport
        self._fence = fence
        self._controller = controller
        self._clock = clock

    async def try_evict(self, victim: PodView) -> None:
        """Ask the API server whether it would delete the pod; a pod that is gone is fine.

        A webhook that cannot be asked without acting has no say here.

        Raises:
            KubeError: it would refuse, or could not be reached, or the fence is closed.
        """
        try:
            await self._delete(victim, dryRun=["All"])
        except Invalid as error:
            if not error.message.endswith(_CANNOT_BE_ASKED):
                raise

    async def evict(self, victim: PodView) -> None:
        """Mark the pod as preempted and delete it with its own grace period; a pod that is gone is fine.

        Raises:
            KubeError: the API server refused or could not be reached, or the fence is closed; the pod may still be
                there.
        """
        try:
            await self._transport.request(
                "PATCH",
                PODS.path(victim.name, namespace=victim.namespace, subresource="status"),
                body=_encode(self._disruption(victim)),
                content_type=STRATEGIC_MERGE_PATCH,
                resource="pods/status",
                fence=self._fence,
            )
        except NotFound:
            return
        except Conflict:
            if await self._is_gone(victim):
                return
            raise
        await self._delete(victim)

    async def _delete(self, victim: PodView, **options: object) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": victim.uid}, **options}
        path = PODS.path(victim.name, namespace=victim.namespace)
        try:
            await self._transport.request("DELETE", path, body=_encode(body), resource="pods", fence=self._fence)
        except NotFound:
            return
        except Conflict:
            if not await self._is_gone(victim):
                raise

    async def _is_gone(self, victim: PodView) -> bool:
        """Return whether another pod has the victim's name now."""
        try:
            body = await self._transport.request(
                "GET", PODS.path(victim.name, namespace=victim.namespace), resource="pods"
            )
        except NotFound:
            return True
        except ApiError:
            return False
        try:
            return _decode_pod(body).metadata.uid != victim.uid
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"pod {victim.namespace}/{victim.name} cannot be decoded: {error}") from error

    def _disruption(self, victim: PodView) -> dict[str, object]:
        at = rfc3339(self._clock())
        condition: dict[str, object] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._controller}: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "lastTransitionTime": at,
        }
        if victim.generation:
            condition["observedGeneration"] = victim.generation
        return {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
