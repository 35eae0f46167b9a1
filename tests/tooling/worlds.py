"""Clusters of short node and pod forms, as the offline commands see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.diagnostics import Source
from engine.documents.fixtures import FixtureObject
from engine.documents.yaml_document import parse_document
from engine.policy.policy_set import load
from engine.tooling.governing import Ruleset
from engine.tooling.tester.short_forms import node_object, pod_object
from engine.tooling.world import recorded

EMPTY = parse_document(Source("test", "{}"))
SCHEDULER = "policy-scheduler"
SSD_AND_HDD = (
    {"name": "a", "cpu": 4, "mem": "8Gi", "labels": {"disk": "ssd"}},
    {"name": "b", "cpu": 4, "mem": "8Gi", "labels": {"disk": "hdd"}},
)


def things_of(nodes: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> list[Any]:
    """Return API objects: the nodes, then the pods, named `p0`, `p1` … where they say no name."""
    made = [node_object(node) for node in nodes]
    made += [pod_object({"name": f"p{at}", **pod}, name=f"p{at}", uid=f"uid-{at}") for at, pod in enumerate(pods)]
    return recorded([FixtureObject(one, EMPTY, ()) for one in made], scheduler=SCHEDULER)


def ruleset(name: str, text: str) -> Ruleset:
    """Return a policy of this text, in a file of this name."""
    source = Source(f"{name}.policy", text)
    made = load([source]).policy_set
    assert made is not None
    return Ruleset(name, made, (source,))
