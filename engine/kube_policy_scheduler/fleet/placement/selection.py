"""Which of the feasible clusters are chosen: the spread constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kube_policy_scheduler.fleet.model import Reason, SpreadConstraint
from kube_policy_scheduler.fleet.placement.question import Candidate, PlacementError, Question

MOST_LOOKS = 20_000
"""Sets of regions that are looked at for one answer, in 0.3 s: all sets of up to five of 20 regions."""


def select(question: Question, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the clusters among which the replicas are divided; candidates: the best first, by their `order`.

    Raises:
        PlacementError: a spread constraint cannot be met.
    """
    spread = question.workload.placement.spread
    if not spread or _by_static_weights(question):
        return list(candidates)
    by_field = {each.field: each for each in spread}
    clusters = by_field.get("cluster", SpreadConstraint("cluster"))
    if "region" in by_field:
        return _by_region(question, candidates, by_field["region"], clusters)
    if "cluster" in by_field:
        return _by_cluster(question, candidates, clusters)
    raise _error("just support cluster and region spread constraint")


def _by_static_weights(question: Question) -> bool:
    scheduling = question.workload.placement.scheduling
    if scheduling is None or not question.divided or scheduling.preference != "Weighted":
        return False
    return not scheduling.weighted or bool(scheduling.weights and not scheduling.dynamic)


def checked_constraints(question: Question) -> Mapping[str, SpreadConstraint]:
    """Return the spread constraints that Karmada keeps to, by field: those of clusters and regions."""
    if _by_static_weights(question):
        return {}
    return {each.field: each for each in question.workload.placement.spread if each.field in ("cluster", "region")}


def _error(text: str) -> PlacementError:
    return PlacementError(Reason.ERROR, f"failed to select clusters: {text}")


def _by_cluster(question: Question, candidates: Sequence[Candidate], limits: SpreadConstraint) -> list[Candidate]:
    if len(candidates) < limits.least:
        raise _error("the number of feasible clusters is less than spreadConstraint.MinGroups")
    count = min(len(candidates), limits.most)
    if not question.divided:
        return list(candidates[:count])
    chosen = _with_room(candidates, count, 1 if question.in_sets else question.workload.replicas)
    if not chosen:
        raise _error(f"no enough resource when selecting {count} clusters")
    return chosen


def _with_room(candidates: Sequence[Candidate], count: int, replicas: int) -> list[Candidate]:
    """Return the first candidates, each of the last swapped for one with more room until they suffice; else none."""
    chosen, rest = list(candidates[:count]), list(candidates[count:])
    total = sum(each.available for each in chosen)
    for place in range(count - 1, -1, -1):
        if total >= replicas or not rest:
            break
        most = max(range(len(rest)), key=lambda at: rest[at].available)
        if rest[most].available > chosen[place].available:
            total += rest[most].available - chosen[place].available
            chosen[place], rest[most] = rest[most], chosen[place]
    return chosen if total >= replicas else []


class _Region(msgspec.Struct, frozen=True):
    name: str
    clusters: list[Candidate]
    score: int


def _by_region(
    question: Question, candidates: Sequence[Candidate], limits: SpreadConstraint, clusters: SpreadConstraint
) -> list[Candidate]:
    members: dict[str, list[Candidate]] = {}
    for each in candidates:
        if each.cluster.region:
            members.setdefault(each.cluster.region, []).append(each)
    if len(members) < limits.least:
        raise _error("the number of feasible region is less than spreadConstraint.MinGroups")
    regions = [
        _Region(name, inside, _region_score(question, inside, limits, clusters)) for name, inside in members.items()
    ]
    best = _best_regions(regions, limits, clusters.least)
    if not best:
        raise _error("the number of clusters is less than the cluster spreadConstraint.MinGroups")
    chosen = [region.clusters[0] for region in best]
    rest = sorted((each for region in best for each in region.clusters[1:]), key=lambda each: each.order)
    return chosen + rest[: max(0, clusters.most - len(chosen))]


def _region_score(
    question: Question, members: Sequence[Candidate], limits: SpreadConstraint, clusters: SpreadConstraint
) -> int:
    """Return the score of a region: a thousand for each replica or cluster that counts, and the mean cluster score."""
    replicas = question.workload.replicas
    if not question.divided:
        able = [each for each in members if each.available >= replicas]
        return 1000 * len(able) + _mean(able)
    target = -(-replicas // max(1, limits.least))
    least, total = max(clusters.least, limits.least), 0
    for count, each in enumerate(members, 1):
        total += each.available
        if count >= least and total >= target:
            return 1000 * target + _mean(members[:count])
    return 1000 * min(total, target) + _mean(members)


def _mean(members: Sequence[Candidate]) -> int:
    return int(sum(each.score for each in members)) // len(members) if members else 0


def _best_regions(regions: Sequence[_Region], limits: SpreadConstraint, clusters: int) -> list[_Region]:
    """Return the set of regions with the greatest score that has enough clusters; empty if there is none."""
    ordered = sorted(regions, key=lambda region: (len(region.clusters), -region.score, region.name))
    paths = [
        sorted(path, key=lambda region: (-region.score, region.name)) for path in _paths(ordered, limits, clusters)
    ]
    if not paths:
        return []
    paths.sort(key=lambda path: (-sum(each.score for each in path), -sum(len(each.clusters) for each in path)))
    best = paths[0]
    for path in paths[1:]:
        if len(path) < len(best) and all(mine is other for mine, other in zip(path, best, strict=False)):
            best = path
    return best


def _paths(regions: Sequence[_Region], limits: SpreadConstraint, clusters: int) -> Iterator[list[_Region]]:
    """Yield sets of regions with enough clusters, none of which continues another: at most `MOST_LOOKS` are looked at.

    If as many regions are needed as there are, only the sets that begin with the first one are tried.
    """
    stack: list[tuple[list[_Region], int, int]] = [([], 0, 0)]
    for _ in range(MOST_LOOKS):
        if not stack:
            return
        path, count, start = stack.pop()
        if count >= clusters and limits.least <= len(path) <= limits.most:
            yield path
            continue
        if len(path) >= limits.most:
            continue
        last = start + 1 if len(regions) == limits.least else len(regions)
        for at in range(min(last, len(regions)) - 1, start - 1, -1):
            stack.append(([*path, regions[at]], count + len(regions[at].clusters), at + 1))
