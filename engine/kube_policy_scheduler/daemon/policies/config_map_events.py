"""Reports reloads as Events on the ConfigMap that holds the policies, where its editor looks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from kube_policy_scheduler.adapters.kube.errors import ApiError, Forbidden, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
KEPT = 20
"""Reloads that wait for the API server; if there are more, the oldest are dropped."""

_REASONS = {ReloadResult.ACCEPTED: "PoliciesAccepted", ReloadResult.RESTORED: "PoliciesRestored"}


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta


_decode = decoder_of(_ConfigMap)


class ConfigMapEvents:
    """Queues reloads; `run` reports them."""

    def __init__(self, transport: Transport, recorder: EventRecorder, *, namespace: str, name: str) -> None:
        self._transport = transport
        self._recorder = recorder
        self._namespace = namespace
        self._name = name
        self._waiting: deque[ReloadRecord] = deque(maxlen=KEPT)
        self._stirred = asyncio.Event()

    def report(self, record: ReloadRecord) -> None:
        """Queue a reload; returns at once."""
        self._waiting.append(record)
        self._stirred.set()

    async def run(self) -> None:
        """Tell for ever; end by cancellation."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self._waiting:
                reference = await self._reference()
                record = self._waiting.popleft()
                self._recorder.record(
                    reference,
                    type="Normal" if record.successful else "Warning",
                    reason=_REASONS.get(record.result, "PoliciesRefused"),
                    action="Reload",
                    note=record.summary(),
                )

    async def _reference(self) -> Reference:
        """Return the ConfigMap with its uid, without which `kubectl describe` does not find the Event."""
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{self._name}"
        while True:
            try:
                found = _decode(await self._transport.request("GET", path, resource="configmaps")).metadata
            except (NotFound, Forbidden, msgspec.DecodeError) as error:
                logger.warning("configMap %s/%s of the settings: %s", self._namespace, self._name, error)
                return Reference("ConfigMap", self._name, self._namespace, "", "v1")
            except KubeError as error:
                wish = error.retry_after_seconds if isinstance(error, ApiError) else None
                await asyncio.sleep(max(RETRY_SECONDS, wish or 0.0))
            else:
                return Reference("ConfigMap", self._name, self._namespace, found.uid, "v1", found.resource_version)
