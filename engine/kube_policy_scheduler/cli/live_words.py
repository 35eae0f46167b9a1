"""Names of a live cluster and its Prometheus, for completion: read in a thread, kept, and read again after a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from kube_policy_scheduler.adapters.process.worker_thread import in_thread
from kube_policy_scheduler.editor.cluster_words import ClusterWords, words_in

MOST_OBJECTS = 1_000
"""Nodes, and pods, that are read: their label keys are those of all others, and a node may have 50 kB."""
MOST_METRICS = 10_000
FRESH_SECONDS = 300.0
"""Names change slowly, and a list is work for the API server."""
RETRY_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LiveSources:
    """Where names are read from."""

    cluster: bool = False
    """Whether the API server is asked."""
    kubeconfig: str | None = None
    """None: as kubectl."""
    context: str | None = None
    prometheus_url: str | None = None

    def read(self) -> tuple[ClusterWords, tuple[str, ...]]:
        """Return the names that can be read, and why others cannot. Blocks."""
        documents, failures = [], []
        if self.cluster:
            try:
                documents += self._objects()
            except Exception as error:
                failures.append(f"cannot read the cluster for completion: {error}")
        words = words_in(documents)
        if self.prometheus_url is not None:
            try:
                words.metrics.update(dict.fromkeys(self._metrics(self.prometheus_url), 1))
            except Exception as error:
                failures.append(f"cannot read the metrics for completion: {error}")
        return words, tuple(failures)

    def _objects(self) -> list[object]:
        from kube_policy_scheduler.adapters.kube.lists import raw_objects

        where = {"kubeconfig": self.kubeconfig, "context": self.context}
        found, _ = asyncio.run(raw_objects(**where, kinds=("Node", "Pod"), most=MOST_OBJECTS))
        return list(found)

    def _metrics(self, url: str) -> list[str]:
        from kube_policy_scheduler.adapters.prometheus.queries import PrometheusEndpoint, PrometheusNames

        client = PrometheusNames(PrometheusEndpoint(url))
        try:
            return client.metric_names(most=MOST_METRICS)
        finally:
            client.close()


class LiveWords:
    """The names that were read last. Asking never waits."""

    def __init__(
        self,
        read: Callable[[], tuple[ClusterWords, tuple[str, ...]]],
        *,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet.

        Args:
            read: returns the names, and what failed; runs in a thread.
            report: receives each failure, until it is another one.
            clock: seconds.
        """
        self._read, self._report, self._clock = read, report, clock
        self._known = ClusterWords()
        self._due = float("-inf")
        self._running: asyncio.Task[None] | None = None
        self._failures: tuple[str, ...] = ()

    def words(self) -> ClusterWords:
        """Return what is known, and have it read again where it is old. Needs a running event loop."""
        if self._running is None and self._clock() >= self._due:
            self._running = asyncio.get_running_loop().create_task(self._refresh())
        return self._known

    async def settled(self) -> None:
        """Wait until what is being read has come."""
        if self._running is not None:
            await self._running

    async def _refresh(self) -> None:
        try:
            words, failures = await in_thread(self._read, name="live-words")
        except Exception as error:  # a fault of ours: completion goes on with what is known
            _log.exception("unexpected error while names are read")
            words, failures = self._known, (f"cannot read names for completion: {error!r}",)
        finally:
            self._running = None
        if not failures or any((words.node_labels, words.pod_labels, words.metrics)):
            self._known = words
        self._due = self._clock() + (RETRY_SECONDS if failures else FRESH_SECONDS)
        for text in failures:
            if text not in self._failures:
                self._report(text)
        self._failures = failures
