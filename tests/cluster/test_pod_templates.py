"""Templates: what equal specs share, and what they do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.objects import ObjectMeta, ResourceRequirements
from kube_policy_scheduler.cluster.pods import PodTemplate, Templates

_REQUESTS = {"resources": ResourceRequirements(requests={"cpu": "2"}), "overhead": {"cpu": "1m"}}
_SPEC: dict[str, Any] = {
    "scheduler_name": "other",
    "runtime_class_name": "gvisor",
    "priority": 7,
    "priority_class_name": "high",
    "preemption_policy": "Never",
    "service_account_name": "robot",
    "node_selector": {"disk": "ssd"},
    "affinity": objects.Affinity(),
    "tolerations": [objects.Toleration(key="a")],
    "topology_spread_constraints": [objects.TopologySpreadConstraint(topology_key="zone")],
    "containers": [objects.Container(name="other")],
    "init_containers": [objects.Container(name="first")],
    "volumes": [objects.Volume(name="model", image=objects.ImageSource(reference="m"))],
    "host_network": True,
    "host_users": False,
    "scheduling_gates": [objects.SchedulingGate(name="wait")],
    "resource_claims": [objects.PodResourceClaim(name="gpu")],
    "scheduling_group": objects.PodSchedulingGroup(pod_group_name="gang"),
}
_CONTAINER: dict[str, Any] = {
    "name": "other",
    "image": "b",
    "ports": [objects.ContainerPort(host_port=80)],
    "restart_policy": "Always",
    "restart_policy_rules": [objects.ContainerRestartRule(action="RestartAllContainers")],
    "volume_mounts": [objects.VolumeMount(bind_mount_options=["noexec"])],
}


def spec(**changes: Any) -> objects.PodSpec:
    return msgspec.structs.replace(objects.PodSpec(containers=[objects.Container(name="main", image="a")]), **changes)


def template(templates: Templates, of: objects.PodSpec, **meta: Any) -> PodTemplate:
    return templates.pod(objects.Pod(metadata=ObjectMeta(namespace="default", **meta), spec=of)).template


def test_each_field_of_a_spec_is_known() -> None:
    names = {field.name for field in msgspec.structs.fields(objects.PodSpec)}
    assert names == _SPEC.keys() | _REQUESTS.keys() | {"node_name"}
    names = {field.name for field in msgspec.structs.fields(objects.Container)}
    assert names == _CONTAINER.keys() | {"resources"}


@pytest.mark.parametrize("name", _SPEC)
def test_what_is_in_the_spec_makes_another_shape(name: str) -> None:
    templates = Templates()
    assert template(templates, spec()).shape is not template(templates, spec(**{name: _SPEC[name]})).shape


@pytest.mark.parametrize("kind", ["containers", "init_containers"])
@pytest.mark.parametrize("name", _CONTAINER)
def test_what_is_in_a_container_makes_another_shape(kind: str, name: str) -> None:
    templates, one = Templates(), objects.Container(name="main", image="a")
    changed = msgspec.structs.replace(one, **{name: _CONTAINER[name]})
    first, second = template(templates, spec(**{kind: [one]})), template(templates, spec(**{kind: [changed]}))
    assert first.shape is not second.shape


def test_requests_labels_and_namespaces_make_another_template_of_the_same_shape() -> None:
    templates, plain = Templates(), spec()
    pods = [
        template(templates, plain),
        template(templates, plain, labels={"index": "1"}),
        *(template(templates, spec(**{name: value})) for name, value in _REQUESTS.items()),
        template(
            templates, spec(containers=[objects.Container(name="main", image="a", resources=_REQUESTS["resources"])])
        ),
    ]
    assert len(set(map(id, pods))) == len(pods)
    assert len({id(each.shape) for each in pods}) == 1
    assert pods[-1].requests == {"cpu": 2000}
    assert pods[-1].spec.containers is not None
    assert pods[-1].spec.containers[0].resources == _REQUESTS["resources"], "the pod's own objects stay as they are"


def test_pods_are_of_the_template_of_their_labels_in_whatever_order_bound_and_pending_ones_come() -> None:
    templates = Templates()
    zones = ({}, {"topology.kubernetes.io/zone": "a"}, {"topology.kubernetes.io/zone": "b"})

    def found() -> list[PodTemplate]:
        return [template(templates, spec(), labels={"app": "web"} | zone) for zone in zones]

    first = found()
    assert [dict(each.labels) for each in first] == [{"app": "web"} | zone for zone in zones]
    assert len({id(each.spec) for each in first}) == 1, "bound pods are compared with pending ones"
    assert found() == first
    other = template(templates, spec(priority=9), labels={"app": "web"} | zones[1])
    assert other not in first
    assert other.priority == 9
    assert found() == first


@pytest.mark.parametrize("node_name", ["", "a"])
@pytest.mark.parametrize("volumes_first", [True, False])
@pytest.mark.parametrize("volumes", [[], [objects.Volume(name="data")]])
def test_volumes_that_hold_no_image_make_no_other_template_whatever_came_before(
    volumes: list[objects.Volume], volumes_first: bool, node_name: str
) -> None:
    templates = Templates()
    specs = [spec(node_name=node_name, volumes=volumes), spec(node_name=node_name)]
    first, last = specs if volumes_first else specs[::-1]
    found = template(templates, first)
    between = template(templates, spec(priority=9))  # the last template of pods without a controller is another one
    assert template(templates, last) is found is not between
