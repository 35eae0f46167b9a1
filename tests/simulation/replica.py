"""One life of a scheduler over the model of an API server: everything real but the way there and what it reports."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Binder, Outcome, Refused, Unknown
from kube_policy_scheduler.adapters.kube.eviction_api import PodEvictor
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lease_annotation import LeaseAnnotation
from kube_policy_scheduler.adapters.kube.past_usage_lease import PastUsageLease
from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.adapters.kube.preemption_victims import Evictor
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.configuration.settings import LeaderElectionSettings, RebalancingSettings
from kube_policy_scheduler.daemon.observing.observers import Observer, Observers, PodMoved
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.replicas.coordinator import ReplicaCoordinator, ReplicaFence
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.daemon.scheduling.past_usage import PastUsageKeeper
from kube_policy_scheduler.daemon.scheduling.rebalancer import MOVES as MOVES_ANNOTATION
from kube_policy_scheduler.daemon.scheduling.rebalancer import PLANNER, Rebalancer
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.daemon.watching.freshness import Freshness
from kube_policy_scheduler.daemon.watching.resources import attach, reflectors
from kube_policy_scheduler.framework.backfill.backfill import Backfill
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.invariants import violations
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.framework.reserve.volume_reservation import VolumeReservation
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.rebalancing import plan  # virtual time does not wait for a thread that imports it
from tests.fakes.scheduler_context import context_of
from tests.simulation.api_server import ApiServer
from tests.simulation.event_log import EventLog
from tests.simulation.judge import Judge
from tests.simulation.network import Connection, OurFaultError
from tests.simulation.virtual_time import Machine

assert plan.__name__ == PLANNER
LEASE = "policy-scheduler"
PAST_USAGE = f"{LEASE}-queues"
MOVES_LEASE = f"{LEASE}-moves"
ALONE = LeaderElectionSettings(enabled=False)
MOVES = RebalancingSettings(dry_run=False, every=20.0, most=3, reserve=60.0)
ELECTED = LeaderElectionSettings(enabled=True, lease_name=LEASE)


@dataclass
class Reports(Observer):
    """Reporter, observer and volumes in one: what is reported are conditions and nominations."""

    statuses: PodStatusWriter
    told: Counter[str]
    why: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    moves: list[PodMoved] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    """By name: how often a pod got no node."""
    found: list[str] = field(default_factory=list)
    """What should not have happened."""

    def bound(self, pod: Any, node_name: str, *, by_us: bool) -> None:
        self.told["bound" if by_us else "bound by another"] += 1
        self.statuses.forget(pod.uid)

    def unschedulable(self, decision: Any) -> None:
        self.told["unschedulable"] += 1
        self.tries[decision.pod.name] += 1
        self.why[decision.pod.name] = decision.message
        found = decision.preemption
        nominated = None if found is None or found.keeps_nomination else found.nominated_node or ""
        self.statuses.unschedulable(
            decision.pod, reason="Unschedulable", message=decision.message, nominated_node=nominated
        )

    def held(self, pod: Any, why: str) -> None:
        self.told["held"] += 1
        self.why[pod.name] = why

    def waiting(self, pod: Any, why: str) -> None:
        self.told["waiting"] += 1
        self.waits[pod.name] = why

    def failed(self, pod: Any, why: str) -> None:
        self.told["failed"] += 1
        self.failures[pod.name] = why
        if "its binding to" in why and "was cancelled" in why:
            self.told["binding cancelled"] += 1
        if "internal error" in why and OurFaultError.__name__ not in why:
            self.found.append(f"{pod.name}: {why}")

    def on_moved(self, moved: PodMoved) -> None:
        self.told[f"move {moved.outcome.value}"] += 1
        self.moves.append(moved)

    def preempted(self, victim: Any, *, by: Any, node_name: str) -> None:
        self.told["preempted"] += 1

    def gang_is_short(self, victim: Any, why: str) -> None:
        self.told["rest of a gang evicted"] += 1
        self.why[victim.name] = why

    def above_max(self, victim: Any, why: str) -> None:
        self.told["evicted above a max"] += 1
        self.why[victim.name] = why

    def nominated(self, pod: Any, node_name: str) -> None:
        self.told["nominated"] += 1
        self.statuses.nominate(pod, node=node_name)

    async def bind(self, reservation: Any) -> str:
        """Wait as long as the volume of a pod takes to be provisioned."""
        self.told["volume awaited"] += 1
        await asyncio.sleep(provisioning_seconds(reservation.pod))
        return ""


def provisioning_seconds(pod: Any) -> float:
    """Return how long the volume of a pod takes, 0 if it has none: this world has no claims, but a label."""
    return float(pod.labels.get("provisioning", 0))


@dataclass(frozen=True)
class Began:
    """What was known when the binding cycle of a pod began."""

    number: int
    job: str | None
    """Its gang."""
    placed: set[str]
    """The members of its gang that had a place."""
    seen: set[str]
    """Those of them whose nodes were known."""


class WorldScheduler(Scheduler):
    """A scheduler of pods whose volumes are a label."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.began: dict[str, Began] = {}
        """By uid of pods whose binding cycle began: the last one."""
        self._numbers = itertools.count()

    def assume(self, queued: Any, decision: Any, host: str, *rest: Any) -> Any:
        """Assume a pod with its volume."""
        assumed = super().assume(queued, decision, host, *rest)
        if assumed is None or not provisioning_seconds(queued.pod):
            return assumed
        return msgspec.structs.replace(assumed, volumes=VolumeReservation(queued.pod, host))

    def start_binding_cycle(self, assumed: Any, **given: Any) -> None:
        """Start a binding cycle, and remember who of the pod's gang has a place now."""
        pod, rows = assumed.queued.pod, self.cluster.nodes.rows
        job = pod.labels.get("job")
        placed = {each.uid for each in self.placed_of(job)}
        seen = {uid for uid in placed if self.cluster.node_of(uid) in rows}
        self.began[pod.uid] = Began(next(self._numbers), job, placed, seen)
        super().start_binding_cycle(assumed, **given)

    def placed_of(self, job: str | None) -> list[Any]:
        """Return the pods of a gang that have a place, wait for no others and do not end; None: there is no gang."""
        waiting = set(self.waiting_pods.waiting)
        members = [p for p in self.cluster.pods.values() if p.labels.get("job") == job] if job is not None else []
        return [member for member in members if member.uid not in waiting and not member.terminating]

    def must_be_near(self, uid: str, other: str) -> bool:
        """Return whether a pod that binds must be near another one that is now in its gang.

        It must, if that one was seen on a node when its binding cycle began, or if that one was decided later, as a
        member, and did not see this one, whose node was gone. One that came into the gang otherwise may be anywhere.
        """
        mine, theirs = self.began[uid], self.began.get(other)
        if uid == other or other in mine.seen:
            return True
        if theirs is None or theirs.job != mine.job or theirs.number < mine.number:
            return False
        return uid not in theirs.seen


