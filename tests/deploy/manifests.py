"""The manifests of deploy/, as plain objects, resolved without kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"

Json = dict[str, Any]


def kustomization() -> Json:
    loaded: Json = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    return loaded


def written_objects() -> list[Json]:
    """Return the objects of the resource files, in order."""
    return [
        found
        for name in kustomization()["resources"]
        for found in yaml.safe_load_all((BASE / name).read_text())
        if found is not None
    ]


def generated_objects() -> list[Json]:
    """Return the ConfigMaps that kustomize makes from files."""
    namespace = kustomization()["namespace"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generator["name"], "namespace": namespace},
            "data": {Path(file).name: (BASE / file).read_text() for file in generator["files"]},
        }
        for generator in kustomization()["configMapGenerator"]
    ]


def objects() -> list[Json]:
    return [*written_objects(), *generated_objects()]


def named(kind: str, name: str) -> Json:
    found = [o for o in objects() if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} found"
    return found[0]


def only(kind: str) -> Json:
    found = [o for o in objects() if o["kind"] == kind]
    assert len(found) == 1, f"{kind}: {len(found)} found"
    return found[0]
