"""The adapters against a whole API server: the embedded one, or the one that TEST_KUBECONFIG names."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube import resources
from kube_policy_scheduler.adapters.kube.binding import Binder, Bound, Reason, Refused
from kube_policy_scheduler.adapters.kube.changes import Change, Deleted
from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import Conflict, NotFound
from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.adapters.kube.lease import HeldLease, LeaderElector, LeaseSettings
from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.adapters.kube.pod_view import PodNow, view_of
from kube_policy_scheduler.adapters.kube.reflector import Patience, Reflector, Selector, wait_synced
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS, UNFINISHED_PODS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.embedded.cluster import EmbeddedCluster
from tests.adapters.kube.scripted_server import until
from tests.patience import PATIENCE_SECONDS


class Cluster:
    """An API server and a namespace of our own in it."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace

    async def call(self, verb: str, path: str, body: Any = None, **options: Any) -> Any:
        encoded = msgspec.json.encode(body) if body is not None else b""
        return msgspec.json.decode(await self.transport.request(verb, path, body=encoded, **options))

    async def create_pod(self, name: str, **spec: Any) -> Pod:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "pause"}], **spec},
        }
        made = await self.call("POST", PODS.collection(namespace=self.namespace), body)
        return msgspec.convert(made, Pod)

    async def get_pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.call("GET", PODS.path(name, namespace=self.namespace))
        return found

    async def delete_pod(self, name: str) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self.call("DELETE", PODS.path(name, namespace=self.namespace), options)

    async def events(self) -> list[dict[str, Any]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        found: list[dict[str, Any]] = (await self.call("GET", path))["items"]
        return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with contextlib.AsyncExitStack() as stack:
        kubeconfig = os.environ.get("TEST_KUBECONFIG")
        if kubeconfig is None:
            embedded = await stack.enter_async_context(EmbeddedCluster(kubelets=None))
            kubeconfig = str(tmp_path / "kubeconfig")
            embedded.kubeconfig(Path(kubeconfig))
        transport = Transport(find_credentials(kubeconfig=kubeconfig, context=None))
        stack.push_async_callback(transport.close)
        namespace = f"test-{uuid4().hex[:8]}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await transport.request("POST", "/api/v1/namespaces", body=msgspec.json.encode(body))
        yield Cluster(transport, namespace)


class Mirror:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.pods: dict[str, Pod] = {}
        self.log: list[str] = []

    def replaced(self, objects: Sequence[Pod], /) -> None:
        self.pods = {pod.metadata.uid: pod for pod in objects if pod.metadata.namespace == self.namespace}

    def changed(self, changes: Sequence[Change[Pod]], /) -> None:
        for change in changes:
            pod = change.last if isinstance(change, Deleted) else change.new
            if pod.metadata.namespace != self.namespace:
                continue
            sign = "-" if isinstance(change, Deleted) else "~" if pod.metadata.uid in self.pods else "+"
            self.log.append(sign + pod.metadata.name)
            if isinstance(change, Deleted):
                self.pods.pop(pod.metadata.uid)
            else:
                self.pods[pod.metadata.uid] = pod

    def node_of(self, name: str) -> str | None:
        return next((pod.spec.node_name for pod in self.pods.values() if pod.metadata.name == name), None)


@contextlib.asynccontextmanager
async def running(*works: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reflector_of(cluster: Cluster, mirror: Mirror, **options: Any) -> Reflector[Pod]:
    return Reflector(cluster.transport, PODS, mirror, selector=Selector(UNFINISHED_PODS), random=Random(1), **options)


async def test_pods_are_mirrored_and_bound_and_leave_the_view_when_they_finish(cluster: Cluster) -> None:
    before = await cluster.create_pod("before")
    mirror = Mirror(cluster.namespace)
    reflector = reflector_of(cluster, mirror)
    binder = Binder(cluster.transport, random=Random(1))
    async with running(reflector.run()):
        assert await wait_synced([reflector], timeout_seconds=PATIENCE_SECONDS) == []
        assert list(mirror.pods) == [before.metadata.uid]
        after = await cluster.create_pod("after")
        await until(lambda: after.metadata.uid in mirror.pods)
        for pod in (before, after):
            meta = pod.metadata
            outcome = await binder.bind(namespace=meta.namespace, name=meta.name, uid=meta.uid, node="node-1")
            assert outcome == Bound("node-1")
        await until(lambda: [mirror.node_of(name) for name in ("before", "after")] == ["node-1", "node-1"])
        finished = {"status": {"phase": "Succeeded"}}
        status = PODS.path("before", namespace=cluster.namespace, subresource="status")
        await cluster.call("PATCH", status, finished, content_type=MERGE_PATCH)
        await until(lambda: "-before" in mirror.log)
        await cluster.delete_pod("after")
        await until(lambda: not mirror.pods)
        now = await cluster.get_pod("before")
        scheduled = next(c for c in now["status"]["conditions"] if c["type"] == "PodScheduled")
        assert scheduled["status"] == "True"


async def test_the_server_refuses_what_the_binder_says_it_refuses(cluster: Cluster) -> None:
    binder = Binder(cluster.transport, random=Random(1))

    async def refusal(pod: Pod, *, uid: str | None = None, node: str = "node-2") -> Reason | None:
        meta = pod.metadata
        outcome = await binder.bind(namespace=meta.namespace, name=meta.name, uid=uid or meta.uid, node=node)
        return outcome.reason if isinstance(outcome, Refused) else None

    bound = await cluster.create_pod("bound")
    assert await refusal(bound, uid=str(uuid4())) is Reason.GONE
    assert await refusal(bound, node="node-1") is None
    assert await refusal(bound, node="node-1") is None  # the same again is bound already
    assert await refusal(bound, node="node-2") is Reason.BOUND_ELSEWHERE
    gated = await cluster.create_pod("gated", schedulingGates=[{"name": "example.org/quota"}])
    assert await refusal(gated) is Reason.GATED
    gone = await cluster.create_pod("gone")
    await cluster.delete_pod("gone")
    assert await refusal(gone) is Reason.GONE


async def test_many_bindings_at_once_all_arrive(cluster: Cluster) -> None:
    pods = await asyncio.gather(*(cluster.create_pod(f"p{n}") for n in range(100)))
    binder = Binder(cluster.transport, random=Random(1))
    outcomes = await asyncio.gather(
        *(
            binder.bind(namespace=p.metadata.namespace, name=p.metadata.name, uid=p.metadata.uid, node=f"node-{n % 9}")
            for n, p in enumerate(pods)
        )
    )
    assert outcomes == [Bound(f"node-{n % 9}") for n in range(100)]


async def test_events_are_accepted_and_aggregated(cluster: Cluster) -> None:
    pod = view_of(await cluster.create_pod("web"))
    recorder = EventRecorder(cluster.transport, controller="a-test", instance="a-test-host", random=Random(1))
    async with running(recorder.run()):
        recorder.failed_scheduling(pod, message="0/1 nodes are available: 1 Insufficient cpu.")
        assert await recorder.drain(timeout_seconds=30)
        for _ in range(3):
            recorder.failed_scheduling(pod, message="0/1 nodes are available: 1 Insufficient cpu.")
            assert await recorder.drain(timeout_seconds=30)
        recorder.scheduled(pod, node="node-1")
        assert await recorder.drain(timeout_seconds=30)
    found = {event["reason"]: event for event in await cluster.events()}
    assert sorted(found) == ["FailedScheduling", "Scheduled"]
    assert found["FailedScheduling"]["series"]["count"] == 2
    assert found["Scheduled"]["note"] == f"Successfully assigned {cluster.namespace}/web to node-1"
    assert found["Scheduled"]["regarding"]["uid"] == pod.uid
    assert recorder.counts.refused == recorder.counts.retried == 0


async def test_the_condition_is_written_once_and_keeps_its_transition_time(cluster: Cluster) -> None:
    made = await cluster.create_pod("web")
    writer = PodStatusWriter(cluster.transport, random=Random(1))

    async def condition() -> dict[str, Any]:
        assert await writer.drain(timeout_seconds=30)
        status = (await cluster.get_pod("web"))["status"]
        (found,) = [c for c in status["conditions"] if c["type"] == "PodScheduled"]
        return {**found, "nominated": status.get("nominatedNodeName")}

    async with running(writer.run()):
        writer.unschedulable(view_of(made), reason="Unschedulable", message="one", nominated_node="node-7")
        first = await condition()
        assert (first["status"], first["reason"], first["message"]) == ("False", "Unschedulable", "one")
        assert first["nominated"] == "node-7"
        # Written from a view that is older than the last write: the version conflict is resolved by reading.
        writer.unschedulable(view_of(made), reason="Unschedulable", message="two")
        second = await condition()
        assert second["message"] == "two"
        assert second["lastTransitionTime"] == first["lastTransitionTime"]
        now = await seen(cluster, "web")
        writer.unschedulable(now, reason="Unschedulable", message="two", nominated_node="")
        assert (await condition())["nominated"] is None
    assert writer.counts.refused == 0


async def seen(cluster: Cluster, name: str) -> PodNow:
    return view_of(msgspec.convert(await cluster.get_pod(name), Pod))


async def test_a_late_status_never_touches_a_bound_pod(cluster: Cluster) -> None:
    made = await cluster.create_pod("web")
    meta = made.metadata
    binder = Binder(cluster.transport, random=Random(1))
    await binder.bind(namespace=meta.namespace, name=meta.name, uid=meta.uid, node="node-1")
    writer = PodStatusWriter(cluster.transport, random=Random(1))
    async with running(writer.run()):
        writer.unschedulable(view_of(made), reason="Unschedulable", message="too late")
        assert await writer.drain(timeout_seconds=30)
    conditions = (await cluster.get_pod("web"))["status"]["conditions"]
    assert [c["status"] for c in conditions if c["type"] == "PodScheduled"] == ["True"]


async def test_every_resource_can_be_listed_and_watched(cluster: Cluster) -> None:
    class Ignore:
        def replaced(self, objects: Sequence[Any], /) -> None: ...
        def changed(self, changes: Sequence[Change[Any]], /) -> None: ...

    defined = {"scheduling.x-k8s.io", "topology.node.k8s.io"}  # CustomResourceDefinitions
    newer = {"compositepodgroups", "devicetaintrules"}  # served from 1.37 on
    found = [each for each in resources.RESOURCES if each.group not in defined and each.plural not in newer]
    assert len(found) > 15
    reflectors = [
        Reflector(cluster.transport, resource, Ignore(), optional=resource not in (PODS, NODES), random=Random(1))
        for resource in found
    ]
    async with running(*(reflector.run() for reflector in reflectors)):
        assert await wait_synced(reflectors, timeout_seconds=20) == []
        await until(lambda: all(reflector.counts.watches == 1 for reflector in reflectors))
    assert {reflector.counts.malformed for reflector in reflectors} == {0}


async def test_a_watch_from_an_unknown_past_is_settled_by_a_list(cluster: Cluster) -> None:
    await cluster.create_pod("web")
    mirror = Mirror(cluster.namespace)
    reflector = reflector_of(cluster, mirror, patience=Patience(watch_seconds=(1.0, 1.0)))
    await reflector.step()
    reflector._version = "1"  # compacted long ago, or never served; the next watch begins there
    mirror.pods.clear()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while mirror.node_of("web") is None:  # a server that still has all events sends them instead
            await reflector.step()


async def test_a_lease_is_taken_renewed_and_given_back(cluster: Cluster) -> None:
    settings = LeaseSettings(
        cluster.namespace, "policy-scheduler", "me", lease_seconds=3, renew_deadline_seconds=2, retry_seconds=0.2
    )
    held = HeldLease(renew_deadline_seconds=settings.renew_deadline_seconds)
    elector = LeaderElector(cluster.transport, settings, held=held, random=Random(1))
    path = f"{settings.collection}/{settings.name}"
    async with running(elector.run()):
        await until(lambda: held.is_valid)
        first = (await cluster.call("GET", path))["spec"]
        assert first["holderIdentity"] == "me"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await cluster.call("GET", path))["spec"]["renewTime"] == first["renewTime"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    assert not (await cluster.call("GET", path))["spec"].get("holderIdentity")


async def test_errors_have_the_servers_own_words(cluster: Cluster) -> None:
    with pytest.raises(NotFound, match=r'404 NotFound: pods "none" not found'):
        await cluster.get_pod("none")
    await cluster.create_pod("web")
    with pytest.raises(Conflict, match=r'409 AlreadyExists: pods "web" already exists'):
        await cluster.create_pod("web")
