"""A pod's topology spread constraints, compiled: its own, or the cluster's defaults.

Default constraints have no selector of their own: it follows from the services and the controller of the pod
(`helper.DefaultSelector` of kube-scheduler 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.affinity import PodTerm
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.domains import label_states
from kube_policy_scheduler.cluster.node_selectors import required_mask, required_nodes
from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.selectors import (
    EVERYTHING,
    Expression,
    Selector,
    SelectorError,
    equality,
    label_selector,
)
from kube_policy_scheduler.cluster.taints import taint_sets, untolerated_hard
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"

SYSTEM_DEFAULTS: tuple[objects.TopologySpreadConstraint, ...] = (
    objects.TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    objects.TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)
"""The constraints of pods that declare none, unless the operator sets other defaults."""


class SpreadConstraint(msgspec.Struct, frozen=True):
    """One constraint, with the defaults of its optional fields filled in."""

    topology_key: str
    max_skew: int
    selector: Selector | None
    """None matches nothing."""
    min_domains: int = 1
    honor_affinity: bool = True
    """Whether only nodes that the pod's node affinity admits count."""
    honor_taints: bool = False
    """Whether only nodes whose taints the pod tolerates count."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is one of those to spread."""
        return self.selector is not None and self.selector.matches(labels)

    def counted(self, namespace: str, rules: KubernetesRules) -> PodTerm | None:
        """Return the pods that count; None if none do.

        Up to 1.37 kube-scheduler counts no pod for the empty selector `{}`, although such a selector does match the
        incoming pod itself (`countPodsMatchSelector`).
        """
        if self.selector is None or (self.selector.empty and Feature.EMPTY_SELECTOR_SPREADS not in rules):
            return None
        return PodTerm(frozenset((namespace,)), self.selector)

    def eligible(self, template: PodTemplate, nodes: NodeTable) -> BoolArray | None:
        """Return `bool[nodes]`: those whose pods count under the inclusion policies; None: all."""
        result: BoolArray | None = None
        if self.honor_affinity:
            required = required_nodes(template)
            if required.labels or required.selector is not None:
                result = required_mask(template, nodes)
        if self.honor_taints:
            tolerated: BoolArray = (untolerated_hard(template, nodes) == 0)[taint_sets(nodes).codes]
            result = tolerated if result is None else result & tolerated
        return result


def own_constraints(template: PodTemplate, action: str) -> Sequence[SpreadConstraint]:
    """Return the constraints that the pod declares with this `whenUnsatisfiable`, compiled once.

    Raises:
        SelectorError: a selector is not valid.
    """
    key = ("spread-constraints", action)
    known: Sequence[SpreadConstraint] | None = template.memo.get(key)
    if known is None:
        declared = template.spec.topology_spread_constraints or ()
        known = template.memo[key] = compile_constraints(declared, labels=template.labels, action=action)
    return known


def compile_constraints(
    declared: Iterable[objects.TopologySpreadConstraint], *, labels: Mapping[str, str], action: str
) -> tuple[SpreadConstraint, ...]:
    """Compile the constraints with this `whenUnsatisfiable`; `matchLabelKeys` are read from the pod's `labels`.

    Raises:
        SelectorError: a selector is not valid.
    """
    return tuple(
        SpreadConstraint(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            selector=_selector(constraint, labels),
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honor_affinity=constraint.node_affinity_policy in (None, "Honor"),
            honor_taints=constraint.node_taints_policy == "Honor",
        )
        for constraint in declared
        if constraint.when_unsatisfiable == action
    )


