"""The embedded cluster as one object: start it, load it, get its address, close it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
import yaml

from kube_policy_scheduler.cluster import defaulting
from kube_policy_scheduler.embedded import fixtures
from kube_policy_scheduler.embedded.access import Guard
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.controllers import Controllers, ControllerSettings
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.kubelets import KubeletSettings, SimulatedKubelets
from kube_policy_scheduler.embedded.resources import DEFAULT_VERSION
from kube_policy_scheduler.embedded.server import Intercept, Server, ServerSettings
from kube_policy_scheduler.embedded.store import Store
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion

Result = TypeVar("Result")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class EmbeddedCluster:
    """A Kubernetes API server with simulated nodes, in this process.

    Use it as an async context manager in the loop that is to serve it, or call `in_thread` from code that
    has no loop. `kubelets=None` and `controllers=None` leave objects as the API server alone would. `intercept` sees
    each request for a resource before it is carried out, and may refuse it. `guard` makes what identifies clients;
    by default everyone is the administrator. With an `ssl_context` the server speaks HTTPS. `kubernetes` is the
    version that it says to be of and whose kinds it serves; what only newer API servers refuse is not refused.
    """

    def __init__(
        self,
        *,
        server: ServerSettings | None = None,
        kubelets: KubeletSettings | None = KubeletSettings(),  # noqa: B008 - frozen
        controllers: ControllerSettings | None = ControllerSettings(),  # noqa: B008 - frozen
        intercept: Intercept | None = None,
        guard: Callable[[Store], Guard] = lambda _: Guard(),
        ssl_context: ssl.SSLContext | None = None,
        history_limit: int = 20_000,
        kubernetes: KubernetesVersion = DEFAULT_VERSION,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self.api = Api(history_limit=history_limit, kubernetes=kubernetes)
        self.guard = guard(self.api.store)
        self._server = Server(
            self.api,
            server or ServerSettings(),
            guard=self.guard,
            intercept=intercept,
            ssl_context=ssl_context,
        )
        self._kubelets = SimulatedKubelets(self.api, kubelets) if kubelets else None
        self._controllers = Controllers(self.api, controllers) if controllers else None
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
        for part in (self._kubelets, self._controllers):
            if part is not None:
                part.start()

    async def close(self) -> None:
        """Stop serving; open watches end."""
        for part in (self._kubelets, self._controllers):
            if part is not None:
                await part.stop()
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
        if path.suffix == ".json":  # YAML would do, but takes a hundred times as long
            return self.load([orjson.loads(path.read_bytes())])
        with path.open(encoding="utf-8") as file:
            return self.load([item for item in yaml.load_all(file, Loader=_LOADER) if item])

    def kubeconfig(self, path: Path | None = None, *, namespace: str = "default") -> str:
        """Return a kubeconfig, and write it to `path` (readable by its owner only) if one is given."""
        return kubeconfig_text(path, cluster={"server": self.url}, user={}, namespace=namespace)

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
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        await self._cluster.close()
        accepting = asyncio.all_tasks() - {asyncio.current_task()}  # connections in the middle of a TLS handshake
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)
        await asyncio.sleep(0)


def kubeconfig_text(path: Path | None, *, cluster: Json, user: Json, namespace: str) -> str:
    """Return a kubeconfig with one context, and write it to `path` (readable by its owner only) if one is given."""
    text = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": namespace}}
            ],
            "current-context": "embedded",
        },
        sort_keys=False,
    )
    if path is not None:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    return text
