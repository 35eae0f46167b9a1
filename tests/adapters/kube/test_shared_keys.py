"""Dictionaries that share their keys are as others, and smaller."""

from __future__ import annotations

from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.shared_keys import with_shared_keys
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import NodeTable

_TEXTS = st.dictionaries(st.text(max_size=5) | st.sampled_from(["__class__", "__dict__", "a/b", "x\0"]), st.text())


@given(_TEXTS, _TEXTS)
def test_they_are_equal_in_the_same_order_and_change_apart(texts: dict[str, str], more: dict[str, str]) -> None:
    shared = with_shared_keys(dict(texts))
    copy = shared.copy()
    copy |= more
    assert list(shared.items()) == list(texts.items())
    assert list(copy.items()) == list((texts | more).items())
    for key in more:
        del copy[key]
    assert copy == {key: text for key, text in texts.items() if key not in more}
    assert list(shared.items()) == list(texts.items())


def test_a_copy_takes_less_than_half() -> None:
    texts = {f"example.com/label-{number}": str(number) for number in range(12)}
    assert getsizeof(with_shared_keys(texts).copy()) * 2 < getsizeof(texts)


def test_a_node_keeps_its_labels_and_annotations_as_long_as_they_are_equal() -> None:
    nodes = NodeTable()
    nodes.set(_node("1", unschedulable=False))
    known = nodes.infos[0]
    assert nodes.set(_node("2", unschedulable=True)) == {"unschedulable"}
    assert nodes.infos[0].labels is known.labels
    assert nodes.infos[0].node.metadata.annotations is known.node.metadata.annotations
    assert nodes.set(_node("3", unschedulable=True, disk="hdd")) == {"labels"}
    assert nodes.infos[0].labels == {"disk": "hdd"}


def _node(version: str, *, unschedulable: bool, disk: str = "ssd") -> objects.Node:
    meta = objects.ObjectMeta(
        name="a", resource_version=version, labels={"disk": disk}, annotations={"example.com/a": "b"}
    )
    return objects.Node(metadata=meta, spec=objects.NodeSpec(unschedulable=unschedulable))
