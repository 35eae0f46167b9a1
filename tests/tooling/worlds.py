"""Clusters of short node and pod forms, as the offline commands see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object

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
    return stored_objects([FixtureObject(one, EMPTY, ()) for one in made], scheduler=SCHEDULER)


def ruleset(name: str, text: str) -> Ruleset:
    """Return a policy of this text, in a file of this name."""
    source = Source(f"{name}.policy", text)
    made = load([source]).policy_set
    assert made is not None
    return Ruleset(name, made, (source,))
