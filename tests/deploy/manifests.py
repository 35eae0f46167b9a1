"""The manifests of deploy/, as plain objects: the base resolved without kubectl, overlays built by it."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.control_plane import kubectl_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"
OVERLAYS = sorted(path.parent for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
NAMESPACE = "policy-scheduler"

Json = dict[str, Any]


def kustomization() -> Json:
    loaded: Json = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    return loaded


def written_objects() -> list[Json]:
    """Return the objects of the base's resource files, in order."""
    return [
        found
        for name in kustomization()["resources"]
        for found in yaml.safe_load_all((BASE / name).read_text())
        if found is not None
    ]


def generated_objects() -> list[Json]:
    """Return the ConfigMaps that kustomize makes from files of the base."""
    made = []
    for generator in kustomization()["configMapGenerator"]:
        metadata: Json = {"name": generator["name"], "namespace": kustomization()["namespace"]}
        if labels := generator.get("options", {}).get("labels"):
            metadata["labels"] = labels
        data = {Path(file).name: (BASE / file).read_text() for file in generator["files"]}
        made.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return made


def objects() -> list[Json]:
    """Return the objects of the base."""
    return [*written_objects(), *generated_objects()]


@functools.cache
def _built(folder: Path) -> str:
    command = [kubectl_program(), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "a deprecation: " + done.stderr
    return done.stdout


def built(folder: Path) -> list[Json]:
    """Return what kubectl builds from a folder with a kustomization."""
    found = list(yaml.safe_load_all(_built(folder)))
    for each in found:
        if each["kind"].startswith("ValidatingAdmissionPolicy"):
            # older kustomizes put kinds that they do not know into the namespace; API servers take no notice
            each["metadata"].pop("namespace", None)
    return found


@functools.cache
def _with_components(names: tuple[str, ...], namespace: str) -> str:
    text = {
        "namespace": namespace,
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../deploy/base"],
        "components": [f"../deploy/components/{name}" for name in names],
    }
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(DEPLOY, Path(folder, "deploy"))
        mine = Path(folder, "mine")
        mine.mkdir()
        (mine / "kustomization.yaml").write_text(yaml.safe_dump(text))
        return _built(mine)


@functools.cache
def _in_namespace(folder: str, namespace: str) -> str:
    text = {
        "namespace": namespace,
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../deploy/{folder}"],
    }
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(DEPLOY, Path(copy, "deploy"))
        mine = Path(copy, "mine")
        mine.mkdir()
        (mine / "kustomization.yaml").write_text(yaml.safe_dump(text))
        return _built(mine)


def in_namespace(folder: str, namespace: str) -> list[Json]:
    """Return what a folder of deploy/ makes, in another namespace."""
    found = list(yaml.safe_load_all(_in_namespace(folder, namespace)))
    for each in found:
        if each["kind"].startswith("ValidatingAdmissionPolicy"):
            each["metadata"].pop("namespace", None)
    return found


def with_components(*names: str, namespace: str = "policy-scheduler") -> list[Json]:
    """Return the base with these components, for a namespace."""
    return list(yaml.safe_load_all(_with_components(names, namespace)))


def named(kind: str, name: str, *, among: Sequence[Json] | None = None) -> Json:
    found = [o for o in (objects() if among is None else among) if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} found"
    return found[0]


def only(kind: str, *, among: Sequence[Json] | None = None) -> Json:
    found = [o for o in (objects() if among is None else among) if o["kind"] == kind]
    assert len(found) == 1, f"{kind}: {len(found)} found"
    return found[0]


def pod_spec(deployment: Json) -> Json:
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def key(o: Json) -> tuple[str, str]:
    return o["kind"], o["metadata"]["name"]
