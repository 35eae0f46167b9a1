"""Cases about queues: the last pod that a `max` admits and the first that it does not, and who is evicted by `reclaim`.

They follow from the amounts of the queues. What is expected of them is what the policy decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any

from kube_policy_scheduler.cluster.devices.claimed_devices import device_class
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, QuotaTree
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import checked
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.queues import parents_first
from kube_policy_scheduler.quantities.quantity import column_scale
from kube_policy_scheduler.tooling.coverage.sites import ClauseSites, Outcome, max_site, span_key
from kube_policy_scheduler.tooling.first_test.case_form import CaseForm, case_form
from kube_policy_scheduler.tooling.first_test.expected import CoveringCase, Queue, expectation
from kube_policy_scheduler.tooling.first_test.search_space import Assignment, Place, SearchSpace
from kube_policy_scheduler.tooling.short_forms import SHORT_RESOURCES, Json

_MOST_LOOKED_AT = 400
"""Assignments that are looked at for a pod of each queue."""
_MOST_KEYS = 2
"""Queues by one key of which there are pods."""
_PARTS = 4
"""Pods into which an amount is divided."""
_LITTLE: Json = {"cpu": "10m", "mem": "16Mi"}
"""Of nodes that are to take no pods."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A pod of a queue."""

    place: int
    key: str | None
    assignment: Assignment
    form: CaseForm


