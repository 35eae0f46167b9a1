"""An expression without a statement, as `policyctl eval` takes it: what it means, and about what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, in_order
from kube_policy_scheduler.lang import codes, expressions, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, Definition
from kube_policy_scheduler.lang.checking.inference import OF_RUNNING_PODS, ONE_EXPRESSION, Inference, Scope
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.reading.parse import parse_expression
from kube_policy_scheduler.lang.walk import children

RUNNING_POD = "p"
"""The name of a running pod: an expression with `p.…` has a value for each of them."""


def definitions_of(policies: Iterable[CheckedPolicy]) -> tuple[dict[str, Definition], tuple[Diagnostic, ...]]:
    """Return the names that policies define, and the names that two of them define differently."""
    found: dict[str, Definition] = {}
    twice: list[Diagnostic] = []
    for policy in policies:
        for name, definition in policy.definitions.items():
            known = found.setdefault(name, definition)
            if known.tree.span != definition.tree.span:
                label = Label(known.tree.name_span, "the other one")
                message, advice = f"two policies define `{name}`", "give one policy only"
                twice.append(codes.REDEFINED.at(definition.tree.name_span, message, help=advice, labels=[label]))
    return found, in_order(twice)


def check_expression(
    source: Source, environment: Environment, definitions: Mapping[str, Definition]
) -> tuple[typed.Typed | None, tuple[Diagnostic, ...]]:
    """Return what an expression means, None if it has errors, and these.

    Its shape says what it has values for: `NODE` each node, `ITEM` each running pod, `DECISION` the pod or the cluster.
    """
    tree, found = parse_expression(source)
    if tree is None:
        return None, found
    inference = Inference(environment, definitions=dict(definitions))
    scope = Scope(ONE_EXPRESSION, scores=True)
    if RUNNING_POD not in definitions and RUNNING_POD in _free(tree):
        scope = Scope(ONE_EXPRESSION, nodes=False, items=frozenset({RUNNING_POD}), item_depends=OF_RUNNING_PODS)
    value = inference.infer_root(tree, scope)
    return (None if inference.found else value), in_order(inference.found)


def _free(tree: expressions.Expr) -> frozenset[str]:
    """Return the names in an expression that no aggregate around them gives."""
    found: set[str] = set()
    stack: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        top, bound = stack.pop()
        match top:
            case expressions.Name(name=name):
                found |= {name} - bound
            case expressions.Aggregate():
                within = bound | {top.variable}
                stack.append((top.collection, bound))
                stack += [(part, within) for part in (top.value, top.where) if part is not None]
            case _:
                stack += [(part, bound) for part in children(top)]
    return frozenset(found)
