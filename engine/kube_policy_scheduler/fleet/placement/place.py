"""What becomes of a workload by its Placement alone, as Karmada's own scheduler decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kube_policy_scheduler.fleet.model import (
    Fleet,
    FleetCluster,
    Outcome,
    Reason,
    Verdict,
    Workload,
)
from kube_policy_scheduler.fleet.placement.affinity import tier_of
from kube_policy_scheduler.fleet.placement.division import assign
from kube_policy_scheduler.fleet.placement.filters import FILTERS, everywhere
from kube_policy_scheduler.fleet.placement.question import Candidate, PlacementError, Question
from kube_policy_scheduler.fleet.placement.room import rooms
from kube_policy_scheduler.fleet.placement.selection import select

SUCCESS = "Binding has been scheduled successfully."
LOCALITY = 100.0
"""The score of a cluster that the workload runs in already; all others have 0, and nothing else scores."""


def place(workload: Workload, fleet: Fleet) -> Outcome:
    """Return where a workload is to run by its Placement, or why it cannot be placed."""
    return by_terms(workload, fleet, place_by_term)


def by_terms(workload: Workload, fleet: Fleet, decide: Callable[[Question], Outcome]) -> Outcome:
    """Return the first answer that places the workload, by one affinity term after the other.

    The observed term comes first, and none before it is tried again, unless the decision is to be fresh. If none
    places it, the answer by the first one counts.
    """
    placement = workload.placement
    if placement.affinity is not None or not placement.terms:
        return decide(Question(workload, fleet))
    names = [term.name for term in placement.terms]
    start = names.index(workload.observed_term) if workload.observed_term in names and not workload.fresh else 0
    first: Outcome | None = None
    for term in placement.terms[start:]:
        outcome = decide(Question(workload, fleet, term))
        if outcome.placed:
            return outcome
        first = first or outcome
    assert first is not None
    return first


def place_by_term(question: Question) -> Outcome:
    """Return where the workload of a question is to run, or why it cannot be placed."""
    verdicts: dict[str, Verdict] = {}
    try:
        candidates = feasible(question, verdicts)
        chosen = select(question, candidates)
        targets = assign(question, chosen)
    except PlacementError as error:
        return failed(question, error, verdicts)
    if question.fleet.keep_empty:
        targets = {each.name: 0 for each in chosen} | targets
    return placed(question, targets, verdicts)


def feasible(
    question: Question, verdicts: dict[str, Verdict], filters: Iterable[str] = tuple(FILTERS)
) -> list[Candidate]:
    """Return the clusters that pass the filters, the best first; note in `verdicts` what is said about each.

    Raises:
        PlacementError: no cluster passes.
    """
    asked = [(name, FILTERS[name](question)) for name in filters if name not in question.fleet.without]
    tests = [(name, test) for name, test in asked if test is not everywhere]
    candidate = _candidates(question)
    found: list[Candidate] = []
    for cluster in question.fleet.clusters:
        if cluster.deleting:
            continue
        for name, test in tests:
            if why := test(cluster):
                verdicts[cluster.name] = Verdict(rejected_by=name, message=why)
                break
        else:
            each = candidate(cluster)
            verdicts[cluster.name] = Verdict(room=each.room, room_by=each.room_by, score=each.score, tier=each.tier)
            found.append(each)
    if not found:
        raise PlacementError(Reason.NO_CLUSTER_FITS, none_fits(question.fleet, verdicts))
    return sorted(found, key=lambda each: each.order)


def _candidates(question: Question) -> Callable[[FleetCluster], Candidate]:
    """Return what makes a candidate of a cluster: its room, its replicas, its score and its tier."""
    has, term, room = question.workload.has, question.term, rooms(question)

    def candidate(cluster: FleetCluster) -> Candidate:
        name = cluster.name
        fits, source = room(cluster)
        tier = (tier_of(term, cluster) or 0) if term is not None and term.overflow else 0
        return Candidate(name, cluster, fits, source, has.get(name, 0), LOCALITY if name in has else 0.0, tier)

    return candidate


def none_fits(fleet: Fleet, verdicts: Mapping[str, Verdict]) -> str:
    """Return the message if no cluster is feasible: how many were rejected for which reason."""
    reasons = Counter(verdict.message for verdict in verdicts.values())
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items())) or "no cluster exists"
    return f"0/{len(fleet.clusters)} clusters are available: {told}."


def placed(question: Question, targets: Mapping[str, int], verdicts: Mapping[str, Verdict]) -> Outcome:
    """Return the answer that the workload gets these replicas."""
    workload = question.workload
    return Outcome(
        Reason.SUCCESS,
        SUCCESS,
        targets,
        write=True,
        observed=True,
        term=question.term.name if question.term is not None else None,
        components=workload.components if question.in_sets and len(workload.components) > 1 else (),
        verdicts=verdicts,
    )


def failed(question: Question, error: PlacementError, verdicts: Mapping[str, Verdict]) -> Outcome:
    """Return the answer that the workload cannot be placed: what runs stays, unless no cluster passes the filters."""
    none = error.reason is Reason.NO_CLUSTER_FITS
    return Outcome(
        error.reason,
        str(error),
        {} if none else question.workload.has,
        write=none,
        verdicts=verdicts,
    )