class QueueCases:
    """Makes the cases of one policy."""

    def __init__(
        self,
        policy: Policy,
        space: SearchSpace,
        clauses: Sequence[ClauseSites],
        *,
        start: Assignment,
        frame_of: Callable[[Assignment], Frame | None],
        frame_of_form: Callable[[CaseForm], Frame | None],
    ) -> None:
        """Make them for a policy.

        Args:
            policy: with its queues.
            space: what can be varied.
            clauses: all of the policy.
            start: an assignment whose pod the policy governs and does not hold.
            frame_of: from an assignment to the inputs of its decision; None where no cluster has it.
            frame_of_form: from a case to the inputs of its decision; None where no cluster has it.
        """
        rules = policy.profile.queues
        self._tree: QuotaTree = rules.tree if rules is not None else QuotaTree((), ())
        self._declared = parents_first(declared_queues([policy.compiled.checked]))
        self._reclaims = policy.compiled.checked.reclaims
        self._policy, self._space = policy, space
        self._frame_of, self._frame_of_form = frame_of, frame_of_form
        self._clauses = {span_key(clause.span): clause for clause in clauses}
        self._members = self._found_members(start)

    def cases(self) -> Iterator[CoveringCase]:
        """Yield the cases."""
        for place, queue in enumerate(self._declared):
            at_maximum = [case for resource in queue.maximum for case in self._at_the_maximum(place, queue, resource)]
            yield from at_maximum
            member = next((each for each in self._members if each.place == place), None)
            if member is not None and not at_maximum:
                clause = self._clauses[span_key(queue.tree.span)]
                yield CoveringCase(
                    member.assignment, member.form, clause, ((span_key(clause.span), None),), is_of_queue=True
                )
        for reclaim in self._reclaims:
            yield from self._reclaiming(reclaim)

    # --- pods of queues ----------------------------------------------------------------------------------

    def _found_members(self, start: Assignment) -> list[_Member]:
        """Return a pod of each queue, of two of those by a key; one that waits for no others if there is one."""
        gangs = (clause for clause in self._policy.compiled.checked.clauses if isinstance(clause, checked.Gang))
        values = [value for gang in gangs for value in (gang.condition, gang.size) if value is not None]
        values += [value for queue in self._declared for value in (queue.pods, queue.key) if value is not None]
        read = dict.fromkeys(place for value in values for place in self._space.read_by(value))
        places = [place for place in read if place in self._space.variables and place[0] == "pod"]
        found: dict[tuple[int, str | None], _Member] = {}
        waiting: dict[tuple[int, str | None], _Member] = {}
        for assignment in islice(self._near(start, places), _MOST_LOOKED_AT):
            frame = self._frame_of(assignment)
            if frame is None or not self._policy.governs(frame) or self._policy.hold_reason(frame) is not None:
                continue
            at = self._tree.find(frame.template)
            if at is None or at in found or sum(place == at[0] for place, _ in found) >= _MOST_KEYS:
                continue
            try:
                waits = any(requirement.size > 1 for requirement in self._policy.gang_requirements(frame))
            except ValueError:
                continue
            form = case_form(assignment, topologies=self._space.topologies)
            (waiting if waits else found).setdefault(at, _Member(*at, assignment, form))
        alone = {place for place, _ in found}
        return [*found.values(), *(each for each in waiting.values() if each.place not in alone)]

    def _near(self, start: Assignment, places: Sequence[Place]) -> Iterator[Assignment]:
        """Yield an assignment, and those that differ from it in one or two variables."""
        variables = self._space.variables
        yield start
        for place in places:
            yield from ({**start, place: value} for value in variables[place].values)
        for one, other in combinations(places, 2):
            for first, second in product(variables[one].values, variables[other].values):
                yield {**start, one: first, other: second}

    def _member_below(self, place: int) -> _Member | None:
        """Return a pod of a queue or of one below it."""
        below = (member for member in self._members if place in self._path(member.place))
        return min(below, key=lambda member: member.place, default=None)

    def _path(self, place: int) -> list[int]:
        path, at = list[int](), place
        above: int | None = at
        while above is not None:
            path.append(above)
            above = self._tree.queues[above].parent
        return path

    def _most(self, place: int, resource: str) -> float:
        """Return the most that pods of a queue may use, by the queues above it, too."""
        at = self._tree.resources.index(resource)
        lowest = min(self._tree.queues[each].maximum[at] for each in self._path(place))
        return math.inf if lowest == NO_LIMIT else lowest / 10.0 ** column_scale(resource)

    def _guaranteed(self, place: int, resource: str) -> float:
        at = self._tree.resources.index(resource)
        return float(self._tree.queues[place].minimum[at] / 10.0 ** column_scale(resource))

    # --- cases -------------------------------------------------------------------------------------------

    def _at_the_maximum(self, place: int, queue: checked.QueueDeclaration, resource: str) -> Iterator[CoveringCase]:
        most, member = queue.maximum[resource], self._member_below(place)
        if member is None or not _can_be_requested(resource) or self._most(member.place, resource) < most:
            return
        part = _part(resource, most)
        number = int(most // part) if part else 0
        goal, clause = max_site(queue).key, self._clauses[span_key(queue.tree.span)]
        for there, outcome in ((number - 1, Outcome.TRUE), (number, Outcome.FALSE)):
            if there >= 0 and (part or outcome is Outcome.FALSE):
                pods, each = (("there", member, there),), part or 1.0
                form = _form(member, pods, resource, each, room=(number + 2) * each)
                yield CoveringCase(member.assignment, form, clause, ((goal, outcome),), is_of_queue=True)

    def _reclaiming(self, reclaim: checked.Reclaim) -> Iterator[CoveringCase]:
        """Yield a case in which others have the room of a queue, and those in which nobody must go."""
        clause = self._clauses[span_key(reclaim.tree.span)]
        waits = math.ceil(reclaim.after_seconds) + 1 if reclaim.after_seconds else 0
        contest = next(self._contests(), None)
        if contest is None:
            return
        asking = contest.asking
        taken = replace(contest.form(), queued_seconds=waits)
        cases = [(taken, "a pod gets what is guaranteed to its queue")]
        if waits:
            cases.append((replace(taken, queued_seconds=max(1, waits - 2)), "not before its time"))
        cases.append((replace(contest.form(own=contest.own + 1), queued_seconds=waits), "and no more than that"))
        cases += self._spared(reclaim, taken)
        for form, answer in cases:
            yield CoveringCase(asking.assignment, form, clause, (), answer, is_of_queue=True)

    def turns(self) -> Iterator[Queue]:
        """Yield two pods that wait while the queue of one of them borrows, if `order by` reads shares of queues."""
        contest = next(self._contests(), None)
        clauses = self._policy.compiled.checked.clauses
        shares = [each for each in clauses if isinstance(each, checked.Ordering) and each.share is not None]
        if contest is None or not shares:
            return
        form = contest.form(own=0)
        frame = self._frame_of_form(form)
        other = _with(contest.other.form.pod, contest.resource, contest.part)
        if frame is not None:
            yield Queue("order by: queue.share", (frame, frame), (form.pod, other), (0, 0), form)

    def _contests(self) -> Iterator[_Contest]:
        """Yield what one queue can get back from another one."""
        for asking, other, resource in self._pairs():
            wanted, theirs = self._guaranteed(asking.place, resource), self._guaranteed(other.place, resource)
            part = _part(resource, wanted, parts=2)
            number = int(theirs // part) + 1
            if number * part <= self._most(other.place, resource):
                yield _Contest(asking, other, resource, part, number, max(0, int(wanted // part) - 1))

    def _pairs(self) -> Iterator[tuple[_Member, _Member, str]]:
        """Yield a pod of a queue with a guarantee, a pod of another queue, and the resource."""
        for resource in filter(_can_be_requested, self._tree.resources):
            for asking, other in product(self._members, repeat=2):
                above = asking.place in self._path(other.place) or other.place in self._path(asking.place)
                apart = not above or (asking.place == other.place and asking.key != other.key)
                if apart and self._guaranteed(asking.place, resource) > 0:
                    yield asking, other, resource

    def _spared(self, reclaim: checked.Reclaim, taken: CaseForm) -> Iterator[tuple[CaseForm, str]]:
        """Yield a case in which `evict where` spares the pods that are there, and the nearest in which it does not."""
        spared: CaseForm | None = None
        evicted: CaseForm | None = None
        for place in self._space.read_by(reclaim.evict) if reclaim.evict is not None else ():
            for value in self._space.variables[place].values if place in self._space.variables else ():
                form = replace(taken, pods=(_varied(taken.pods[0], place, value), *taken.pods[1:]))
                frame = self._frame_of_form(form) if form != taken else None
                found = expectation(frame, self._policy) if frame is not None else None
                if found is not None and found[0].get("evicts") == []:
                    spared = spared or form
                elif found is not None and "evicts" in found[0]:
                    evicted = form
        if spared is not None:
            yield spared, "pods that it spares stay"
            if evicted is not None:
                yield evicted, "others go"


@dataclass(frozen=True, slots=True)
class _Contest:
    """A queue, and another one that has its room."""

    asking: _Member
    other: _Member
    resource: str
    part: float
    """What each pod requests of the resource."""
    number: int
    """Pods of the other queue, of which one is above what is guaranteed to it."""
    own: int
    """Pods of the queue that asks, to which one more is guaranteed."""

    def form(self, *, own: int | None = None) -> CaseForm:
        """Return the case. own: so many pods of the queue that asks are there; None: the last one is missing."""
        mine = self.own if own is None else own
        there = (("there", self.other, self.number), ("own", self.asking, mine))
        return _form(self.asking, there, self.resource, self.part, room=(self.number + mine) * self.part)


def _form(
    asking: _Member, there: Sequence[tuple[str, _Member, int]], resource: str, part: float, *, room: float
) -> CaseForm:
    """Return a case: on the first node, which has all the room, some pods; another one asks.

    Args:
        asking: the pod that asks.
        there: what the pods that are there are called, like which one they are, and how many.
        resource: that each of them requests.
        part: how much.
        room: how much the node has.
    """
    number = sum(count for *_, count in there) + 1
    first: Json = {**asking.form.nodes[0], "cpu": 2 * number, "mem": f"{number}Gi"}
    extra = 0.05 * part if resource in SHORT_RESOURCES and resource != "cpu" else 0.0
    first = _with(first, resource, room + extra)
    others = [{**node, **(_LITTLE if resource in SHORT_RESOURCES else {})} for node in asking.form.nodes[1:]]
    pods: list[Json] = []
    for name, like, count in there:
        several: Json = {"count": count} if count > 1 else {}
        if count:
            pods.append({"name": name, "node": first["name"], **several, **_with(like.form.pod, resource, part)})
    return replace(
        asking.form,
        pod=_with(asking.form.pod, resource, part),
        nodes=(first, *others),
        pods=tuple(pods),
        queued_seconds=0,
    )


def _varied(pod: Json, place: Place, value: Any) -> Json:
    """Return a pod that differs in what a variable of existing pods says; the same pod where that is not its own."""
    match place:
        case ("pods", "priority"):
            return {**pod, "priority": value}
        case ("pods", "label", key) if isinstance(value, str):
            return {**pod, "labels": {**pod.get("labels", {}), key: value}}
        case _:
            return pod


def _can_be_requested(resource: str) -> bool:
    """Return whether a case can say how much of a resource a pod requests."""
    return resource != "pods" and device_class(resource) is None


def _part(resource: str, amount: float, *, parts: int = _PARTS) -> float:
    """Return how much one of some pods requests that together request an amount."""
    if resource in SHORT_RESOURCES:
        return amount / parts
    return float(math.ceil(amount / parts))


def _with(form: Mapping[str, Any], resource: str, value: float) -> Json:
    """Return a short form that has, or requests, so much of a resource."""
    match resource:
        case "cpu":
            text: Any = int(value) if value == int(value) else f"{math.ceil(value * 1000)}m"
        case "memory" | "ephemeral-storage":
            text = f"{math.ceil(value / 2**20)}Mi"
        case _:
            return {**form, "resources": {**form.get("resources", {}), resource: int(value)}}
    return {**form, SHORT_RESOURCES[resource]: text}
