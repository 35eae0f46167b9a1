"""Earlier versions of policies: each once, ten in all, with everything that a ConfigMap contained."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.adapters.files.policy_proof import PolicyProof
from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.kube import policy_history
from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.policy_history import (
    CONFIG_MAP_LABEL,
    KEPT,
    OWNER_KEPT_BYTES,
    PolicyHistory,
    Revision,
    RevisionsOf,
)
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.embedded.cluster import EmbeddedCluster
from tests.patience import PATIENCE_SECONDS

OF = RevisionsOf("default", "policies")
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Stage:
    """A ConfigMap, and a scheduler that takes over what is in it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.history = PolicyHistory(transport, OF)
        self.leads = [True]

    async def write(self, text: str, **more: Any) -> PolicySources:
        """Change the ConfigMap; return its policies."""
        body = msgspec.json.encode({"data": {"a.policy": text}, **more})
        await self.transport.request("PATCH", f"{CONFIG_MAPS}/policies", body=body, content_type=MERGE_PATCH)
        return PolicySources.of({"a.policy": text})

    async def until(self, condition: Callable[[tuple[Revision, ...]], bool]) -> tuple[Revision, ...]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition(found := await self.history.revisions()):  # noqa: ASYNC110 - it is the server's to say
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with EmbeddedCluster(kubelets=None) as embedded:
        embedded.kubeconfig(tmp_path / "kubeconfig")
        transport = Transport(find_credentials(kubeconfig=str(tmp_path / "kubeconfig"), context=None))
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policies"}}
        await transport.request("POST", CONFIG_MAPS, body=msgspec.json.encode(made))
        stage = Stage(transport)
        task = asyncio.create_task(stage.history.run())
        yield stage
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await transport.close()


async def test_the_last_ten_are_kept_each_once(stage: Stage) -> None:
    for number in range(1, KEPT + 3):
        stage.history.accepted(await stage.write(f"score {number}"))
        await stage.until(lambda found, wanted=number: bool(found) and found[0].number == wanted)  # type: ignore[misc]
    found = await stage.until(lambda found: len(found) == KEPT)
    assert [each.number for each in found] == [*range(KEPT + 2, 2, -1)]

    again = await stage.write("score 5")
    stage.history.accepted(again)
    found = await stage.until(lambda found: len(found) == KEPT and found[0].number == KEPT + 3)
    assert [each.policy_set for each in found].count(again.hash) == 1
    assert 5 not in {each.number for each in found}


async def test_all_that_was_in_the_config_map_is_kept(stage: Stage) -> None:
    signature = base64.b64encode(b"\x00\xff").decode()
    stage.history.accepted(await stage.write("score 1", binaryData={"SHA256SUMS.sig": signature}))
    (found,) = await stage.until(bool)
    assert (found.texts, found.binaries) == ({"a.policy": "score 1"}, {"SHA256SUMS.sig": b"\x00\xff"})


async def test_what_the_config_map_no_longer_holds_is_not_kept(stage: Stage) -> None:
    stage.history.accepted(await stage.write("score 1"))
    await stage.until(lambda found: len(found) == 1)
    late = await stage.write("score 2")
    await stage.write("score 3")
    stage.history.accepted(late)  # by a replica whose kubelet is behind
    newest = await stage.write("score 4")
    stage.history.accepted(newest)
    found = await stage.until(lambda found: len(found) == 2)
    assert found[0].policy_set == newest.hash


async def test_two_replicas_keep_it_once(stage: Stage) -> None:
    other = PolicyHistory(stage.transport, OF)
    task = asyncio.create_task(other.run())
    wanted = await stage.write("score 1")
    stage.history.accepted(wanted)
    other.accepted(wanted)
    await stage.until(bool)
    wanted = await stage.write("score 2")
    other.accepted(wanted)
    stage.history.accepted(wanted)
    found = await stage.until(lambda found: len(found) > 1)
    assert [each.number for each in found] == [2, 1]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_was_accepted_before_is_there_with_its_policies_the_newest_first(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    hashes = []
    for number in range(1, 4):
        sources = await stage.write(f"score {number}")
        hashes.append(sources.hash)
        stage.history.accepted(sources)
        await stage.until(lambda found, wanted=number: len(found) == wanted)  # type: ignore[misc]
    other = PolicyHistory(stage.transport, OF)
    found = await other.accepted_before(proof=None)
    assert [(revision.number, policies.hash) for revision, policies in found] == [
        (3, hashes[2]),
        (2, hashes[1]),
        (1, hashes[0]),
    ]
    assert await other.accepted_before(proof=PolicyProof()) == []
    assert "SHA256SUMS is missing" in caplog.text


async def test_a_corrupt_entry_does_not_affect_others(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.history.accepted(await stage.write("score 1"))
    await stage.until(bool)
    spoilt: list[Any] = [None, {"data": {"a.policy": 1}}, {"binaryData": {"a.policy": "?"}}, {"data": {"a.txt": ""}}]
    for number, data in enumerate(spoilt, start=2):
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": f"policies-{number}", "labels": {CONFIG_MAP_LABEL: "policies"}},
            "revision": number,
            "data": data,
        }
        path = "/apis/apps/v1/namespaces/default/controllerrevisions"
        await stage.transport.request("POST", path, body=msgspec.json.encode(body))
    ((only, _),) = await stage.history.accepted_before(proof=None)
    assert only.number == 1
    assert caplog.text.count("cannot read an earlier version") == 3
    assert "revision 5 of configMap default/policies contains no .policy file" in caplog.text


OF_OWNER = RevisionsOf.of_owner("default", "team-a")


@pytest.fixture
async def owned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """Return the stage with the history of an owner that has no ConfigMap."""
    monkeypatch.setattr(policy_history, "OWNER_REST_SECONDS", 0.0)
    monkeypatch.setattr(policy_history, "RETRY_SECONDS", 0.01)
    leads = [False]
    history = PolicyHistory(stage.transport, OF_OWNER, fence=Fence(lambda: leads[0]))
    task = asyncio.create_task(history.run())
    stage.history, stage.leads = history, leads
    yield stage
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_leader_stores_what_an_owner_without_a_config_map_wrote(owned: Stage) -> None:
    sources = PolicySources.of({"web.policy": "score 1", "batch.policy": "score 2"})
    owned.history.accepted(sources)
    await asyncio.sleep(0.1)
    assert await owned.history.revisions() == ()
    owned.leads[0] = True
    (found,) = await owned.until(bool)
    assert (found.number, found.policy_set, found.texts) == (1, sources.hash, dict(sources.files))

    nothing = PolicySources.of({})
    owned.history.accepted(nothing)
    await owned.until(lambda found: len(found) == 2)
    restarted = PolicyHistory(owned.transport, OF_OWNER)
    former = await restarted.accepted_before(proof=None)
    assert [sources.hash for _, sources in former] == [nothing.hash, sources.hash]
    assert restarted.origin(former[1][0]) == "revision 1 of owner team-a"
    assert await PolicyHistory(owned.transport, RevisionsOf.of_owner("default", "team")).revisions() == ()


async def test_the_versions_of_an_owner_have_a_bound_in_bytes(owned: Stage) -> None:
    owned.leads[0] = True
    for number in range(1, 7):
        owned.history.accepted(PolicySources.of({"web.policy": f"# {number}".ljust(OWNER_KEPT_BYTES // 4, "x")}))
        await owned.until(lambda found, wanted=number: bool(found) and found[0].number == wanted)  # type: ignore[misc]
    found = await owned.until(lambda found: len(found) == 4)
    assert [each.number for each in found] == [6, 5, 4, 3]
