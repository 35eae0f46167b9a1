"""The loop that decides: one binding after the other, while the writes of others are under way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from kube_policy_scheduler.daemon.fleet.binding_writer import BindingWriter
from kube_policy_scheduler.daemon.fleet.templates import TemplateReader
from kube_policy_scheduler.daemon.watching.freshness import LOOP_POLL_SECONDS, ClusterView
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Question, Work
from kube_policy_scheduler.fleet.karmada.objects import ClusterResourceBinding, KarmadaCluster, ResourceBinding
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

MOVES_EVERY_SECONDS = 1.0
"""Between two looks for moves. How long a workload rests between two of its own, its policy says."""


class FleetScheduler:
    """Hands what is watched to the decision maker, and its work to the writer."""

    def __init__(
        self,
        maker: DecisionMaker,
        writer: BindingWriter,
        *,
        view: ClusterView,
        templates: TemplateReader,
        parallel_writes: int,
        observe: Callable[[float], None] = lambda seconds: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one that does nothing yet.

        Args:
            maker: decides.
            writer: writes.
            view: whether what is known is current enough to decide by.
            templates: reads what policies ask about templates.
            parallel_writes: bindings that are written at a time.
            observe: is told how many seconds each decision took.
            steady: seconds on a clock that nobody sets.
        """
        self.maker = maker
        self.leading = False
        self._writer = writer
        self._view = view
        self._templates = templates
        self._observe = observe
        self._steady = steady
        self._permits = asyncio.Semaphore(parallel_writes)
        self._writes: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()

    @property
    def writes_under_way(self) -> int:
        """Return how many bindings are being written."""
        return len(self._writes)

    def lead(self, leads: bool) -> None:
        """Begin or cease to decide."""
        self.leading = leads
        self._stirred.set()

    def stir(self) -> None:
        """Have the loop look again what there is to do."""
        self._stirred.set()

    # --- what is watched ----------------------------------------------------------------------------

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        maker, now, stir = self.maker, self._now, self._stirred.set

        def clusters(listed: Any) -> None:
            maker.replace_clusters(listed, now())
            stir()

        def bindings(listed: Any) -> None:
            maker.replace_bindings(listed, now(), namespaced=kind is ResourceBinding)
            stir()

        def upsert(thing: Any) -> None:
            if kind is KarmadaCluster:
                maker.set_cluster(thing, now())
            else:
                maker.set_binding(thing, now())
            stir()

        def deleted(thing: Any) -> None:
            if kind is KarmadaCluster:
                maker.delete_cluster(thing.metadata.name, now())
            else:
                maker.delete_binding((thing.metadata.namespace, thing.metadata.name))
            stir()

        assert kind in (KarmadaCluster, ResourceBinding, ClusterResourceBinding)
        return Handler(clusters if kind is KarmadaCluster else bindings, upsert, deleted)

    def kind_unavailable(self, kind: type, why: str) -> None:
        """Take note that a kind cannot be read: what is known of it stays, and nothing is decided meanwhile."""

    # --- deciding -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide for ever; end by cancellation, which the writes under way survive (`drained`)."""
        while True:
            work = await self._next()
            await self._permits.acquire()
            task = asyncio.create_task(self._carry_out(work), name="fleet-write")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)
            await asyncio.sleep(0)

    async def look_for_moves(self) -> None:
        """Look for moves from time to time, for ever."""
        while True:
            await asyncio.sleep(MOVES_EVERY_SECONDS)
            self.maker.look_for_moves(self._now())
            self.stir()

    async def _next(self) -> Work | Question:
        """Wait until there is work, and this replica may do it by what it knows."""
        while True:
            self._stirred.clear()
            if not self.leading:
                await self._stirred.wait()
            elif not self._view():
                await asyncio.sleep(LOOP_POLL_SECONDS)
            else:
                began = self._steady()
                work = self.maker.next(Steady(began))
                if work is not None:
                    self._observe(self._steady() - began)
                    return work
                await self._wait()

    async def _wait(self) -> None:
        due = self.maker.waiting.due()
        pause = None if due is None else max(0.0, due - self._steady())
        try:
            async with asyncio.timeout(pause):
                await self._stirred.wait()
        except TimeoutError:
            pass

    async def _carry_out(self, work: Work | Question) -> None:
        try:
            if isinstance(work, Question):
                self.maker.set_template(work.key, await self._templates.read(work.template), self._now())
            else:
                await self._writer.carry_out(work)
        except Exception:
            logger.exception("unexpected error while working on binding %s", "/".join(filter(None, work.key)))
            self.maker.broke(work.key, self._now())
        finally:
            self._permits.release()
            self._stirred.set()

    async def drained(self) -> None:
        """Wait until all writes under way have come to an end."""
        while self._writes:
            await asyncio.wait(self._writes)

    def _now(self) -> Steady:
        return Steady(self._steady())

    def counts(self) -> Mapping[str, int]:
        """Return how many there are of each kind."""
        return {"clusters": len(self.maker.fleet.clusters), "bindings": len(self.maker.waiting)}
