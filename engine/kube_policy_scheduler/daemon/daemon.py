"""The daemon: puts the adapters and the scheduler together, starts them in order, ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from kube_policy_scheduler.adapters.compute.compiled_kernels import NODES_FOR_KERNELS, compile_kernels
from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.http.health_checks import Check, Remark
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.kube.binding import Binder
from kube_policy_scheduler.adapters.kube.credentials import own_namespace
from kube_policy_scheduler.adapters.kube.errors import Fenced
from kube_policy_scheduler.adapters.kube.eviction_api import PodEvictor
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lease_annotation import LeaseAnnotation
from kube_policy_scheduler.adapters.kube.past_usage_lease import PastUsageLease
from kube_policy_scheduler.adapters.kube.preemption_victims import Evictor
from kube_policy_scheduler.adapters.kube.resource_claims import ResourceClaimWriter
from kube_policy_scheduler.adapters.kube.rivals import Rival
from kube_policy_scheduler.adapters.open_telemetry import SpanExporter
from kube_policy_scheduler.adapters.process.freed_memory import return_freed_memory, return_freed_memory_again
from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.process.spare_time import in_turns
from kube_policy_scheduler.adapters.process.turn_watch import LONG_SECONDS, LongTurn, TurnWatch
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread
from kube_policy_scheduler.builtins.environment import environment, extension_failures
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.configuration.settings import HttpSettings, PolicySettings, Settings
from kube_policy_scheduler.daemon.ending import LEFT_BEHIND
from kube_policy_scheduler.daemon.modes.selection import make_mode, make_scheduler
from kube_policy_scheduler.daemon.observing.api_writers import ApiWriters
from kube_policy_scheduler.daemon.observing.canaries import Canaries
from kube_policy_scheduler.daemon.observing.live_metrics import (
    LiveMetrics,
    LiveState,
    PendingCensus,
    WatchRow,
)
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.model_watch import ModelWatch
from kube_policy_scheduler.daemon.observing.observers import Observers
from kube_policy_scheduler.daemon.observing.signal_feed import SignalFeed
from kube_policy_scheduler.daemon.observing.tracing import DecisionTracer
from kube_policy_scheduler.daemon.policies.live import LivePolicies, PolicyCompiler
from kube_policy_scheduler.daemon.policies.owners import Owners, OwnersApi, PoliciesTogether
from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import PastPolicies, PolicyReloader, ReloadRecord
from kube_policy_scheduler.daemon.replicas.coordinator import (
    ReplicaCoordinator,
    ReplicaFence,
    lease_namespace,
)
from kube_policy_scheduler.daemon.scheduling.cache_comparer import CacheComparer
from kube_policy_scheduler.daemon.scheduling.claim_binder import ApiClaimBinder
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.daemon.scheduling.extenders import make_extenders
from kube_policy_scheduler.daemon.scheduling.past_usage import PastUsageKeeper
from kube_policy_scheduler.daemon.scheduling.rebalancer import MOVES, Rebalancer
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.daemon.scheduling.volumes import ApiVolumeBinder
from kube_policy_scheduler.daemon.serving.records import Records
from kube_policy_scheduler.daemon.serving.status_snapshot import Replica
from kube_policy_scheduler.daemon.watching.api_server import ApiServer
from kube_policy_scheduler.daemon.watching.device_trust import DeviceTrust
from kube_policy_scheduler.daemon.watching.first_lists import FirstLists, collection_deferred
from kube_policy_scheduler.daemon.watching.freshness import PATIENCE_SECONDS, Freshness
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate

logger = logging.getLogger(__name__)

POLICIES_FIRST_SECONDS = 1.0
"""After a start, pods wait this long for policies, so that they are sorted once; the first metrics may take longer.
Nodes do not wait: they are taken in while the policies are checked on another core."""
SIZE_SECONDS = 10.0
"""Between two looks at whether the cluster has so many."""
SWITCH_SECONDS = 0.0005
"""For so long the event loop waits for a thread that runs Python, such as one that reads metrics, once pods may be
placed. Before that the default of 5 ms stands: modules are imported beside the first lists, and a tenth of the
processor time of a start went into changing between the two."""
QUIET_PATIENCE_SECONDS = 30.0
"""For this long kernels wait until no pod is active or being bound: loading them takes half a second from decisions."""
QUIET_SECONDS = 0.5
LOAD_AFTER_SECONDS = 2.0
IMPORTED_LATER = ("numpy.ma", "importlib.metadata")
"""Modules that the first bindings do not need: NumPy imports its one with the first `np.unique`, in 50 ms, and the
version of the scheduler is looked up with the first scrape."""
SERVE_AFTER_SECONDS = 2.0
"""The first decisions have precedence over scrapes for this long, if pods wait: aiohttp takes 0.1 s to import."""
SERVE_POLL_SECONDS = 0.02
IDLE_SECONDS = 30.0
"""The loop that decides has a turn at least every five."""
IN_FLIGHT_SECONDS = 900.0
"""Volumes may take ten minutes, and a binding is asked after for two."""
DRAIN_SECONDS = 10.0
"""Time for all bindings and events under way when the daemon ends. Kubernetes gives a pod 30 s in all."""
CONDITIONS_SECONDS = 0.5
"""Of these, for conditions, nominations and the past usage of queues before the lease is given back: who comes next
writes what is missing."""


class Daemon:
    """One replica of the scheduler."""

    def __init__(
        self,
        settings: Settings,
        api_server: ApiServer,
        *,
        checker: PolicyChecker,
        version: Callable[[], str],
        random: Random,
        loops: Loops,
        turns: TurnWatch[QueuedPod],
    ) -> None:
        """Put everything together; `api_server.version.in_force` says by which Kubernetes."""
        self._settings = settings = settings.effective()
        self._turns = turns
        self._random = random
        self._loops = loops
        self._identity = f"{socket.gethostname()}_{uuid4()}"
        self.metrics = SchedulerMetrics(version=version)
        self.observers = Observers([self.metrics])
        """Told what is decided, bound and reloaded; more of them may be added before `run`."""
        self._api_server = api_server
        self._transport = api_server.transport
        sharing = settings.sharding
        self._fence = fence = ReplicaFence(settings.leader_election, shares=sharing.enabled)
        self._binder = Binder(
            self._transport,
            random=self._random,
            concurrency=settings.scheduling.parallel_binds,
            fence=fence,
        )
        cluster = Cluster(api_server.version.in_force.rules)
        cluster.kept.given = settings.scheduling.cache_bytes
        self._extenders = make_extenders(
            settings, cluster, self._transport, fence=Fence(fence.allows), observe=self.metrics.asked_extenders.observe
        )
        trusts = settings.scheduling.device_annotation == "trusted"
        self._device_trust = None if trusts else DeviceTrust(self._transport, cluster.devices)
        self._writers = ApiWriters(
            settings,
            transport=self._transport,
            cluster=cluster,
            identity=self._identity,
            namespace=lease_namespace(settings),
            random=self._random,
            busy=lambda: self._binder.unfinished > 0,
            fence=fence,
        )
        self._accelerator = Accelerator()
        self._server = "", ""
        """The API server's URL and its `host:port`, for the metrics of requests."""
        self._kernels_text = (
            f"not in use: the cluster has fewer than {NODES_FOR_KERNELS:,} nodes"
            if settings.scheduling.compiled_kernels
            else "not in use: `scheduling.compiledKernels` is false"
        )
        self._queue = SchedulingQueue()
        clock = SettableClock()
        self._census = PendingCensus(self._queue, cluster, rules=self._queues, clock=clock)
        self._view = Freshness(api_server.reflectors, is_reachable=lambda: self._transport.is_reachable)
        context = SchedulerContext(
            cluster,
            self._queue,
            cycle=Cycle(
                seed=settings.scheduling.seed,
                accelerator=self._accelerator,
                kept=cluster.kept,
            ),
            binder=self._binder,
            evictor=Evictor(
                self._transport,
                controller=settings.scheduler_names[0],
                fence=Fence(fence.allows, self._view),
            ),
            volumes=ApiVolumeBinder(self._transport, cluster, fence=fence),
            claims=ApiClaimBinder(
                ResourceClaimWriter(self._transport, random=self._random, fence=fence),
                cluster,
                view=next(each for each in api_server.reflectors if each.resource.type is objects.ResourceClaim),
                clock=clock,
                pending=self._writers.reporter.devices_pending,
                observe=self.observers.on_claims_bound,
            ),
            reporter=self._writers.reporter,
            observer=self.observers,
            nominator=self._writers.statuses if sharing.enabled else None,
            sharding=Sharding(self._identity, by_pod=sharing.unit == "pod") if sharing.enabled else None,
            extenders=self._extenders,
            preempts_for_resizes=settings.mode == "scheduler" and settings.scheduling.preempt_for_resizes,
            view=self._view,
            clock=clock,
            turns=turns,
        )
        self._scheduler = make_scheduler(settings, context, leading=not fence.is_needed)
        clock.on_set(self._scheduler.clock_was_set)
        turns.on_long = self._turn_was_long
        turns.joins = lambda: self._transport.is_busy
        self._cache_comparer = CacheComparer(
            self._scheduler, is_current=lambda: not self._view.problems(), found=self.metrics.violated
        )
        self._coordinator = ReplicaCoordinator(
            settings.leader_election,
            namespace=lease_namespace(settings),
            identity=self._identity,
            fence=fence,
            scheduler=self._scheduler,
            views=api_server.reflectors,
            transport=self._transport,
            random=self._random,
        )
        self._past_usage = PastUsageKeeper(
            self._scheduler,
            PastUsageLease(
                self._transport,
                namespace=lease_namespace(settings),
                name=f"{settings.leader_election.lease_name}-queues",
                identity=self._identity,
                fence=fence,
            ),
        )
        clock.on_set(self._past_usage.clock_was_set)
        self._signals = SignalFeed(
            settings.prometheus,
            publish=self._scheduler.use_signals,
            joining=self._scheduler.algorithm.joining,
            missing=self._scheduler.algorithm.missing_nodes,
            unusable=self._scheduler.algorithm.unusable_metrics,
            clock=clock,
            loops=loops,
        )
        self._together = PoliciesTogether([owner.name for owner in settings.policies.owners], self._use_policies)
        self._reloader = PolicyReloader(
            compile_policies=PolicyCompiler(
                frozenset(settings.scheduler_names), watched=settings.watched, checker=checker
            ),
            activate=partial(self._together.use, ""),
            report=self._report_reload,
            clock=time.time,
            prepare=self._prime,
            past=PastPolicies(
                partial(self._writers.former_policies, proof=_proof(settings.policies)), self._writers.store
            ),
            loops=loops,
        )
        self._owners = Owners(
            settings,
            together=self._together,
            prepare=self._prime,
            report=self._report_reload,
            former=partial(self._writers.former_policies, proof=None),
            store=self._writers.store,
            checker=PolicyChecker(extensions=settings.policies.extensions),
            api=OwnersApi(self._transport, self._random, Fence(fence.allows) if settings.mode == "scheduler" else None),
            loops=loops,
        )
        self._lists = FirstLists(api_server.reflectors, counts=self._counts)
        self._mode = mode = make_mode(
            settings,
            scheduler=self._scheduler,
            binder=self._binder,
            transport=self._transport,
            metrics=self.metrics,
            observer=self.observers,
            problem=lambda: self._lists.problem() or self._check_policies(),
        )
        self._records = Records(
            settings,
            scheduler=self._scheduler,
            metrics=self.metrics,
            replica=partial(self._describe, version, time.time()),
            signals=self._signals.rows,
            identity=self._identity,
            mode=mode,
        )
        self._port = HttpPort(settings.http.host, settings.http.port)
        self._rebalancer = Rebalancer(
            self._scheduler,
            settings.rebalancing,
            evictor=PodEvictor(self._transport, fence=Fence(fence.allows, self._view)),
            memory=LeaseAnnotation(
                self._transport,
                annotation=MOVES,
                namespace=lease_namespace(settings),
                name=f"{settings.leader_election.lease_name}-moves",
                identity=self._identity,
                fence=fence,
            ),
            seed=settings.scheduling.seed,
            report=self._writers.reporter.moved,
        )
        self._canaries = Canaries(
            self.metrics.registry, ask=self._scheduler.algorithm.would_answer, stopwatch=time.perf_counter
        )
        self._model_watch = ModelWatch(self.metrics.registry, pods=environment().pods, stopwatch=time.perf_counter)
        watching = (self._canaries, self._model_watch, self._rebalancer)
        for observer in (*self._records.observers, *watching, *mode.observers):
            self.observers.add(observer)
        self._spans = self._make_spans(version)
        if self._spans is not None and settings.tracing is not None:
            self.observers.add(DecisionTracer(self._spans, share=settings.tracing.sampled_share))
        self.metrics.registry.register(LiveMetrics(self._live_state))

    def _make_spans(self, version: Callable[[], str]) -> SpanExporter | None:
        tracing = self._settings.tracing
        if tracing is None or not tracing.sampled_share:
            return None
        return SpanExporter(
            tracing.endpoint, service=self._settings.scheduler_names[0], instance=self._identity, version=version()
        )

    # --- life ----------------------------------------------------------------------------------------

    async def run(self, *, announce: Callable[[str], None]) -> int:
        """Run until cancelled, or until the lease is lost or a loop breaks; then return 1: a new process starts afresh.

        Return 2 where another scheduler leads, and we do not run in a pod.

        Args:
            announce: receives the address of the HTTP server once it listens.

        Raises:
            ServerError: the HTTP address is taken.
            CertificateError: there is no certificate to serve with; some pods may be bound by then.
        """
        self._api_server.observe(self._observe_request)
        async with contextlib.AsyncExitStack() as stack:
            if self._spans is not None:
                stack.push_async_callback(asyncio.to_thread, self._spans.close)
            if self._extenders is not None:
                stack.push_async_callback(self._extenders.close)
            stack.push_async_callback(self._records.close)
            await stack.enter_async_context(self._port)
            try:
                async with asyncio.TaskGroup() as group:
                    serving = group.create_task(self._serve(stack, announce), name="serving")
                    try:
                        return await self._work()
                    finally:
                        serving.cancel()
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    async def _serve(self, stack: contextlib.AsyncExitStack, announce: Callable[[str], None]) -> None:
        """Serve the port while the stack lasts, as soon as no pod waits for its first decision, or after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SERVE_AFTER_SECONDS if self._settings.mode == "scheduler" else 0.0):
                while self._lists.problem() or self._queue.has_active() or self._binder.unfinished:  # noqa: ASYNC110
                    await asyncio.sleep(SERVE_POLL_SECONDS)
        certificate = await asyncio.to_thread(_load_server, self._settings.http)
        from kube_policy_scheduler.adapters.http.server import Scrapes
        from kube_policy_scheduler.daemon.serving.server import DaemonServer, http_server

        server = DaemonServer(
            self._records,
            partial(
                http_server,
                settings=self._settings,
                transport=self._transport,
                port=self._port,
                certificate=certificate,
                loops=self._loops,
            ),
            reloader=self._reloader,
            owners=self._owners.states,
            scrapes=Scrapes(self.metrics.registry, spare_time=self._records.spare_time, before=self._census.steps),
            ready=self._readiness(),
            mode=self._mode,
        )
        await stack.enter_async_context(server)
        if self._mode.port is not None:
            await stack.enter_async_context(self._mode.port)
        announce(server.url)

    async def _work(self) -> int:
        async with contextlib.AsyncExitStack() as stack:
            background = self._writers.start(self._loops)
            background.append(self._loops.start("freed-memory", return_freed_memory_again, restarts=True))
            background.append(self._loops.start("kubernetes-version", self._api_server.version.run, restarts=False))
            if self._settings.mode == "scheduler":
                background.append(self._loops.start("past-usage", self._past_usage.run, restarts=True))
            if self._device_trust is not None:
                background.append(self._loops.start("device-annotations", self._device_trust.run, restarts=True))
            if every := self._settings.scheduling.recount_every:
                recount = partial(self._cache_comparer.run, every_seconds=every)
                background.append(self._loops.start("recount", recount, restarts=True))
            stack.push_async_callback(self._loops.end, *background)
            looking: asyncio.Task[Rival | None] | None = None
            if self._settings.mode == "scheduler" and own_namespace() is None:
                looking = asyncio.create_task(self._coordinator.find_rival(), name="rival")
                stack.callback(looking.cancel)
            await stack.enter_async_context(self._signals)
            await stack.enter_async_context(self._reloader)
            await stack.enter_async_context(self._owners)
            await self._owners.first()  # as soon as the administrator's are there, too, pods are placed
            await stack.enter_async_context(self._policy_directory())
            handlers = self._scheduler.event_handlers
            self._api_server.attach(handlers.handler, handlers.kind_unavailable, but=objects.Pod)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLICIES_FIRST_SECONDS):
                    await self._reloader.has_ended.wait()
            self._api_server.attach(handlers.handler, handlers.kind_unavailable)
            self._coordinator.dial_ahead()
            if self._settings.mode == "scheduler":
                self._transport.dial_ahead()  # for the first binding
            await self._lists.wait()
            sys.setswitchinterval(SWITCH_SECONDS)
            await in_turns(self._scheduler.columns_in_steps())
            await self._signals.join_all()
            if self._device_trust is not None:
                await self._device_trust.first_look()
            if looking is not None and (rival := await looking) is not None:
                logger.error("not starting: %s", _beside(rival))
                return 2
            if self._settings.mode == "scheduler" and looking is None:
                rivals = self._loops.start("rivals", self._coordinator.warn_of_rivals, restarts=True)
                stack.push_async_callback(self._loops.end, rivals)
            if self._settings.mode == "scheduler" and not self._settings.sharding.enabled:
                rebalancing = self._loops.start("rebalancing", self._rebalancer.run, restarts=True)
                stack.push_async_callback(self._loops.end, rebalancing)
            scheduling = self._loops.start("scheduling", self._scheduler.run, restarts=False)
            leading = self._loops.start("lease", self._lead, restarts=False)
            self._turns.arm()
            later = asyncio.create_task(self._load_later(), name="imports")
            stack.callback(later.cancel)
            ahead = asyncio.create_task(self._make_columns(), name="columns")
            stack.callback(ahead.cancel)
            stack.push_async_callback(self._end, scheduling, leading)
            logger.error("stopping: %s", await self._loops.lost())
            return 1

    async def _make_columns(self) -> None:
        """Let the scheduler read ahead in steps, once its view is current."""
        await asyncio.sleep(LOAD_AFTER_SECONDS)
        while not self._scheduler.view():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(QUIET_SECONDS)
        for _ in self._scheduler.reading_ahead():
            await asyncio.sleep(0)

    async def _load_later(self) -> None:
        """Load in a thread what the first bindings do not need, and the compiled kernels once the cluster is large."""
        await asyncio.sleep(LOAD_AFTER_SECONDS)
        for module in IMPORTED_LATER:
            await asyncio.to_thread(import_module, module)
        if not self._settings.scheduling.compiled_kernels:
            return
        while self._scheduler.cluster.nodes.size < NODES_FOR_KERNELS:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(SIZE_SECONDS)
        self._kernels_text = "not in use yet"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_PATIENCE_SECONDS):
                # a replica that waits for the lease has the time: when it leads, its pods would share the interpreter
                while self._scheduler.leading and (self._queue.has_active() or self._binder.unfinished):  # noqa: ASYNC110
                    await asyncio.sleep(QUIET_SECONDS)
        compiling = WorkerThread(LEFT_BEHIND)  # `asyncio.run` would wait for one of `to_thread`
        compiled = compiling.call(compile_kernels)
        compiling.stop()
        with collection_deferred():  # a full collection would stop the loop, and numba's objects stay in any case
            loaded = await compiled
        self._kernels_text = f"in use: {loaded.text}" if loaded.kernels is not None else f"not in use: {loaded.text}"
        if loaded.kernels is not None:
            self._accelerator.use(loaded.kernels)

    async def _end(self, scheduling: Loop, leading: Loop) -> None:
        """Let what is under way come to its end, say what only a leader may, give the lease back, then say the rest."""
        deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        await self._loops.end(scheduling)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._scheduler.drained()
        await asyncio.gather(
            self._writers.drain_conditions(timeout_seconds=CONDITIONS_SECONDS),
            self._past_usage.store_now(timeout_seconds=CONDITIONS_SECONDS),
        )
        await self._loops.end(leading)
        await self._writers.drain(timeout_seconds=max(1.0, deadline - asyncio.get_running_loop().time()))

    async def _lead(self) -> str:
        """Act where we may, once there is something to decide by; return why not any longer.

        A leader without policies would keep others from it.
        """
        if not self._reloader.in_force.is_set() and self._fence.is_needed:
            logger.warning("not taking part in leader election: there are no usable policies")
        await self._reloader.in_force.wait()
        return await self._coordinator.run()

    # --- policies and signals ------------------------------------------------------------------------

    async def _prime(self, policies: LivePolicies) -> None:
        await self._signals.prime(policies.queries)
        await in_turns(self._scheduler.preparing(policies, are_listed=self._lists.problem() is None))

    def _use_policies(self, policies: LivePolicies, policy_hash: str) -> None:
        are_others_gone = self._scheduler.algorithm.policies is not None
        self._signals.use(policies.queries)
        self._scheduler.use_policies(policies)
        self._past_usage.policies_changed()
        self._rebalancer.use_policies(policy_hash)
        self._records.use_policies(policies.policy_set, hash=policy_hash)
        self._canaries.use_policies(policies.policy_set)
        self._model_watch.use_policies(policies.policy_set)
        self.metrics.use_policies(policies.policy_set, served=policies.served)
        if are_others_gone:
            asyncio.get_running_loop().run_in_executor(None, return_freed_memory)

    def _policy_directory(self) -> PolicyDirectory:
        policies = self._settings.policies
        return PolicyDirectory(policies.path, deliver=self._reloader.offer, proof=_proof(policies), loops=self._loops)

    def _report_reload(self, record: ReloadRecord) -> None:
        self.observers.on_reloaded(record)
        self._writers.reloaded(record)

    # --- what others may ask -------------------------------------------------------------------------

    def _readiness(self) -> dict[str, Check]:
        return {
            "sync": self._lists.problem,
            "policies": self._look_at_policies,
            "watches": self._look_at_watches,
            "lease": self._look_at_lease,
            "loops": self._look_at_loops,
            "bindings": self._look_at_bindings,
            "writes": self._look_at_writes,
            "turns": self._look_at_turns,
            "kubernetes": lambda: Remark(f"rules of {self._api_server.version.remark}"),
        }

    def _check_policies(self) -> str | None:
        return None if self._reloader.ready else self._reloader.problem()

    def _look_at_policies(self) -> str | None:
        """Return why nothing can be decided, or as a remark why the newest policies do not decide."""
        problem = self._reloader.problem()
        if not self._reloader.ready:
            return problem
        problems = [each for each in (problem, self._owners.problem()) if each is not None]
        return Remark("; ".join(problems)) if problems else None

    def _look_at_watches(self) -> str | None:
        """Return why nothing is decided though it should be, or as a remark what is not current at the moment."""
        shown = "; ".join(self._view.problems())
        if not shown:
            return None
        if self._view.is_stale:
            return Remark(f"scheduling from a stale cache: {shown}")
        return shown if self._view.late_seconds >= PATIENCE_SECONDS else Remark(shown)

    def _look_at_lease(self) -> str | None:
        """Return why this replica can take no part in the work, or as a remark who leads."""
        lease = self._coordinator.lease_state()
        if (problem := self._coordinator.problem()) is not None or lease is None:
            return problem
        if lease.leads:
            return Remark("held by this replica")
        return Remark(f"held by {lease.holder}" if lease.holder else "held by nobody yet")

    def _look_at_loops(self) -> str | None:
        """Return why nothing is decided though it should be, or as a remark which other loops are broken."""
        broken = [loop.problem for loop in self._loops if loop.problem]
        for loop in self._loops:
            if loop.name == "scheduling" and loop.idle_seconds > IDLE_SECONDS:
                return f"the scheduling loop has not run for {loop.idle_seconds:.0f} s"
        return Remark("; ".join(broken)) if broken else None

    def _look_at_bindings(self) -> str | None:
        """Return whether a pod is in flight for longer than any time-out, or as a remark how long the oldest is."""
        bindings, assumed = self._scheduler.in_flight, self._scheduler.cluster.assumed
        if bindings.oldest_seconds > IN_FLIGHT_SECONDS:
            return f"a pod has been in flight for {bindings.oldest_seconds:.0f} s; see the log, and /debug/state"
        if not assumed and not len(bindings):
            return None
        return Remark(
            f"{plural(len(bindings), 'pod')} in flight, the oldest for {bindings.oldest_seconds:.1f} s;"
            f" {len(assumed):,} assumed, the oldest for {assumed.oldest_seconds(self._scheduler.context.clock()):.1f} s"
        )

    def _turn_was_long(self, turn: LongTurn[QueuedPod]) -> None:
        """Count a turn of the event loop that was too long; the pod whose decision it was may have to wait for it."""
        self.metrics.turn_was_long(turn.step)
        if turn.thing is not None and turn.step_seconds >= LONG_SECONDS:
            self._scheduler.took_too_long(turn.thing)

    def _look_at_turns(self) -> str | None:
        """Return as a remark what the last turn was that took too long: while it lasted, nobody could be answered."""
        recent, waiting = self._turns.recent(), self._queue.waiting_last()
        if not recent and not waiting:
            return None
        wait = "pod waits" if waiting == 1 else "pods wait"
        last = f"{waiting:,} {wait} behind all others, as deciding them took too long" if waiting else ""
        return Remark("; ".join(filter(None, (recent, last))))

    def _look_at_writes(self) -> str | None:
        """Return as a remark what is still to be written: it says nothing about whether pods are placed."""
        backlogs = []
        for kind, backlog in self._writers.backlogs().items():
            if backlog.items:
                backlogs.append(
                    f"{backlog.items} of {kind} to be sent, {backlog.failing} of them failing,"
                    f" the oldest for {backlog.oldest_seconds:.0f} s"
                )
            if backlog.refused:
                backlogs.append(f"the API server refused the last of {kind} that failed, {backlog.refused}")
        if (past := self._past_usage.state()) is not None and past.problem:
            backlogs.append(f"the past usage of queues is not stored: {past.problem}")
        return Remark("; ".join(backlogs)) if backlogs else None

    def _describe(self, version: Callable[[], str], started: float) -> Replica:
        """Return what the status page tells about this process."""
        checks = (self._lists.problem(), self._check_policies(), self._coordinator.problem())
        return Replica(
            version=version(),
            identity=self._identity,
            started=started,
            scheduler_names=self._settings.scheduler_names,
            leading=self._scheduler.leading,
            leader=self._coordinator.leader,
            elects=self._fence.is_needed,
            reachable=self._transport.is_reachable,
            server=self._transport.server,
            shard=self._coordinator.shard_state(),
            problems=tuple(problem for problem in checks if problem is not None),
            mode=self._settings.mode,
            kernels=self._kernels_text,
            rebalancing=self._rebalancer.state(),
            extenders=self._extenders.states() if self._extenders is not None else (),
            wait_for_extenders=len(self._scheduler.extender_lock),
            kubernetes=self._api_server.version.remark,
        )

    def print_state(self) -> None:
        """Write what the scheduler believes to standard error."""
        self._records.print_state()

    def _observe_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        if code == Fenced.__name__:
            return  # it was not sent
        credentials = self._api_server.credentials.current
        server = credentials.server if credentials is not None else ""
        if server != self._server[0]:
            self._server = server, urlsplit(server).netloc
        self.metrics.api_request(verb=verb.lower(), resource=resource, code=code, host=self._server[1], seconds=seconds)

    def _queues(self) -> QuotaRules | None:
        """Return the queues in force."""
        policies = self._scheduler.algorithm.policies
        return policies.policy_set.queues if isinstance(policies, LivePolicies) else None

    def _live_state(self) -> LiveState:
        """Return what the metrics of a scrape are made of."""
        scheduler = self._scheduler
        assumed = scheduler.cluster.assumed
        trust = self._device_trust
        now, oldest = scheduler.context.clock(), self._census.oldest_unschedulable
        return LiveState(
            pending_pods=self._census.places(),
            queued_entities=self._census.entities,
            cache_size={
                "nodes": scheduler.cluster.nodes.size,
                "pods": len(scheduler.cluster.pods),
                "assumed_pods": len(assumed),
            },
            devices=self._devices(),
            unschedulable_pods=self._census.rejections(),
            queues=self._census.queues.states,
            gangs_started=scheduler.waiting_pods.domain_counts.started,
            gang_domains_left=scheduler.waiting_pods.domain_counts.left,
            placements=scheduler.waiting_pods.domain_counts.placements,
            placement_evaluations=scheduler.waiting_pods.domain_counts.evaluations,
            gangs_without_domain=scheduler.waiting_pods.shortfalls(),
            gangs_short=len(scheduler.waiting_pods.short),
            returning_evictors=scheduler.cluster.returning_evictors.total,
            above_max_evicted=scheduler.above_max.evicted,
            gang_rest_evicted=scheduler.short_gangs.evicted,
            queue_pending=self._census.queues.pending,
            queue_units=self._census.queues.units,
            queue_refused=self._census.queues.rejected,
            queue_reclaimed=scheduler.queue_evictions.reclaimed,
            queue_evicted=scheduler.queue_evictions.by_rule(),
            past_usage=self._past_usage.state(),
            new_nodes=dict(zip(("help", "do_not_help"), scheduler.algorithm.awaiting_nodes.numbers, strict=True)),
            watches=self._watches(),
            longest_turn_seconds=self._turns.longest_seconds(),
            waiting_last=self._queue.waiting_last(),
            oldest_pods={
                "in_flight": scheduler.in_flight.oldest_seconds,
                "assumed": assumed.oldest_seconds(now),
                "unschedulable": max(0.0, now - oldest) if oldest is not None else 0.0,
            },
            backlogs=self._writers.backlogs(),
            loops=list(self._loops),
            kernels=self._accelerator.kernels is not None,
            kept_bytes=scheduler.cluster.kept.taken,
            max_kept_bytes=scheduler.cluster.kept.most,
            counter_bytes=scheduler.cluster.counters.bytes,
            max_counter_bytes=scheduler.cluster.counters.max_bytes,
            rebalancing=self._rebalancer.state(),
            device_annotation_protected=trust.protected if trust is not None else None,
            decision_records=self._records.recorder.file.tallies(),
            extension_failures=extension_failures(),
            signals=self._signals.rows(),
            lease=self._coordinator.lease_state(),
            take_over_seconds=scheduler.pace.take_over_seconds,
            undecided_seconds=scheduler.pace.undecided_seconds(has_active=scheduler.queue.has_active()),
            shard=self._coordinator.shard_state(),
            kubernetes=self._api_server.version.in_force.rules,
        )

    def _devices(self) -> dict[str, int]:
        cluster = self._scheduler.cluster
        published = cluster.resource_slices.device_count()
        allocated = cluster.resource_claims.allocated.count()
        return {"published": published, "allocated": allocated} if published or allocated else {}

    def _watches(self) -> list[WatchRow]:
        now = asyncio.get_running_loop().time()
        return [
            WatchRow(
                each.resource.label,
                phase=each.status.phase.value,
                late_seconds=now - each.late_since if each.late_since is not None and not each.is_current else 0.0,
                silent_seconds=now - each.last_contact if each.last_contact else None,
                restarts=max(0, each.counts.watches - 1),
                group=each.resource.group,
                version=each.resource.version,
                name=each.resource.plural,
                position=each.position,
            )
            for each in self._api_server.reflectors
        ]

    def _counts(self) -> dict[str, int]:
        cluster = self._scheduler.cluster
        return {"nodes": cluster.nodes.size, "pods": len(cluster.pods), "pending": len(self._queue)}


def _load_server(http: HttpSettings) -> ServingCertificate | None:
    """Import what serves the port, with aiohttp, and read or make its certificate: 0.1 s each, for a thread.

    Raises:
        CertificateError: there is no certificate to serve with.
    """
    from kube_policy_scheduler.daemon.serving.server import make_certificate

    return make_certificate(http)


def _beside(rival: Rival) -> str:
    return (
        f"{rival.holder} leads: it holds the lease {rival.lease} of namespace {rival.namespace}. Two schedulers would"
        " place pods on the same nodes, by two sets of policies. To try policies beside it, use --shadow. To stand by"
        f" for it, set leaderElection.leaseNamespace to {rival.namespace} in the --config file. To take its place, end"
        " it first. To place other pods than it does, give this one a --scheduler-name and a leaderElection.leaseName"
        " of its own"
    )


def _proof(policies: PolicySettings) -> PolicyProof | None:
    """Return what has to vouch for policies, None where nothing has to."""
    vouched = policies.checksums or policies.public_key_file is not None
    return PolicyProof(policies.public_key_file) if vouched else None
