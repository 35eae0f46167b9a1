"""One replica of the decision maker: puts adapters and decision maker together, starts and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from random import Random
from uuid import uuid4

from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.http.health_checks import Check, HealthChecks, Remark
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import Routes, Scrapes
from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lease import LeaderElector, LeaseSettings
from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.fleet.engine import EngineKind, Surroundings
from kube_policy_scheduler.daemon.fleet.fleet_metrics import FleetMetrics, FleetState
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.fleet.fleet_routes import FleetRoutes
from kube_policy_scheduler.daemon.fleet.fleet_scheduler import FleetScheduler
from kube_policy_scheduler.daemon.fleet.fleet_snapshot import FleetSnapshot, FleetSources, take
from kube_policy_scheduler.daemon.modes.shadow_report import ComparisonReport
from kube_policy_scheduler.daemon.modes.shadow_routes import shadow_routes
from kube_policy_scheduler.daemon.observing.signal_feed import SignalFeed
from kube_policy_scheduler.daemon.policies.live import PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import Accepted, PolicyReloader, Refused, ReloadRecord
from kube_policy_scheduler.daemon.replicas.coordinator import ReplicaFence
from kube_policy_scheduler.daemon.serving.server import http_server, make_certificate
from kube_policy_scheduler.daemon.serving.status_page import Rendered, StatusPage, compressed
from kube_policy_scheduler.daemon.serving.status_snapshot import Replica
from kube_policy_scheduler.daemon.watching.api_server import ApiServer
from kube_policy_scheduler.daemon.watching.first_lists import FirstLists
from kube_policy_scheduler.daemon.watching.freshness import PATIENCE_SECONDS, Freshness
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""Time for all writes and events under way when the process ends."""
NO_WORKLOADS = "there is no policy of workloads: begin one with `for workloads where …`"


def compile_for_workloads(compiler: PolicyCompiler, sources: PolicySources) -> Accepted[FleetPolicies] | Refused:
    """Return the policies of workloads among all policies, or what is wrong with the sources.

    Raises:
        WorkerLost: they could not be checked.
    """
    found = compiler(sources)
    if isinstance(found, Refused):
        return found
    fleet = found.policies.policy_set.fleet
    return Accepted(fleet, found.warnings if fleet.policies else (*found.warnings, NO_WORKLOADS))