class WorldRebalancer(Rebalancer):
    """A rebalancer that tells how long it leaves workloads alone."""

    def rests_until(self) -> float:
        """Return when the last workload has rested, seconds of the event loop; 0 if none rests."""
        now = asyncio.get_running_loop().time()
        kept = self._ledger.kept(now, unix=now, policies="")
        return max((workload.rests_until for workload in kept.workloads.values()), default=0.0)


class Replica:
    """A process, put together as the daemon puts it together."""

    def __init__(
        self,
        server: ApiServer,
        policies: LivePolicies,
        *,
        name: str,
        seed: int,
        election: LeaderElectionSettings = ALONE,
        shares: bool = False,
        told: Counter[str] | None = None,
        kubernetes: KubernetesRules = DEFAULT_RULES,
        log: EventLog | None = None,
    ) -> None:
        """Make one.

        Args:
            server: the API server.
            policies: by which pods are decided.
            name: of the process.
            seed: breaks ties.
            election: whether it must be elected.
            shares: whether replicas share the work.
            told: counts reports, including those of earlier lives.
            kubernetes: by whose rules pods are decided.
            log: notes what it sees and does.
        """
        self.name, self.server, self._kubernetes, self._log = name, server, kubernetes, log
        self.machine = Machine()
        self._looked_at = -1
        self._refused_at = -1.0
        with self.machine:
            self._put_together(election, shares, seed, told if told is not None else Counter())
            self.scheduler.use_policies(policies)
            self.coordinator = ReplicaCoordinator(
                election,
                identity=name,
                fence=self.fence,
                scheduler=self.scheduler,
                views=self.reflectors,
                transport=self._transport,
                random=Random(f"{seed} candidate"),
            )
            background = [
                self.statuses.run(),
                self.past_usage.run(),
                *(reflector.run() for reflector in self.reflectors),
            ]
            self._tasks = [asyncio.create_task(work) for work in background]
            self._deciding: asyncio.Task[Any] | None = None
            self._term = asyncio.create_task(self._run())

    def _put_together(self, election: LeaderElectionSettings, shares: bool, seed: int, told: Counter[str]) -> None:
        server = self.server
        self.connection = Connection(server, sending=self._judge_fence, unreachable=self._doubt)
        self._transport: Any = self.connection
        transport, random, steady = self._transport, Random(seed), asyncio.get_running_loop().time
        clock = SettableClock(wall=server.scheduler_clock, steady=steady)
        began = server.scheduler_clock() - steady()
        self._peek: Callable[[], Steady] = lambda: Steady(began + steady())  # who reads `clock` makes it notice a jump
        self.fence = fence = ReplicaFence(election, shares=shares, slept=lambda: 0.0)
        self._elects = election.enabled and not shares
        self.statuses = PodStatusWriter(transport, random=random, clock=clock.wall, fence=fence)
        self.told = Reports(self.statuses, told)
        self._binder = Binder(transport, random=random, fence=fence)
        ticks = itertools.count()
        few = server.random.choice((-1, 500))  # objects, so that both ways to prove a view are gone
        self.reflectors = reflectors(transport, random=random, on_malformed=_no_object_is, few_objects=few)[:2]
        view = self.freshness = Freshness(
            self.reflectors, is_reachable=lambda: self.connection.is_reachable, clock=steady
        )
        self.judge = Judge(server.met, queues=self._queues, reserves=self._reserves)
        self.observers = Observers([self.told, self.judge])
        self.scheduler = WorldScheduler(
            context_of(
                self.told,
                Cluster(self._kubernetes),
                observer=self.observers,
                cycle=Cycle(seed=1 if shares else seed),
                binder=self,
                evictor=Evictor(
                    transport, controller="policy-scheduler", clock=clock.wall, fence=Fence(fence.allows, view)
                ),
                nominator=self.statuses if shares else None,
                sharding=Sharding(self.name) if shares else None,
                view=view,
                clock=clock,
                stopwatch=lambda: next(ticks) * 0.0005,  # a batch ends after some ten decisions
            ),
            leading=not fence.is_needed,
        )
        clock.on_set(self.scheduler.clock_was_set)
        self.rebalancer = WorldRebalancer(
            self.scheduler,
            MOVES,
            evictor=PodEvictor(transport, fence=Fence(fence.allows, view)),
            memory=LeaseAnnotation(
                transport, annotation=MOVES_ANNOTATION, namespace="default", name=MOVES_LEASE, identity=self.name,
                fence=fence,
            ),
            stopwatch=lambda: next(ticks) * 0.0005,
        )  # fmt: skip
        self.observers.add(self.rebalancer)
        stored = PastUsageLease(transport, namespace="default", name=PAST_USAGE, identity=self.name, fence=fence)
        self.past_usage = PastUsageKeeper(self.scheduler, stored)
        clock.on_set(self.past_usage.clock_was_set)
        handler: Callable[[type], Any] = self.scheduler.event_handlers.handler
        if (log := self._log) is not None:
            log.clock = self._peek
            self.observers.add(log)
            attach(self.reflectors, lambda kind: log.through(handler(kind)))
        else:
            attach(self.reflectors, handler)

    async def _run(self) -> None:
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.reflectors))
        self._deciding = asyncio.create_task(self.scheduler.run())
        self._tasks += [self._deciding, asyncio.create_task(self.rebalancer.run())]
        await self.coordinator.run()

    @property
    def has_begun(self) -> bool:
        """Whether its first lists are here, and it decides."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    # --- what a process does and must not do ----------------------------------------------------------

    async def bind(self, *, name: str, uid: str, **given: Any) -> Outcome:
        """Bind, after a look at whether the pod's group is complete."""
        if self.fence.allows() and given["after"] is None:
            self._judge_gang(name, uid)
        if (
            self.freshness.is_stale
        ):  # no better one could be had for a minute: others may have filled the node meanwhile
            self.server.bound_by_stale_views.add(uid)
        return self._noted(await self._binder.bind(name=name, uid=uid, **given))

    def _noted(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Unknown):
            self.server.met["binding in doubt for minutes"] += 1
        elif isinstance(outcome, Refused):
            self._refused_at = asyncio.get_running_loop().time()
        return outcome

    def begin(self, *, name: str, uid: str, **given: Any) -> bool:
        """Bind without a task, after the same looks as `bind`."""
        is_sent = self._binder.begin(name=name, uid=uid, **given)
        if is_sent:
            if self.fence.allows():
                self._judge_gang(name, uid)
            if self.freshness.is_stale:
                self.server.bound_by_stale_views.add(uid)
        return is_sent

    async def finish(self, begun: Any) -> Outcome:
        """Go on with a binding without a task."""
        return self._noted(await self._binder.finish(begun))

    async def settle(self, **given: Any) -> Outcome:
        """Find out what happened to a binding."""
        return await self._binder.settle(**given)

    def _queues(self) -> QuotaRules | None:
        policies = self.scheduler.algorithm.policies
        profiles = policies.profiles if policies is not None else ()
        return next((profile.queues for profile in profiles if profile.queues is not None), None)

    def _reserves(self) -> bool:
        return self.scheduler.waiting_pods.backfill.next_due() is not None

    def _judge_gang(self, name: str, uid: str) -> None:
        cluster = self.scheduler.cluster
        pod = cluster.pods.get(uid)
        if pod is None or "job" not in pod.labels or self._refused_at == asyncio.get_running_loop().time():
            return  # not of a group, or one that was released with it was refused before this one began
        members = [p for p in cluster.pods.values() if p.labels.get("job") == pod.labels["job"]]
        there = {member.uid for member in self.scheduler.placed_of(pod.labels["job"])}
        # who was bound, and has ended while this one waited for its volume, had started: the gang was complete
        ended = {other for other in self.scheduler.began[uid].placed if other in self.server.bound} - there
        if ended:
            self.server.met["member ended while another was being bound"] += 1
        placed = len(there) + len(ended)
        if placed < int(pod.labels["size"]):
            self.server.violations.append(f"{name} binds, though only {placed} of its group have a place")
        self.server.met["gang bound"] += 1
        if "near" in pod.labels:
            near = [each for each in members if not each.terminating and self.scheduler.must_be_near(uid, each.uid)]
            racks = {self._rack(member.uid) for member in near} - {None}
            if len(racks) > 1:
                self.server.violations.append(f"{name} binds, though its gang is in the racks {racks}")
            self.server.met["gang bound in one rack"] += 1

    def _rack(self, uid: str) -> str | None:
        """Return the rack that a pod counts in, None if its node is not known."""
        nodes = self.scheduler.cluster.nodes
        row = nodes.rows.get(self.scheduler.cluster.node_of(uid) or "")
        return nodes.infos[row].labels.get("rack") if row is not None else None

    def _judge_fence(self, verb: str, path: str) -> None:
        """Check that the replica that changes a pod holds the Lease at that moment, by the API server's state."""
        if verb == "GET":
            if path.startswith("/api/v1/pods?") and "limit=1&" not in f"{path}&" and self.scheduler.cluster.assumed:
                self.server.met["relist while binding"] += 1
        elif self._elects and "/pods/" in path:
            holder = self.server.holders.get(LEASE)
            if holder != self.name:
                self.server.violations.append(f"{self.name} sends {verb} {path}, and {holder} leads")

    def _doubt(self) -> None:
        for reflector in self.reflectors:
            reflector.doubt()

    def use_policies(self, policies: LivePolicies) -> None:
        """Decide by these from now on."""
        with self.machine:
            self.scheduler.use_policies(policies)
            self.past_usage.policies_changed()
        self._looked_at = -1

    def view(self) -> dict[str, str | None]:
        """Return the node of each pod that counts on one, by uid."""
        cluster = self.scheduler.cluster
        return {uid: cluster.node_of(uid) for uid in cluster.pods}

    def violations(self) -> list[str]:
        """Return what is wrong inside: columns and queues against a recount, places of pods, tasks that died.

        A replica that did nothing since the last look has not changed.
        """
        if self.machine.turns == self._looked_at:
            return []
        self._looked_at = self.machine.turns
        scheduler = self.scheduler
        found = violations(
            scheduler.cluster,
            scheduler.queue,
            scheduler.cluster.assumed,
            is_under_way=scheduler.is_under_way,
        )
        waiting = {q.pod.uid for q in scheduler.queue if q.place is Place.PERMIT}
        if waiting != set(scheduler.waiting_pods.waiting):
            found.append(f"at permit: {sorted(scheduler.waiting_pods.waiting)}, in the queue: {sorted(waiting)}")
        if held := waiting - scheduler.waiting_pods.planned():
            found.append(f"assumed without a plan for all of their gang: {sorted(held)}")
        usage = scheduler.cluster.quota_usage
        if usage is not None:
            found += usage.miscounted(scheduler.cluster.pods.values())
            if scheduler.algorithm.policies is not None and self._queues() is None:
                found.append("counts what queues use, and no policy has any")
        found += [*self.told.found, *self.judge.found, *self._forgotten()]
        found += [repr(task.exception()) for task in (*self._tasks, self._term) if _is_broken(task)]
        return [f"{self.name}: {text}" for text in found]

    def _forgotten(self) -> Iterator[str]:
        """Yield the pods that wait for an event, though a scheduler without any memory would find a node for them now.

        Left out are gangs, which wait for more than an event, what waits for time to pass, pods that we give back to
        the replica that passed them on and whose update we do not see yet, room that queues keep for nominated pods:
        that one of them borrows since others of its queue started wakes nobody, as `policies/QUEUES.md` says, nor
        does a queue that keeps since its first pod what it does not lend. And the moments in which a pod is assumed: it
        wakes others when the watch shows it, and those before the scheduler looks at what it has reserved.
        """
        scheduler, policies = self.scheduler, self.scheduler.algorithm.policies
        waiting = [queued for queued in scheduler.queue if queued.place is Place.UNSCHEDULABLE and not queued.groups]
        now, backfill = self._peek(), scheduler.waiting_pods.backfill
        is_moving = scheduler.cluster.assumed or scheduler.queue.has_to_move(now) or backfill.has_to_look(now)
        if not waiting or policies is None or is_moving:
            return
        afresh = LiveAlgorithm(msgspec.structs.replace(scheduler.context, clock=self._peek))
        afresh.cycle, afresh.policies, afresh.signals = Cycle(), policies, scheduler.algorithm.signals
        seats, filters = scheduler.waiting_pods.seats, afresh.filters_of
        afresh.beside = Backfill(
            scheduler.cluster, scheduler.queue, frame=afresh.frame, seats=seats, filters=filters
        ).beside
        for queued in waiting:
            wakes = queued.wake_events
            if not afresh.serves(queued.pod):
                self.server.met["pod that is given back looked at"] += 1
            elif wakes is not None and ClusterEvent.CLOCK not in wakes:
                host = afresh.decide(queued, preempts=False).host
                if host is not None and self._is_promised(host, but_for=queued.pod.uid):
                    self.server.met["room of a nominated pod looked at"] += 1
                elif host is not None and self._is_kept_since_it_began(queued.pod):
                    self.server.met["room that a queue keeps looked at"] += 1
                elif host is not None:
                    yield f"{queued.pod.key} waits for {sorted(event.name for event in wakes)}, and {host} is free"
                self.server.met["pod that waits looked at"] += 1

    def _is_promised(self, host: str, *, but_for: str) -> bool:
        """Return whether queues say who gets room that is kept on a node for other pods than one."""
        cluster = self.scheduler.cluster
        return cluster.quota_usage is not None and bool(cluster.nominated.get(host, {}).keys() - {but_for})

    def _is_kept_since_it_began(self, pod: PodInfo) -> bool:
        """Return whether a queue by a key keeps what it does not lend, because of a pod that started before this one.

        As the first, this pod would have needed all that its queue keeps; the other one had precedence over nominated
        pods.
        """
        cluster = self.scheduler.cluster
        usage, promised = cluster.quota_usage, any(pods.keys() - {pod.uid} for pods in cluster.nominated.values())
        queue = usage.quota_of(pod.template) if usage is not None and promised else None
        if queue is None or usage is None or not queue.members or not any(queue.kept):
            return False
        return any(each is queue for _, each in usage.by_key())

    # --- the end --------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether its lease is lost: the process is at its end."""
        return self._term.done()

    def kill(self) -> None:
        """End at once, in the middle of anything; what is on its way to the server may still arrive."""
        self.connection.close()
        for task in (*self._tasks, self._term):
            task.cancel()
        self.scheduler.in_flight.cancel()
        if self.machine.is_stopped:
            self.machine.go_on()

    async def leave(self) -> None:
        """End in order, as the daemon does."""
        if self._deciding is not None:
            self._deciding.cancel()
        await self.scheduler.drained()
        await self.past_usage.store_now(timeout_seconds=0.5)
        self._term.cancel()
        await asyncio.wait([self._term])
        self.kill()


def _no_object_is(malformed: object) -> None:
    raise AssertionError(f"{malformed} is malformed")


def _is_broken(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
