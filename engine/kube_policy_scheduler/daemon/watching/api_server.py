"""The API server as the daemon uses it: requests, and a reflector of each resource. Imports nothing that decides.

To start fast, the daemon requests the lists first, and imports the scheduler and its metrics while the API server
answers. So handlers and the observer of requests come after construction, with `attach` and `observe`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Self

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.decoding import Malformed
from kube_policy_scheduler.adapters.kube.discovery import server_version
from kube_policy_scheduler.adapters.kube.errors import Unreachable
from kube_policy_scheduler.adapters.kube.reflector import Reflector
from kube_policy_scheduler.adapters.kube.resources import WATCHED, Resource
from kube_policy_scheduler.adapters.kube.transport import Observe, Transport
from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.watching.kubernetes_version import VersionWatch
from kube_policy_scheduler.daemon.watching.resources import Handler, attach, reflectors

logger = logging.getLogger(__name__)

SPARE_CONNECTIONS = 32
"""Beside those of bindings: for lists, events and status writes."""


class ApiServer:
    """A context manager: lists begin when it is entered; when it is left, requests under way fail."""

    def __init__(
        self, settings: Settings, *, random: Random, loops: Loops, resources: Sequence[Resource[Any]] = WATCHED
    ) -> None:
        """Set up; nothing is read or requested yet.

        Args:
            settings: of the process.
            random: spreads pauses.
            loops: of the process.
            resources: what is watched; nodes and pods first.
        """
        kubernetes = settings.kubernetes
        self.credentials = find_credentials(
            kubeconfig=str(kubernetes.kubeconfig) if kubernetes.kubeconfig else None, context=kubernetes.context
        )
        self._observed: list[tuple[str, str, str, float]] = []
        self._observe: Observe | None = None
        self.transport = Transport(
            self.credentials,
            max_connections=settings.scheduling.parallel_binds + SPARE_CONNECTIONS,
            observe=self._took_place,
            rate=kubernetes.rate,
        )
        self.reflectors: list[Reflector[Any]] = reflectors(
            self.transport,
            random=random,
            on_malformed=_report_malformed,
            resources=resources,
            node_selector=kubernetes.node_selector,
            pod_selector=kubernetes.pod_selector,
            compiled=settings.scheduling.compiled_kernels,
        )
        """One per watched resource, in their order."""
        self.version = VersionWatch(kubernetes, ask=partial(server_version, self.transport))
        """Of which Kubernetes it is."""
        self._loops = loops
        self._watching: list[Loop] = []

    async def __aenter__(self) -> Self:
        """Raises CredentialsError: there is no way to reach a cluster."""
        await self.credentials.get()
        self.version.begin()
        self._watching = [
            self._loops.start(f"watch-{reflector.resource.label}", reflector.run, restarts=False)
            for reflector in self.reflectors
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._loops.end(*self._watching)
        await self.version.end()
        await self.transport.close()

    def attach(
        self,
        handler: Callable[[type], Handler[Any]],
        on_unavailable: Callable[[type, str], None],
        *,
        but: type | None = None,
    ) -> None:
        """Send the objects that exist, and all changes from now on, to the handler of each kind that has none yet.

        Args:
            handler: returns the handler of a kind.
            on_unavailable: called with a kind and the reason why its objects cannot be read, "" once they can.
            but: a kind that waits for the next call.
        """
        waiting = [each for each in self.reflectors if not each.is_attached and each.resource.type is not but]
        attach(waiting, handler, on_unavailable)

    def observe(self, observe: Observe) -> None:
        """Call `observe` with every request, also with those before."""
        for request in self._observed:
            observe(*request)
        self._observed.clear()
        self._observe = observe

    def _took_place(self, verb: str, resource: str, code: str, seconds: float) -> None:
        if code == Unreachable.__name__:
            for reflector in self.reflectors:
                reflector.doubt()
        if self._observe is None:
            self._observed.append((verb, resource, code, seconds))
        else:
            self._observe(verb, resource, code, seconds)


def _report_malformed(broken: Malformed) -> None:
    logger.warning("cannot use an object", extra={"problem": str(broken)})
