"""What the playground starts with where nothing is given: a cluster, a fleet and policies, shipped with the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.yaml_document import Document, parse_document
from kube_policy_scheduler.playground.session import OpenedCluster, Origin
from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from kube_policy_scheduler.tooling.tester.metrics import Metrics

NAME = "example cluster"
POLICY_NAME = "start.policy"
FLEET_POLICY_NAME = "fleet.policy"
_NOON = 1_700_049_600.0
"""Unix seconds at which its decisions are made: the same on every day."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is shipped."""

    cluster: OpenedCluster
    metrics: Metrics


@cache
def start_policy() -> str:
    """Return the policy to start with."""
    return _shipped(POLICY_NAME)


@cache
def start_fleet() -> str:
    """Return the clusters of a fleet and the workload to start with, as YAML."""
    return _shipped("fleet.yaml")


def examples() -> dict[str, dict[str, str]]:
    """Return policies to begin with: the text of each file by its name, by what the example is about."""
    return {
        "pods on the nodes of a cluster": {POLICY_NAME: start_policy()},
        "a workload on the clusters of a fleet": {FLEET_POLICY_NAME: _shipped(FLEET_POLICY_NAME)},
    }


def start() -> Start:
    """Return the cluster to start with, with its metrics."""
    document: Document = parse_document(Source(NAME, _shipped("cluster.yaml")))
    form: Any = document.value
    nodes = [node_object(each) for each in form["nodes"]]
    pods = [pod_object(each, name=each["name"], uid="") for each in form["pods"]]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]})
    things = stored_objects(parse_objects(Source(NAME, text)), scheduler=min(DEFAULT_SCHEDULERS))
    metrics = Metrics().over(form["metrics"])
    cluster = OpenedCluster(NAME, Origin.FIXTURE, things, _NOON, metrics=tuple(form["metrics"]))
    return Start(cluster, metrics)


def _shipped(name: str) -> str:
    return (resources.files("kube_policy_scheduler.playground") / "start" / name).read_text(encoding="utf-8")
