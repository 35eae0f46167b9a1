"""What a daemon's scheduler saw and did, in order, and the same seen by the core of `policyctl simulate`.

The simulation gets the events of the log, at their times, in place of its own: pods come, are bound and end when the
daemon saw it. What it decides is its own. So where both decide by the same rules, they place and evict the same pods in
the same order, on the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Handler
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.simulation.run import AssumedPod, SimulatedCluster, Waiting
from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant, Scenario
from kube_policy_scheduler.tooling.simulation.stand_ins import StandIns


@dataclass(frozen=True, slots=True)
class Seen:
    """An object came, changed or went."""

    at: Steady
    thing: Any
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Attempted:
    """A pod was decided."""

    at: Steady
    uid: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a decision: a pod got a node, or others are evicted for it there."""

    pod: str
    node: str
    victims: tuple[str, ...] = ()


class EventLog(Observer):
    """What one scheduler saw and did, the oldest first."""

    def __init__(self) -> None:
        self.entries: list[Seen | Attempted] = []
        self.outcomes: list[Outcome] = []
        self.clock: Callable[[], Steady] = lambda: Steady(0.0)

    def on_decided(self, decided: Decided) -> None:
        """Note a decision."""
        self.entries.append(Attempted(self.clock(), decided.decision.pod.uid))
        self.outcomes += outcome_of(decided.decision)

    def through(self, handler: Handler[Any]) -> Handler[Any]:
        """Return a handler that notes what it takes, and hands it on."""
        return _Noting(self, handler)

    def saw(self, thing: Any, *, is_gone: bool = False) -> None:
        """Note that an object came, changed or went."""
        self.entries.append(Seen(self.clock(), thing, is_gone))


class _Noting:
    def __init__(self, log: EventLog, handler: Handler[Any]) -> None:
        self._log, self._handler = log, handler

    def replaced(self, objects: Sequence[Any], /) -> None:
        """Take a whole list."""
        for thing in objects:
            self._log.saw(thing)
        self._handler.replaced(objects)

    def changed(self, changes: Sequence[Change[Any]], /) -> None:
        """Take changes."""
        for change in changes:
            if isinstance(change, Deleted):
                self._log.saw(change.last, is_gone=True)
            else:
                self._log.saw(change.new)
        self._handler.changed(changes)


def outcome_of(decision: Decision) -> Iterator[Outcome]:
    """Yield what comes of a decision; nothing where the pod waits."""
    if decision.host is not None:
        yield Outcome(decision.pod.name, decision.host)
    elif (found := decision.preemption) is not None and found.victims:
        victims = sorted(victim.name for victim in found.victims if not victim.terminating)
        if victims:
            yield Outcome(decision.pod.name, found.nominated_node or "", tuple(victims))


# --- the same, simulated --------------------------------------------------------------------------------------


class _EachAlone(StandIns):
    """Has each pod tried itself: one that stands for others keeps the turn of who came first, which saves time."""

    def _kind(self, *_: object) -> None:
        return None


class _Replayed(Waiting):
    """The core of a simulation to which happens what a log says: it binds, evicts and ends nothing itself."""

    def __init__(self, simulated: SimulatedCluster) -> None:
        super().__init__(simulated)
        self._stand_ins.__class__ = _EachAlone
        self.outcomes: list[Outcome] = []

    def _schedule_one(self, queued: QueuedPod) -> None:
        before = self._simulated.cluster.node_of(queued.pod.uid)
        super()._schedule_one(queued)
        host = self._simulated.cluster.node_of(queued.pod.uid)
        if host is not None and host != before:
            self.outcomes.append(Outcome(queued.pod.name, host))

    def _handle_failure(self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], decision: Decision) -> None:
        self.outcomes += outcome_of(decision)
        super()._handle_failure(queued, requirements, decision)

    def _bind(self, assumed: AssumedPod) -> None:
        """Wait until the log shows it on its node."""

    def _evict_each(self, victims: Any, *, by: PodInfo | None) -> None:
        """Have them count as leaving until the log shows that they are gone."""
        self._simulated.cluster.note_evictions([victim.uid for victim in victims], self._simulated.now)

    # --- the log -------------------------------------------------------------------------------------

    def advance(self, at: Steady) -> None:
        """Let time pass."""
        self._simulated.advance(max(at, self._simulated.now))
        self._look()
        self._waiting_pods.expire(self._simulated.now)
        self._waiting_pods.backfill.look(self._simulated.now)

    def decide(self, uid: str) -> None:
        """Decide pods until one is decided, if it is to be decided at all."""
        queued = self._queue.get(uid)
        if queued is None or queued.place not in (Place.ACTIVE, Place.BACKOFF):
            return
        while (found := self._next()) is not None:
            self._schedule_one(found)
            if found is queued:
                return

    def decide_rest(self) -> None:
        """Decide all that wait."""
        while (found := self._next()) is not None:
            self._schedule_one(found)

    def see(self, thing: Any, *, is_gone: bool) -> None:
        """Take over what the daemon saw."""
        if isinstance(thing, objects.Node):
            if is_gone:
                self._remove_node(thing.metadata.name)
            else:
                self._set_node(thing)
            return
        pod = self._simulated.cluster.templates.pod(thing)
        if is_gone or pod.terminal:
            self._gone(pod.uid)
        elif pod.node_name:
            self._bound(pod)
        elif pod.terminating:
            self._gone(pod.uid)
        elif pod.uid not in self._simulated.cluster.assumed and self._queue.get(pod.uid) is None:
            self._lasts[pod.uid] = None
            self._add(pod)

    def _bound(self, pod: PodInfo) -> None:
        if self._queue.get(pod.uid) is not None:
            self._waiting_pods.forget(pod.uid)
            self._queue.done(pod.uid)
        self._simulated.cluster.confirm(pod, pod.node_name)

    def _gone(self, uid: str) -> None:
        queued, cluster = self._queue.get(uid), self._simulated.cluster
        self._waiting_pods.forget(uid)
        if queued is not None:
            self._settled(queued)
        self._queue.remove(uid)
        cluster.end_nomination(uid)
        host = cluster.node_of(uid)
        cluster.remove(uid)
        if host is not None:
            self._pods_changed(host)


def replayed(log: EventLog, policies: PolicySet, *, seed: int) -> list[Outcome]:
    """Return what the simulation does with what a daemon saw."""
    starts_at = log.entries[0].at
    scenario = Scenario([], [], starts_at=float(starts_at))
    core = _Replayed(SimulatedCluster(scenario, PolicyVariant("replayed", policies), seed=seed))
    for entry in log.entries:
        core.advance(entry.at)
        if isinstance(entry, Seen):
            core.see(entry.thing, is_gone=entry.is_gone)
        else:
            core.decide(entry.uid)
    core.decide_rest()
    return core.outcomes


def in_kinds(outcomes: Sequence[Outcome]) -> list[object]:
    """Return outcomes without what tells pods apart that are alike: which of them starts first, and so on which node.

    A simulation lets the one go first that came first; the daemon the one that was tried first.
    """
    found = list[object]()
    for kind, together in groupby(outcomes, key=lambda each: (_kind(each.pod), bool(each.victims))):
        found.append((*kind, sorted((each.node, sorted(map(_kind, each.victims))) for each in together)))
    return found


def _kind(name: str) -> str:
    return name.rpartition("-")[0]
