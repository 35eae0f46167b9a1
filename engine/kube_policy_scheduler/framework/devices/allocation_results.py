"""What an allocation is in the status of claims: the results, the parameters for drivers, and where it can be used."""

from __future__ import annotations

from collections.abc import Sequence

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.node_info import NodeInfo
from kube_policy_scheduler.cluster.node_selectors import node_selector
from kube_policy_scheduler.framework.devices.allocator import NodeAllocation
from kube_policy_scheduler.framework.devices.requests import Request
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules


def results_of(
    allocation: NodeAllocation,
    specs: Sequence[objects.ResourceClaimSpec],
    node: NodeInfo,
    rules: KubernetesRules,
    share_id: str = "",
) -> list[objects.AllocationResult]:
    """Return what is written into the status of each claim.

    Args:
        allocation: what the claims get on the node.
        specs: of the claims, in order.
        node: the node.
        rules: of the Kubernetes that they are written to.
        share_id: the first 24 characters of the shares' ids, which are UUIDs; the place of the result ends them.
    """
    done = []
    for place, (chosen, spec) in enumerate(zip(allocation.claims or (), specs, strict=True)):
        results = [
            objects.DeviceRequestAllocationResult(
                request=one.request.full_name,
                driver=one.device.id.driver,
                pool=one.device.id.pool,
                device=one.device.id.device,
                admin_access=one.request.admin_access,
                tolerations=list(one.request.tolerations) or None,
                binding_conditions=one.device.device.binding_conditions,
                binding_failure_conditions=one.device.device.binding_failure_conditions,
                share_id=f"{share_id}{place:06x}{number:06x}" if one.shared else None,
                consumed_capacity=None
                if one.consumed is None
                else {one.device.published_name(name): str(amount) for name, amount in one.consumed.items()},
            )
            for number, one in enumerate(chosen)
        ]
        config = _config(allocation, place, spec, rules)
        done.append(
            objects.AllocationResult(
                devices=objects.DeviceAllocationResult(results=results or None, config=config or None),
                node_selector=_node_selector(allocation, place, node),
            )
        )
    return done


def _config(
    allocation: NodeAllocation, place: int, spec: objects.ResourceClaimSpec, rules: KubernetesRules
) -> list[objects.DeviceAllocationConfiguration]:
    """Return the parameters for drivers: those of the classes, in the order of requests, then those of the claim."""
    taken = zip(allocation.alternatives[place], allocation.requests[place], strict=True)
    chosen = [alternatives[at] for at, alternatives in taken]
    done: list[objects.DeviceAllocationConfiguration] = []
    by_class: dict[str, list[Request]] = {}
    for request in chosen:
        by_class.setdefault(request.device_class.metadata.name, []).append(request)
    for requests in by_class.values():
        names = [request.full_name for request in requests]
        done.extend(
            objects.DeviceAllocationConfiguration(source="FromClass", requests=list(names), opaque=one.opaque)
            for one in requests[0].device_class.spec.config or ()
        )
    once = Feature.DEVICE_CONFIG_WRITTEN_ONCE in rules
    for one in spec.devices.config or ():
        named = set(one.requests or ())
        times = sum(request.base_name in named or request.full_name in named for request in chosen) if named else 1
        done.extend(
            objects.DeviceAllocationConfiguration(source="FromClaim", requests=one.requests, opaque=one.opaque)
            for _ in range(min(times, 1) if once else times)
        )
    if once:
        for entry in done:
            covered = set(entry.requests or ())
            if all(request.base_name in covered or request.full_name in covered for request in chosen):
                entry.requests = None
    return done


def _node_selector(allocation: NodeAllocation, place: int, node: NodeInfo) -> objects.NodeSelector | None:
    """Return where else the devices can be used; None: everywhere."""
    expressions: list[objects.Requirement] = []
    fields: list[objects.Requirement] = []
    for one in (allocation.claims or ())[place]:
        spec, device = one.device.slice.slice.spec, one.device.device
        own = bool(spec.per_device_node_selection)
        local = device.node_name if own else spec.node_name
        selector = device.node_selector if own else spec.node_selector
        if local is not None or device.binds_to_node:
            only = objects.Requirement(key="metadata.name", operator="In", values=[node.name])
            return objects.NodeSelector(node_selector_terms=[objects.NodeSelectorTerm(match_fields=[only])])
        term = _matching_term(selector, node)
        if term is not None:
            _merge(fields, term.match_fields)
            _merge(expressions, term.match_expressions)
    if not expressions and not fields:
        return None
    term = objects.NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None)
    return objects.NodeSelector(node_selector_terms=[term])


def _matching_term(selector: objects.NodeSelector | None, node: NodeInfo) -> objects.NodeSelectorTerm | None:
    """Return the term of a selector because of which a node has a device; slices have one, devices may have several."""
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    if len(terms) <= 1:
        return terms[0] if terms else None
    for term in terms:
        if node_selector(objects.NodeSelector(node_selector_terms=[term])).matches(node.labels, node.name):
            return term
    return None


def _merge(into: list[objects.Requirement], more: list[objects.Requirement] | None) -> None:
    for requirement in more or ():
        values = set(requirement.values or ())
        if not any(
            (one.key, one.operator) == (requirement.key, requirement.operator) and set(one.values or ()) == values
            for one in into
        ):
            into.append(requirement)
