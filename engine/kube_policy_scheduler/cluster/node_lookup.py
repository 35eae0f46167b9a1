"""Nodes by the value of a label: for selectors that match one or a few nodes out of thousands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name
from kube_policy_scheduler.cluster.node_selectors import expression_mask, node_term
from kube_policy_scheduler.cluster.nodes import IntArray, LabelColumn, NodeTable
from kube_policy_scheduler.cluster.selectors import Expression

_MANY_TERMS = 16
"""Of a volume from which on what they find is kept: most have one, and a driver may write 10,000."""
_MOST_KEPT = 1024


def rows_matching(expressions: Sequence[Expression], nodes: NodeTable) -> IntArray:
    """Return the rows of the nodes whose labels meet every requirement; all rows for none."""
    if len(expressions) == 1 and expressions[0].operator == "In":
        return _rows_with(expressions[0], nodes)
    result = np.ones(nodes.size, np.bool_)
    for expression in expressions:
        result &= expression_mask(expression, nodes)
    return np.flatnonzero(result)


def _rows_with(expression: Expression, nodes: NodeTable) -> IntArray:
    key = expression.key
    column = nodes.label(key)
    order, starts = nodes.derive_from(column, ("rows-by-label", nodes.known_label(key)), lambda: _by_code(column))
    found = [
        order[starts[code] : starts[code + 1]]
        for value in expression.values
        if (code := column.index.get(value)) is not None
    ]
    return found[0] if len(found) == 1 else np.concatenate((*found, np.zeros(0, np.int64)))


def _by_code(column: LabelColumn) -> tuple[IntArray, NDArray[np.intp]]:
    order = np.argsort(column.codes, kind="stable")
    return order, np.searchsorted(column.codes[order], np.arange(len(column.values) + 1))


def single_label(expressions: Sequence[objects.Requirement] | None) -> tuple[str, str] | None:
    """Return the one label and value that API requirements need, None if they need anything else."""
    if expressions is None or len(expressions) != 1:
        return None
    only = expressions[0]
    if only.operator != "In" or only.values is None or len(only.values) != 1:
        return None
    return (only.key, only.values[0]) if is_label_value(only.values[0]) and is_qualified_name(only.key) else None


def rows_of_volume(required: objects.NodeSelector, nodes: NodeTable) -> IntArray:
    """Return the rows of the nodes that a volume's node affinity admits.

    It reads labels only: requirements on fields are met by every node (`volume.CheckNodeAffinity`).
    """
    terms = required.node_selector_terms or ()
    if len(terms) < _MANY_TERMS:
        return _rows_of_any([found.labels for term in terms if (found := node_term(term)) is not None], nodes)
    known: dict[int, tuple[objects.NodeSelector, int, IntArray]] = nodes.attach("rows of volumes", dict)
    kept = known.get(id(required))
    if kept is None or kept[0] is not required or kept[1] != nodes.version:
        if len(known) >= _MOST_KEPT:
            known.clear()
        rows = _rows_of_any([found.labels for term in terms if (found := node_term(term)) is not None], nodes)
        kept = known[id(required)] = required, nodes.version, rows
    return kept[2]


def _rows_of_any(terms: Sequence[Sequence[Expression]], nodes: NodeTable) -> IntArray:
    """Return the rows of the nodes that meet all requirements of one of the terms; requirements on nothing are met."""
    if len(terms) == 1:
        return rows_matching(terms[0], nodes)
    result = np.zeros(nodes.size, np.bool_)
    for term in terms:
        result[rows_matching(term, nodes)] = True
        if len(terms) >= _MANY_TERMS and result.all():
            break
    return np.flatnonzero(result)


def rows_of_topologies(terms: Sequence[objects.TopologySelectorTerm], nodes: NodeTable) -> IntArray:
    """Return the rows of the nodes that meet one of a storage class's `allowedTopologies`; none of them means all."""
    if not terms:
        return np.arange(nodes.size)
    return _rows_of_any(
        [
            [Expression(r.key, "In", frozenset(r.values or ())) for r in requirements]
            for term in terms
            if (requirements := term.match_label_expressions)  # an empty term matches nothing
        ],
        nodes,
    )