class FleetDaemon:
    """Decides over the clusters of an engine."""

    def __init__(
        self,
        settings: Settings,
        api_server: ApiServer,
        kind: EngineKind,
        *,
        checker: PolicyChecker | None,
        random: Random,
        loops: Loops,
    ) -> None:
        """Put everything together; nothing is decided before `run`.

        Args:
            settings: of the process.
            api_server: of the engine; it watches `kind.resources`.
            kind: of the engine.
            checker: of policies; None: there are none, and only what users request applies.
            random: spreads tries.
            loops: of the process.

        Raises:
            FileError: the decision log cannot be written.
        """
        self._settings = settings = settings.effective()
        self._api_server = api_server
        self._loops = loops
        self._identity = identity = f"{socket.gethostname()}_{uuid4()}"
        self._started = time.time()
        name = settings.scheduler_names[0]
        transport = api_server.transport
        self._view = Freshness(api_server.reflectors, is_reachable=lambda: transport.is_reachable)
        self._fence = ReplicaFence(settings.leader_election, shares=False)
        self._events = EventRecorder(transport, controller=name, instance=f"{name}-{identity}", random=random)
        places = settings.mode == "scheduler"
        fence = Fence(self._fence.allows if places else lambda: False)
        self._engine = kind.make(Surroundings(settings, transport, self._events, fence))
        self.metrics = FleetMetrics(self._state)
        names, kept = settings.shadow.scheduler_names, settings.shadow.kept
        self._records = FleetRecords(
            settings.decision_log,
            replica=identity,
            shadow=None if places else ComparisonReport(kept=kept, clock=time.time, names=names, things="workloads"),
            compared=self.metrics.compared,
        )
        self._scheduler = FleetScheduler(
            self._engine,
            view=self._view,
            parallel_writes=settings.fleet.parallel_writes,
            observe=self.metrics.decision_seconds.observe,
            note=self._records.note,
        )
        self._lists = FirstLists(api_server.reflectors, counts=self._scheduler.counts)
        self._port = HttpPort(settings.http.host, settings.http.port)
        self._elector = self._make_elector(identity, random) if self._fence.is_needed else None
        self._rules: FleetRules | None = None
        self._reloader = self._make_reloader(checker) if checker is not None else None
        clock = SettableClock()
        self._signals = SignalFeed(
            settings.prometheus,
            publish=self._use_signals,
            joining=lambda queries, signals: iter(()),
            missing=dict,
            unusable=dict,
            clock=clock,
            loops=loops,
        )

    def _make_reloader(self, checker: PolicyChecker) -> PolicyReloader[FleetPolicies]:
        names = frozenset(self._settings.scheduler_names)
        return PolicyReloader(
            compile_policies=partial(compile_for_workloads, PolicyCompiler(names, checker=checker)),
            activate=self._use_policies,
            report=self._records.reloaded,
            clock=time.time,
            prepare=lambda policies: self._signals.prime(policies.queries),
            loops=self._loops,
        )

    def _use_policies(self, policies: FleetPolicies, record: ReloadRecord) -> None:
        signals = self._rules.signals if self._rules is not None else Signals.EMPTY
        self._rules = FleetRules(policies, clock=time.time)
        self._rules.signals = signals
        self._signals.use(policies.queries)
        self._records.use_policies(policies, record)
        self.metrics.use_policies([policy.name for policy in policies.policies])
        self._engine.use(self._rules, Steady(time.monotonic()))
        self._scheduler.stir()

    def _use_signals(self, signals: Signals) -> None:
        if self._rules is not None:
            self._rules.signals = signals

    def _make_elector(self, identity: str, random: Random) -> LeaderElector:
        election, views = self._settings.leader_election, self._api_server.reflectors
        lease = LeaseSettings(
            namespace=election.lease_namespace or self._engine.lease_namespace,
            name=self._settings.fleet.lease_name,
            identity=identity,
            lease_seconds=election.lease_duration,
            renew_deadline_seconds=election.renew_deadline,
            retry_seconds=election.retry_period,
        )

        def prove() -> None:
            for view in views:
                view.prove()

        return LeaderElector(
            self._api_server.transport,
            lease,
            held=self._fence.held,
            random=random,
            on_started=self._begin,
            on_stopped=lambda _: self._scheduler.lead(False),
            on_silence=prove,
            vouch=self._vouch,
        )

    def _begin(self) -> None:
        """Decide from now on; after another replica only by views that have everything that it did."""
        elector = self._elector
        if elector is not None and not elector.follows_nobody:
            for view in self._api_server.reflectors:
                view.prove(elector.vouched.get(str(view.resource)), at=elector.silent_since)
        self._scheduler.lead(True)

    def _vouch(self) -> Mapping[str, int]:
        """Return the last change that each view shows; nothing where one may lack something."""
        views = self._api_server.reflectors
        if self._scheduler.writes_under_way or not all(view.is_current for view in views):
            return {}
        return {str(view.resource): view.last_change for view in views if view.last_change}

    # --- life ----------------------------------------------------------------------------------------

    async def run(self, *, announce: Callable[[str], None]) -> int:
        """Run until cancelled, or until the lease is lost or a loop breaks; then return 1: a new process starts afresh.

        announce: receives the address of the HTTP server once it listens.

        Raises:
            ServerError: the HTTP address is taken.
            CertificateError: there is no certificate to serve with.
        """
        self._api_server.observe(self.metrics.api_request)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._records.file.close)
            await stack.enter_async_context(self._port)
            certificate = await asyncio.to_thread(make_certificate, self._settings.http)
            routes = FleetRoutes(self._records, reloader=self._reloader)
            report = self._records.shadow
            status = StatusPage(self._take_snapshot, make=_status_page, stopwatch=time.monotonic)
            server = http_server(
                HealthChecks(live={"ping": lambda: None}, ready=self._readiness()),
                Scrapes(self.metrics.registry),
                Routes(
                    {
                        "/": status.show,
                        "/status": status.show,
                        "/policies": routes.policies,
                        "/debug/decisions": routes.decisions,
                        **{path: routes.now(shown) for path, shown in self._engine.shown.items()},
                        **(shadow_routes(report) if report is not None else {}),
                    }
                ),
                settings=self._settings,
                transport=self._api_server.transport,
                port=self._port,
                certificate=certificate,
                loops=self._loops,
            )
            await stack.enter_async_context(server)
            announce(server.url)
            events = self._loops.start("events", self._events.run, restarts=True)
            stack.push_async_callback(self._loops.end, events)
            self._api_server.attach(self._scheduler.handler, self._scheduler.kind_unavailable)
            if self._reloader is not None:
                await stack.enter_async_context(self._signals)
                await stack.enter_async_context(self._reloader)
                path = self._settings.policies.path
                folder = PolicyDirectory(path, deliver=self._reloader.offer, loops=self._loops)
                await stack.enter_async_context(folder)
                moving = self._loops.start("moves", self._scheduler.look_for_moves, restarts=True)
                stack.push_async_callback(self._loops.end, moving)
            await self._lists.wait()
            deciding = self._loops.start("deciding", self._scheduler.run, restarts=False)
            leading = self._loops.start("lease", self._lead, restarts=False)
            stack.push_async_callback(self._end, deciding, leading)
            logger.error("stopping: %s", await self._loops.lost())
            return 1

    async def _lead(self) -> str:
        """Decide where we may, once there is something to decide by; return why not any longer."""
        if self._reloader is not None:
            await self._reloader.in_force.wait()
        if self._elector is not None:
            return await self._elector.run()
        self._begin()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def _end(self, deciding: Loop, leading: Loop) -> None:
        """Let the writes under way come to their end, give the lease back, then send the events."""
        deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        await self._loops.end(deciding)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._scheduler.drained()
        await self._loops.end(leading)
        await self._events.drain(timeout_seconds=max(1.0, deadline - asyncio.get_running_loop().time()))

    # --- what others may ask -------------------------------------------------------------------------

    def _state(self) -> FleetState:
        reloads = self._records.reloads
        return FleetState(
            self._engine.maker,
            self._scheduler.leading,
            self._scheduler.writes_under_way,
            now=Steady(time.monotonic()),
            late_seconds=self._view.late_seconds,
            newest_policies_decide=reloads[0].successful if reloads else None,
            records=self._records.file.tallies(),
        )

    async def _take_snapshot(self) -> FleetSnapshot:
        sources = FleetSources(
            engine=self._engine,
            records=self._records,
            replica=self._replica,
            metrics=self._signals.rows,
            has_policies=self._reloader is not None,
            clock=time.time,
            steady=time.monotonic,
        )
        return await self._records.spare_time.run(take(sources))

    def _replica(self) -> Replica:
        transport = self._api_server.transport
        checks = self._readiness().values()
        problems = [found for check in checks if (found := check()) is not None and not isinstance(found, Remark)]
        return Replica(
            version=version("kube-policy-scheduler"),
            identity=self._identity,
            started=self._started,
            scheduler_names=self._settings.scheduler_names,
            leading=self._scheduler.leading,
            leader=self._elector.leader if self._elector is not None else "",
            elects=self._fence.is_needed,
            reachable=transport.is_reachable,
            server=transport.server,
            problems=problems,
            mode=self._settings.mode,
        )

    def _readiness(self) -> dict[str, Check]:
        return {
            "sync": self._lists.problem,
            "policies": self._look_at_policies,
            "watches": self._look_at_watches,
            "lease": self._look_at_lease,
            "loops": self._look_at_loops,
        }

    def _look_at_policies(self) -> str | None:
        """Return why nothing can be decided, or as a remark why the newest policies do not decide."""
        if self._reloader is None:
            return None
        problem = self._reloader.problem()
        return Remark(problem) if problem is not None and self._reloader.ready else problem

    def _look_at_watches(self) -> str | None:
        shown = "; ".join(self._view.problems())
        if not shown:
            return None
        return shown if self._view.late_seconds >= PATIENCE_SECONDS else Remark(shown)

    def _look_at_lease(self) -> str | None:
        elector = self._elector
        if elector is None:
            return None
        if elector.trouble:
            return f"failed to acquire the lease: {elector.trouble}"
        if self._fence.allows():
            return Remark("held by this replica")
        return Remark(f"held by {elector.leader}" if elector.leader else "held by nobody yet")

    def _look_at_loops(self) -> str | None:
        broken = [loop.problem for loop in self._loops if loop.problem]
        return Remark("; ".join(broken)) if broken else None


def _status_page(taken: FleetSnapshot) -> Rendered:
    # the templates of the page are read with the first request, not at every start
    from kube_policy_scheduler.daemon.fleet.fleet_words import put_into_words
    from kube_policy_scheduler.pages.fleet_status import render

    return compressed(render(put_into_words(taken)))
