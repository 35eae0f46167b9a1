"""First cases for a policy of workloads: fleets and workloads by what its expressions compare, and what it decides.

Each place that an expression reads is a knob with the values that matter to it. Cases are tried from the plain one on,
with one knob turned after the other; those are kept that show something of the policy which none before showed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.placement.filters import FILTERS
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.coverage.probe import Probe
from kube_policy_scheduler.tooling.coverage.sites import ClauseSites, Site, SiteKind, SpanKey, clause_sites, span_key
from kube_policy_scheduler.tooling.coverage.sites import Outcome as Answer
from kube_policy_scheduler.tooling.coverage.workload_probe import watched_workloads
from kube_policy_scheduler.tooling.first_test.writing import answered, difference
from kube_policy_scheduler.tooling.fleet_forms import fleet_cluster, fleet_workload
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.tooling.tester.suite_file import suite_text
from kube_policy_scheduler.wording import shortened

NOW = 1_767_787_200.0
"""Unix seconds of all cases: nothing of them depends on it."""
MOST_TRIES = 600
_PLAIN = 4
"""The first cases, which show where few, several and too many replicas go, and what moves: they are always kept."""
_SEVERAL, _TOO_MANY = 8, 60
"""More replicas than one cluster has room for, and than all have."""
_CLUSTERS = ("a", "b", "c")
_MOST_VALUES = 5
_LONGEST_NAME = 110
_PLACES: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "cluster.provider": ("provider", ("own", "aws", "gcp")),
    "cluster.region": ("region", ("eu", "us")),
    "cluster.zone": ("zone", ("z1", "z2")),
    "cluster.version": ("version", ("v1.36.2", "v1.35.0")),
    "cluster.price": ("price", (3, 5, None)),
    "cluster.ready": ("ready", (True, False)),
    "cluster.room": ("room", (4, 0, None, 8)),
    "cluster.room_by": ("room", (4, None)),
    "cluster.evicting": ("evicting", (False, True)),
    "cluster.healthy": ("healthy", (True, False)),
    "cluster.nodes_ready": ("nodes", (3, 1)),
    "cluster.nodes_total": ("nodes", (3, 1)),
    "cluster.sync_mode": ("sync_mode", ("Push", "Pull")),
    "workload.kind": ("kind", ("Deployment", "Job")),
    "workload.namespace": ("namespace", ("default", "other")),
    "workload.name": ("name", ("web", "other")),
    "workload.priority": ("priority", (0, 10)),
    "workload.priority_class": ("priority_class", ("low", "high")),
    "workload.replicas": ("replicas", (3, 9)),
    "workload.attempts": ("attempts", (0, 3)),
}
"""By what an expression reads: the short key, and its usual values; None leaves it out."""
_KEYED = {"label": "labels", "annotation": "annotations"}
_OFFERS = ("cluster.free", "cluster.allocatable", "cluster.requested", "cluster.used_fraction")
_AMOUNTS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "cpu": ("cpu", (6, 12, 2)),
    "memory": ("mem", ("16Gi", "64Gi", "2Gi")),
}
_DURATIONS = {"condition_age": "ready_for", "created": "created"}
_NO_KNOB = frozenset({"cluster.name", "cluster.has"})
"""They differ between the clusters of any case, and between cases."""
Path: TypeAlias = tuple[str, ...]
Goal: TypeAlias = tuple[Any, Any]


class Knob(msgspec.Struct, frozen=True):
    """One place of a form, and what it is turned to."""

    of_cluster: bool
    path: Path
    values: tuple[Any, ...]
    """The first one is the usual one; None leaves the key out."""


class Tried(msgspec.Struct, frozen=True):
    """A case as it was tried."""

    clusters: tuple[Json, ...]
    workload: Json
    metrics: Json
    passes: int
    outcome: Outcome
    shows: tuple[Goal, ...]
    """What no case before it shows."""


class WorkloadCases:
    """Searches for one policy of workloads."""

    def __init__(self, policy: CompiledPolicy, *, pods: Pods) -> None:
        """Take the policy; pods: what goes over existing pods on behalf of the language."""
        self._policy, self._policies = policy, FleetPolicies.of([policy])
        self._probe = Probe(pods)
        self._observe = watched_workloads(self._probe)
        self._clauses = tuple(clause_sites(policy.checked, alone=True))
        self.not_varied: list[Span] = []
        """What the search cannot vary."""
        self._knobs = tuple(self._found_knobs())

    def run(self) -> list[Tried]:
        """Return the cases that show something, in the order in which they were found."""
        wanted, shown = self._wanted, set[Goal]()
        kept = []
        for number, form in enumerate(itertools.islice(self._forms(), MOST_TRIES)):
            if number >= _PLAIN and wanted <= shown:
                break
            tried = self._tried(*form, shown)
            if tried is not None and (tried.shows or number < _PLAIN):
                shown.update(tried.shows)
                kept.append(tried)
        self.unseen = sorted(wanted - shown, key=str)
        return kept

    @cached_property
    def _wanted(self) -> set[Goal]:
        sites = ((site.key, outcome) for each in self._clauses for site in each.sites for outcome in site.outcomes)
        return {*sites, *(("clause", span_key(each.span)) for each in self._clauses)}

    # --- what is tried -----------------------------------------------------------------------------------

    def _forms(self) -> Iterator[tuple[tuple[Json, ...], Json, Json, int]]:
        """Yield clusters, a workload, metrics and passes; the plain ones first."""
        of_clusters = [each for each in self._knobs if each.of_cluster]
        of_workload = [each for each in self._knobs if not each.of_cluster]
        turns = max((len(each.values) for each in of_clusters), default=1)
        if self._policies.queries:
            turns = max(turns, len(self._readings))
        plain = {each.path: each.values[0] for each in of_workload}
        turned = [plain, *(plain | {each.path: value} for each in of_workload for value in each.values[1:])]
        pairs = itertools.combinations(of_workload, 2)
        turned += [
            plain | {one.path: first, other.path: second}
            for one, other in pairs
            for first in one.values[1:]
            for second in other.values[1:]
        ]
        runs: list[tuple[Json, int]] = [
            ({}, 0),
            ({"replicas": _SEVERAL}, 0),
            ({"has": {"c": 3}, "decided": "1h"}, 1),
            ({"replicas": _TOO_MANY}, 0),
        ]
        for settings, turn, (extra, passes) in itertools.product(turned, range(turns), runs):
            yield (
                tuple(self._cluster(at, turn, of_clusters) for at in range(len(_CLUSTERS))),
                {"replicas": 3, "cpu": 1} | _form(settings) | extra,
                self._metrics(turn),
                passes,
            )

    def _cluster(self, at: int, turn: int, knobs: Sequence[Knob]) -> Json:
        values = {each.path: each.values[(at + turn) % len(each.values)] for each in knobs}
        return {"name": _CLUSTERS[at], "cpu": 6} | _form(values)

    def _metrics(self, turn: int) -> Json:
        """Return values of each query by cluster; one of the clusters has none."""
        found: Json = {}
        for query in self._policies.queries:
            values = self._readings
            known = {name: values[(at + turn) % len(values)] for at, name in enumerate(_CLUSTERS)}
            found[query.promql] = {name: value for name, value in known.items() if value is not None}
        return found

    # --- what comes of it --------------------------------------------------------------------------------

    def _tried(
        self, clusters: tuple[Json, ...], form: Json, metrics: Json, passes: int, shown: set[Goal]
    ) -> Tried | None:
        """Return the case, with what it shows that none before it does; None if the policy does not govern it."""
        try:
            workload = fleet_workload(form, clusters, NOW)
            fleet = Fleet(tuple(fleet_cluster(each, workload, NOW) for each in clusters))
        except ShortFormError:
            return None
        if self._policies.governing(workload) is None:
            return None
        self._probe.clear()
        outcome = self._decided(workload, fleet, metrics, passes)
        goals: set[Goal] = {goal for goal, count in self._probe.outcomes.items() if count}
        goals |= {("clause", span) for span, count in self._probe.clauses.items() if count}
        fresh = (goals & self._wanted) - shown
        return Tried(clusters, form, metrics, passes, outcome, tuple(sorted(fresh, key=str)))

    def _decided(self, workload: Workload, fleet: Fleet, metrics: Json, passes: int) -> Outcome:
        given = Given(NOW, Metrics(metrics).signals(self._policies.queries, now=NOW)).of(fleet)
        for _ in range(passes):
            self._observe(workload, fleet, self._policies, given, moves=True)
            moved = self._policies.rebalance(workload, fleet, given)
            if moved is None:
                break
            has = moved[0].targets
            workload = msgspec.structs.replace(workload, has=has, health=dict.fromkeys(has, HEALTHY))
        self._observe(workload, fleet, self._policies, given, moves=False)
        return self._policies.decide(workload, fleet, given)

    # --- knobs -------------------------------------------------------------------------------------------

    def _found_knobs(self) -> Iterator[Knob]:
        """Yield a knob for each place that the policy reads, with the values that it is compared with."""
        reads: dict[tuple[str, str | None], list[Any]] = {}
        spans: dict[tuple[str, str | None], Span] = {}
        numbers: list[float] = []
        for value in _expressions(self._policy.checked):
            for one in typed.below(value):
                if isinstance(one, typed.Read):
                    reads.setdefault((one.field.path, one.key), [])
                    spans.setdefault((one.field.path, one.key), one.span)
                for read, constant in _compared(one):
                    if isinstance(constant, int | float) and not isinstance(constant, bool):
                        numbers.append(float(constant))
                    if read is not None:
                        known = reads.setdefault((read.field.path, read.key), [])
                        spans.setdefault((read.field.path, read.key), read.span)
                        known.append(constant)
        self._readings = (*dict.fromkeys(round(each, 6) for at in numbers for each in (at + 0.1, at - 0.1)), *_USUAL)
        holding = self._held_by()  # the usual workload is not held
        for (path, key), constants in reads.items():
            knob = _knob(path, key, list(dict.fromkeys(constants)))
            if knob is not None and (path, key) in holding:
                yield msgspec.structs.replace(knob, values=(*knob.values[1:], knob.values[0]))
            elif knob is not None:
                yield knob
            elif path not in _NO_KNOB:
                self.not_varied.append(spans[path, key])
        for topology in _topologies(self._policy.checked):
            if topology in ("region", "zone", "provider") and (f"cluster.{topology}", None) not in reads:
                yield Knob(True, (topology,), _PLACES[f"cluster.{topology}"][1])

    def _held_by(self) -> set[tuple[str, str | None]]:
        """Return what decides whether a workload is held."""
        held = (each for each in self._policy.checked.clauses if each.kind is ClauseKind.HOLD)
        read = (one for each in held for value in checked.values_of(each) for one in typed.below(value))
        return {(one.field.path, one.key) for one in read if isinstance(one, typed.Read)}

    # --- the file ----------------------------------------------------------------------------------------

    def text(self, cases: Sequence[Tried], *, policy: str, name: str, without: frozenset[str] = frozenset()) -> str:
        """Return the test file; policy: its path as the file names it; without: names of cases to leave out."""
        base = [_usual([each.clusters[at] for each in cases]) for at in range(len(_CLUSTERS))]
        metrics = _usual([each.metrics for each in cases])
        named = zip(cases, self.names(cases), strict=True)
        written = [_case(each, called, base, metrics) for each, called in named if called not in without]
        form: Json = {"policy": policy, "clusters": base, "metrics": metrics, "cases": written}
        return suite_text({key: value for key, value in form.items() if value}, comment="\n".join(self._comment(name)))

    def _comment(self, name: str) -> Iterator[str]:
        yield f"First tests of policy {name}, written by `policyctl test --init`: every case shows a clause where it"
        yield "holds, or where it does not. They say what the policy decides today, not that it is right: read them,"
        yield "keep what should be so, and give the cases names that say why."
        unseen = [self._described(goal) for goal in self.unseen]
        if unseen:
            yield ""
            yield "No case was found in which"
            yield from (f"- {each}" for each in unseen)
        if self.not_varied:
            yield ""
            yield "The tool cannot vary what these read. Write cases for them by hand:"
            for span in self.not_varied:
                line, _ = span.source.position(span.start)
                yield f"- {shortened(' '.join(span.text.split()), _LONGEST_NAME)} (line {line})"

    def names(self, cases: Sequence[Tried]) -> list[str]:
        """Return what the cases are called, in their order."""
        found: list[str] = []
        for each in cases:
            said = dict.fromkeys(self._described(goal) for goal in each.shows)
            plain = f"{each.workload['replicas']} replicas{', which may move' if each.passes else ''}"
            name = shortened("; ".join(list(said)[:2]), _LONGEST_NAME) or plain
            found.append(name if name not in found else f"{name} ({len(found) + 1})")
        return found

    def _described(self, goal: Goal) -> str:
        """Return what a case shows, for people."""
        place, outcome = goal
        if place == "clause":
            clause = next(each for each in self._clauses if span_key(each.span) == outcome)
            return f"{_said(clause)} has a say"
        sites: dict[tuple[SiteKind, SpanKey], Site] = {s.key: s for each in self._clauses for s in each.sites}
        assert isinstance(outcome, Answer)
        return answered(sites[place], outcome)


_USUAL: tuple[float | None, ...] = (0.1, 0.9, None)
"""Values of metrics."""


def _usual(forms: Sequence[Json]) -> Json:
    """Return what most forms have at each key that all of them have: a case lays over it what differs."""
    keys = [key for key in forms[0] if all(key in form for form in forms)]
    values = {key: [form[key] for form in forms] for key in keys}
    return {key: max(each, key=each.count) for key, each in values.items()}


def _said(clause: ClauseSites) -> str:
    return " ".join(clause.span.text.split()).split(" else ")[0]


def _case(tried: Tried, name: str, base: Sequence[Json], metrics: Json) -> Json:
    over = {form["name"]: difference(form, known) for form, known in zip(tried.clusters, base, strict=True)}
    case: Json = {
        "name": name,
        "clusters": {cluster: form for cluster, form in over.items() if form},
        "workload": tried.workload,
        "passes": tried.passes,
        "metrics": {query: values for query, values in tried.metrics.items() if metrics.get(query) != values},
        "expect": _expected(tried.outcome),
    }
    return {key: value for key, value in case.items() if value}


def _expected(outcome: Outcome) -> Json:
    """Return what a case expects of a decision."""
    expect: Json = {}
    if outcome.targets:
        expect["clusters"] = dict(sorted(outcome.targets.items()))
    if not outcome.placed:
        expect["unschedulable"] = {"message": outcome.message}
    scores = {at: each.score for at, each in outcome.verdicts.items() if not each.rejected_by}
    if any(scores.values()):
        expect["scores"] = scores
    rejected = {at: each for at, each in sorted(outcome.verdicts.items()) if each.rejected_by}
    if filtered := {at: {"message": each.message} for at, each in rejected.items() if each.rejected_by not in FILTERS}:
        expect["filtered"] = filtered
    return expect


def _form(values: Mapping[Path, Any]) -> Json:
    """Return a short form with the values at their places."""
    found: Json = {}
    for path, value in values.items():
        if value is None:
            continue
        place = found
        for step in path[:-1]:
            place = place.setdefault(step, {})
        place[path[-1]] = value
    return found


def _knob(path: str, key: str | None, constants: list[Any]) -> Knob | None:
    """Return how to vary what an expression reads; None if a test cannot say it."""
    subject, _, rest = path.partition(".")
    of_cluster = subject == "cluster"
    if rest in _KEYED and key is not None:
        texts = [str(each) for each in constants]
        return Knob(of_cluster, (_KEYED[rest], key), (*(texts or ["x"]), "other", None)[:_MOST_VALUES])
    if rest in _DURATIONS:
        seconds = [float(each) for each in constants if isinstance(each, int | float)] or [600.0]
        durations = [f"{max(0, round(each + more))}s" for each in seconds for more in (60, -60)]
        return Knob(of_cluster, (_DURATIONS[rest],), tuple(durations)[:_MOST_VALUES])
    if path in _OFFERS or path == "workload.request":
        known = _AMOUNTS.get(key or "")
        return Knob(of_cluster, (known[0],), known[1]) if known is not None else None
    if path not in _PLACES:
        return None
    short, usual = _PLACES[path]
    alike = [each for each in constants if _kind(each) in {_kind(one) for one in usual}]
    around: list[Any] = [*alike, *usual]
    if all(_kind(each) is float for each in alike):
        steps = [each + step for each in alike for step in (0, 1, -1) if each + step >= 0]
        around = [*(each if short == "price" else int(each) for each in steps), *usual]
    return Knob(of_cluster, (short,), tuple(dict.fromkeys(around))[:_MOST_VALUES])


def _kind(value: Any) -> type:
    """Return what kind of value it is; all numbers are of one."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _expressions(policy: checked.CheckedPolicy) -> Iterator[typed.Typed]:
    if policy.condition is not None:
        yield policy.condition
    for clause in policy.clauses:
        yield from checked.values_of(clause)
    if policy.workloads is not None:
        yield from checked.workload_values_of(policy.workloads)


