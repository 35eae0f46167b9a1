"""Devices that are claimed: `resource.k8s.io/v1` of Kubernetes 1.38, as far as scheduling reads and writes it.

Fields of alpha feature gates are only looked at for being there: see `cluster/devices/alpha_fields.py`.
"""

from typing import Any

from msgspec import UNSET, UnsetType, field

from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int64, NodeSelector, ObjectMeta
from kube_policy_scheduler.quantities.quantity import Quantity


class CELDeviceSelector(ApiStruct):
    expression: str = ""


class DeviceSelector(ApiStruct):
    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(ApiStruct):
    driver: str = ""
    parameters: Any = None
    """Parameters for the driver: never read, only copied."""


class DeviceConfiguration(ApiStruct):
    """Parameters of a class or a claim for the driver."""

    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct):
    selectors: list[DeviceSelector] | None = None
    config: list[DeviceConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct):
    metadata: ObjectMeta
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


# --- slices ---------------------------------------------------------------------------------------------


class DeviceAttribute(ApiStruct):
    """One value; the field that is set gives its type."""

    int_value: Int64 | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")
    int_values: list[Int64] | None = field(default=None, name="ints")
    bool_values: list[bool] | None = field(default=None, name="bools")
    string_values: list[str] | None = field(default=None, name="strings")
    version_values: list[str] | None = field(default=None, name="versions")


class CapacityRange(ApiStruct):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct):
    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(ApiStruct):
    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct):
    value: Quantity = "0"


class CounterSet(ApiStruct):
    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(ApiStruct):
    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: Any = None


class DeviceTaint(ApiStruct):
    key: str = ""
    value: str = ""
    effect: str = ""


class Device(ApiStruct):
    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Any = None
    node_allocatable_resource_mappings: Any = None


class ResourcePool(ApiStruct):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(ApiStruct):
    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None
    skip_node_operations: Any = None


class ResourceSlice(ApiStruct):
    metadata: ObjectMeta
    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)


class DeviceTaintSelector(ApiStruct):
    """Which devices; those that match all that is set."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(default_factory=DeviceTaint)


class DeviceTaintRule(ApiStruct):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec = field(default_factory=DeviceTaintRuleSpec)


# --- claims ---------------------------------------------------------------------------------------------


class DeviceToleration(ApiStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(ApiStruct):
    requests: dict[str, Quantity] | None = None


class ExactDeviceRequest(ApiStruct):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: Any = None


class DeviceSubRequest(ApiStruct):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: Any = None


class DeviceRequest(ApiStruct):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(ApiStruct):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ApiStruct):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceConfiguration] | None = None


class ResourceClaimSpec(ApiStruct):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class DeviceAllocationConfiguration(ApiStruct):
    source: str = ""
    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceRequestAllocationResult(ApiStruct):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None


class DeviceAllocationResult(ApiStruct):
    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(ApiStruct):
    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceStatusCondition(ApiStruct, omit_defaults=False):
    """Written back with its empty members, which the API server requires."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 | UnsetType = UNSET
    last_transition_time: str | UnsetType = UNSET
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ApiStruct):
    """What a driver reports about a device; a scheduler that writes the claim's status writes all of it back."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: list[DeviceStatusCondition] | None = None
    data: Any = None
    network_data: Any = None


class ResourceClaimStatus(ApiStruct):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(ApiStruct):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplate(ApiStruct):
    """Read by the controller that makes claims of it; a scheduler only names it."""

    metadata: ObjectMeta
    spec: dict[str, Any] = field(default_factory=dict)
