"""Recorded clusters in every form that kubectl prints, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects, read_objects
from kube_policy_scheduler.documents.yaml_document import DocumentError

LIST = """\
apiVersion: v1
items:
- apiVersion: v1
  kind: Node
  metadata:
    labels:
      topology.kubernetes.io/zone: a
    name: node-1
  status:
    allocatable:
      cpu: "4"
- apiVersion: v1
  kind: Pod
  metadata:
    name: web
    namespace: shop
  spec:
    containers:
    - name: main
kind: List
metadata:
  resourceVersion: ""
"""


def names(text: str) -> list[str]:
    return [f"{found.kind} {found.name}" for found in parse_objects(Source("f.yaml", text))]


def test_a_list_as_kubectl_prints_it() -> None:
    assert names(LIST) == ["Node node-1", "Pod web"]


def test_the_same_in_json() -> None:
    import yaml

    assert names(json.dumps(yaml.safe_load(LIST), indent=4)) == ["Node node-1", "Pod web"]


def test_several_documents_single_objects_and_lists_mixed() -> None:
    single = "apiVersion: v1\nkind: Node\nmetadata: {name: lone}\n"
    assert names(f"---\n{single}---\n{LIST}---\n# end\n") == ["Node lone", "Node node-1", "Pod web"]


def test_items_of_a_typed_list_have_its_kind() -> None:
    text = '{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "raw"}}]}'
    (found,) = parse_objects(Source("f.json", text))
    assert found.value["kind"] == "Node"
    assert found.value["apiVersion"] == "v1"


def test_lists_of_lists_and_empty_lists() -> None:
    assert (
        names(
            f"apiVersion: v1\nkind: List\nitems:\n- {json.dumps({'apiVersion': 'v1', 'kind': 'PodList', 'items': []})}"
        )
        == []
    )


def test_a_name_may_be_left_to_the_server() -> None:
    assert names("apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-}") == ["Pod web-"]


def test_a_file_gives_plain_objects(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(LIST)
    assert [found.value["metadata"]["name"] for found in read_objects(path)] == ["node-1", "web"]


@pytest.mark.parametrize(
    "text",
    [
        "just a text",
        "nodes:\n- name: a",
        "- apiVersion: v1\n  kind: Node\n  metadata: {name: a}",
        "apiVersion: v1\nkind: List",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {}\n- kind: Pod\n- 7",
        "apiVersion: v1\nkind: Node",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  labels:\n    gpu: true\n    count: 3",
        "apiVersion: v1\nkind: Node\nmetadata: {name: ''}\nspec: []",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  name: b",
    ],
)
def test_what_is_not_a_recorded_cluster_is_reported_with_its_line(text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_objects(Source("cluster.yaml", text))
    assert str(raised.value) == snapshot


def test_a_field_of_another_type_is_pointed_at() -> None:
    node, pod = parse_objects(Source("f.yaml", LIST.replace("- name: main", "- name: [main]")))
    assert node.convert(objects.Node).metadata.name == "node-1"
    with pytest.raises(DocumentError) as raised:
        pod.convert(objects.Pod)
    (found,) = raised.value.diagnostics
    assert str(found) == "f.yaml:19:13: error[D0013]: Pod web: expected str, got array"


def test_a_path_that_msgspec_does_not_spell_out_points_as_near_as_it_can() -> None:
    class Labelled(msgspec.Struct):
        spec: dict[str, int]

    text = "apiVersion: v1\nkind: X\nmetadata: {name: a}\nspec:\n  a: 1\n  b: x\n"
    (found,) = parse_objects(Source("f.yaml", text))
    with pytest.raises(DocumentError, match=r"f\.yaml:5:3: error\[D0013\]: X a: expected int, got str"):
        found.convert(Labelled)