def _compared(value: typed.Typed) -> Iterator[tuple[typed.Read | None, Any]]:
    """Yield what is compared with which constant; None for what is read in no field."""
    match value:
        case typed.Compare(left=left, right=right) | typed.Same(left=left, right=right):
            for one, other in ((left, right), (right, left)):
                if isinstance(other, typed.Constant):
                    yield _read(one), other.value
        case typed.Contained(item=item, list=typed.Constant(value=values)):
            for each in values:
                yield _read(item), each


def _read(value: typed.Typed) -> typed.Read | None:
    """Return what a value reads, where it is read as it is, or with a default."""
    if isinstance(value, typed.Otherwise):
        return _read(value.left)
    if isinstance(value, typed.Reference):
        return next(iter([_read(each) for each in typed.parts(value)]), None)
    return value if isinstance(value, typed.Read) else None


def _topologies(policy: checked.CheckedPolicy) -> Iterator[str]:
    """Yield the domains that the policy names: region, zone or provider."""
    rules = policy.workloads
    found = [each.topology for each in rules.chooses] if rules is not None else []
    found += [level.topology for each in rules.divides for level in each.levels] if rules is not None else []
    found += [each.topology for each in policy.clauses if isinstance(each, checked.Grouping | checked.WorkloadLimit)]
    for key in dict.fromkeys(found):
        if key is not None:
            yield key.rpartition("/")[2]
