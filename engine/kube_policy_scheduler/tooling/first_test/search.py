"""Looks for assignments in which a policy answers in every way that it can: guided by what each answer reads.

Deterministic: for every outcome that was not seen yet, the variables that its site reads are tried one by one, then in
pairs, starting from the assignments that showed something new before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any, TypeAlias

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import ClauseKind, values_of
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.coverage.probe import Probe
from kube_policy_scheduler.tooling.coverage.sites import (
    ClauseSites,
    Outcome,
    Site,
    SpanKey,
    clause_sites,
    equality_of,
    span_key,
)
from kube_policy_scheduler.tooling.first_test.case_form import CaseForm, case_form, inputs_of
from kube_policy_scheduler.tooling.first_test.expected import (
    CoveringCase,
    GangStart,
    Goal,
    Queue,
    Written,
    expectation,
    gang_starts,
    queues,
    written,
)
from kube_policy_scheduler.tooling.first_test.queue_cases import QueueCases
from kube_policy_scheduler.tooling.first_test.search_space import Assignment, Place, SearchSpace
from kube_policy_scheduler.tooling.short_forms import Json

_MOST_TRIES = 1500
"""Assignments looked at, about a millisecond each."""
_TRIES_PER_GOAL = 150
_TRIES_PER_CHANGE = 100
_MOST_TRIES_OF_CHANGES = 1500
"""Assignments that are decided in under a change of the policy, about a millisecond each."""


_Name: TypeAlias = tuple[tuple[Place, Any], ...]
"""An assignment, as a key."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the search came to."""

    cases: tuple[CoveringCase, ...]
    clauses: tuple[ClauseSites, ...]
    unseen: tuple[tuple[ClauseSites, Site | None, Outcome | None], ...]
    """Outcomes that no assignment showed, with their clause; without a site: the clause never had a say."""
    queues: tuple[Queue, ...] = ()
    """What shows `order by`."""
    gangs: tuple[GangStart, ...] = ()
    """What shows that a `gang` starts."""
    not_varied: tuple[Span, ...] = ()
    """Where the policy reads what is the same in all cases: this may be why an outcome was not seen."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the policy that no case notices."""

    span: Span
    """What is changed."""
    policy: Policy
    """The policy with the change."""
    shown: str
    """Which case would notice it, for people."""


