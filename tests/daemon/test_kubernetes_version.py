"""By which Kubernetes the daemon decides: what the server says, what the configuration says, and upgrades meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kube_policy_scheduler.adapters.kube.discovery import read_version
from kube_policy_scheduler.adapters.kube.errors import KubeError, Unreachable
from kube_policy_scheduler.daemon.configuration.settings import KubernetesSettings
from kube_policy_scheduler.daemon.watching.kubernetes_version import ASK_SECONDS, ASSUMED, VersionWatch
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesVersion
from tests.simulation import virtual_time

DOWN = Unreachable("connection refused")


class Server:
    """Says one version after the other, and then the last one for ever."""

    def __init__(self, *answers: str | KubeError | None) -> None:
        self._answers: list[str | KubeError | None] = list(answers)
        self.asked = 0

    async def __call__(self) -> KubernetesVersion | None:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return None if answer is None else KubernetesVersion.parse(answer)


def watch(server: Server, **settings: object) -> VersionWatch:
    return VersionWatch(KubernetesSettings(**settings), ask=server)  # type: ignore[arg-type]


async def started(watch: VersionWatch) -> str:
    watch.begin()
    try:
        return str(await watch.first())
    finally:
        await watch.end()


@pytest.mark.parametrize(
    ("answer", "settings", "in_force"),
    [
        ("1.37.1", {}, "1.37.1, from the API server"),
        ("1.36.4", {"version": "1.37"}, "1.37, from the configuration"),
        ("1.99.0", {}, "1.38 (the newest whose rules are known, for 1.99.0), from the API server"),
        (
            "1.37.0",
            {"feature_gates": ("StorageCapacityScoring=false",)},
            "1.37.0, StorageCapacityScoring=false, from the API server",
        ),
        (None, {}, "1.36, assumed, as the API server did not say its version"),
        (DOWN, {}, "1.36, assumed, as the API server did not say its version"),
        ("1.34.2", {"feature_gates": ("VolumeLimitScaling=true",)}, "1.34.2, from the API server"),
    ],
)
def test_where_the_rules_come_from(answer: str | KubeError | None, settings: dict[str, object], in_force: str) -> None:
    assert virtual_time.run(started(watch(Server(answer), **settings))) == in_force


def test_a_server_that_does_not_answer_does_not_stop_the_start() -> None:
    async def never() -> KubernetesVersion | None:
        await asyncio.Event().wait()
        return None

    assert virtual_time.run(started(VersionWatch(KubernetesSettings(), ask=never))) == str(ASSUMED)


async def notices(answers: Sequence[str | KubeError | None]) -> tuple[str, int]:
    """Return what the watch ends with, and how often the server was asked."""
    server = Server(*answers)
    version = watch(server)
    await started(version)
    return await version.run(), server.asked


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        (["1.36.2", "1.37.0"], 4),
        (["1.36.2", "1.36.2", "1.37.0", "1.36.2", "1.37.0"], 7),
        (["1.37.0", DOWN, "1.36.9"], 5),
        (["1.36.2", "1.37.0", "1.38.0", "1.38.0", "1.38.0"], 5),
        ([DOWN, DOWN, "1.37.3"], 3),
    ],
)
def test_a_server_that_is_upgraded_is_noticed_once_it_says_so_three_times(
    answers: list[str | KubeError | None], asked: int
) -> None:
    why, times = virtual_time.run(notices(answers))

    assert times == asked
    assert why.startswith(f"the API server is of Kubernetes {answers[-1]} now")


def test_an_upgrade_is_told_from_the_first_answer_on_and_taken_back_if_the_server_was_one_of_several() -> None:
    async def told() -> list[str]:
        version = watch(Server("1.36.2", "1.37.0", "1.36.2"))
        await started(version)
        running = asyncio.create_task(version.run())
        found = [version.remark]
        for _ in range(2):
            await asyncio.sleep(ASK_SECONDS + 1)
            found.append(version.remark)
        running.cancel()
        return found

    before, during, after = virtual_time.run(told())
    assert before == after == "1.36.2, from the API server"
    assert during == (
        "1.36.2, from the API server; the API server now says 1.37.0: after 3 such answers, the scheduler starts again"
        " to decide by its rules"
    )


@pytest.mark.parametrize("answers", [["1.36.2", "1.36.7"], [DOWN, "1.36.1"], ["1.38.0", "1.40.0"]])
def test_versions_with_the_same_rules_change_nothing_but_what_is_shown(answers: list[str | KubeError | None]) -> None:
    async def seen() -> str:
        version = watch(Server(*answers))
        await started(version)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100 * ASK_SECONDS):
                await version.run()
        return str(version.in_force.rules.version)

    assert virtual_time.run(seen()) == answers[-1]


@pytest.mark.parametrize(
    ("first", "seconds"),
    [(DOWN, 3.0), (None, 3 * ASK_SECONDS), (KubeError("forbidden"), 3 * ASK_SECONDS)],
    ids=["out of reach", "says none", "refuses"],
)
def test_a_server_that_comes_late_is_soon_asked(first: KubeError | None, seconds: float) -> None:
    async def took() -> float:
        version = watch(Server(first, first, first, "1.37.0"))
        await started(version)
        before = asyncio.get_running_loop().time()
        await version.run()
        return asyncio.get_running_loop().time() - before

    assert virtual_time.run(took()) == pytest.approx(seconds)


@pytest.mark.parametrize(("first", "level"), [(DOWN, "INFO"), (None, "WARNING")], ids=["out of reach", "says none"])
def test_that_a_server_is_out_of_reach_is_not_warned_of_twice(
    first: KubeError | None, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    virtual_time.run(started(watch(Server(first))))
    assert [record.levelname for record in caplog.records if "assuming Kubernetes" in record.message] == [level]


def test_a_version_in_the_configuration_is_never_asked_for() -> None:
    async def asked() -> int:
        server = Server("1.38.0")
        version = watch(server, version="1.36")
        await started(version)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100 * ASK_SECONDS):
                await version.run()
        assert Feature.STORAGE_CAPACITY_SCORING not in version.in_force.rules
        return server.asked

    assert virtual_time.run(asked()) == 0


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (b'{"major": "1", "minor": "37", "gitVersion": "v1.37.2"}', KubernetesVersion(37, 2)),
        (b'{"major": "1", "minor": "33+", "gitVersion": "v1.33.1-gke.100"}', KubernetesVersion(33, 1)),
        (b'{"gitVersion": "v1.37.2", "emulationMajor": "1", "emulationMinor": "37"}', KubernetesVersion(37, 2)),
        (b'{"gitVersion": "v1.37.2", "emulationMajor": "1", "emulationMinor": "36"}', KubernetesVersion(36)),
        (b'{"gitVersion": "v1.37.2", "emulationMajor": "1", "emulationMinor": "x"}', None),
        (b'{"gitVersion": "latest"}', None),
        (b'{"gitVersion": 5}', None),
        (b"<html>", None),
        (b"{}", None),
    ],
)
def test_what_a_server_says_of_its_version(answer: bytes, version: KubernetesVersion | None) -> None:
    assert read_version(answer) == version
