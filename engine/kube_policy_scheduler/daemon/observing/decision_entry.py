"""One decision as the log keeps it: references to what does not change, made a record when somebody asks."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis
from kube_policy_scheduler.policy.detail import Detail
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, Ranked, Reading, Reason, recorded_pod

Readings: TypeAlias = tuple[tuple[str, float | None], ...]
"""PromQL, and when it was fetched, in Unix seconds; None: not yet."""


class Entry(msgspec.Struct, eq=False):
    """One decision as it is kept. Only `repeats`, `last` and `bound_seconds` change later."""

    pod: PodInfo
    at: float
    outcome: Outcome
    hash: str
    policy: str | None = None
    node: str = ""
    message: str = ""
    reasons: tuple[Reason, ...] = ()
    readings: Readings = ()
    detail: Detail | None = None
    victims: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    queued: float = 0.0
    attempt: int = 1
    nodes: int = 0
    feasible: int = 0
    ties: int = 1
    score: float | None = None
    seconds: float = 0.0
    verb: str = ""
    theirs: str = ""
    verdict: str = ""
    margin: float | None = None
    repeats: int = 0
    last: float = 0.0
    """Unix seconds of the last repetition."""
    bound_seconds: float | None = None
    """From the decision's attempt to the API server's word that the pod is bound."""
    size: int = 0
    """Bytes that it counts as in the log, beside those of its pod's template, which many entries may share."""

    def __post_init__(self) -> None:
        self.size = self.pod.own_size + len(self.message)


def recorded(entry: Entry, *, seed: int, replica: str, kubernetes: str) -> DecisionRecord:
    """Return an entry as a document."""
    return DecisionRecord(
        time=entry.at,
        pod=recorded_pod(entry.pod),
        outcome=entry.outcome,
        node=entry.node,
        message=entry.message,
        reasons=entry.reasons,
        policy=entry.policy,
        hash=entry.hash,
        seed=seed,
        queued=entry.queued,
        attempt=entry.attempt,
        nodes=entry.nodes,
        feasible=entry.feasible,
        ties=entry.ties,
        score=entry.score,
        detailed=entry.detail is not None,
        top=_top(entry.detail),
        refused=refused(entry),
        metrics=_metrics(entry),
        verb=entry.verb,
        theirs=entry.theirs,
        verdict=entry.verdict,
        margin=entry.margin,
        victims=entry.victims,
        short=entry.short,
        seconds=entry.seconds,
        bound_seconds=entry.bound_seconds,
        repeats=entry.repeats,
        last=entry.last if entry.repeats else None,
        replica=replica,
        kubernetes=kubernetes,
    )


def select_in_steps(
    entries: list[Entry], *, pod: str = "", node: str = "", outcome: str = "", limit: int
) -> Generator[None, None, list[Entry]]:
    """Return the newest entries that match, newest first; yields now and then.

    Args:
        entries: oldest first.
        pod: `namespace/name` or a name; "" for any.
        node: the chosen node, or one of the best; "" for any.
        outcome: value of an `Outcome`; "" for any.
        limit: how many at most.
    """
    found: list[Entry] = []
    for at, entry in enumerate(reversed(entries)):
        if len(found) >= limit:
            break
        if at % _AT_ONCE == _AT_ONCE - 1:
            yield
        if (
            (not pod or pod in (entry.pod.key, entry.pod.name))
            and (not outcome or outcome == entry.outcome.value)
            and (not node or node == entry.node or _is_among(node, entry.detail))
        ):
            found.append(entry)
    return found


_AT_ONCE = 200
"""Entries that are looked at in one step."""


def _is_among(node: str, detail: Detail | None) -> bool:
    return detail is not None and any(ranked.name == node for ranked in detail.top)


def _top(detail: Detail | None) -> tuple[Ranked, ...]:
    if detail is None:
        return ()
    return tuple(Ranked(node=each.name, total=each.total, scores=dict(each.scores)) for each in detail.top)


def refused(entry: Entry) -> dict[str, int]:
    """Return how many nodes each filter rejected, evaluated alone, as far as a close look was taken."""
    if entry.detail is None:
        return {}
    found: dict[str, int] = {}
    for verdict in entry.detail.verdicts:
        if verdict.rejected:
            nodes = verdict.rejected if verdict.asked != 1 else entry.nodes
            found[verdict.plugin.name] = max(nodes, found.get(verdict.plugin.name, 0))
    return found


def _metrics(entry: Entry) -> tuple[Reading, ...]:
    missing = entry.detail.missing if entry.detail is not None else {}
    return tuple(
        Reading(
            query=promql,
            age_seconds=None if fetched_at is None else round(max(0.0, entry.at - fetched_at), 3),
            missing=missing.get(promql),
        )
        for promql, fetched_at in entry.readings
    )


def counted(diagnosis: Diagnosis, rows: IntArray | None = None) -> tuple[Reason, ...]:
    """Return how many nodes were rejected for what.

    Args:
        diagnosis: of all nodes.
        rows: `int64[nodes]`, those that count; None: all.
    """
    rejection = diagnosis.rejection
    if rejection is not None:
        return tuple(Reason(text=reason, nodes=0, plugin=rejection.plugin) for reason in rejection.reasons)
    found = []
    for index, each in diagnosis.rejections:
        nodes = int(np.count_nonzero(each.where if rows is None else each.where[rows]))
        if nodes:
            found.append(Reason(text=each.reason, nodes=nodes, plugin=diagnosis.plugins[index]))
    return tuple(found)
