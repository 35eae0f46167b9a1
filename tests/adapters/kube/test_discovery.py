"""A resource is read in a version that the API server serves."""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.discovery import served
from kube_policy_scheduler.adapters.kube.resources import POD_GROUPS, RESOURCES
from kube_policy_scheduler.adapters.kube.transport import Transport
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer

GROUP = "/apis/scheduling.k8s.io"


def group(*versions: str) -> dict[str, Any]:
    return {"versions": [{"groupVersion": f"scheduling.k8s.io/{each}", "version": each} for each in versions]}


def listing(*plurals: str) -> dict[str, Any]:
    return {"resources": [{"name": each} for each in plurals]}


CLASSES = listing("priorityclasses", "priorityclasses/status")
GROUPS = listing("podgroups", "podgroups/status")


@pytest.mark.parametrize(
    ("answers", "version"),
    [
        ({GROUP: group("v1", "v1alpha2"), f"{GROUP}/v1": CLASSES, f"{GROUP}/v1alpha2": GROUPS}, "v1alpha2"),
        ({GROUP: group("v1", "v1beta1"), f"{GROUP}/v1": CLASSES, f"{GROUP}/v1beta1": GROUPS}, "v1beta1"),
        ({GROUP: group("v1", "v1alpha2"), f"{GROUP}/v1": GROUPS, f"{GROUP}/v1alpha2": listing("workloads")}, "v1"),
        ({GROUP: group("v1"), f"{GROUP}/v1": CLASSES}, "v1alpha2"),
        ({}, "v1alpha2"),
        ({GROUP: {"versions": "none"}}, "v1alpha2"),
        ({GROUP: b"<html>"}, "v1alpha2"),
    ],
)
async def test_the_version_is_one_that_is_served(answers: dict[str, Any], version: str) -> None:
    def answer(request: Request, peer: Peer) -> None:
        found = answers.get(request.path)
        if found is None:
            peer.refuse(404, "NotFound")
        else:
            peer.answer(200, found)

    async with ScriptedServer(answer) as server:
        transport = Transport(server.credentials())
        assert (await served(transport, POD_GROUPS)).version == version
        await transport.close()


async def test_a_server_that_does_not_say_leaves_it_as_it_is() -> None:
    async with ScriptedServer(lambda _, peer: peer.refuse(403, "Forbidden")) as server:
        transport = Transport(server.credentials())
        assert await served(transport, POD_GROUPS) is POD_GROUPS
        await transport.close()


def test_no_two_resources_have_the_same_label() -> None:
    labels = {resource.label: str(resource) for resource in RESOURCES}
    assert len(labels) == len(RESOURCES)
    assert labels["podgroups.scheduling.k8s.io"] == "podgroups.scheduling.k8s.io"
    assert labels["podgroups.scheduling.x-k8s.io"] == "podgroups.scheduling.x-k8s.io"
    assert labels["replicasets"] == "replicasets.apps", "as kubectl, the group is named only where it is needed"
