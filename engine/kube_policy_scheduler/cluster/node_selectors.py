"""Node selectors as columns: nodeSelector, required and preferred node affinity, a volume's node affinity.

Rules: `component-helpers/scheduling/corev1/nodeaffinity` of Kubernetes 1.36. Terms are ORed, requirements in one
term are ANDed; an empty term matches nothing, and so does a term that does not parse (others still count).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import Expression, parse_integer
from kube_policy_scheduler.cluster.steps import now

NAME_FIELD = "metadata.name"
"""The only field of a node that a selector can name."""
_NO_CODE = -2
"""No value of a label has this code, and an absent label has a different one."""
MANY = 256
"""Requirements of one pod from which on its nodes are found in turns, and kept: 30,000 fit into one pod."""
_ROWS_AT_ONCE = 1 << 19
"""Nodes times requirements before other work gets its turn: 2 to 5 ms."""
_COMPILED_AT_ONCE = 512
"""Requirements that are compiled before other work gets its turn."""
_MOST_RESTARTS = 3
"""Because nodes changed meanwhile; then the rest is one turn."""
_REQUIRED, _PREFERRED, _KEPT = "required-nodes", "preferred-nodes", "nodes of selectors"


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
        found = [met_everywhere(expression, nodes) for expression in self.labels]
        return False if False in found else None if None in found else True

    def mask(self, nodes: NodeTable, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return now(self.mask_in_steps(nodes, rows))

    def mask_in_steps(self, nodes: NodeTable, rows: Rows) -> Generator[None, None, BoolArray]:
        """Return the same, with a step for each requirement but the last one that counts."""
        result: BoolArray | None = None
        tests: tuple[Expression | FieldTest, ...] = (*self.labels, *self.fields)
        for test in tests:
            if result is not None:
                yield
            mask = expression_mask(test, nodes, rows) if isinstance(test, Expression) else test.mask(nodes, rows)
            result = mask if result is None else result & mask
            if not result.any():
                break
        assert result is not None
        return result


class NodeSelector(msgspec.Struct, frozen=True):
    """A disjunction of terms; without any it matches nothing."""

    terms: tuple[NodeTerm, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether one node passes."""
        return any(term.matches(labels, name) for term in self.terms)

    def mask(self, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return now(self.mask_in_steps(nodes, rows))

    def mask_in_steps(self, nodes: NodeTable, rows: Rows) -> Generator[None, None, BoolArray]:
        """Return the same, with a step for each requirement but the last one that counts."""
        if not self.terms:
            return np.zeros(_length(nodes, rows), np.bool_)
        result: BoolArray | None = None
        for term in self.terms:
            if result is not None:
                yield
            mask = yield from term.mask_in_steps(nodes, rows)
            result = mask if result is None else result | mask
            if result.all():
                break
        assert result is not None
        return result


class RequiredNodes(msgspec.Struct, frozen=True):
    """What a pod requires of its node: every label of its nodeSelector and, where given, its node affinity."""

    labels: tuple[Expression, ...]
    selector: NodeSelector | None

    def mask(self, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return now(self.mask_in_steps(nodes, rows))

    def mask_in_steps(self, nodes: NodeTable, rows: Rows) -> Generator[None, None, BoolArray]:
        """Return the same, with a step for each requirement but the last one that counts."""
        result = np.ones(_length(nodes, rows), np.bool_)
        for expression in self.labels:
            result = result & expression_mask(expression, nodes, rows)
            if not result.any():
                return result
            yield
        if self.selector is not None:
            mask = yield from self.selector.mask_in_steps(nodes, rows)
            result = result & mask
        return result


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
    return now(_node_term_in_steps(term))


def _node_term_in_steps(term: objects.NodeSelectorTerm) -> Generator[None, None, NodeTerm | None]:
    labels: list[Expression] = []
    for requirement in term.match_expressions or ():
        expression = _expression(requirement)
        if expression is None:
            return None
        labels.append(expression)
        yield
    fields: list[FieldTest] = []
    for requirement in term.match_fields or ():
        test = _field_test(requirement)
        if test is None:
            return None
        fields.append(test)
        yield
    return NodeTerm(tuple(labels), tuple(fields)) if labels or fields else None


def required_nodes(template: PodTemplate) -> RequiredNodes:
    """Return the template's nodeSelector and required node affinity, compiled once."""
    known: RequiredNodes | None = template.shape.get(_REQUIRED)
    return known if known is not None else now(_required_in_steps(template))


def _required_in_steps(template: PodTemplate) -> Generator[None, None, RequiredNodes]:
    spec = template.spec
    labels: list[Expression] = []
    for key, value in sorted((spec.node_selector or {}).items()):
        labels.append(Expression(key, "In", frozenset((value,))))
        yield
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    selector: NodeSelector | None = None
    if required is not None:
        terms: list[NodeTerm] = []
        for term in required.node_selector_terms or ():
            compiled = yield from _node_term_in_steps(term)
            if compiled is not None:
                terms.append(compiled)
        selector = NodeSelector(tuple(terms))
    found: RequiredNodes = template.shape.setdefault(_REQUIRED, RequiredNodes(tuple(labels), selector))
    return found


def preferred_nodes(template: PodTemplate) -> tuple[WeightedTerm, ...]:
    """Return the template's preferred terms, compiled once.

    Those without weight, and those that are empty or do not parse, are left out.
    """
    known: tuple[WeightedTerm, ...] | None = template.shape.get(_PREFERRED)
    return known if known is not None else now(_preferred_in_steps(template))


def _preferred_in_steps(template: PodTemplate) -> Generator[None, None, tuple[WeightedTerm, ...]]:
    affinity = template.spec.affinity.node_affinity if template.spec.affinity else None
    found: list[WeightedTerm] = []
    for each in (affinity.preferred or ()) if affinity is not None else ():
        if each.weight and each.preference is not None:
            term = yield from _node_term_in_steps(each.preference)
            if term is not None:
                found.append(WeightedTerm(term, each.weight))
    known: tuple[WeightedTerm, ...] = template.shape.setdefault(_PREFERRED, tuple(found))
    return known


# --- very many requirements ---------------------------------------------------------------------------------


class _Kept(msgspec.Struct):
    """What the selectors of one template with very many requirements find."""

    nodes: NodeTable
    version: int
    """Of the nodes' static values."""
    required: BoolArray
    """`bool[nodes]`."""
    preferred: IntArray
    """`int64[nodes]`: the sum of the weights of the preferred terms that a node meets."""


def has_many(template: PodTemplate) -> bool:
    """Return whether a template has so many requirements that what they find is kept, and found in turns."""
    known: bool | None = template.shape.get("many requirements")
    if known is None:
        known = template.shape["many requirements"] = _has_many(template)
    return known


def _has_many(template: PodTemplate) -> bool:
    spec = template.spec
    number = len(spec.node_selector or ())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is not None:
        terms = list((affinity.required and affinity.required.node_selector_terms) or ())
        terms += [each.preference for each in affinity.preferred or () if each.preference is not None]
        number += sum(len(term.match_expressions or ()) + len(term.match_fields or ()) for term in terms)
    return number >= MANY


def make_masks(template: PodTemplate, nodes: NodeTable) -> bool:
    """Find a part of the nodes that a template with very many requirements selects; return whether all are found.

    Between two calls anything may happen to nodes.
    """
    if not has_many(template) or _known(template, nodes) is not None:
        return True
    return nodes.under_way.go_on(("selectors", id(template.shape)), lambda: _in_turns(template, nodes))


def required_mask(template: PodTemplate, nodes: NodeTable, rows: Rows = ALL_ROWS) -> BoolArray:
    """Return `bool[rows]`: the nodes that pass the template's nodeSelector and required node affinity."""
    required = required_nodes(template)
    if not has_many(template) or not (isinstance(rows, slice) or _known(template, nodes) is not None):
        return required.mask(nodes, rows)
    return _found(template, nodes).required[rows]


def preferred_score(template: PodTemplate, nodes: NodeTable, rows: Rows = ALL_ROWS) -> IntArray:
    """Return `int64[rows]`: the sum of the weights of the preferred terms that a node meets."""
    if not has_many(template) or not (isinstance(rows, slice) or _known(template, nodes) is not None):
        return now(_score_in_steps(preferred_nodes(template), nodes, rows))
    return _found(template, nodes).preferred[rows]


def _known(template: PodTemplate, nodes: NodeTable) -> _Kept | None:
    known: _Kept | None = template.shape.get(_KEPT)
    return known if known is not None and known.nodes is nodes and known.version == nodes.version else None


def _found(template: PodTemplate, nodes: NodeTable) -> _Kept:
    return _known(template, nodes) or now(_find_in_steps(template, nodes))


def _find_in_steps(template: PodTemplate, nodes: NodeTable) -> Generator[None, None, _Kept]:
    version = nodes.version
    required = yield from required_nodes(template).mask_in_steps(nodes, ALL_ROWS)
    preferred = yield from _score_in_steps(preferred_nodes(template), nodes, ALL_ROWS)
    found: _Kept = template.shape.setdefault(_KEPT, _Kept(nodes, version, required, preferred))
    found.nodes, found.version, found.required, found.preferred = nodes, version, required, preferred
    return found


def _in_turns(template: PodTemplate, nodes: NodeTable) -> Iterator[None]:
    """Compile and find with a turn after this many requirements; begin again when nodes have changed meanwhile."""
    for compiling in (_required_in_steps(template), _preferred_in_steps(template)):
        for number, _ in enumerate(compiling):
            if number % _COMPILED_AT_ONCE == _COMPILED_AT_ONCE - 1:
                yield
    for _ in range(_MOST_RESTARTS):
        version, at_once = nodes.version, max(1, _ROWS_AT_ONCE // max(1, nodes.size))
        for number, _ in enumerate(_find_in_steps(template, nodes)):
            if number % at_once == at_once - 1:
                yield
                if nodes.version != version:
                    break
        else:
            return


def _score_in_steps(terms: Iterable[WeightedTerm], nodes: NodeTable, rows: Rows) -> Generator[None, None, IntArray]:
    everywhere = 0
    result: IntArray | None = None
    for preferred in terms:
        mask = yield from preferred.term.mask_in_steps(nodes, rows)
        if mask.all():
            everywhere += preferred.weight
        elif result is None:
            result = np.where(mask, np.int64(preferred.weight), 0)
        else:
            result[mask] += preferred.weight
        yield
    if result is None:  # has a stride of 0, as what is the same for all nodes
        return np.broadcast_to(np.int64(everywhere), (_length(nodes, rows),))
    return result + everywhere


def met_everywhere(expression: Expression, nodes: NodeTable) -> bool | None:
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
