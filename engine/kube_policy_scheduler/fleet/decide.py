"""What becomes of a workload: the one answer that the daemon, tests, `why` and simulations ask for.

Without a policy, and for all that a policy does not say, the Placement of the workload decides (`placement.place`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from kube_policy_scheduler.fleet.choice import Option, TooFewError, Wanted, choose
from kube_policy_scheduler.fleet.columns import REGION_KEY, FleetFrame
from kube_policy_scheduler.fleet.division import TIERS, Level, Member, Together, bounds_of, divide
from kube_policy_scheduler.fleet.judging import Given, Judged, StaysError, judge
from kube_policy_scheduler.fleet.limits import NO_CAP
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Reason, SpreadConstraint, Verdict, Workload
from kube_policy_scheduler.fleet.placement.division import assign
from kube_policy_scheduler.fleet.placement.place import by_terms, failed, place, placed
from kube_policy_scheduler.fleet.placement.question import Candidate, PlacementError, Question
from kube_policy_scheduler.fleet.placement.selection import checked_constraints, select
from kube_policy_scheduler.fleet.placement.webster import ranks
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledChoose,
    CompiledDivide,
    CompiledForWorkloads,
    CompiledOrder,
    CompiledPolicy,
)
from kube_policy_scheduler.lang.compiling.expressions import Evaluate
from kube_policy_scheduler.wording import one_line, part_of, plural, some

COPIES, AS_PLACEMENT = "copies", "as placement"
MOST_REPLICAS = 2**31 - 1
"""As many as a workload can ask for."""
_WHOLE = (COPIES, AS_PLACEMENT)
_MOST_NAMES = 3
"""Clusters that are named in the reason of another one."""
_MOST_CHARACTERS = 120
"""Of a statement in a reason: there is one for each cluster."""
Rule = TypeVar("Rule", CompiledChoose, CompiledDivide, CompiledOrder)


def decide(
    workload: Workload, fleet: Fleet, policy: CompiledPolicy | None = None, given: Given | None = None
) -> Outcome:
    """Return where a workload is to run, or why it cannot be placed.

    Args:
        workload: what is decided.
        fleet: the clusters, in the order of their names.
        policy: that governs it; None: its Placement alone decides.
        given: the time, metrics, and what is kept between decisions.
    """
    if policy is None or policy.workloads is None:
        return place(workload, fleet)
    rules, asked = policy.workloads, (given or Given()).of(fleet)
    keep = rules.keeps_running and not workload.fresh

    def by_term(question: Question) -> Outcome:
        verdicts: dict[str, Verdict] = {}
        try:
            judged = judge(question, policy, asked, verdicts)
            return _Division(question, rules, judged, verdicts, keep=keep).outcome()
        except PlacementError as error:
            return failed(question, error, verdicts)
        except (StaysError, TooFewError) as error:
            reason = error.reason if isinstance(error, StaysError) else Reason.UNSCHEDULABLE
            return Outcome(reason, str(error), workload.has, verdicts=verdicts)

    return by_terms(workload, fleet, by_term)


def first_of(rules: Sequence[Rule], frame: FleetFrame) -> Rule | None:
    """Return the first of several statements whose condition holds for the workload; None if there is none."""
    return next((each for each in rules if each.condition is None or each.condition(frame)), None)


class _Division:
    """The replicas of one workload among the clusters that pass."""

    def __init__(
        self,
        question: Question,
        rules: CompiledForWorkloads,
        judged: Judged,
        verdicts: dict[str, Verdict],
        *,
        keep: bool,
    ) -> None:
        self.question = question
        self.workload = question.workload
        self.judged = judged
        self.verdicts = verdicts
        self.keep = keep
        self.choose = first_of(rules.chooses, judged.frame)
        divide_by = first_of(rules.divides, judged.frame)
        has_parts = self.workload.has_pods and len(self.workload.components) <= 1 and not question.fleet.whole
        self.rule = divide_by if has_parts and divide_by is not None else None
        self.limits = {
            name: min(cap.most for cap in judged.caps if name in cap.clusters)
            for name in {name for cap in judged.caps for name in cap.clusters}
        }
        """By cluster: the most that it may have by a limit."""
        self.counting: frozenset[str] = frozenset()
        """The chosen clusters whose domains count for `max skew`."""
        self.together: list[tuple[str, Together]] = []
        """What limits and spreads say of several clusters, with the name of the clause."""
        self.how = self.rule.levels[-1].word if self.rule is not None else AS_PLACEMENT

    def outcome(self) -> Outcome:
        """Return the answer.

        Raises:
            PlacementError: the Placement decides, and cannot be met.
            TooFewError: there are fewer clusters than `choose` asks for.
        """
        chosen = self._chosen()
        self.counting = frozenset(each.name for each in chosen) - self.judged.confined
        if self.rule is None or self.how == AS_PLACEMENT:
            targets = assign(self.question, chosen)
            if self.question.fleet.keep_empty:
                targets = {each.name: 0 for each in chosen} | targets
            return self._within_limits(placed(self.question, targets, self._told(targets, chosen, "by the Placement")))
        if self.how == COPIES:
            targets = dict.fromkeys((each.name for each in chosen), self.workload.replicas)
            return self._within_limits(placed(self.question, targets, self._told(targets, chosen, "a copy")))
        return self._within_limits(self._divided(chosen, self.rule))

    def _within_limits(self, outcome: Outcome) -> Outcome:
        """Return the answer if it keeps to all limits.

        Raises:
            StaysError: it does not; what runs stays.
        """
        has = self.workload.has if self.keep else {}
        for cap in self.judged.caps:
            if outcome.write and not cap.allows(outcome.targets, has):
                raise StaysError(cap.reason)
        for spread in self.judged.skews:
            skew = spread.of(outcome.targets, self.counting)
            if outcome.write and skew > spread.most and (not has or skew > spread.of(has, self.counting)):
                raise StaysError(spread.reason)
        return outcome

    # --- which clusters ----------------------------------------------------------------------------------

    def _chosen(self) -> list[Candidate]:
        candidates = self.judged.candidates
        if self.limits:
            candidates = [self._limited(each) for each in candidates if self._fits(each)]
        if self.choose is None:
            return self._selected(candidates)
        divides = self.how not in _WHOLE
        constraints = checked_constraints(self.question)
        topology = self.choose.topology or (REGION_KEY if "region" in constraints else None)
        options = [
            Option(
                each.name,
                runs=self.keep and each.has > 0,
                most=self._most(each),
                place=self._group(each, topology) if topology is not None else None,
            )
            for each in candidates
            if not divides or self._most(each) > 0
        ]
        wanted = self._wanted(self.choose, topology, replicas=self.workload.replicas if divides else 0)
        names = set(choose(options, wanted))
        self._keep_to_regions(names)
        self._pass_over(names, f"not among the {len(names)} chosen")
        return [each for each in candidates if each.name in names]

    def _wanted(self, rule: CompiledChoose, topology: str | None, *, replicas: int) -> Wanted:
        """Return how many clusters are chosen; the Placement's spread constraints apply, too, where Karmada's do."""
        frame, constraints = self.judged.frame, checked_constraints(self.question)
        numbers = (rule.least, rule.most_places, rule.most_each)
        places, most_places, each = (_whole(number(frame)) if number is not None else 0 for number in numbers)
        fewest = _whole(rule.fewest(frame))
        most = max(fewest, _whole(rule.most(frame)))
        clusters, regions = constraints.get("cluster", _ANY), constraints.get("region", _ANY)
        fewest, most = _both(fewest, most, clusters)
        if topology == REGION_KEY:
            places, most_places = _both(places, most_places, regions)
        return Wanted(fewest, most, places, replicas, most_places, each)

    def _keep_to_regions(self, names: Collection[str]) -> None:
        """Keep to what the Placement says of regions, if the policy chooses by something else.

        Raises:
            TooFewError: it is not met.
        """
        regions = checked_constraints(self.question).get("region", _ANY)
        chosen = [each for each in self.judged.candidates if each.name in names]
        count = len({self._group(each, REGION_KEY) for each in chosen} - {None})
        if count < regions.least or count > (regions.most or count):
            raise TooFewError(
                f"the Placement asks for {_range(regions.least, regions.most, 'region')}, and `choose` leads to {count}"
            )

    def _selected(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the clusters by the spread constraints of the Placement; those where it runs stay among them."""
        if self.question.fleet.whole and self.keep:
            # as many as the constraints allow, and who has it is not moved by a better score
            candidates = sorted(candidates, key=lambda each: each.has == 0)
        names = {each.name for each in select(self.question, candidates)}
        if self.rule is not None and self.keep:
            names |= {each.name for each in candidates if each.has > 0}
        self._pass_over(names, "not chosen by the spread constraints")
        return [each for each in candidates if each.name in names]

    def _limited(self, each: Candidate) -> Candidate:
        """Return a cluster with the room that limits leave."""
        limit = self.limits.get(each.name, NO_CAP)
        return each if limit >= each.available else msgspec.structs.replace(each, room=max(0, limit - each.has))

    def _most(self, each: Candidate) -> int:
        """Return how many replicas a cluster may have in all, by its room and the limits."""
        limit = min(each.available, self.limits.get(each.name, NO_CAP))
        return max(limit, each.has) if self.keep else limit

    def _fits(self, each: Candidate) -> bool:
        """Return whether a cluster may have what it would get if it gets all replicas; note it if not."""
        limit = self.limits.get(each.name, NO_CAP)
        if self.how != COPIES or self.workload.replicas <= max(limit, each.has):
            return True
        cap = next(cap for cap in self.judged.caps if each.name in cap.clusters and cap.most == limit)
        known = self.verdicts[each.name]
        self.verdicts[each.name] = msgspec.structs.replace(known, rejected_by=cap.clause, message=cap.reason)
        return False

    def _pass_over(self, names: set[str], why: str) -> None:
        for each in self.judged.candidates:
            if each.name not in names:
                self.verdicts[each.name] = msgspec.structs.replace(self.verdicts[each.name], message=why)

    def _group(self, each: Candidate, topology: str) -> str | None:
        """Return the region, zone, … of a cluster; None if it has none."""
        columns = self.judged.frame.columns
        return columns.cluster.nodes.infos[columns.rows[each.name]].labels.get(topology)

    # --- how many replicas -------------------------------------------------------------------------------

    def _divided(self, chosen: Sequence[Candidate], rule: CompiledDivide) -> Outcome:
        members = self._members(chosen, rule)
        levels = [Level(level.word, level.targets) for level in rule.levels]
        if self.question.overflows:
            levels.insert(0, Level(TIERS, {}))
        self.together = self._together(members, levels)
        found = self._shared(members, levels, [bound for _, bound in self.together]) if members else {}
        count, asked = sum(found.values()), self.workload.replicas
        targets = {name: count for name, count in found.items() if count > 0}
        if count >= asked or (rule.partly and count > 0):
            by = one_line(rule.text, _MOST_CHARACTERS)
            done = placed(self.question, targets, self._told(found, chosen, by, members))
            if count >= asked:
                return done
            message = f"{part_of(count, asked, 'replica')} {'has' if count == 1 else 'have'} room"
            return msgspec.structs.replace(done, reason=Reason.UNSCHEDULABLE, message=message)
        for name, could in found.items():
            self._say(name, f"could have {could}")
        message = f"there is room for {part_of(count, asked, 'replica')}{self._limited_by(found)}"
        return Outcome(Reason.UNSCHEDULABLE, message, self.workload.has, verdicts=self.verdicts)

    def _members(self, chosen: Sequence[Candidate], rule: CompiledDivide) -> list[Member]:
        frame, found = self.judged.frame, []
        rows, keys = frame.columns.rows, [level.topology for level in rule.levels if level.topology is not None]
        most = _whole_numbers(rule.most, frame, MOST_REPLICAS)
        least = _whole_numbers(rule.least, frame, 0)
        votes = list(zip(*(_votes(level.value, frame) for level in rule.levels), strict=True))
        for each in chosen:
            row, tier = rows[each.name], self._tier(each)
            groups = [self._group(each, key) for key in keys]
            if None in groups and each.has == 0:
                self._say(each.name, "it has no value for a level of `divide`")
                continue
            limit = min(each.room + each.has, most[row])
            if self.limits:
                limit = min(limit, self.limits.get(each.name, NO_CAP))
            found.append(
                Member(
                    each.name,
                    each.has,
                    max(limit, each.has) if self.keep else limit,
                    least[row],
                    (*tier, *(group or "" for group in groups)) if tier or groups else (),
                    (0.0, *votes[row]) if tier else votes[row],
                )
            )
        return found

    def _together(self, members: Sequence[Member], levels: Sequence[Level]) -> list[tuple[str, Together]]:
        """Return what limits and spreads say of several clusters, with the name of the clause."""
        has = self.workload.has if self.keep else {}
        found = [
            (cap.clause, Together(cap.clusters, max(cap.most, sum(has.get(name, 0) for name in cap.clusters))))
            for cap in self.judged.caps
        ]
        capped = [bound for _, bound in found]
        bounds = bounds_of(self.workload.replicas, members, keep=self.keep, together=capped)
        for spread in self.judged.skews:
            wish = self._shared(members, levels, capped)
            groups = spread.together(wish, self.workload.replicas, members, bounds, self.counting)
            found += [(spread.clause, group) for group in groups]
        return found

    def _shared(
        self, members: Sequence[Member], levels: Sequence[Level], together: Sequence[Together]
    ) -> dict[str, int]:
        places = ranks({each.name: None for each in members}, self.workload.uid)
        return divide(self.workload.replicas, members, levels, places, keep=self.keep, together=together)

    def _tier(self, each: Candidate) -> tuple[str, ...]:
        return (f"{each.tier:06}",) if self.question.overflows else ()

    # --- why ---------------------------------------------------------------------------------------------

    def _limited_by(self, found: Mapping[str, int]) -> str:
        """Return which limits and spreads leave no more than was found."""
        room = {each.name: each.available for each in self.judged.candidates}
        full = [
            clause
            for clause, bound in self.together
            if sum(found.get(name, 0) for name in bound.clusters) >= bound.most
            and any(found.get(name, 0) < room.get(name, 0) for name in bound.clusters)
        ]
        return f", by {some(list(dict.fromkeys(full)), limit=_MOST_NAMES)}" if full else ""

    def _say(self, name: str, message: str) -> None:
        self.verdicts[name] = msgspec.structs.replace(self.verdicts[name], message=message)

    def _told(
        self, targets: Mapping[str, int], chosen: Sequence[Candidate], by: str, members: Sequence[Member] = ()
    ) -> Mapping[str, Verdict]:
        """Return the verdicts with the reason of each number of replicas."""
        limits = {each.name: each.most for each in members}
        full = [each.name for each in chosen if 0 < targets.get(each.name, 0) >= limits.get(each.name, MOST_REPLICAS)]
        for each in chosen:
            if each.name not in targets and members:
                continue
            got = targets.get(each.name, 0)
            self._say(each.name, _reason(each, got, by, full, limits))
        return self.verdicts