class Search:
    """Searches for one policy."""

    def __init__(self, policy: Policy, *, pods: Pods, scheduler: str) -> None:
        self._policy = policy
        self._set = PolicySet.of([policy], default_schedulers=frozenset((scheduler,)), queues=policy.profile.queues)
        self._probe = Probe(pods)
        self._scheduler = scheduler
        self._space = SearchSpace(policy.compiled.checked)
        self._clauses = tuple(clause_sites(policy.compiled.checked, alone=True))
        self._tries = 0
        self._seen: dict[_Name, frozenset[Goal]] = {}
        self._decided: dict[_Name, tuple[Frame, tuple[Json, bool] | None] | tuple[()]] = {}
        """What the policy decides, by assignment; nothing where it governs no pod."""

    @property
    def queries(self) -> Mapping[str, Query]:
        """Return the metrics that cases have to say something of."""
        return {query.promql: query for query in self._policy.queries}

    def run(self) -> Found:
        """Return cases for as much as could be shown."""
        goals = self._goals()
        start = self._governed()
        if start is None:
            nothing = tuple((clause, None, None) for clause in self._clauses)
            return Found((), self._clauses, nothing)
        assignments: list[Assignment] = [start]
        done = set(self._look(start))
        for _ in range(2):  # an assignment that was found late may help with what was looked for early
            for goal, reads in goals.items():
                if goal in done or self._tries > _MOST_TRIES:
                    continue
                found = self._reach(goal, reads, assignments)
                if found is not None:
                    assignments.append(found)
                    done |= self._look(found)
        free = next((chosen for chosen in assignments if not self._held(chosen)), start)
        by_assignment = self._cases(assignments, [goal for goal in goals if goal in done])
        of_queues = QueueCases(
            self._policy,
            self._space,
            self._clauses,
            start=free,
            frame_of=self._frame,
            frame_of_form=self._frame_of,
        )
        cases = (*by_assignment, *of_queues.cases())
        for case in cases:
            if case.is_of_queue and (frame := self._frame_of(case.form)) is not None:
                done |= self._shown_by(frame)
        found_queues = (
            *queues(self._policy, self._space, start=free, frame_of=self._frame),
            *of_queues.turns(),
        )
        done |= self._ordered(found_queues)
        gangs = tuple(gang_starts(self._policy, self._space, start=free, frame_of=self._frame))
        unseen = tuple(self._unseen(done))
        not_varied = self._space.not_varied([clause.span if site is None else site.span for clause, site, _ in unseen])
        return Found(tuple(cases), self._clauses, unseen, found_queues, gangs, not_varied)

    def cases(self, found: Found) -> list[Written]:
        """Return the cases with what is expected of them."""
        made = (
            written(case, inputs_of(case.form, self._policy, scheduler=self._scheduler).frame(), self._policy)
            for case in found.cases
        )
        return [one for one in made if one is not None]

    def noticing(self, found: Found, changes: Sequence[Change]) -> Found:
        """Return what was found, with cases that come out otherwise under changes which no case noticed so far.

        Args:
            found: what `run` returned.
            changes: the changes.
        """
        starts = [case.assignment for case in found.cases]
        left, tries, more = list(changes), 0, list(found.cases)
        while left and starts and tries < _MOST_TRIES_OF_CHANGES:
            change = left.pop(0)
            clause = self._clause_around(change.span)
            if clause is None:
                continue
            own, around = self._read_around(change.span)
            assignments = (each for start in starts for each in (start, *self._changes(start, own, around)))
            for chosen in islice(assignments, _TRIES_PER_CHANGE):
                tries += 1
                if self._notices(chosen, change):
                    form = case_form(chosen, topologies=self._space.topologies)
                    more.append(CoveringCase(chosen, form, clause, (), change.shown))
                    left = [other for other in left if not self._notices(chosen, other)]
                    break
        return replace(found, cases=tuple(more))

    def _clause_around(self, span: Span) -> ClauseSites | None:
        """Return the clause that a change is in; for one in a definition the first."""
        inside = (sites for sites in self._clauses if _overlap(sites.span, span))
        return next(inside, next(iter(self._clauses), None))

    def _read_around(self, span: Span) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """Return the variables that are read by expressions in a change and around it, and those of their clauses."""
        own: dict[Place, None] = {}
        around: dict[Place, None] = {}
        checked = self._policy.compiled.checked
        if checked.governs is not None and _overlap(checked.governs.span, span):
            own.update(dict.fromkeys(self._space.read_by(checked.governs)))
        for clause in checked.clauses:
            roots = values_of(clause)
            touched = [part for root in roots for part in typed.below(root) if _overlap(part.span, span)]
            for part in sorted(touched, key=lambda part: part.span.end - part.span.start):
                own.update(dict.fromkeys(self._space.read_by(part)))
            if touched or _overlap(clause.tree.span, span):
                around.update(dict.fromkeys(self._space.of_clause(clause)))
                around.update(dict.fromkeys(place for root in roots for place in self._space.read_by(root)))
        return self._known(tuple(own)), self._known(tuple(around))

    def _notices(self, chosen: Assignment, change: Change) -> bool:
        """Return whether an assignment is decided otherwise under a change."""
        name = _name_of(chosen)
        known = self._decided.get(name)
        if known is None:
            frame = self._frame(chosen)
            governed = frame is not None and self._policy.governs(frame)
            known = self._decided[name] = (frame, expectation(frame, self._policy)) if frame and governed else ()
        if not known:
            return False
        frame, expected = known
        return not change.policy.governs(frame) or expectation(frame, change.policy) != expected

    # --- goals -------------------------------------------------------------------------------------------

    def _goals(self) -> dict[Goal, tuple[tuple[Place, ...], tuple[Place, ...]]]:
        """Return what is to be seen, each with the variables of its site and those of its clause."""
        found: dict[Goal, tuple[tuple[Place, ...], tuple[Place, ...]]] = {}
        policy = self._policy.compiled.checked
        for queue in policy.queues:
            for value in (queue.pods, queue.key):
                for part in typed.below(value) if value is not None else ():
                    reads = self._space.read_by(part)
                    for outcome in (Outcome.TRUE, Outcome.FALSE):
                        found.setdefault((span_key(part.span), outcome), (reads, reads))
        checked = {span_key(clause.tree.span): clause for clause in policy.clauses}
        for sites in self._clauses:
            clause = checked.get(span_key(sites.span))
            if clause is None or clause.kind is ClauseKind.ORDER:  # one pod has no order
                continue
            every = [part for value in values_of(clause) for part in typed.below(value)]
            by_span: dict[SpanKey, list[typed.Typed]] = {}
            for part in every:
                by_span.setdefault(span_key(part.span), []).append(part)
            around: dict[Place, None] = dict.fromkeys(self._space.of_clause(clause))
            for value in values_of(clause):
                around.update(dict.fromkeys(self._space.read_by(value)))
            found[span_key(sites.span), None] = (tuple(around), tuple(around))
            for site in sites.sites:
                parts = by_span.get(span_key(site.span), [])
                own = dict.fromkeys(place for part in parts for place in self._space.read_by(part)) or around
                for outcome in site.outcomes:
                    found.setdefault((site.key, outcome), (tuple(own), tuple(around)))
                if any(equality_of(part) is not None for part in parts):
                    found.setdefault((site.key, Outcome.EQUAL), (tuple(own), tuple(around)))
        return found

    def _unseen(self, done: set[Goal]) -> Iterator[tuple[ClauseSites, Site | None, Outcome | None]]:
        tried: set[Goal] = set()
        for clause in self._clauses:
            if clause.keyword == "for pods":
                continue
            if (span_key(clause.span), None) not in done:
                yield clause, None, None
                continue
            for site in clause.sites:
                for outcome in site.outcomes:
                    goal = (site.key, outcome)
                    if goal not in done and goal not in tried:
                        tried.add(goal)
                        yield clause, site, outcome

    # --- assignments ------------------------------------------------------------------------------------------

    def _governed(self) -> Assignment | None:
        """Return an assignment whose pod the policy governs, the default one if it does."""
        start = self._space.default()
        governs = self._policy.compiled.checked.governs
        if governs is None or self._governs(start):
            return start
        places = [place for place in self._space.read_by(governs) if place in self._space.variables]
        for changed in self._changes(start, places, places):
            if self._governs(changed):
                return changed
        return None

    def _governs(self, chosen: Assignment) -> bool:
        frame = self._frame(chosen)
        return frame is not None and self._policy.governs(frame)

    def _held(self, chosen: Assignment) -> bool:
        frame = self._frame(chosen)
        return frame is None or self._policy.hold_reason(frame) is not None

    def _frame(self, chosen: Assignment) -> Frame | None:
        try:
            return self._frame_of(case_form(chosen, topologies=self._space.topologies))
        except ValueError:
            return None  # not every combination is a pod

    def _frame_of(self, form: CaseForm) -> Frame | None:
        try:
            return inputs_of(form, self._policy, scheduler=self._scheduler).frame()
        except (DocumentError, ValueError):
            return None  # nor a cluster

    def _look(self, chosen: Assignment) -> frozenset[Goal]:
        """Return everything that an assignment shows."""
        name = _name_of(chosen)
        known = self._seen.get(name)
        if known is None:
            self._tries += 1
            known = self._seen[name] = self._shown(chosen)
        return known

    def _shown(self, chosen: Assignment) -> frozenset[Goal]:
        frame = self._frame(chosen)
        return self._shown_by(frame) if frame is not None else frozenset()

    def _shown_by(self, frame: Frame) -> frozenset[Goal]:
        if self._set.governing(frame.pod) is None:
            return frozenset()
        probe = self._probe
        probe.clear()
        probe.governing(frame, self._set)
        probe.queue_found(frame, self._set)
        probe.decided(frame, self._policy)
        if self._policy.hold_reason(frame) is None:
            probe.permitted(frame, self._policy)
            probe.reclaiming(frame, self._set, self._policy)
        return frozenset((*probe.outcomes, *((span, None) for span in probe.clauses)))

    def _ordered(self, found: Sequence[Queue]) -> set[Goal]:
        """Return everything that queues show."""
        probe = self._probe
        probe.clear()
        for queue in found:
            for frame in queue.frames:
                probe.queued(frame, self._policy)
        return {*probe.outcomes, *((span, None) for span in probe.clauses)}

    def _reach(
        self, goal: Goal, reads: tuple[tuple[Place, ...], tuple[Place, ...]], assignments: Sequence[Assignment]
    ) -> Assignment | None:
        """Return an assignment that shows a goal, None where none was found."""
        own, around = reads
        own, around = self._known(own), self._known(around)
        first = self._tries
        for start in reversed(assignments):
            for changed in self._changes(start, own, around):
                if goal in self._look(changed):
                    return changed
                if self._tries - first > _TRIES_PER_GOAL or self._tries > _MOST_TRIES:
                    return None
        if goal[1] is Outcome.EQUAL:
            return None  # good to have, but not worth much time
        for start in assignments:  # what stands in the way may be another clause
            for changed in self._changes(start, own, tuple(self._space.variables)):
                if goal in self._look(changed):
                    return changed
                if self._tries - first > 2 * _TRIES_PER_GOAL or self._tries > _MOST_TRIES:
                    return None
        return None

    def _known(self, places: Sequence[Place]) -> tuple[Place, ...]:
        return tuple(place for place in places if place in self._space.variables)

    def _changes(self, start: Assignment, own: Sequence[Place], around: Sequence[Place]) -> Iterator[Assignment]:
        """Yield assignments that differ in one variable, then in two, of which at least one is the site's own."""
        variables = self._space.variables
        for place in dict.fromkeys((*own, *around)):
            for value in variables[place].values:
                if value != start.get(place):
                    yield {**start, place: value}
        pairs = dict.fromkeys((*combinations(own, 2), *((a, b) for a in own for b in around if b not in own)))
        for a, b in pairs:
            for x, y in product(variables[a].values, variables[b].values):
                if x != start.get(a) and y != start.get(b):
                    yield {**start, a: x, b: y}

    # --- cases -------------------------------------------------------------------------------------------

    def _cases(self, assignments: Sequence[Assignment], goals: Sequence[Goal]) -> Iterator[CoveringCase]:
        """Yield for each clause assignments that show its goals, each as near to the default as they let it."""
        left, default = set(goals), self._space.default()
        tried: list[Assignment] = []
        for clause in self._clauses:
            own = [(span_key(clause.span), None), *((site.key, o) for site in clause.sites for o in Outcome)]
            wanted = [goal for goal in own if goal in left]
            while wanted:
                best = self._showing_most(wanted, assignments)
                shown = [goal for goal in wanted if goal in self._look(best)]
                left.difference_update(shown)
                wanted = [goal for goal in wanted if goal in left]
                simple = self._simplified(best, shown, default)
                if simple not in tried:
                    tried.append(simple)
                    form = case_form(simple, topologies=self._space.topologies)
                    yield CoveringCase(simple, form, clause, tuple(shown))

    def _showing_most(self, goals: Sequence[Goal], assignments: Sequence[Assignment]) -> Assignment:
        wanted = set(goals)
        return max(assignments, key=lambda chosen: len(wanted & self._look(chosen)))

    def _simplified(self, chosen: Assignment, goals: Sequence[Goal], default: Assignment) -> Assignment:
        """Return an assignment with as many defaults as its goals let it have."""
        simple = dict(chosen)
        for place, value in default.items():
            if simple[place] != value:
                tried = {**simple, place: value}
                if set(goals) <= self._look(tried):
                    simple = tried
        return simple


def _name_of(chosen: Assignment) -> _Name:
    return tuple(sorted(chosen.items(), key=repr))


def _overlap(one: Span, other: Span) -> bool:
    return one.source.name == other.source.name and one.start < other.end and other.start < one.end
