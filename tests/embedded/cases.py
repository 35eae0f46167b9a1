"""Contract cases: requests in YAML, and the answers a real API server gave to them, recorded beside.

KUBEBUILDER_ASSETS=... python -m tests.embedded.cases     records the answers again
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.embedded.rest import Client, comparable
from tests.integration.api import Endpoint
from tests.integration.control_plane import ControlPlane

FOLDER = Path(__file__).with_name("cases")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
_PLURALS = ("bindings", "configmaps", "events", "pods", "secrets", "serviceaccounts", "services")


def client_of(endpoint: Endpoint) -> Client:
    """Return a client that presents the administrator's certificate."""
    context = ssl.create_default_context(cafile=str(endpoint.ca_file))
    if endpoint.certificate_file is not None:
        context.load_cert_chain(endpoint.certificate_file, endpoint.key_file)
    return Client(endpoint.url, context)


def recording_of(name: str) -> Path:
    """Return the file with the recorded answers of a case."""
    return FOLDER / f"{name}.answers.json"


def steps_of(name: str) -> list[dict[str, Any]]:
    """Return the steps of a case."""
    case = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    if "each" in case:
        each = case["each"]
        return [{"send": each["send"], "body": {"metadata": each["metadata"], "spec": spec}} for spec in case["specs"]]
    accept = {"accept": case["accept"]} if "accept" in case else {}
    return [{**accept, **step} for step in case["steps"]]


def play(client: Client, name: str, *, namespace: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Carry out a case in a namespace made for it; yield each step and what can be compared of its answer."""
    client.send("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    paths = {"ns": namespace, "pvcs": f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"}
    paths |= {plural: f"/api/v1/namespaces/{namespace}/{plural}" for plural in _PLURALS}
    paths |= {
        "claims": f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
        "claimtemplates": f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
        "deviceclasses": "/apis/resource.k8s.io/v1/deviceclasses",
        "slices": "/apis/resource.k8s.io/v1/resourceslices",
        "apps": f"/apis/apps/v1/namespaces/{namespace}",
        "leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        "newevents": f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
        "policy": f"/apis/policy/v1/namespaces/{namespace}",
    }
    for step in steps_of(name):
        method, _, path = step["send"].partition(" ")
        body = json.loads(json.dumps(step.get("body")).replace("{ns}", namespace))
        answer = client.send(
            method,
            path.format(**paths),
            body=body,
            text=step.get("text"),
            content_type=step.get("content-type", "application/json"),
            accept=step.get("accept", "application/json"),
        )
        yield step, comparable(answer, namespace=namespace, compare=step.get("compare", "all"))


def main() -> None:
    chosen = sys.argv[1:] or NAMES
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(os.environ["KUBEBUILDER_ASSETS"]), Path(folder)) as plane,
    ):
        client = client_of(plane.endpoint)
        for name in chosen:
            answers = [answer for _, answer in play(client, name, namespace="case-" + name.replace("_", "-"))]
            rows = ",\n".join(json.dumps(answer, sort_keys=True) for answer in answers)
            recording_of(name).write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
