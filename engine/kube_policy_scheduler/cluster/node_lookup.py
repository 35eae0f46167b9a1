"""Nodes by the value of a label: for selectors that match one or a few nodes out of thousands."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name
from kube_policy_scheduler.cluster.node_selectors import expression_mask, met_everywhere, node_term
from kube_policy_scheduler.cluster.nodes import IntArray, LabelColumn, NodeTable
from kube_policy_scheduler.cluster.selectors import Expression
from kube_policy_scheduler.cluster.steps import every, now

_MANY_TERMS = 16
"""Of a volume from which on what they find is kept: most have one, and a driver may write 10,000."""
_MOST_KEPT = 1024
_TERMS_AT_ONCE = 256
"""Of a volume that are read, or compared with nodes, before other work gets its turn: 2 to 5 ms."""


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


class _Kept(msgspec.Struct):
    """What is known of the node affinity of one volume with many terms."""

    required: objects.NodeSelector
    terms: list[Sequence[Expression]] | None = None
    """None: not read yet."""
    rows: IntArray | None = None
    version: int = -1
    """Of the nodes' static values, with which the rows were found."""


def rows_of_volume(required: objects.NodeSelector, nodes: NodeTable) -> IntArray:
    """Return the rows of the nodes that a volume's node affinity admits.

    It reads labels only: requirements on fields are met by every node (`volume.CheckNodeAffinity`).
    """
    terms = required.node_selector_terms or ()
    if len(terms) < _MANY_TERMS:
        return _rows_of_any([found.labels for term in terms if (found := node_term(term)) is not None], nodes)
    kept = _kept(required, nodes)
    if kept.rows is None or kept.version != nodes.version:
        now(_find(kept, nodes))
    assert kept.rows is not None
    return kept.rows


def has_many_terms(required: objects.NodeSelector) -> bool:
    """Return whether there are so many terms that `make_rows_of_volume` is to be asked first."""
    return len(required.node_selector_terms or ()) >= _TERMS_AT_ONCE


def make_rows_of_volume(required: objects.NodeSelector, nodes: NodeTable) -> bool:
    """Find a part of the rows that `rows_of_volume` returns; return whether all are found."""
    kept = _kept(required, nodes)
    if kept.rows is not None and kept.version == nodes.version:
        return True
    return nodes.under_way.go_on(("rows of a volume", id(required)), lambda: every(_TERMS_AT_ONCE, _find(kept, nodes)))


def _kept(required: objects.NodeSelector, nodes: NodeTable) -> _Kept:
    known: dict[int, _Kept] = nodes.attach("rows of volumes", dict)
    kept = known.get(id(required))
    if kept is None or kept.required is not required:
        if len(known) >= _MOST_KEPT:
            known.clear()
        kept = known[id(required)] = _Kept(required)
    return kept


def _find(kept: _Kept, nodes: NodeTable) -> Generator[None, None, None]:
    """Find the rows in steps; once they are read, very many terms are soon compared with other nodes."""
    if kept.terms is None:
        terms: list[Sequence[Expression]] = []
        for term in kept.required.node_selector_terms or ():
            if (found := node_term(term)) is not None:
                terms.append(found.labels)
            yield
        kept.terms = kept.terms if kept.terms is not None else terms
    version = nodes.version
    mask = np.zeros(nodes.size, np.bool_)
    compared: set[frozenset[Expression]] = set()
    for expressions in kept.terms:
        left = relevant(expressions, nodes)
        if left is not None and left not in compared:
            compared.add(left)
            mask[rows_matching(tuple(left), nodes)] = True
            if mask.all():
                break
        yield
        if nodes.version != version:
            return
    kept.rows, kept.version = np.flatnonzero(mask), version


def relevant(expressions: Sequence[Expression], nodes: NodeTable) -> frozenset[Expression] | None:
    """Return what of some requirements some nodes meet and others may not; None: no node meets all.

    Requirements on different values that no node has become equal.
    """
    found = []
    for expression in expressions:
        if (met := met_everywhere(expression, nodes)) is not None:
            if not met:
                return None
            continue
        if expression.operator in ("In", "NotIn") and len(expression.values) > 1:
            known = nodes.label(expression.key).index
            values = frozenset(value for value in expression.values if value in known)
            expression = Expression(expression.key, expression.operator, values)
        found.append(expression)
    return frozenset(found)


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
