"""PreBind for volumes: writes what was reserved, and waits until the volume controllers have done their part."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import KubeError, MalformedAnswer
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.reserve.volume_reservation import (
    BIND_TIMEOUT_SECONDS,
    ApiPatch,
    Bound,
    Failed,
    VolumeReservation,
    Waiting,
    patches,
    progress,
    undo,
    written,
)

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""How often the cache is asked whether all claims are bound; it costs no request."""


class _Written(msgspec.Struct):
    metadata: objects.ObjectMeta


_decode = decoder_of(_Written)
_encode = msgspec.json.Encoder().encode


class ApiVolumeBinder:
    """Brings reservations to their end."""

    def __init__(
        self,
        transport: Transport,
        cluster: Cluster,
        *,
        timeout_seconds: float = BIND_TIMEOUT_SECONDS,
        fence: Fence = OPEN,
    ) -> None:
        """fence: asked right before each write goes out."""
        self._transport = transport
        self._fence = fence
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds

    async def bind(self, reservation: VolumeReservation) -> str:
        """Have all volumes of a reservation bound; return why that failed, "" where it did not.

        After a failure nothing is assumed any more; what was written stays, as with kube-scheduler, and is seen
        by the next attempt.
        """
        why = "cancelled"  # what a cancellation leaves
        try:
            for patch in patches(reservation):
                version = await self._write(patch)
                reservation = written(reservation, patch, resource_version=version)
            async with asyncio.timeout(self._timeout_seconds):
                why = await self._settled(reservation)
        except KubeError as error:
            why = f'running PreBind plugin "VolumeBinding": {error}'
        except TimeoutError:
            why = 'running PreBind plugin "VolumeBinding": binding volumes: timed out'
        except Exception as error:
            logger.exception("unexpected error while binding volumes")
            why = f'running PreBind plugin "VolumeBinding": internal error: {error!r}'
        finally:
            if why:
                undo(reservation, self._cluster)
        return why

    async def _write(self, patch: ApiPatch) -> str:
        kind = PERSISTENT_VOLUMES if patch.resource == PERSISTENT_VOLUMES.plural else PERSISTENT_VOLUME_CLAIMS
        body = await self._transport.request(
            "PATCH",
            kind.path(patch.name, namespace=patch.namespace),
            body=_encode(patch.body),
            content_type=MERGE_PATCH,
            resource=patch.resource,
            fence=self._fence,
        )
        try:
            return _decode(body).metadata.resource_version
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"{patch.resource} {patch.name} cannot be decoded: {error}") from error

    async def _settled(self, reservation: VolumeReservation) -> str:
        while True:
            state = progress(reservation, self._cluster)
            match state:
                case Bound():
                    return ""
                case Failed(reason=reason):
                    return f'running PreBind plugin "VolumeBinding": binding volumes: {reason}'
                case Waiting():
                    await asyncio.sleep(POLL_SECONDS)
                case _:
                    assert_never(state)
