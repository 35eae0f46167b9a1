"""The condition of PodGroups is written as kube-scheduler writes it: when it changes, and never back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.pod_group_status import PodGroupStatusWriter
from kube_policy_scheduler.adapters.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS, Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from tests.adapters.kube.scripted_server import Peer, Request, ScriptedServer, until

PATH = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/train"
VERSIONS = {"versions": [{"version": "v1"}, {"version": "v1alpha2"}]}
KINDS = {"v1": ["priorityclasses"], "v1alpha2": ["podgroups", "podgroups/status"]}


class Api:
    """Has one group, and notifies the watch at once unless `lags`."""

    def __init__(self) -> None:
        self.group: dict[str, Any] = {"metadata": {"name": "train", "namespace": "default", "uid": "u"}, "spec": {}}
        self.group["metadata"]["resourceVersion"] = "1"
        self.patches: list[Any] = []
        self.seen = self.now()

    def now(self) -> PodGroup:
        return msgspec.convert(self.group, PodGroup)

    def find(self, key: str) -> PodGroup | None:
        return self.seen if key == "default/train" else None

    @property
    def condition(self) -> Any:
        (condition,) = self.group["status"]["conditions"]
        return condition

    def __call__(self, request: Request, peer: Peer) -> None:
        if request.path == "/apis/scheduling.k8s.io":
            peer.answer(200, VERSIONS)
        elif request.path.count("/") == 3:
            kinds = KINDS[request.path.rpartition("/")[2]]
            peer.answer(200, {"resources": [{"name": name} for name in kinds]})
        elif request.verb == "GET":
            assert request.path == PATH
            peer.answer(200, self.group)
        else:
            self._patch(request, peer)

    def _patch(self, request: Request, peer: Peer) -> None:
        assert (request.verb, request.path) == ("PATCH", f"{PATH}/status")
        assert request.headers["content-type"] == "application/strategic-merge-patch+json"
        metadata = self.group["metadata"]
        if request.json["metadata"] != {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}:
            peer.refuse(409, "Conflict")
            return
        self.patches.append(request.json["status"])
        before = self.group.get("status", {"conditions": [{}]})["conditions"][0]
        self.group["status"] = {"conditions": [before | request.json["status"]["conditions"][0]]}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        peer.answer(200, self.group)


@contextlib.asynccontextmanager
async def writer_for(
    api: Api, resource: Resource[Any] = POD_GROUPS, **options: Any
) -> AsyncIterator[PodGroupStatusWriter[Any]]:
    async with ScriptedServer(api) as server:
        transport = Transport(server.credentials())
        writer = PodGroupStatusWriter(
            transport, resource, **({"find": api.find, "random": Random(1), "clock": lambda: 1_795_000_000.9} | options)
        )
        task = asyncio.create_task(writer.run())
        try:
            yield writer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()


async def test_a_group_is_unschedulable_until_it_is_scheduled_and_stays_so() -> None:
    api = Api()
    async with writer_for(api) as writer:
        writer.unschedulable("default/train", reason="Unschedulable", message="2 of 3")
        await until(lambda: (len(api.patches), len(writer)) == (1, 0))
        assert api.condition == {
            "type": "PodGroupScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "2 of 3",
            "lastTransitionTime": "2026-11-18T11:06:40Z",
        }
        api.seen = api.now()
        writer.unschedulable("default/train", reason="Unschedulable", message="2 of 3")
        assert len(writer) == 0, "it says so already"
        writer.unschedulable("default/train", reason="SchedulerError", message="broke")
        await until(lambda: (len(api.patches), len(writer)) == (2, 0))
        assert "lastTransitionTime" not in api.patches[1]["conditions"][0], "it was False before"
        # the watch has not shown it yet: the server says what is there
        writer.scheduled("default/train")
        await until(lambda: (len(api.patches), len(writer)) == (3, 0))
        assert (api.condition["status"], api.condition["reason"], api.condition["message"]) == ("True", "Scheduled", "")
        writer.unschedulable("default/train", reason="Unschedulable", message="one more, for whom there is no room")
        assert await writer.drain(timeout_seconds=30)
        assert api.condition["status"] == "True"
        api.seen = api.now()
        writer.unschedulable("default/train", reason="Unschedulable", message="one more")
        assert len(writer) == 0


async def test_in_the_version_of_1_37_the_condition_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "versions", [{"version": "v1"}, {"version": "v1beta1"}])
    monkeypatch.setitem(KINDS, "v1beta1", ["podgroups", "podgroups/status"])
    monkeypatch.setattr(f"{__name__}.PATH", PATH.replace("v1alpha2", "v1beta1"))
    api = Api()
    async with writer_for(api) as writer:
        writer.unschedulable("default/train", reason="Unschedulable", message="2 of 3")
        await until(lambda: (len(api.patches), len(writer)) == (1, 0))
        assert (api.condition["type"], api.condition["status"]) == ("PodGroupInitiallyScheduled", "False")
        api.seen = api.now()
        writer.scheduled("default/train")
        await until(lambda: (len(api.patches), len(writer)) == (2, 0))
        assert (api.condition["type"], api.condition["status"]) == ("PodGroupInitiallyScheduled", "True")
        api.seen = api.now()
        writer.unschedulable("default/train", reason="Unschedulable", message="one more")
        assert len(writer) == 0


async def test_a_composite_group_has_a_condition_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, "versions", [{"version": "v1"}, {"version": "v1alpha3"}])
    monkeypatch.setitem(KINDS, "v1alpha3", ["compositepodgroups", "compositepodgroups/status"])
    monkeypatch.setattr(
        f"{__name__}.PATH", "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups/train"
    )
    api = Api()

    def find(key: str) -> CompositePodGroup:
        return msgspec.convert(api.group, CompositePodGroup)

    async with writer_for(api, COMPOSITE_POD_GROUPS, find=find) as writer:
        writer.scheduled("default/train")
        assert await writer.drain(timeout_seconds=30)
    assert (api.condition["type"], api.condition["status"]) == ("CompositePodGroupInitiallyScheduled", "True")


async def test_of_what_waits_to_be_sent_that_a_group_is_scheduled_outlives_the_rest() -> None:
    api = Api()
    is_busy = True
    async with writer_for(api, defer_while=lambda: is_busy) as writer:
        for number in range(5):
            writer.scheduled("default/train")
            writer.unschedulable("default/train", reason="Unschedulable", message=f"no room for {number} more")
        is_busy = False
        await until(lambda: bool(api.patches))
        assert len(api.patches) == 1
        assert api.condition["status"] == "True"


async def test_another_group_of_the_name_and_an_unknown_one_are_left_alone() -> None:
    api = Api()
    async with writer_for(api) as writer:
        writer.scheduled("default/other")
        writer.scheduled("default/train")
        api.group["metadata"] |= {"uid": "another", "resourceVersion": "9"}
        assert await writer.drain(timeout_seconds=30)
        assert api.patches == []


async def test_behind_the_fence_nothing_is_written() -> None:
    api = Api()
    async with writer_for(api, fence=Fence(lambda: False)) as writer:
        writer.scheduled("default/train")
        assert await writer.drain(timeout_seconds=30)
        assert api.patches == []
