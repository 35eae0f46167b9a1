"""Policies from their text, over clusters in short form, for the tests beside this file."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import load


def policy(text: str) -> Policy:
    """Return the only policy of a text that has no errors."""
    loaded = load([Source("t.policy", text)])
    assert loaded.policy_set is not None, "\n".join(map(render, loaded.diagnostics))
    (found,) = loaded.policy_set.policies
    return found


def raw_pod(name: str, *, labels: dict[str, str] | None = None, cpu: str = "1", **spec: Any) -> objects.Pod:
    """Return a pod of the API whose uid is its name."""
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": {
            "schedulerName": "policy-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        }
        | spec,
    }
    return msgspec.convert(body, objects.Pod)


def pod(cluster: Cluster, name: str, **short: Any) -> PodInfo:
    """Return a pod as a cluster keeps it; arguments as for `raw_pod`."""
    return cluster.templates.pod(raw_pod(name, **short))


def node(name: str, *, cpu: str = "1", **labels: str) -> objects.Node:
    """Return a node of the API."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}},
        },
        objects.Node,
    )
