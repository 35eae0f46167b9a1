"""Fields whose zero is not their absence: pointers in Kubernetes' own types."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest

from kube_policy_scheduler.documents import api_schema
from tests.embedded.conftest import Server

Json = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_numbers = count()


def send_slice(server: Server, **spec: Any) -> tuple[int, Any, str]:
    """Create a slice on a node, with some fields of its spec set; return code, spec and message of the answer."""
    name = f"zero-{next(_numbers)}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    given = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, **spec}
    given = {key: value for key, value in given.items() if value is not ...}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    answer = server.client.send("POST", SLICES, body={**kind, "metadata": {"name": name}, "spec": given})
    return answer.code, answer.body.get("spec"), answer.body.get("message", "")


@pytest.mark.parametrize(
    "value", [{"int": 0}, {"bool": False}, {"string": ""}, {"int": 7}, {"bool": True}], ids=lambda value: str(value)
)
def test_an_attribute_may_be_zero(server: Server, value: Json) -> None:
    code, spec, message = send_slice(server, devices=[{"name": "d0", "attributes": {"a": value}}])
    assert code == 201, message
    assert spec["devices"][0]["attributes"] == {"a": value}


@pytest.mark.parametrize(
    "value", [{}, {"int": 0, "bool": False}, {"string": "", "int": 1}], ids=lambda value: str(value)
)
def test_an_attribute_has_exactly_one_value(server: Server, value: Json) -> None:
    code, _, message = send_slice(server, devices=[{"name": "d0", "attributes": {"a": value}}])
    assert code == 422
    assert "spec.devices[0].attributes[a]" in message
    assert "exactly one value must be specified" in message


PER_DEVICE = {"nodeName": ..., "perDeviceNodeSelection": True}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"allNodes": False}, r"spec\.allNodes: Invalid value: false: must be either unset or set to true"),
        ({"perDeviceNodeSelection": False}, r"spec\.perDeviceNodeSelection: .*must be either unset or set to true"),
        ({"nodeName": ""}, r'spec\.nodeName: Invalid value: "": must be either unset or set to a non-empty string'),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, "must have exactly one node selector term"),
        (
            {"nodeName": ...},
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        ({"allNodes": True}, "`nodeName`, `allNodes`.*, but multiple fields are set"),
        ({"devices": [{"name": "d", "allNodes": False}]}, "can only be set if `perDeviceNodeSelection` is set to true"),
        (PER_DEVICE | {"devices": [{"name": "d"}]}, r"spec\.devices\[0\]: Required value: exactly one of `nodeName`"),
        (
            PER_DEVICE | {"devices": [{"name": "d", "nodeName": ""}]},
            r"spec\.devices\[0\]\.nodeName: .*must not be empty",
        ),
        (
            PER_DEVICE | {"devices": [{"name": "d", "allNodes": False}]},
            r"spec\.devices\[0\]\.allNodes: Invalid value: f",
        ),
        (PER_DEVICE | {"devices": [{"name": "d", "allNodes": True}]}, ""),
        (PER_DEVICE | {"devices": [{"name": "d", "nodeName": "n"}]}, ""),
    ],
    ids=str,
)
def test_where_a_slice_and_its_devices_are_is_said_exactly_once(server: Server, spec: Json, said: str) -> None:
    code, _, message = send_slice(server, **spec)
    assert (code, bool(message)) == ((422, True) if said else (201, False)), message
    assert re.search(said, message), message


@pytest.mark.parametrize(
    ("name", "pointers", "plain"),
    [
        ("resource.v1.DeviceAttribute", "bool int string version", ""),
        ("resource.v1.Device", "allNodes allowMultipleAllocations bindsToNode nodeName", "name!"),
        ("resource.v1.ResourceSliceSpec", "allNodes nodeName perDeviceNodeSelection", "driver!"),
        ("resource.v1.ExactDeviceRequest", "adminAccess", "count allocationMode"),
        ("resource.v1.DeviceToleration", "tolerationSeconds", "key operator value effect"),
        ("resource.v1.DeviceConstraint", "matchAttribute distinctAttribute", ""),
        ("resource.v1.DeviceRequestAllocationResult", "adminAccess shareID", "pool!"),
        ("core.v1.PodSpec", "priority preemptionPolicy runtimeClassName enableServiceLinks", "hostNetwork nodeName"),
        ("core.v1.PodResourceClaim", "resourceClaimName resourceClaimTemplateName", "name!"),
        ("core.v1.TopologySpreadConstraint", "minDomains nodeAffinityPolicy", "maxSkew!"),
        ("core.v1.PersistentVolumeClaimSpec", "storageClassName volumeMode", "volumeName"),
        ("core.v1.PersistentVolumeSpec", "volumeMode", "storageClassName"),
        ("core.v1.ServiceSpec", "allocateLoadBalancerNodePorts", "publishNotReadyAddresses"),
        ("apps.v1.DeploymentSpec", "replicas revisionHistoryLimit", "paused minReadySeconds"),
        ("apps.v1.DeploymentStatus", "collisionCount", "replicas"),
    ],
)
def test_the_schema_says_which_fields_are_pointers(name: str, pointers: str, plain: str) -> None:
    fields = api_schema.load().types[f"io.k8s.api.{name}"]
    marked = {field: fields[field.removesuffix("!")].is_pointer for field in (*pointers.split(), *plain.split())}
    assert marked == dict.fromkeys(pointers.split(), True) | dict.fromkeys(plain.split(), False)