def _selector(constraint: objects.TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector | None:
    selector = label_selector(constraint.label_selector)
    if selector is None:
        return None
    keys = [key for key in constraint.match_label_keys or () if key in labels]
    return selector.also(Expression(key, "In", frozenset((labels[key],))) for key in keys)


def default_constraints(
    template: PodTemplate, cluster: Cluster, *, defaults: Sequence[objects.TopologySpreadConstraint], action: str
) -> tuple[SpreadConstraint, ...]:
    """Return the cluster's default constraints for a pod that declares none.

    There are none if no service and no controller selects the pod.

    Raises:
        SelectorError: a selector is not valid.
    """
    selector = default_selector(template, cluster)
    if not selector.expressions:
        return ()
    key = ("default-constraints", action)
    known: tuple[object, Selector, tuple[SpreadConstraint, ...]] | None = template.memo.get(key)
    if known is None or known[0] is not defaults or known[1] is not selector:
        found = compile_constraints(defaults, labels=template.labels, action=action)
        known = (defaults, selector, tuple(msgspec.structs.replace(c, selector=selector) for c in found))
        template.memo[key] = known
    return known[2]


def selects_everything(template: PodTemplate, cluster: Cluster) -> bool:
    """Return whether `default_selector` is known to select everything: no controller, and there never was a service."""
    return template.controller is None and not cluster.store.group_version(objects.Service, template.namespace)


def default_selector(template: PodTemplate, cluster: Cluster) -> Selector:
    """Return what the services that select the pod, and its controller, select together.

    Kept in the template until a service of its namespace, or the controller's selector, changes.
    """
    if selects_everything(template, cluster):
        return EVERYTHING
    services_version = cluster.store.group_version(objects.Service, template.namespace)
    controller = _controller(template, cluster)
    declared = None if controller is None else controller.spec.selector
    known: tuple[Cluster, int, object, Selector] | None = template.memo.get("default-selector")
    if known is not None and known[0] is cluster and known[1] == services_version and known[2] == declared:
        return known[3]
    labels: dict[str, str] = {}
    for service in cluster.store.group(objects.Service, template.namespace):
        chosen = service.spec.selector
        if chosen is not None and chosen.items() <= template.labels.items():
            labels |= chosen
    selector = _with_controller(labels, declared) if labels or declared is not None else EVERYTHING
    template.memo["default-selector"] = (cluster, services_version, declared, selector)
    return selector


def _with_controller(labels: dict[str, str], declared: objects.LabelSelector | objects.Labels | None) -> Selector:
    if isinstance(declared, objects.LabelSelector):
        try:
            further = label_selector(declared)
        except SelectorError:
            further = None
        return equality(labels).also(further.expressions if further is not None else ())
    return equality(labels | (declared or {}))


def _controller(
    template: PodTemplate, cluster: Cluster
) -> objects.ReplicationController | objects.ReplicaSet | objects.StatefulSet | None:
    owner = template.controller
    if owner is None:
        return None
    key = key_of(template.namespace, owner.name)
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            return cluster.get(objects.ReplicationController, key)
        case "apps/v1", "ReplicaSet":
            return cluster.get(objects.ReplicaSet, key)
        case "apps/v1", "StatefulSet":
            return cluster.get(objects.StatefulSet, key)
    return None


def has_all_keys(constraints: Sequence[SpreadConstraint], nodes: NodeTable) -> BoolArray:
    """Return `bool[nodes]`: those that carry the topology key of every constraint."""
    result = np.ones(nodes.size, np.bool_)
    for key in {constraint.topology_key for constraint in constraints}:
        result &= nodes.label(key).codes >= 0
    return result


def state_of(constraints: Sequence[SpreadConstraint], template: PodTemplate, nodes: NodeTable) -> list[object]:
    """Return a value that stays equal while the nodes are the same to these constraints of a template."""
    states: list[object] = label_states(nodes, (constraint.topology_key for constraint in constraints))
    required = required_nodes(template)
    if (required.labels or required.selector is not None) and any(c.honor_affinity for c in constraints):
        states.append(nodes.version)
    if any(constraint.honor_taints for constraint in constraints):
        states.append(taint_sets(nodes).state)
    return states


def counters_of(constraint: SpreadConstraint, frame: Frame) -> list[tuple[Counter, int]]:
    """Return the counter of the pods to spread, with weight 1; none if no pod counts."""
    pods = constraint.counted(frame.template.namespace, frame.cluster.rules)
    if pods is None:
        return []
    return [(frame.cluster.counters.counter(pods, terminating=False, asks=frame.template), 1)]
