"""Taints of nodes and tolerations of pods, tested once per distinct set of taints.

Rules: `Toleration.ToleratesTaint` of Kubernetes. The API server admits the operators Lt and Gt only with the gate
TaintTolerationComparisonOperators (1.35, alpha): what it has admitted is honoured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import IntArray, NodeInfo, NodeTable
from kube_policy_scheduler.cluster.pods import PodTemplate

UNSCHEDULABLE_KEY = "node.kubernetes.io/unschedulable"
"""The taint that `spec.unschedulable` amounts to, with effect NoSchedule."""


class TaintKey(NamedTuple):
    """A taint as a value."""

    key: str
    value: str
    effect: str


CORDONED = TaintKey(UNSCHEDULABLE_KEY, "", "NoSchedule")


class TaintSets(msgspec.Struct, frozen=True, eq=False):
    """The distinct sets of taints in a node table; compared by identity."""

    codes: IntArray
    """`int64[nodes]`: index into `sets`."""
    sets: tuple[tuple[TaintKey, ...], ...]
    state: object
    """Another one for each change. Who keeps it, to compare, does not keep the column."""


def taint_sets(nodes: NodeTable) -> TaintSets:
    """Return the taints of all nodes, kept until a taint changes."""
    column = nodes.coded("taints", _taints)
    return nodes.derive_from(
        column, "taint-sets", lambda: TaintSets(column.codes.astype(np.int64), tuple(column.values), column.state)
    )


def taint_sets_in_steps(nodes: NodeTable) -> Iterator[None]:
    """Prepare `taint_sets` in steps, between which anything may happen."""
    return nodes.coded_in_steps("taints", _taints)


def _taints(info: NodeInfo) -> tuple[TaintKey, ...]:
    return tuple([TaintKey(t.key, t.value, t.effect) for t in info.taints]) if info.taints else ()


def tolerates(toleration: objects.Toleration, taint: TaintKey) -> bool:
    """Return whether the toleration matches the taint; an empty effect or key matches all.

    Lt and Gt compare whole numbers: the value of the taint must be less, or greater, than that of the toleration. What
    is no number matches nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" as operator:
            limit, value = _whole_number(toleration.value), _whole_number(taint.value)
            if limit is None or value is None:
                return False
            return value < limit if operator == "Lt" else value > limit
    return False


_WHOLE_NUMBER = r"0|-?[1-9][0-9]{0,18}"


def _whole_number(text: str) -> int | None:
    """Return an int64 in its canonical decimal form, None for any other text."""
    number = int(text) if re.fullmatch(_WHOLE_NUMBER, text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def tolerated(tolerations: Iterable[objects.Toleration], taint: TaintKey) -> bool:
    """Return whether any of the tolerations matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerance(template: PodTemplate) -> tuple[tuple[str, str, str, str], ...]:
    """Return the pod's tolerations as a value: templates with equal values tolerate the same taints."""
    known: tuple[tuple[str, str, str, str], ...] | None = template.shape.get("tolerance")
    if known is None:
        tolerations = template.spec.tolerations or ()
        known = template.shape["tolerance"] = tuple([(t.key, t.operator, t.value, t.effect) for t in tolerations])
    return known


def untolerated_hard(template: PodTemplate, nodes: NodeTable) -> IntArray:
    """Return `int64[sets]`: per distinct taint set, NoSchedule and NoExecute taints that pods do not tolerate."""
    tolerations = template.spec.tolerations or ()
    return _counts(
        template,
        nodes,
        "untolerated-hard",
        lambda t: t.effect in ("NoSchedule", "NoExecute") and not tolerated(tolerations, t),
    )


def untolerated_soft(template: PodTemplate, nodes: NodeTable) -> IntArray:
    """Return `int64[sets]`: per distinct taint set, PreferNoSchedule taints that pods do not tolerate."""
    tolerations = template.spec.tolerations or ()
    return _counts(
        template,
        nodes,
        "untolerated-soft",
        lambda t: t.effect == "PreferNoSchedule" and not tolerated(tolerations, t),
    )


def _counts(template: PodTemplate, nodes: NodeTable, name: str, test: Callable[[TaintKey], bool]) -> IntArray:
    """Return how many taints of each distinct set meet the test, kept while the sets stay."""
    sets = taint_sets(nodes).sets  # not the column with them: very many templates would keep old ones
    known: tuple[tuple[tuple[TaintKey, ...], ...], IntArray] | None = template.shape.get(name)
    if known is None or known[0] is not sets:
        counts = np.array([sum(map(test, taints)) if taints else 0 for taints in sets], np.int64)
        known = template.shape[name] = (sets, counts)
    return known[1]
