"""The demo's pods, created and watched as anybody would who has a kubeconfig: with the official client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.config import load_kube_config
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

NAMESPACE = "default"


class Pods:
    """The pods of the cluster; `seen` hears of each that was added, modified or deleted, on the event loop."""

    def __init__(self, kubeconfig: Path, seen: Callable[[str, Mapping[str, Any]], None]) -> None:
        configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration)
        self._client = ApiClient(configuration)
        self._api = CoreV1Api(self._client)
        self._watch = Watch()
        self._is_stopped = False
        self._seen = seen
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, name="demo-pods", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopped = True
        self._watch.stop()
        self._client.close()

    async def create(self, pod: Mapping[str, Any]) -> None:
        """Create a pod."""
        await asyncio.to_thread(self._api.create_namespaced_pod, NAMESPACE, pod)

    def _follow(self) -> None:
        """Watch until stopped; blocks."""
        try:
            for event in self._watch.stream(self._api.list_namespaced_pod, NAMESPACE, deserialize=False):
                self._loop.call_soon_threadsafe(self._seen, event["type"], event["object"])
        except (HTTPError, RuntimeError):  # the answer ended, or the loop is closed
            if not self._is_stopped:
                raise
