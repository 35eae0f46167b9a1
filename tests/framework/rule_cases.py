"""Cases of scheduling rules in short YAML, expanded to the form of conformance cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "rules"
AMPLE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


def rule_cases() -> list[tuple[str, dict[str, Any]]]:
    """Return all cases with their names, `file: sentence`."""
    return [
        (f"{path.stem}: {short['name']}", expand(short))
        for path in sorted(FOLDER.glob("*.yaml"))
        for short in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]


def expand(short: dict[str, Any]) -> dict[str, Any]:
    """Return a conformance line; `real` false marks what kube-scheduler does otherwise, `kubernetes` is a version."""
    known = {"name", "nodes", "pods", "pod", "want", "real", "kubernetes"}
    case = {
        "id": short["name"],
        "nodes": [_node(node) for node in short["nodes"]],
        "pods": [_pod(pod, f"p{number}") for number, pod in enumerate(short.get("pods", ()))],
        "pod": _pod(short["pod"], "incoming"),
        "namespaces": [{"metadata": {"name": "default"}}],
        **{key: value for key, value in short.items() if key not in known},
    }
    line = {"case": case, "family": "rules", "want": short["want"], "real": short.get("real", True)}
    return line | ({"kubernetes": short["kubernetes"]} if "kubernetes" in short else {})


def _node(short: dict[str, Any]) -> dict[str, Any]:
    allocatable = {k: v for k, v in (AMPLE | short.get("allocatable", {})).items() if v is not None}
    return {
        "metadata": {"name": short["name"], "uid": short["name"], "labels": short.get("labels", {})},
        "spec": {"unschedulable": short.get("unschedulable", False), "taints": short.get("taints", [])},
        "status": {
            "allocatable": allocatable,
            "images": short.get("images", []),
            "declaredFeatures": short.get("declaredFeatures", []),
        },
    }


def _pod(short: dict[str, Any], name: str) -> dict[str, Any]:
    own = {"name", "at", "labels", "requests", "ports", "started", "deleted", "status", "nominated", "affinity"}
    name = short.get("name", name)
    main = {"name": "main", "image": "", "resources": {"requests": short.get("requests", {})}}
    spec = {"containers": [main | {"ports": short.get("ports", [])}]}
    spec |= {key: value for key, value in short.items() if key not in own}
    if "at" in short:
        spec["nodeName"] = short["at"]
    if "affinity" in short:
        node = short["affinity"]["nodeAffinity"]
        spec["affinity"] = {"nodeAffinity": {}}
        if "required" in node:
            spec["affinity"]["nodeAffinity"][_REQUIRED] = {"nodeSelectorTerms": node["required"]}
        if "preferred" in node:
            spec["affinity"]["nodeAffinity"][_PREFERRED] = node["preferred"]
    status = dict(short.get("status", {}))
    status |= {"startTime": short.get("started", "2026-01-01T00:00:00Z")} if "at" in short else {}
    status |= {"nominatedNodeName": short["nominated"]} if "nominated" in short else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": short.get("labels", {})}
    if "deleted" in short:
        metadata |= {"deletionTimestamp": short["deleted"], "finalizers": ["example.com/hold"]}
    return {"metadata": metadata, "spec": spec, "status": status}
