"""Replica reports: each replica writes only its own; reports of dead and ended replicas are removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import NotFound, Unreachable
from kube_policy_scheduler.adapters.kube.replica_reports import (
    FORGET_SECONDS,
    PREFIX,
    PROBLEM_CHARACTERS,
    ReplicaReport,
    ReplicaReports,
    decode_reports,
)
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.embedded.cluster import EmbeddedCluster
from tests.patience import PATIENCE_SECONDS

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/scheduler-status"


class Stage:
    """An API server, and replicas that run."""

    def __init__(self, transport: Transport, stack: contextlib.AsyncExitStack) -> None:
        self.transport = transport
        self._stack = stack
        self.now = 1_000_000.0

    def replica(self, name: str) -> tuple[ReplicaReports, asyncio.Task[None]]:
        made = ReplicaReports(
            self.transport,
            namespace="default",
            name="scheduler-status",
            identity=f"{name}_1",
            replica=name,
            clock=lambda: self.now,
        )
        task = asyncio.create_task(made.run())
        self._stack.push_async_callback(ended, task)
        return made, task

    async def reports(self) -> dict[str, ReplicaReport]:
        try:
            found = decode_reports(await self.transport.request("GET", PATH))
        except NotFound:
            return {}
        return {report.replica: report for report in found.values()}

    async def until(self, condition: Callable[[dict[str, ReplicaReport]], bool]) -> dict[str, ReplicaReport]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition(found := await self.reports()):  # noqa: ASYNC110 - it is the server's to say
                await asyncio.sleep(0.01)
        return found


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(EmbeddedCluster(kubelets=None))
        embedded.kubeconfig(tmp_path / "kubeconfig")
        transport = Transport(find_credentials(kubeconfig=str(tmp_path / "kubeconfig"), context=None))
        stack.push_async_callback(transport.close)
        yield Stage(transport, stack)


async def test_replicas_that_start_together_each_have_their_own(stage: Stage) -> None:
    names = {"a", "b", "c"}
    made = {name: stage.replica(name)[0] for name in names}
    await stage.until(lambda found: set(found) == names)
    made["b"].update(active="f00", candidate="f00", generation=3, result="accepted", since=stage.now)
    found = await stage.until(lambda found: found["b"].active == "f00")
    assert found["b"] == ReplicaReport(
        replica="b", renewed=stage.now, active="f00", candidate="f00", generation=3, result="accepted", since=stage.now
    )
    assert found["a"].active == found["c"].active == ""


async def test_a_replica_that_ends_deletes_its_report(stage: Stage) -> None:
    _, going = stage.replica("going")
    stage.replica("staying")
    await stage.until(lambda found: len(found) == 2)
    await ended(going)
    assert set(await stage.reports()) == {"staying"}


async def test_a_dead_replica_is_forgotten_by_the_others(stage: Stage) -> None:
    await stage.transport.request(
        "POST",
        PATH.rpartition("/")[0],
        body=json.dumps(
            {
                "metadata": {
                    "name": "scheduler-status",
                    "annotations": {
                        f"{PREFIX}dead": json.dumps({"replica": "dead", "renewed": stage.now - FORGET_SECONDS - 1}),
                        f"{PREFIX}late": json.dumps({"replica": "late", "renewed": stage.now - FORGET_SECONDS + 60}),
                        f"{PREFIX}odd": "[",
                        "somebody.else/annotation": "kept",
                    },
                }
            }
        ).encode(),
    )
    replica, _ = stage.replica("living")
    await stage.until(lambda found: "living" in found)
    replica.update(generation=1)
    await stage.until(lambda found: set(found) == {"late", "living"})
    lease = json.loads(await stage.transport.request("GET", PATH))
    assert lease["metadata"]["annotations"]["somebody.else/annotation"] == "kept"


async def test_a_problem_is_cut_to_what_an_annotation_is_for(stage: Stage) -> None:
    replica, _ = stage.replica("a")
    replica.update(problem="x" * 10_000)
    found = await stage.until(lambda found: bool(found and found["a"].problem))
    assert len(found["a"].problem) == PROBLEM_CHARACTERS


async def test_a_server_that_refuses_is_asked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.adapters.kube.replica_reports.RETRY_SECONDS", 0.01)
    real, refused = stage.transport.request, []

    async def request(verb: str, path: str, **given: object) -> bytes:
        if verb == "PATCH" and len(refused) < 3:
            refused.append(path)
            raise Unreachable("no route")
        return await real(verb, path, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(stage.transport, "request", request)
    stage.replica("a")
    await stage.until(lambda found: "a" in found)
    assert caplog.text.count("failed to report the active policies") == 1
