"""Whether the annotation that says which devices a pod has is the scheduler's word; looked at on start and after."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from kube_policy_scheduler.adapters.kube.device_annotation import why_unprotected
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.devices.node_devices import ANNOTATION, Devices

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 60.0
"""How late it may be noticed that the policy was applied, or deleted."""
RETRY_SECONDS = 2.0
FIRST_LOOK_SECONDS = 5.0
"""A start waits this long for the first answer; until there is one, no annotation counts."""


class DeviceTrust:
    """Trusts the devices annotation while only the scheduler can write it."""

    def __init__(self, transport: Transport, devices: Devices) -> None:
        self._transport = transport
        self._devices = devices
        self._logged = ""
        self._looked = asyncio.Event()
        self.protected: bool | None = None
        """None while it is not known."""
        devices.believe(False)

    async def run(self) -> NoReturn:
        """Look now and then, for ever."""
        while True:
            answered = await self.look()
            await asyncio.sleep(LOOK_EVERY_SECONDS if answered else RETRY_SECONDS)

    async def first_look(self) -> None:
        """Wait for the first answer, for a little while."""
        try:
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self._looked.wait()
        except TimeoutError:
            logger.warning("ignoring annotations %s until the API server shows who can write them", ANNOTATION)

    async def look(self) -> bool:
        """Look once; return whether there was an answer."""
        try:
            why = await why_unprotected(self._transport)
        except KubeError as error:
            logger.debug("cannot check who can write annotations %s: %s", ANNOTATION, error)
            return False
        self.protected = not why
        self._devices.believe(self.protected)
        self._looked.set()
        # said where pods share devices; elsewhere it is nobody's concern
        if why != self._logged and (self._devices.tables or not why):
            if why:
                logger.warning(
                    "anybody can write the annotation %s, so it does not count: pods that are bound are taken to have"
                    " the devices that this scheduler would have given them; %s",
                    ANNOTATION,
                    why,
                )
            else:
                logger.info("trusting annotations %s again", ANNOTATION)
            self._logged = why
        return True
