"""What is applied in the name of Kueue: all that it owns, as it is, and our nominations."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.fleet.multikueue.writes import OwnedFieldsError, nomination, owned_status
from tests.fleet.multikueue.kueue import Json, raw_workload

OWNED = {
    "f:admission": {".": {}, "f:clusterQueue": {}},
    "f:conditions": {'k:{"type":"QuotaReserved"}': {".": {}, "f:type": {}, "f:status": {}, "f:reason": {}}},
    "f:nominatedClusterNames": {},
    "f:tags": {'v:"mine"': {}},
}
STATUS = {
    "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]},
    "conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "r", "message": "m"},
        {"type": "Other", "status": "True"},
    ],
    "tags": ["theirs", "mine"],
    "requeueState": {"count": 1},
}


def entry(fields: Any, **other: Any) -> Json:
    said = {"manager": "kueue-admission", "operation": "Apply", "subresource": "status"} | other
    return said | {"fieldsV1": {"f:status": fields}}


def written(*entries: Json) -> Json:
    made = raw_workload(nominated=["a"]) | {"status": STATUS | {"nominatedClusterNames": ["a"]}}
    made["metadata"]["managedFields"] = list(entries)
    return made


def test_all_that_kueue_applied_is_applied_again_and_nothing_else() -> None:
    body = nomination(written(entry(OWNED)), ["c", "b"])
    assert body["status"] == {
        "admission": {"clusterQueue": "q"},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "r"}],
        "tags": ["mine"],
        "nominatedClusterNames": ["c", "b"],
    }
    assert body["metadata"] == {
        "name": "job-train",
        "namespace": "team",
        "uid": "w-train",
        "resourceVersion": "10",
    }


def test_no_nominations_leave_the_field_out_so_that_it_goes() -> None:
    assert "nominatedClusterNames" not in nomination(written(entry(OWNED)), [])["status"]


@pytest.mark.parametrize("other", [{"manager": "kueue-job"}, {"operation": "Update"}, {"subresource": ""}])
def test_what_others_own_is_left_to_them(other: Json) -> None:
    assert owned_status(written(entry(OWNED, **other))) == {}
    assert nomination(written(), ["b"])["status"] == {"nominatedClusterNames": ["b"]}


def deep(levels: int) -> Json:
    found: Json = {"f:x": {}}
    for _ in range(levels):
        found = {"f:admission": found}
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {"i:0": {}},
        {"f:conditions": {"i:0": {}}},
        {"f:conditions": {"k:{": {}}},
        {"f:conditions": None},
        {"f:tags": {"v:mine": {}}},
        {"f:requeueState": {"f:count": {"f:x": {}}}},
        [],
    ],
)
def test_what_is_owned_in_another_form_is_not_written_over(fields: Any) -> None:
    with pytest.raises(OwnedFieldsError):
        nomination(written(entry(fields)), ["b"])


def test_fields_of_any_depth_are_read_to_a_bound() -> None:
    made = written(entry(deep(500)))
    nested: Json = {}
    for _ in range(500):
        nested = {"admission": nested}
    made["status"] = nested
    with pytest.raises(OwnedFieldsError):
        owned_status(made)
