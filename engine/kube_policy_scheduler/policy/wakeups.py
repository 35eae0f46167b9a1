"""Which events may help a pod that a clause refused: those that change something that the clause depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledGrouping, CompiledQuota
from kube_policy_scheduler.lang.types import Depends

_E = ClusterEvent
_PODS = frozenset({_E.POD_ADD, _E.POD_UPDATE, _E.POD_DELETE})
_NODE_FACTS = frozenset(
    {
        _E.NODE_ADD,
        _E.NODE_ALLOCATABLE,
        _E.NODE_LABEL,
        _E.NODE_TAINT,
        _E.NODE_CONDITION,
        _E.NODE_ANNOTATION,
        _E.NODE_FEATURE,
        _E.NODE_IMAGES,
    }
)
_BY_DEPENDENCE: tuple[tuple[Depends, frozenset[ClusterEvent]], ...] = (
    (Depends.NODE, _NODE_FACTS),
    (Depends.ROW, _PODS | {_E.NODE_ADD, _E.NODE_ALLOCATABLE}),
    (
        Depends.CLUSTER,
        _PODS
        | {_E.NODE_ADD, _E.NODE_DELETE, _E.NODE_LABEL, _E.NAMESPACE, _E.WORKLOAD, _E.STORAGE}
        | {_E.RESOURCE_CLAIM, _E.RESOURCE_SLICE, _E.DEVICE_CLASS},
    ),
    (Depends.FEASIBLE, _PODS | _NODE_FACTS | {_E.NODE_DELETE}),
    (Depends.SIGNAL, frozenset({_E.SIGNALS, _E.NODE_ADD})),
    (Depends.CLOCK, frozenset({_E.CLOCK})),
)


def events_of(clause: CompiledClause) -> frozenset[ClusterEvent]:
    """Return the events that may change the clause's answer; a change of the pod itself is none of them."""
    counts = isinstance(clause, CompiledQuota | CompiledGrouping)
    return _events(clause.depends | Depends.CLUSTER if counts else clause.depends)


@cache
def _events(depends: Depends) -> frozenset[ClusterEvent]:
    found: frozenset[ClusterEvent] = frozenset()
    for dependence, events in _BY_DEPENDENCE:
        if depends & dependence:
            found |= events
    return found


def wake_table(clauses: Iterable[CompiledClause]) -> Mapping[str, frozenset[ClusterEvent]]:
    """Return the events by clause name; those of clauses with one name together."""
    table: dict[str, frozenset[ClusterEvent]] = {}
    for clause in clauses:
        table[clause.name] = table.get(clause.name, frozenset()) | events_of(clause)
    return table
