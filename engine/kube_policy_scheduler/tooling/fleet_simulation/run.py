"""One run: the decision maker of the daemon over a fleet in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import inf

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.prices import prices
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.columns import FleetColumns
from kube_policy_scheduler.fleet.karmada.decision_maker import (
    DecisionMaker,
    Key,
    PlacementAlone,
    Question,
    Rules,
    Template,
    Work,
)
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.model import Fleet
from kube_policy_scheduler.fleet.waiting import Wake
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.cluster_state import cluster_state
from kube_policy_scheduler.tooling.fleet_simulation.control_plane import ControlPlane, targets_of, wanted_of
from kube_policy_scheduler.tooling.fleet_simulation.ledger import FleetSample, Ledger
from kube_policy_scheduler.tooling.fleet_simulation.scenario import (
    SCHEDULER,
    FleetAction,
    FleetEvent,
    FleetScenario,
    FleetVariant,
    WorkloadArrival,
)
from kube_policy_scheduler.tooling.impact.fleet_replay import moves_between
from kube_policy_scheduler.tooling.simulation.metrics_over_time import Playback
from kube_policy_scheduler.wording import plural

LOOK_SECONDS = 5.0
"""Between two looks for moves at least: the daemon looks at 50 workloads each second, whether or not it helps."""
_LATE = 10.0
"""A look comes this part of the shortest `rest`, or of the time for which nothing has changed, after the last one."""
QUIET_SECONDS = 3600.0
"""If nothing has changed for so long, and nothing is to come, it ends; at least twice the longest `rest`."""
MOST_SECONDS = 7 * 86_400.0
"""After the last event, at most."""
MOST_HAPPENINGS = 100_000
MOST_MOVES = 10
"""So often each replica moves after an event, or a change of metrics, before it is given up: they never stop moving."""
_FEWEST_MOVES = 100
"""Replicas that may move at least before that."""


class Happening(msgspec.Struct, frozen=True):
    """One line of the timeline."""

    at: float
    """Seconds from the beginning."""
    kind: str
    """lost, recovered, changed, added, removed, arrived, ended, scaled, evicted, placed, moved or waits."""
    what: str
    """The workload or the clusters."""
    text: str = ""
    replicas: int = 0
    """Of evictions and moves: how many."""


class FleetRun(msgspec.Struct, frozen=True):
    """What came of one variant."""

    name: str
    seconds: float
    """How long it lasted, in virtual time."""
    clusters: tuple[str, ...]
    """All that were there at some time, in the order of their names."""
    before: Mapping[str, int]
    """Placed replicas by cluster at the beginning, once all that was there then was decided."""
    after: Mapping[str, int]
    """The same in the end."""
    workloads: int
    """That were there at some time."""
    moved: int
    """Replicas that `rebalance` moved."""
    most_moved: int
    """Of these within one minute, at most."""
    evicted: int
    """Replicas that were evicted from clusters."""
    missing_seconds: float
    """Replicas that did not run, times seconds."""
    unplaced_seconds: float
    """Replicas without a cluster, times seconds."""
    most_unplaced: int
    unplaced: int
    """Replicas without a cluster in the end."""
    down_seconds: float
    """Sum over workloads: how long none of its replicas ran."""
    down_workloads: int
    longest_down: tuple[float, str]
    """Seconds, and the workload; it may have been down several times."""
    price: float | None
    """Mean price per hour; None: no cluster states one."""
    last_price: float | None
    decisions: int
    restless: bool
    """Whether it was given up, as replicas never stop moving."""
    interrupted: bool
    happenings: tuple[Happening, ...]
    left_out: int
    """Happenings that are not among them."""
    samples: tuple[FleetSample, ...]


def run_fleet(
    scenario: FleetScenario,
    variant: FleetVariant,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda now: None,
) -> FleetRun:
    """Return what becomes of a fleet.

    Args:
        scenario: the fleet, and what happens to it.
        variant: who decides.
        stop: whether to end early.
        progress: called with the virtual time, seconds.
    """
    run = _Run(scenario, variant)
    while not stop():
        if not run.step():
            return run.result(interrupted=False)
        progress(run.now)
    return run.result(interrupted=True)


def extended(run: FleetRun, seconds: float) -> FleetRun:
    """Return a run that goes on for longer though nothing happens, so that it can be compared with a longer one."""
    more = seconds - run.seconds
    if more <= 0 or not run.samples:
        return run
    last = run.samples[-1]
    missing = max(0, last.wanted - sum(last.running.values()))
    price = run.price
    if price is not None and run.last_price is not None:
        price = (price * run.seconds + run.last_price * more) / seconds
    return msgspec.structs.replace(
        run,
        seconds=seconds,
        missing_seconds=run.missing_seconds + more * missing,
        unplaced_seconds=run.unplaced_seconds + more * run.unplaced,
        price=price,
    )


class _Look(msgspec.Struct, eq=False):
    """What a workload was last looked at with."""

    fleet: Fleet
    binding: ResourceBinding
    signals: Signals
    since: float
    """Since when it is so."""
    at: float
    """When it was looked at last."""


class _Run:
    """A run on its way."""

    def __init__(self, scenario: FleetScenario, variant: FleetVariant) -> None:
        self.now = 0.0
        self._scenario, self._variant = scenario, variant
        self._rules = self._made_rules(variant)
        self._maker = DecisionMaker([SCHEDULER], rules=self._rules)
        self._plane = ControlPlane(
            self._maker, scenario.happens.pace, starts_at=scenario.starts_at, later=self._do_later
        )
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = count()
        self._templates = dict(scenario.templates)
        self._names: dict[Key, str] = {}
        self._ledger: Ledger[Key] = Ledger()
        self._running: dict[Key, Mapping[str, int]] = {}
        self._running_in: dict[str, int] = {}
        self._cores: dict[Key, Mapping[str, float]] = {}
        self._cores_in: dict[str, float] = {}
        self._price: dict[str, float] = {}
        self._ever: set[str] = set()
        self._messages: dict[Key, str] = {}
        self._happenings: list[Happening] = []
        self._left_out = self._decisions = self._moves = 0
        self._changed_at = self._next_look = 0.0
        rests = _rests(variant)
        self._quiet = max(QUIET_SECONDS, 2 * max(rests, default=0.0))
        self._look_seconds = max(LOOK_SECONDS, min(rests, default=0.0) / _LATE)
        self._looked: dict[Key, _Look] = {}
        self._restless = False
        self._begin()
        self._before = self._placed()

    def _made_rules(self, variant: FleetVariant) -> Rules:
        self._playback: Playback | None = None
        self._signals = variant.signals
        if variant.policies is None:
            return PlacementAlone()
        rules = FleetRules(variant.policies, clock=lambda: self._plane.wall)
        if variant.metrics is not None:
            self._playback = Playback(variant.metrics, variant.policies.queries)
            self._signals = self._playback.advance(self._scenario.starts_at) or self._signals
        rules.signals = self._signals
        return rules

    # --- time --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        scenario = self._scenario
        for cluster in scenario.clusters:
            self._join(cluster)
        values = self._variant.policies.member_values if self._variant.policies is not None else ()
        for name, things in scenario.members.items() if values else ():
            member = ReadMember(cluster_state(things).cluster)
            self._maker.set_member(name, member.told(values, scenario.starts_at), Steady(self.now))
        for binding in scenario.bindings:
            self._create(binding, self._templates.get((binding.metadata.namespace, binding.metadata.name)))
        early = [each for each in scenario.arrivals if each.at <= 0]
        for arrival in early:
            self._arrive(arrival, told=False)
        self._plane.count_others()
        for later in scenario.arrivals[len(early) :]:
            self._do_later(later.at, lambda later=later: self._arrive(later))  # type: ignore[misc]
        for event in scenario.happens.events:
            self._do_later(event.at, lambda event=event: self._happen(event))  # type: ignore[misc]
        self._settle()

    def step(self) -> bool:
        """Go on to the next moment at which something may change; return False if there is none."""
        at = self._next_moment()
        if at > self._end() or self._restless:
            self._ledger.go_on(self._last_moment())
            return False
        self.now = self._plane.now = at
        while self._later and self._later[0][0] <= at:
            heapq.heappop(self._later)[2]()
        self._play()
        if self._rules.moves and at >= self._next_look:
            self._look_for_moves()
        self._settle()
        return True

    def _look_for_moves(self) -> None:
        """Have workloads looked at for which something is different, or enough time has passed."""
        fleet, signals = self._maker.fleet, self._signals
        for key, bound in self._plane.bound.items():
            known = self._looked.get(key)
            same = known is not None and known.fleet is fleet and known.binding is bound.binding
            if known is None or not same or known.signals is not signals:
                self._looked[key] = _Look(fleet, bound.binding, signals, self.now, self.now)
            elif self.now - known.at >= max(self._look_seconds, (self.now - known.since) / _LATE):
                known.at = self.now
            else:
                continue
            self._maker.waiting.wake(key, Wake.SPEC, Steady(self.now))
        self._next_look = self.now + max(self._look_seconds, (self.now - self._changed_at) / _LATE)

    def _next_moment(self) -> float:
        due = self._maker.waiting.due()
        found = [
            self._later[0][0] if self._later else inf,
            due if due is not None else inf,
            self._next_look if self._rules.moves else inf,
            self._metrics_change(),
        ]
        return max(self.now, min(found))

    def _metrics_change(self) -> float:
        change = self._playback.next_change() if self._playback is not None else None
        return change - self._scenario.starts_at if change is not None else inf

    def _end(self) -> float:
        """Return when it ends, by what is known now."""
        if self._scenario.duration is not None:
            return self._scenario.duration
        if self._later or self._metrics_change() < inf:
            return inf
        return min(self._changed_at + self._quiet, self._last_event() + MOST_SECONDS)

    def _last_moment(self) -> float:
        """Return the time at which nothing changes any more, or the end that was asked for."""
        if self._scenario.duration is not None and not self._restless:
            return self._scenario.duration
        return self.now if self._restless else self._changed_at

    def _last_event(self) -> float:
        events, arrivals = self._scenario.happens.events, self._scenario.arrivals
        return max((*(each.at for each in events), *(each.at + (each.lasts or 0) for each in arrivals)), default=0.0)

    def _do_later(self, at: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (at, next(self._tickets), what))

    def _play(self) -> None:
        if self._playback is None:
            return
        signals = self._playback.advance(self._plane.wall)
        if signals is not None and isinstance(self._rules, FleetRules):
            self._rules.signals = self._signals = signals
            self._moves = 0
            self._maker.look_at_all(Steady(self.now))

    # --- what happens ------------------------------------------------------------------------------------

    def _happen(self, event: FleetEvent) -> None:
        plane, said, there = self._plane, _SAID[event.action], self._plane.clusters
        self._moves = 0
        names = [name for name in event.clusters if name in there]
        match event.action:
            case FleetAction.ADD:
                self._join(msgspec.convert(event.object, KarmadaCluster))
            case FleetAction.CHANGE:
                for name in names:
                    plane.change(name, event.object)
                self._read_prices()
            case FleetAction.LOSE:
                for name in names:
                    plane.lose(name)
            case FleetAction.RECOVER:
                for name in names:
                    plane.recover(name)
            case FleetAction.REMOVE:
                for name in names:
                    plane.remove(name)
            case FleetAction.SCALE | FleetAction.END:
                self._about_workload(event)
                return
        if event.form:
            self._note(said, event.told, _told_changes(event))
        else:
            self._note(said, event.told, ", ".join(names) if event.told not in names else "")

    def _about_workload(self, event: FleetEvent) -> None:
        keys = [key for key, bound in self._plane.bound.items() if bound.name == event.workload]
        if not keys:
            self._note(_SAID[event.action], event.workload, "it is not there, so nothing happens")
        for key in keys:
            before = self._plane.bound[key].binding.spec.replicas
            if event.action is FleetAction.END:
                self._end_of(key)
            elif self._plane.bound[key].has_pods:
                self._plane.scale(key, event.replicas)
                self._note("scaled", event.workload, f"from {before:,} to {plural(event.replicas, 'replica')}")

    def _join(self, cluster: KarmadaCluster) -> None:
        self._plane.join(cluster)
        self._ever.add(cluster.metadata.name)
        self._read_prices()

    def _read_prices(self) -> None:
        columns = FleetColumns(self._maker.fleet.clusters)
        found = dict(zip(columns.rows, prices(columns.cluster.nodes).tolist(), strict=True))
        self._price |= {name: price for name, price in found.items() if not np.isnan(price)}

    def _create(self, binding: ResourceBinding, template: Template | None) -> Key:
        key = self._plane.create(binding)
        self._names[key] = self._plane.bound[key].name
        self._templates[key] = template if template is not None else Template()
        return key

    def _arrive(self, arrival: WorkloadArrival, *, told: bool = True) -> None:
        key = self._create(arrival.binding, arrival.template)
        if told:
            self._note("arrived", self._names[key], plural(arrival.binding.spec.replicas, "replica"))
        if arrival.lasts is not None:
            self._do_later(self.now + arrival.lasts, lambda: self._end_of(key))

    def _end_of(self, key: Key) -> None:
        if key in self._plane.bound:
            self._plane.delete(key)
            self._note("ended", self._names[key])

    def _change(self) -> None:
        """Note that something changes now."""
        self._ledger.go_on(self.now)
        self._changed_at = self.now
        self._next_look = min(self._next_look, self.now + self._look_seconds)

    def _note(self, kind: str, what: str, text: str = "", replicas: int = 0) -> None:
        self._change()
        if len(self._happenings) < MOST_HAPPENINGS:
            self._happenings.append(Happening(self.now, kind, what, text, replicas))
        else:
            self._left_out += 1

    # --- what is decided ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Decide all that is to be decided now, and count what it comes to."""
        plane, steady = self._plane, Steady(self.now)
        self._tell_evictions()
        while (work := self._maker.next(steady)) is not None:
            if isinstance(work, Question):
                self._maker.set_template(work.key, self._templates[work.key], steady)
                continue
            assert isinstance(work, Work), "no cluster is asked for its room, or read"
            self._decisions += 1
            self._carry_out(work)
            self._tell_evictions()
        if not plane.changed and self._changed_at < self.now:
            return
        self._change()
        self._count(plane.changed)
        plane.changed.clear()
        price = sum(cores * self._price.get(name, 0.0) for name, cores in self._cores_in.items())
        self._ledger.sample(self._running_in, price)

    def _carry_out(self, work: Work) -> None:
        plane, key = self._plane, work.key
        before = targets_of(plane.bound[key].binding)
        written = plane.patch(key, work.patch) if work.patch is not None else plane.bound[key].binding
        status = self._maker.status_of(
            work, plane.bound[key].binding, generation=written.metadata.generation, now=plane.wall
        )
        if status is not None:
            plane.patch(key, status)
        self._maker.done(work, plane.bound[key].binding, Steady(self.now))
        plane.end_evictions(key)
        if work.outcome is not None:
            self._tell(work, before)

    def _tell(self, work: Work, before: Mapping[str, int]) -> None:
        outcome, name = work.outcome, self._names[work.key]
        assert outcome is not None
        after = dict(outcome.targets) if outcome.write else dict(before)
        if after != before:
            moves = list(moves_between(before, after))
            moved = sum(each.replicas for each in moves if each.source and each.target)
            if work.trigger is None:
                self._change()
                self._moves += moved
                self._restless = self._moves > max(_FEWEST_MOVES, MOST_MOVES * self._ledger.wanted)
                self._ledger.move(moved)
                steps = ", ".join(f"{each.replicas:,} from {each.source} to {each.target}" for each in moves)
                self._note("moved", name, steps, moved)
            else:
                self._note("placed", name, _told(after))
        said = "" if outcome.placed else outcome.message
        if said and said != self._messages.get(work.key):
            self._note("waits", name, said)
        self._messages[work.key] = said

    def _tell_evictions(self) -> None:
        for key, cluster, replicas in self._plane.evicted():
            self._ledger.evicted += replicas
            self._note("evicted", self._names[key], f"{plural(replicas, 'replica')} from {cluster}", replicas)

    # --- what it comes to --------------------------------------------------------------------------------

    def _count(self, keys: set[Key]) -> None:
        for key in keys:
            if key not in self._names:
                continue
            bound, name = self._plane.bound.get(key), self._names[key]
            running: Mapping[str, int] = {}
            cores: Mapping[str, float] = {}
            if bound is None:
                self._ledger.forget(key, name)
            else:
                targets = targets_of(bound.binding) if bound.has_pods else {}
                running = self._plane.running(key)
                cores = {each: n * bound.cores for each, n in wanted_of(bound.binding).items() if bound.has_pods}
                wanted = max(bound.binding.spec.replicas, sum(targets.values()))
                placed = sum(n for each, n in targets.items() if each in self._plane.members)
                self._ledger.count(key, name, wanted=wanted, placed=placed, running=sum(running.values()))
            _replace(self._running_in, self._running.get(key, {}), running)
            _replace(self._cores_in, self._cores.get(key, {}), cores)
            self._running[key], self._cores[key] = running, cores

    def _placed(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for bound in self._plane.bound.values():
            for name, replicas in targets_of(bound.binding).items() if bound.has_pods else ():
                found[name] = found.get(name, 0) + replicas
        return found

    def result(self, *, interrupted: bool) -> FleetRun:
        """Return what came of it."""
        if interrupted:
            self._ledger.go_on(self.now)
        ledger, seconds = self._ledger, self._ledger.now
        last = ledger.samples[-1].price if ledger.samples else 0.0
        down = ledger.down(self._names)
        return FleetRun(
            name=self._variant.name,
            seconds=seconds,
            clusters=tuple(sorted(self._ever)),
            before=self._before,
            after=self._placed(),
            workloads=len(self._names),
            moved=ledger.moved,
            most_moved=ledger.most_moved,
            evicted=ledger.evicted,
            missing_seconds=ledger.missing_seconds,
            unplaced_seconds=ledger.unplaced_seconds,
            most_unplaced=ledger.most_unplaced,
            unplaced=ledger.wanted - ledger.placed,
            down_seconds=down[0],
            down_workloads=down[1],
            longest_down=(down[2], down[3]),
            price=(ledger.priced_seconds / seconds if seconds else last) if self._price else None,
            last_price=last if self._price else None,
            decisions=self._decisions,
            restless=self._restless,
            interrupted=interrupted,
            happenings=tuple(self._happenings),
            left_out=self._left_out,
            samples=tuple(ledger.samples),
        )


_SAID = {
    FleetAction.LOSE: "lost",
    FleetAction.RECOVER: "recovered",
    FleetAction.CHANGE: "changed",
    FleetAction.ADD: "added",
    FleetAction.REMOVE: "removed",
    FleetAction.SCALE: "scaled",
    FleetAction.END: "ended",
}


def _told_changes(event: FleetEvent) -> str:
    """Return what a change lays over a cluster."""
    return ", ".join(f"{key} {value}" for key, value in event.form.items() if key != "name")


def _told(targets: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {replicas:,}" if replicas else name for name, replicas in sorted(targets.items()))


def _replace(total: dict[str, float] | dict[str, int], before: Mapping[str, float], after: Mapping[str, float]) -> None:
    for sign, each in ((-1, before), (1, after)):
        for name, amount in each.items():
            total[name] = total.get(name, 0) + sign * amount  # type: ignore[assignment]


def _rests(variant: FleetVariant) -> list[float]:
    policies = variant.policies.policies if variant.policies is not None else ()
    return [rule.rest_seconds for each in policies if each.workloads is not None for rule in each.workloads.moves]


def happenings_by_moment(run: FleetRun) -> Iterator[tuple[float, str, list[Happening]]]:
    """Yield what happens at one time, of one kind, together: in the order in which it happens."""
    group: list[Happening] = []
    for each in run.happenings:
        if group and (group[0].at, group[0].kind) != (each.at, each.kind):
            yield group[0].at, group[0].kind, group
            group = []
        group.append(each)
    if group:
        yield group[0].at, group[0].kind, group
