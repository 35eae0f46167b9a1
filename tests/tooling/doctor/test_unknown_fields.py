"""Fields that a newer Kubernetes has: seen, counted and told."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.tooling.doctor.findings import Status
from kube_policy_scheduler.tooling.doctor.unknown_fields import find_unknown, unknown_field_findings


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "later": 1}, "spec": spec, "status": {"x": 1}}


def of(group: str, kind: str, **body: Any) -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}} | body


@pytest.mark.parametrize(
    ("thing", "paths"),
    [
        (pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"any.thing/x": "1"}}}]), []),
        (pod(placement={"near": "x"}), ["spec.placement"]),
        (pod(containers=[{"name": "c"}, {"gpuModel": "x"}, {"gpuModel": "y"}]), ["spec.containers[].gpuModel"]),
        (pod(containers=[{"volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}]), []),
        (pod(nodeSelector={"any": "label"}, overhead={"cpu": "1"}), []),
        (of("storage.k8s.io/v1", "StorageClass", provisioner="p", parameters={"any": "thing"}, tier="x"), ["tier"]),
        (of("storage.k8s.io/v1", "CSIDriver", spec={"preventPodSchedulingIfMissing": True}), []),
        (of("resource.k8s.io/v1", "ResourceSlice", spec={"devices": [{"attributes": {"a": {"lattice": 1}}}]}),
         ["spec.devices[].attributes.*.lattice"]),
        (of("resource.k8s.io/v1", "DeviceTaintRule", spec={"deviceSelector": {"pool": "p", "model": "x"}}),
         ["spec.deviceSelector.model"]),
        (of("resource.k8s.io/v1beta1", "ResourceSlice", spec={"later": 1}), []),
        (of("apps/v1", "Deployment", spec={"later": 1}), []),
    ],
)  # fmt: skip
def test_fields_that_no_known_version_has_are_found_where_they_ask_for_something(
    thing: dict[str, Any], paths: list[str]
) -> None:
    assert [path for _, path in find_unknown([thing]).counts] == paths


@pytest.mark.parametrize(
    "broken",
    [
        pod(containers={"name": "c"}),
        pod(containers=[5, None]),
        pod(affinity=[]),
        {"kind": "Pod", "apiVersion": "v1"},
        {},
    ],
)
def test_objects_of_another_shape_are_passed_over(broken: dict[str, Any]) -> None:
    assert not find_unknown([broken]).counts


def test_each_object_counts_once_and_the_most_frequent_field_comes_first() -> None:
    found = find_unknown([pod(one=1), pod(one=1, other=2), pod(containers=[])])
    told = list(unknown_field_findings(found))

    assert found.objects == 3
    assert [(each.subject, each.status) for each in told] == [
        ("Pod spec.one", Status.WARNING),
        ("Pod spec.other", Status.WARNING),
    ]
    assert told[0].text == "2 objects have it, and this version does not know it"


def test_very_many_fields_are_bounded() -> None:
    found = find_unknown(pod(**{f"field{at}": at, "again": 1}) for at in range(3000))
    *shown, rest = unknown_field_findings(found)

    assert len(found.counts) == 1000
    assert found.counts["Pod", "spec.again"] == 3000
    assert (len(shown), rest.text) == (10, "990 more are not known")


def test_nothing_is_said_where_nobody_could_look() -> None:
    assert list(unknown_field_findings(None)) == []
    assert [each.text for each in unknown_field_findings(find_unknown([pod()]))] == ["all known, in 1 object"]