def _reason(each: Candidate, got: int, by: str, full: Sequence[str], limits: Mapping[str, int]) -> str:
    """Return why a cluster got so many replicas."""
    limit = limits.get(each.name)
    kept = f", {min(got, each.has)} of them ran there" if 0 < each.has < got else ""
    if each.has == got > 0:
        return f"keeps {got}"
    if got < each.has:
        return f"{each.has - got} of {each.has} taken away: {by}"
    if limit is not None and got == limit:
        return f"all that it may have{kept}" if got else "no room"
    if not got:
        return f"not needed: {by}"
    rest = f"rest after {some(full, limit=_MOST_NAMES)} {'was' if len(full) == 1 else 'were'} full" if full else by
    return f"{got}: {rest}{kept}"


_ANY = SpreadConstraint()


def _both(fewest: int, most: int, asked: SpreadConstraint) -> tuple[int, int]:
    """Return the range that a policy and a constraint of the Placement leave; if there is none, the Placement decides.

    0 is no upper end.
    """
    highest = min(most or asked.most, asked.most or most)
    if highest and fewest > highest:
        fewest = highest
    least = max(fewest, asked.least)
    return least, max(highest, least) if highest else 0


def _range(least: int, most: int, noun: str) -> str:
    if not most:
        return f"at least {plural(least, noun)}"
    return f"{least} to {plural(most, noun)}" if least < most else plural(most, noun)


def _whole(value: Any) -> int:
    """Return a number of replicas or clusters, rounded down and bounded; a missing one is 0."""
    number = float(value)
    return 0 if number != number else int(max(0.0, min(number, MOST_REPLICAS)))


def _whole_numbers(evaluate: Evaluate | None, frame: FleetFrame, default: int) -> list[int]:
    """Return a number of replicas for each cluster; of a value that is missing, 0."""
    value = default if evaluate is None else evaluate(frame)
    return list(map(_whole, value.tolist())) if isinstance(value, np.ndarray) else [_whole(value)] * frame.size


def _votes(evaluate: Evaluate | None, frame: FleetFrame) -> list[float]:
    """Return the part of each cluster; what is missing, negative or without end is 0."""
    value = 0.0 if evaluate is None else evaluate(frame)
    column = value if isinstance(value, np.ndarray) else np.full(frame.size, float(value))
    found: list[float] = np.where((column > 0) & np.isfinite(column), column, 0.0).tolist()
    return found
