"""The embedded cluster as one object: start it, load it, ask where it is, close it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml

from engine.cluster import defaulting
from engine.embedded import fixtures
from engine.embedded.api import Api
from engine.embedded.kubelets import KubeletSettings, SimulatedKubelets
from engine.embedded.server import Server, ServerSettings

Result = TypeVar("Result")
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class EmbeddedCluster:
    """A Kubernetes API server with simulated nodes, in this process.

    Use it as an async context manager in the loop that is to serve it, or call `in_thread` from code that
    has no loop. `kubelets=None` leaves nodes and pods as the API server alone would.
    """

    def __init__(
        self,
        *,
        server: ServerSettings | None = None,
        kubelets: KubeletSettings | None = KubeletSettings(),  # noqa: B008 - frozen
        history_limit: int = 20_000,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self.api = Api(history_limit=history_limit)
        self._server = Server(self.api, server or ServerSettings())
        self._kubelets = SimulatedKubelets(self.api, kubelets) if kubelets else None
        self.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES])
        self.load(defaulting.BUILTIN_PRIORITY_CLASSES.values())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to serve, and to run pods."""
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        await self._server.start()
        if self._kubelets is not None:
            self._kubelets.start()

    async def close(self) -> None:
        """Stop serving; open watches end."""
        if self._kubelets is not None:
            await self._kubelets.stop()
        await self._server.stop()
        self._loop = None

    @property
    def url(self) -> str:
        """Where the API server listens, such as `http://127.0.0.1:41234`."""
        return self._server.url

    def load(self, objects: Iterable[Mapping[str, Any]]) -> int:
        """Store objects (or `List`s of them) as if they had always been there, with defaults; return how many.

        Statuses are kept as given: a pod with `spec.nodeName` and phase Running is one that runs.

        Raises:
            ValueError: an object is of a kind that is not served, or has no name.
        """
        return self.call(lambda: fixtures.load(self.api, objects))

    def call(self, operation: Callable[[], Result]) -> Result:
        """Carry out an operation on `api` in the thread that serves, and return its result."""
        loop = self._loop
        if loop is None or threading.get_ident() == self._thread_id:
            return operation()

        async def carry_out() -> Result:
            return operation()

        return asyncio.run_coroutine_threadsafe(carry_out(), loop).result()

    def load_file(self, path: Path) -> int:
        """Store the objects of a YAML or JSON file; return how many."""
        with path.open(encoding="utf-8") as file:
            return self.load([item for item in yaml.safe_load_all(file) if item])

    def kubeconfig(self, path: Path | None = None) -> str:
        """Return a kubeconfig for this cluster, and write it to `path` if one is given."""
        text = yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
                "users": [{"name": "admin", "user": {}}],
                "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "admin"}}],
                "current-context": "embedded",
            },
            sort_keys=False,
        )
        if path is not None:
            path.write_text(text, encoding="utf-8")
        return text

    def in_thread(self) -> ClusterThread:
        """Return a context manager that serves this cluster from a thread of its own."""
        return ClusterThread(self)


class ClusterThread:
    """Runs a cluster's event loop in a thread, for synchronous callers."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded-cluster", daemon=True)

    def __enter__(self) -> EmbeddedCluster:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._cluster.start(), self._loop).result()
        return self._cluster

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._cluster.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
