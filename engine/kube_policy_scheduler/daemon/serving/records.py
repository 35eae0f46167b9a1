"""What the daemon keeps for those who ask: decisions, counts, the state of now. Knows no HTTP, and decides nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial

import msgspec

from kube_policy_scheduler.adapters.process.spare_time import SpareTime
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings, Settings
from kube_policy_scheduler.daemon.modes.selection import Mode
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from kube_policy_scheduler.daemon.observing.decision_entry import Entry
from kube_policy_scheduler.daemon.observing.decision_file import DecisionFile
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.daemon.serving.state_dump import State, dump_in_steps
from kube_policy_scheduler.daemon.serving.status_snapshot import PolicyStatus, Replica, SnapshotSources
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.decision_record import encode

logger = logging.getLogger(__name__)


class DecisionRecorder:
    """The decision log of a daemon, with its file if there is to be one."""

    def __init__(
        self, settings: DecisionLogSettings, *, seed: int, replica: str, kubernetes: str, counts: ClauseCounts
    ) -> None:
        """Raises FileError: the file cannot be written to."""
        self.file = DecisionFile(settings)
        self.log = DecisionLog(
            settings,
            seed=seed,
            replica=replica,
            kubernetes=kubernetes,
            stopwatch=time.perf_counter,
            counts=counts,
            hand_on=self._write,
        )

    def _write(self, entry: Entry) -> None:
        self.file.put(partial(self._line, entry), size=entry.size + entry.pod.template.size)

    def _line(self, entry: Entry) -> bytes:
        return encode(self.log.record(entry))


class Records:
    """All that is kept from the first decision on, whether anybody can ask yet or not."""

    def __init__(
        self,
        settings: Settings,
        *,
        scheduler: Scheduler,
        metrics: SchedulerMetrics,
        replica: Callable[[], Replica],
        signals: Callable[[], Sequence[SignalRow]],
        identity: str,
        mode: Mode,
    ) -> None:
        """Set up; nothing is opened but the decision log's file.

        Raises:
            FileError: the decision log cannot be written.
        """
        self._scheduler = scheduler
        self._counts = ClauseCounts()
        self._policy_status = PolicyStatus()
        self.spare_time = SpareTime()
        self._printing: asyncio.Task[None] | None = None
        self.recorder = DecisionRecorder(
            settings.decision_log,
            seed=settings.scheduling.seed,
            replica=identity,
            kubernetes=scheduler.cluster.rules.said,
            counts=self._counts,
        )
        metrics.registry.register(ClauseMetrics(self._counts, policies=lambda: self._policy_status.policies))
        self.sources = SnapshotSources(
            cluster=scheduler.cluster,
            queue=scheduler.queue,
            gangs=scheduler.waiting_pods.states,
            assumed=lambda: len(scheduler.cluster.assumed),
            log=self.recorder.log,
            counts=self._counts,
            policy_status=self._policy_status,
            metrics=signals,
            replica=replica,
            clock=scheduler.context.wall,
            shadow=mode.shadow.summary if mode.shadow is not None else None,
        )

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Return the observers of the scheduler."""
        return self.recorder.log, self._policy_status

    def use_policies(self, policies: PolicySet, *, hash: str) -> None:  # noqa: A002 - the record's word
        """Note the policies that decide from now on."""
        self._counts.clear()
        self.recorder.log.use_policies(policies, hash=hash)
        self._policy_status.use_policies(policies, hash=hash)

    async def close(self) -> None:
        """Write what is left of the decision log."""
        await self.recorder.file.close()

    def dump(self, *, recount: bool) -> Generator[None, None, State]:
        """Return the state of now; between two steps anything may happen.

        recount: whether to add everything up again.
        """
        sources, replica = self.sources, self.sources.replica()
        return dump_in_steps(
            sources.cluster,
            sources.queue,
            assumed=self._scheduler.cluster.assumed,
            now=self._scheduler.context.clock(),
            leading=replica.leading,
            shard=replica.shard,
            recount=recount,
            is_under_way=self._scheduler.is_under_way,
        )

    def print_state(self) -> None:
        """Write the state to standard error as one line of JSON, recounted; for SIGUSR2."""
        if self._printing is None or self._printing.done():
            self._printing = asyncio.create_task(self._print_state(), name="print state")

    async def _print_state(self) -> None:
        state = await self.spare_time.run(self.dump(recount=True))
        for difference in state.differences or ():
            logger.error("a recount differs", extra={"difference": difference})
        sys.stderr.write(msgspec.json.encode(state).decode() + "\n")
        sys.stderr.flush()
