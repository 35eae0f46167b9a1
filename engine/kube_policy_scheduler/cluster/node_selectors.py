"""Node selectors as columns: nodeSelector, required and preferred node affinity, a volume's node affinity.

Rules: `component-helpers/scheduling/corev1/nodeaffinity` of Kubernetes 1.36. Terms are ORed, requirements in one
term are ANDed; an empty term matches nothing, and so does a term that does not parse (others still count).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import Expression, parse_integer

NAME_FIELD = "metadata.name"
"""The only field of a node that a selector can name."""
_NO_CODE = -2
"""No value of a label has this code, and an absent label has a different one."""


class FieldTest(msgspec.Struct, frozen=True):
    """One requirement on a field of the node: equal to a text or not."""

    field: str
    value: str
    equal: bool

    def test(self, name: str) -> bool:
        """Return whether a node of this name passes; fields other than the name are empty."""
        return ((name if self.field == NAME_FIELD else "") == self.value) is self.equal

    def mask(self, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        if self.field != NAME_FIELD:
            return np.full(_length(nodes, rows), self.test(""), np.bool_)
        row = nodes.rows.get(self.value, -1)
        if isinstance(rows, slice):
            result = np.full(nodes.size, not self.equal, np.bool_)
            if row >= 0:
                result[row] = self.equal
            return result[rows]
        here: BoolArray = (rows == row) if self.equal else (rows != row)
        return here


class NodeTerm(msgspec.Struct, frozen=True):
    """A conjunction of label and field requirements."""

    labels: tuple[Expression, ...]
    fields: tuple[FieldTest, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether one node passes."""
        return all(e.matches(labels) for e in self.labels) and all(f.test(name) for f in self.fields)

    def everywhere(self, nodes: NodeTable) -> bool | None:
        """Return whether all nodes pass, or none do; None if they differ, or it takes all of them to know."""
        if self.fields:
            return None
        found = [_everywhere(expression, nodes) for expression in self.labels]
        return False if False in found else None if None in found else True

    def mask(self, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        masks = [expression_mask(e, nodes, rows) for e in self.labels]
        masks += [f.mask(nodes, rows) for f in self.fields]
        return _all(masks)


class NodeSelector(msgspec.Struct, frozen=True):
    """A disjunction of terms; without any it matches nothing."""

    terms: tuple[NodeTerm, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether one node passes."""
        return any(term.matches(labels, name) for term in self.terms)

    def mask(self, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        if not self.terms:
            return np.zeros(_length(nodes, rows), np.bool_)
        result = self.terms[0].mask(nodes, rows)
        for term in self.terms[1:]:
            result = result | term.mask(nodes, rows)
        return result


class RequiredNodes(msgspec.Struct, frozen=True):
    """What a pod requires of its node: every label of its nodeSelector and, where given, its node affinity."""

    labels: tuple[Expression, ...]
    selector: NodeSelector | None

    def mask(self, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        masks = [expression_mask(e, nodes, rows) for e in self.labels]
        if self.selector is not None:
            masks.append(self.selector.mask(nodes, rows))
        return _all(masks) if masks else np.ones(_length(nodes, rows), np.bool_)


class WeightedTerm(msgspec.Struct, frozen=True):
    """A term of preferred node affinity."""

    term: NodeTerm
    weight: int


def node_selector(selector: objects.NodeSelector) -> NodeSelector:
    """Compile an API node selector; empty terms and those that do not parse are left out, as they match nothing."""
    terms = (node_term(term) for term in selector.node_selector_terms or ())
    return NodeSelector(tuple(term for term in terms if term is not None))


def node_term(term: objects.NodeSelectorTerm) -> NodeTerm | None:
    """Compile one term; None if it can match nothing."""
    labels = [_expression(r) for r in term.match_expressions or ()]
    fields = [_field_test(r) for r in term.match_fields or ()]
    if not labels and not fields:
        return None
    parsed = tuple(e for e in labels if e is not None)
    tests = tuple(f for f in fields if f is not None)
    if len(parsed) < len(labels) or len(tests) < len(fields):
        return None
    return NodeTerm(parsed, tests)


def required_nodes(template: PodTemplate) -> RequiredNodes:
    """Return the template's nodeSelector and required node affinity, compiled once."""
    known: RequiredNodes | None = template.shape.get("required-nodes")
    if known is None:
        spec = template.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity.required if affinity else None
        known = template.shape["required-nodes"] = RequiredNodes(
            tuple(Expression(k, "In", frozenset((v,))) for k, v in sorted((spec.node_selector or {}).items())),
            node_selector(required) if required is not None else None,
        )
    return known


def preferred_nodes(terms: Iterable[objects.PreferredSchedulingTerm]) -> tuple[WeightedTerm, ...]:
    """Compile preferred terms; those without weight, and those that are empty or do not parse, are left out."""
    compiled = ((node_term(t.preference), t.weight) for t in terms if t.weight and t.preference is not None)
    return tuple(WeightedTerm(term, weight) for term, weight in compiled if term is not None)


def _everywhere(expression: Expression, nodes: NodeTable) -> bool | None:
    """Return whether the labels of all nodes meet a requirement, or none do; None if they differ, or it is not known.

    Most labels that a pod names for itself are on no node, or never have the value.
    """
    if expression.operator in ("In", "NotIn"):
        known = nodes.label(expression.key).index
        if not any(value in known for value in expression.values):
            return expression.operator == "NotIn"
    elif nodes.known_label(expression.key) is None:
        return expression.operator == "DoesNotExist"
    return None


def expression_mask(expression: Expression, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
    """Return `bool[rows]`: whether each node's label meets the requirement."""
    column = nodes.label(expression.key)
    match expression.operator:
        case "In" | "NotIn":
            wanted = [column.index[value] for value in expression.values if value in column.index]
            codes = column.codes[rows]
            if len(wanted) <= 1:
                found: BoolArray = codes == (wanted[0] if wanted else _NO_CODE)
            else:
                table = np.zeros(len(column.values) + 1, np.bool_)
                table[wanted] = True
                found = table.take(codes)
            return found if expression.operator == "In" else ~found
        case "Exists":
            return column.codes[rows] >= 0
        case "DoesNotExist":
            return column.codes[rows] < 0
        case "Gt" | "Lt":
            known = nodes.known_label(expression.key)
            numbers, valid = nodes.derive_from(column, ("label-integers", known), lambda: _integers(column.values))
            codes = column.codes[rows]
            bound = parse_integer(next(iter(expression.values), None))
            if bound is None:
                return np.zeros(len(codes), np.bool_)
            passing: BoolArray = (numbers > bound) if expression.operator == "Gt" else (numbers < bound)
            result: BoolArray = (passing & valid).take(codes)
            return result
    return column.test(expression.test(), rows)


def _integers(values: list[str]) -> tuple[IntArray, BoolArray]:
    """Return each distinct value as a number and whether it is one; the last entry is the absent value."""
    parsed = [*(parse_integer(value) for value in values), None]
    numbers = np.array([number or 0 for number in parsed], np.int64)
    return numbers, np.array([number is not None for number in parsed], np.bool_)


def _all(masks: Iterable[BoolArray]) -> BoolArray:
    result: BoolArray | None = None
    for mask in masks:
        result = mask if result is None else result & mask
    assert result is not None
    return result


def _length(nodes: NodeTable, rows: Rows) -> int:
    return nodes.size if isinstance(rows, slice) else len(rows)


def _expression(requirement: objects.Requirement) -> Expression | None:
    """Compile a requirement on a label; None if it does not parse (`labels.NewRequirement`)."""
    values = requirement.values or []
    match requirement.operator:
        case "In" | "NotIn":
            good = bool(values)
        case "Exists" | "DoesNotExist":
            good = not values
        case "Gt" | "Lt":
            good = len(values) == 1 and parse_integer(values[0]) is not None
        case _:
            good = False
    if not good or not is_qualified_name(requirement.key) or not all(map(is_label_value, values)):
        return None
    return Expression(requirement.key, requirement.operator, frozenset(values))


def _field_test(requirement: objects.Requirement) -> FieldTest | None:
    values = requirement.values or []
    if requirement.operator not in ("In", "NotIn") or len(values) != 1:
        return None
    return FieldTest(requirement.key, values[0], requirement.operator == "In")
