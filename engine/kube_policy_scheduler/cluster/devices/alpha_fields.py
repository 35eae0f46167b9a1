"""Fields of devices and claims that only alpha feature gates use, and that this scheduler does not follow.

The API server drops the fields of a gate that is off, so a field that is there counts. A device that has one is never
chosen, and a claim that has one is never allocated: to go on as if it were not there could give a device away that is
not free.
"""

from __future__ import annotations

from kube_policy_scheduler.cluster import objects

COMPATIBILITY_GROUPS = "compatibilityGroups"
_DERIVED_ATTRIBUTES = "derivedAttributes"
_SKIP_NODE_OPERATIONS = "skipNodeOperations"
_NODE_ALLOCATABLE_RESOURCES = "nodeAllocatableResources"
_NODE_ALLOCATABLE_MAPPINGS = "nodeAllocatableResourceMappings"
_GATES = {
    COMPATIBILITY_GROUPS: "DRADeviceCompatibilityGroups",
    _DERIVED_ATTRIBUTES: "DRADerivedAttributes",
    _SKIP_NODE_OPERATIONS: "DRAOptionalNodeOperations",
    _NODE_ALLOCATABLE_RESOURCES: "DRANodeAllocatableResources",
    _NODE_ALLOCATABLE_MAPPINGS: "DRANodeAllocatableResources",
}
"""The feature gate of each field; the last one has this name in Kubernetes 1.36."""


def with_gate(field: str) -> str:
    """Return a field for people: with its gate."""
    return f"{field} (alpha, feature gate {_GATES[field]})"


def of_device(spec: objects.ResourceSliceSpec, device: objects.Device) -> str:
    """Return the field that keeps a device of a slice from being chosen; "": none does."""
    if spec.skip_node_operations:
        return _SKIP_NODE_OPERATIONS
    if device.node_allocatable_resources:
        return _NODE_ALLOCATABLE_RESOURCES
    if device.node_allocatable_resource_mappings:
        return _NODE_ALLOCATABLE_MAPPINGS
    if any(one.compatibility_groups for one in device.consumes_counters or ()):
        return COMPATIBILITY_GROUPS
    return ""


def of_request(request: objects.ExactDeviceRequest | objects.DeviceSubRequest) -> str:
    """Return the field that keeps a request from being allocated; "": none does."""
    return _DERIVED_ATTRIBUTES if request.derived_attributes else ""
