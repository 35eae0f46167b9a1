"""The devices annotation: whether the API server protects it, and when the scheduler trusts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.adapters.kube.device_annotation import NAME, why_unprotected
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.watching.device_trust import DeviceTrust
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer
from tests.cluster.test_devices import GPU, free, node, pod
from tests.deploy.manifests import BASE

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICY, BINDING = yaml.safe_load_all((BASE / "device-annotation.yaml").read_text())


class Api:
    """Has what it is given, by plural."""

    def __init__(self, **there: Any) -> None:
        self.there: dict[str, Any] = {
            "validatingadmissionpolicies": POLICY,
            "validatingadmissionpolicybindings": BINDING,
        } | there
        self.status = 0

    def __call__(self, request: Request, peer: Peer) -> None:
        group, plural, name = request.path.rsplit("/", 2)
        assert (request.verb, group, name) == ("GET", GROUP, NAME)
        if self.status:
            peer.refuse(self.status, "Forbidden" if self.status == 403 else "", "policies are not for you")
        elif self.there[plural] is None:
            peer.refuse(404, "NotFound")
        else:
            peer.answer(200, self.there[plural])


@asynccontextmanager
async def asked(api: Api) -> AsyncIterator[Transport]:
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        try:
            yield transport
        finally:
            await transport.close()


async def test_what_is_shipped_protects() -> None:
    async with asked(Api()) as transport:
        assert await why_unprotected(transport) == ""


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"validatingadmissionpolicies": None}, f"{NAME} or its binding does not exist"),
        ({"validatingadmissionpolicybindings": None}, f"{NAME} or its binding does not exist"),
        (
            {"validatingadmissionpolicies": POLICY | {"spec": POLICY["spec"] | {"failurePolicy": "Ignore"}}},
            "not reject all requests",
        ),
        (
            {"validatingadmissionpolicies": POLICY | {"spec": POLICY["spec"] | {"validations": []}}},
            "not reject all requests",
        ),
        (
            {
                "validatingadmissionpolicybindings": BINDING
                | {"spec": BINDING["spec"] | {"validationActions": ["Warn"]}}
            },
            "denies nothing",
        ),
        ({"validatingadmissionpolicybindings": BINDING | {"spec": {"policyName": "other"}}}, "denies nothing"),
        ({"validatingadmissionpolicybindings": {"spec": 3}}, "cannot decode"),
    ],
)
async def test_missing_protection_is_reported(there: dict[str, Any], why: str) -> None:
    async with asked(Api(**there)) as transport:
        assert why in await why_unprotected(transport)


async def test_without_permission_to_check_no_annotation_is_trusted() -> None:
    api = Api()
    api.status = 403
    async with asked(api) as transport:
        assert await why_unprotected(transport) == (
            f"cannot read the ValidatingAdmissionPolicy {NAME}: policies are not for you"
        )
        api.status = 500
        with pytest.raises(KubeError):
            await why_unprotected(transport)


async def test_annotations_count_while_they_are_protected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kube_policy_scheduler")
    api, cluster = Api(), Cluster()
    cluster.set_node(node("a", 2))
    cluster.place(pod(cluster, "says", share=500, devices=f"{GPU}=1", bound_to="a"), "a")
    async with asked(api) as transport:
        trust = DeviceTrust(transport, cluster.devices)
        assert trust.protected is None
        assert free(cluster, "a") == [500, 1000], "until the API server has answered nobody is believed"
        api.status = 500
        assert not await trust.look()
        assert trust.protected is None
        api.status = 0
        assert await trust.look()
        assert trust.protected is True
        assert free(cluster, "a") == [1000, 500]
        assert not caplog.records
        api.there["validatingadmissionpolicies"] = None
        for _ in range(2):
            assert await trust.look()
        assert trust.protected is False
        cluster.place(pod(cluster, "lies", share=500, devices=f"{GPU}=0", bound_to="a"), "a")
        assert free(cluster, "a") == [1000, 0], "it counts where we would have put it"
        (said,) = caplog.records
        assert "anybody can write the annotation policy-scheduler/devices, so it does not count" in said.getMessage()


async def test_a_start_waits_for_the_first_answer_but_not_forever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.daemon.watching.device_trust.FIRST_LOOK_SECONDS", 0.05)
    api = Api()
    api.status = 500
    async with asked(api) as transport:
        trust = DeviceTrust(transport, Cluster().devices)
        looking = asyncio.create_task(trust.run())
        await trust.first_look()
        assert "until the API server shows who can write them" in caplog.text
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
