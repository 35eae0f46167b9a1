"""Each owner has a last good set: one owner's error, or a flood of edits, does not block other owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.daemon.configuration.settings import OwnerSettings, PolicySettings, Settings
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.policies import owners as owners_module
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.policies.owners import Owners, PoliciesTogether, rest_seconds
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import FormerPolicies, ReloadRecord, ReloadResult
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from tests.patience import PATIENCE_SECONDS

NAMES = frozenset({"policy-scheduler"})


def live(**texts: str) -> LivePolicies:
    policy_set = load([Source(f"{name}.policy", text) for name, text in texts.items()]).policy_set
    assert policy_set is not None
    return LivePolicies(policy_set, scheduler_names=NAMES)


def record(hash_: str, owner: str = "") -> ReloadRecord:
    return ReloadRecord(ReloadResult.ACCEPTED, hash_, 1, 0.0, 0.0, owner=owner)


class Stage:
    """Two owners and an administrator, with what was activated."""

    def __init__(self, root: Path, *, former: Sequence[FormerPolicies] = ()) -> None:
        self.root = root
        self.worker = WorkerProcess(MODULE)
        self.activated: list[tuple[str, ...]] = []
        self.hashes: list[str] = []
        self.records: list[ReloadRecord] = []
        self.stored: list[tuple[str, PolicySources]] = []
        self.breaks = False
        settings = [
            OwnerSettings(name=name, path=root / name, namespaces=(name,), config_map=f"{name}/policies")
            for name in ("team-a", "team-b")
        ]
        for owner in settings:
            owner.path.mkdir()
        self.together = PoliciesTogether(["team-a", "team-b"], self._activate)
        self.together.use("", live(default="filter node.ready\n"), record("admin"))
        self._former = former
        self.owners = Owners(
            Settings(policies=PolicySettings(owners=tuple(settings))),
            together=self.together,
            prepare=self._prepare,
            report=self.records.append,
            former=self._earlier,
            store=self._store,
            checker=PolicyChecker(self.worker),
            loops=Loops(),
        )

    def _activate(self, policies: LivePolicies, hash_: str) -> None:
        if self.breaks and any(policy.owner for policy in policies.policy_set.policies):
            self.breaks = False
            raise ZeroDivisionError("a fault")
        self.activated.append(tuple(policy.name for policy in policies.policy_set.policies))
        self.hashes.append(hash_)

    def _store(self, sources: PolicySources, *, owner: str) -> None:
        self.stored.append((owner, sources))

    async def _prepare(self, _: LivePolicies) -> None:
        return None

    async def _earlier(self, owner: str) -> Sequence[FormerPolicies]:
        return self._former if owner == "team-a" else ()

    def write(self, owner: str, text: str, name: str = "web.policy") -> None:
        (self.root / owner / name).write_text(text)

    async def until(self, wanted: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not wanted():  # noqa: ASYNC110 - many different things are waited for
                await asyncio.sleep(0.01)

    def ends(self, owner: str) -> list[str]:
        return [each.result.value for each in self.records if each.owner == owner]


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[Stage]:
    try:
        async with stage.owners:
            await stage.owners.first()
            yield stage
    finally:
        await asyncio.to_thread(stage.worker.kill)


@pytest.fixture(autouse=True)
def _without_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners_module, "LEAST_REST_SECONDS", 0.0)
    monkeypatch.setattr(owners_module, "SHARE_OF_TIME", 1000.0)
    monkeypatch.setattr(owners_module, "FIRST_SECONDS", 60.0)


@pytest.mark.long
async def test_an_error_of_one_owner_blocks_no_other(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("team-a", "filter node.redy\n")
    stage.write("team-b", "filter node.ready\n")
    async with running(stage):
        assert stage.activated[-1] == ("team-b/web", "default")
        assert stage.ends("team-a") == ["refused"]
        assert "unknown field `redy`" in (stage.owners.problem() or "")
        stage.write("team-b", "filter node.ready and fits(cpu)\n")
        await stage.until(lambda: stage.ends("team-b").count("accepted") == 2)
        stage.write("team-a", "filter node.ready\n")
        await stage.until(lambda: "accepted" in stage.ends("team-a"))
        assert stage.activated[-1] == ("team-a/web", "team-b/web", "default")
        assert stage.owners.problem() is None


@pytest.mark.long
async def test_the_last_good_policies_of_an_owner_stay(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("team-a", "filter node.ready\n")
    async with running(stage):
        before = len(stage.activated)
        stage.write("team-a", "priority 1\nfilter node.ready\n")
        await stage.until(lambda: stage.ends("team-a") == ["accepted", "refused"])
        assert len(stage.activated) == before
        (state, _) = stage.owners.states()
        assert state.policies == ("team-a/web",)
        assert state.problem is not None
        assert state.problem.startswith("policies of team-a refused, generation 1 stays in use: team-a/web.policy:1:1")
        assert state.as_data()["accepted"] is False


@pytest.mark.long
async def test_an_owner_can_take_all_policies_away(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("team-a", "filter node.ready\n")
    async with running(stage):
        assert stage.activated[-1] == ("team-a/web", "default")
        (tmp_path / "team-a" / "web.policy").unlink()
        await stage.until(lambda: stage.activated[-1] == ("default",))
        assert stage.ends("team-a") == ["accepted", "accepted"]


@pytest.mark.long
async def test_policies_that_were_accepted_before_are_restored(tmp_path: Path) -> None:
    earlier = FormerPolicies(PolicySources.of({"old.policy": "filter node.ready\n"}), "revision 3")
    stage = Stage(tmp_path, former=[earlier])
    stage.write("team-a", "filter node.redy\n")
    async with running(stage):
        assert stage.activated[-1] == ("team-a/old", "default"), "before pods are placed"
        assert stage.ends("team-a") == ["refused", "restored"]
        (state, _) = stage.owners.states()
        assert state.policies == ("team-a/old",)
        assert "policies of team-a restored from revision 3" in (state.problem or "")


@pytest.mark.long
async def test_what_is_accepted_is_stored_for_the_next_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("team-a", "filter node.redy\n")
    stage.write("team-b", "filter node.ready\n")
    async with running(stage):
        await stage.until(lambda: stage.stored)
    assert [(owner, dict(sources.files)) for owner, sources in stage.stored] == [
        ("team-b", {"web.policy": "filter node.ready\n"})
    ]


@pytest.mark.long
async def test_a_restored_set_and_another_owners_edit_are_checked_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    most = 0
    check = PolicyChecker.check

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal most
        under_way.append(1)
        most = max(most, len(under_way))
        try:
            return check(*given, **named)
        finally:
            under_way.pop()

    monkeypatch.setattr(PolicyChecker, "check", counted)
    earlier = FormerPolicies(PolicySources.of({"old.policy": "filter node.ready\n"}), "revision 3")
    stage = Stage(tmp_path, former=[earlier])
    stage.write("team-a", "filter node.redy\n")
    stage.write("team-b", "filter node.ready\n")
    async with running(stage):
        await stage.until(lambda: stage.activated[-1] == ("team-a/old", "team-b/web", "default"))
    assert most == 1


@pytest.mark.long
async def test_an_activation_that_breaks_leaves_what_was_in_force(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.breaks = True
    stage.write("team-a", "filter node.ready\n")
    async with running(stage):
        await stage.until(lambda: stage.ends("team-a"))
        assert stage.ends("team-a") == ["failed"]
        await stage.until(lambda: stage.activated[-1] == ("default",))
        stage.write("team-a", "filter node.ready and fits(cpu)\n")
        await stage.until(lambda: stage.activated[-1] == ("team-a/web", "default"))


@pytest.mark.long
async def test_a_folder_that_is_not_there_is_an_error_of_its_owner(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "team-a").rmdir()
    stage.write("team-b", "filter node.ready\n")
    async with running(stage):
        assert stage.ends("team-a") == ["unreadable"]
        assert stage.activated[-1] == ("team-b/web", "default")


@pytest.mark.long
async def test_an_owner_has_a_share_of_the_bytes(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("team-a", "# x\n" * 70_000)
    async with running(stage):
        assert stage.ends("team-a") == ["unreadable"]
        (refused,) = (each for each in stage.records if each.owner == "team-a")
        assert "256 KiB" in refused.problems[0]


def test_nothing_decides_before_the_administrators_policies() -> None:
    activated: list[LivePolicies] = []
    together = PoliciesTogether(["team-a"], lambda policies, _: activated.append(policies))
    together.use("team-a", live(web="filter node.ready\n"), record("one", "team-a"))
    assert not activated
    together.use("", live(default="filter node.ready\n"), record("two"))
    assert len(activated) == 1


def test_the_hash_is_the_administrators_without_owners_and_follows_each_owner() -> None:
    hashes: list[str] = []
    together = PoliciesTogether(["team-a", "team-b"], lambda _, hash_: hashes.append(hash_))
    together.use("", live(default="filter node.ready\n"), record("admin"))
    together.use("team-a", live(web="filter node.ready\n"), record("one"))
    together.use("team-a", live(web="filter node.ready\n"), record("two"))
    together.use("team-b", live(web="filter node.ready\n"), record("two"))
    together.withdraw("team-a")
    assert hashes[0] == "admin"
    assert len(set(hashes)) == 5


@pytest.mark.parametrize("owners", [1, 10, 100])
def test_edits_of_all_owners_together_take_a_small_share_of_the_time(
    owners: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners_module, "SHARE_OF_TIME", 0.05)
    took = 0.1
    assert owners * took / (took + rest_seconds(took, owners=owners)) <= 0.05


def test_metrics_know_owners() -> None:
    metrics = SchedulerMetrics(version=lambda: "test")
    metrics.on_reloaded(record("aaaa"))
    metrics.on_reloaded(record("bbbb", "team-a"))
    metrics.on_reloaded(record("cccc", "team-a"))
    text = generate_latest(metrics.registry).decode()
    info = [line for line in text.splitlines() if line.startswith("policy_scheduler_policy_info{")]
    assert [line.partition('owner="')[2] for line in info] == ['"} 1.0', 'team-a"} 1.0']
    assert 'policy_scheduler_policy_reloads_total{owner="team-a",result="accepted"} 2.0' in text
