"""Policies change while the scheduler runs: good ones at once, bad ones never."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources, PolicySourcesError
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.worker_process import WorkerLost
from kube_policy_scheduler.daemon.policies.reload import (
    EVENT_MESSAGE_LIMIT,
    Accepted,
    FormerPolicies,
    PastPolicies,
    PolicyReloader,
    Refused,
    ReloadRecord,
    ReloadResult,
)
from tests.patience import PATIENCE_SECONDS


def sources(text: str) -> PolicySources:
    return PolicySources.of({"a.policy": text})


def compile_text(given: PolicySources) -> Accepted[str] | Refused:
    """The compiler of these tests: a text with `bad` in it is."""
    ((_, text),) = given.files
    if text == "crash":
        raise ZeroDivisionError("a fault")
    if "bad" in text:
        return Refused((f"a.policy:1:1: error[P001]: {text}\n  | {text}", "a.policy:2:1: error[P002]: more"))
    return Accepted(text, warnings=("a.policy:1:1: warning[W001]: hm",) if "hm" in text else ())


class Scheduler:
    """What a reloader drives, with all calls."""

    def __init__(self, **given: Any) -> None:
        self.activated: list[str] = []
        self.records: list[ReloadRecord] = []
        self.loops = Loops()
        self._more = asyncio.Event()
        ticks = itertools.count()
        self.reloader: PolicyReloader[str] = PolicyReloader(
            compile_policies=given.pop("compile_policies", compile_text),
            activate=given.pop("activate", lambda policies, _: self.activated.append(policies)),
            report=self._report,
            clock=lambda: float(next(ticks)),
            loops=self.loops,
            **given,
        )

    def _report(self, record: ReloadRecord) -> None:
        self.records.append(record)
        self._more.set()

    async def offered(self, found: PolicySources | PolicySourcesError) -> ReloadRecord:
        count = len(self.records)
        self.reloader.offer(found)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.records) == count:
                self._more.clear()
                await self._more.wait()
        return self.records[-1]


@asynccontextmanager
async def running(**given: Any) -> Any:
    scheduler = Scheduler(**given)
    async with scheduler.reloader:
        yield scheduler


async def test_a_good_set_is_activated_and_recorded() -> None:
    async with running() as scheduler:
        assert not scheduler.reloader.ready
        record = await scheduler.offered(sources("one"))
        assert record.successful
        assert (record.generation, record.hash) == (1, sources("one").hash)
        assert scheduler.activated == ["one"]
        assert scheduler.reloader.ready
        assert record.summary() == f"policies accepted: generation 1, hash {record.hash}"


async def test_starting_with_a_broken_set_is_not_ready_until_there_is_a_good_one() -> None:
    async with running() as scheduler:
        record = await scheduler.offered(sources("bad"))
        assert record.result is ReloadResult.REFUSED
        assert record.summary() == (
            "policies refused, nothing is scheduled: a.policy:1:1: error[P001]: bad; a.policy:2:1: error[P002]: more"
        )
        assert not scheduler.reloader.ready
        assert scheduler.activated == []
        await scheduler.offered(sources("good"))
        assert scheduler.reloader.ready


async def test_a_broken_set_changes_nothing_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running() as scheduler:
        await scheduler.offered(sources("one"))
        record = await scheduler.offered(sources("bad"))
        assert scheduler.reloader.active == "one"
        assert scheduler.activated == ["one"]
        assert record.generation == 1
        assert "generation 1 stays in use" in record.summary()
        assert scheduler.reloader.last is record
        assert scheduler.reloader.active_record is scheduler.records[0]
    assert "a.policy:1:1: error[P001]: bad\n  | bad" in [r.message for r in caplog.records]


async def test_unreadable_sources_change_nothing() -> None:
    async with running() as scheduler:
        await scheduler.offered(sources("one"))
        record = await scheduler.offered(PolicySourcesError("/etc/p does not exist"))
        assert record.result is ReloadResult.UNREADABLE
        assert record.hash is None
        assert record.summary() == "policies unreadable, generation 1 stays in use: /etc/p does not exist"
        assert scheduler.reloader.active == "one"


async def test_taking_a_bad_edit_back_is_a_success_without_a_new_generation() -> None:
    async with running() as scheduler:
        await scheduler.offered(sources("one"))
        await scheduler.offered(sources("bad"))
        record = await scheduler.offered(sources("one"))
        assert record.successful
        assert record.generation == 1
        assert scheduler.activated == ["one"]


async def test_warnings_are_logged_and_recorded(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as scheduler:
        record = await scheduler.offered(sources("hm"))
    assert record.warnings == ("a.policy:1:1: warning[W001]: hm",)
    assert "warning[W001]" in caplog.text


async def test_a_fault_of_the_compiler_does_not_end_the_scheduler() -> None:
    async with running() as scheduler:
        record = await scheduler.offered(sources("crash"))
        assert record.result is ReloadResult.FAILED
        assert record.problems == ("they could not be checked: ZeroDivisionError: a fault",)
        assert (await scheduler.offered(sources("one"))).successful


async def test_what_failed_through_no_fault_of_its_own_is_tried_again() -> None:
    trials = 0

    def busy(given: PolicySources) -> Accepted[str] | Refused:
        nonlocal trials
        trials += given == sources("one")
        if 0 < trials < 4:
            raise WorkerLost("cannot start a process: resource temporarily unavailable")
        return compile_text(given)

    async with running(compile_policies=busy, retry_seconds=0.01) as scheduler:
        assert (await scheduler.offered(sources("zero"))).successful
        record = await scheduler.offered(sources("one"))
        assert record.result is ReloadResult.FAILED
        assert record.problems == (
            "they could not be checked: cannot start a process: resource temporarily unavailable",
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not scheduler.records[-1].successful:
                scheduler._more.clear()
                await scheduler._more.wait()
    assert scheduler.activated == ["zero", "one"]
    assert trials == 4


async def test_what_failed_is_not_tried_again_once_there_is_something_newer() -> None:
    tried: list[str] = []

    def compile_some(given: PolicySources) -> Accepted[str] | Refused:
        ((_, text),) = given.files
        tried.append(text)
        return compile_text(given)

    async with running(compile_policies=compile_some, retry_seconds=0.01) as scheduler:
        await scheduler.offered(sources("crash"))
        while not (await scheduler.offered(sources("good"))).successful:
            pass
        await asyncio.sleep(0.05)
    assert tried[-1] == "good"


async def test_a_fault_of_the_activation_restores_the_last_good_set() -> None:
    activated: list[str] = []

    def activate(policies: str, _: ReloadRecord) -> None:
        activated.append(policies)
        if policies == "two":
            raise ZeroDivisionError("half-way")

    async with running(activate=activate) as scheduler:
        await scheduler.offered(sources("one"))
        record = await scheduler.offered(sources("two"))
        assert record.result is ReloadResult.FAILED
        assert record.generation == 1
        assert record.summary() == (
            "policies failed, generation 1 stays in use: activation failed: ZeroDivisionError: half-way"
        )
        assert activated == ["one", "two", "one"]
        assert scheduler.reloader.active == "one"
        assert scheduler.reloader.active_record is scheduler.records[0]
        record = await scheduler.offered(sources("three"))
        assert record.successful
        assert record.generation == 2


async def ends(scheduler: Scheduler) -> str:
    """Wait until the loading has ended; return the reason."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await scheduler.loops.lost()


@pytest.mark.parametrize("good", ["one", None], ids=["the last good set fails, too", "there is no good set"])
async def test_if_no_set_is_active_the_load_ends_with_the_reason(
    good: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    broken: list[str] = []

    def activate(policies: str, _: ReloadRecord) -> None:
        if policies != good or broken:
            broken.append(policies)
            raise ZeroDivisionError(policies)

    async with running(activate=activate) as scheduler:
        if good is not None:
            await scheduler.offered(sources(good))
        scheduler.reloader.offer(sources("two"))
        assert (await ends(scheduler)).startswith(
            "failed to activate the last good policies again: ZeroDivisionError"
            if good is not None
            else "the activation of policies failed, and there are no previous policies"
        )


class Former:
    """What was accepted before the process began, the newest first."""

    def __init__(self, *texts: str) -> None:
        self.sets = [FormerPolicies(sources(text), f"revision {9 - at}") for at, text in enumerate(texts)]
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def __call__(self) -> Sequence[FormerPolicies]:
        self.asked += 1
        await self.answers.wait()
        return self.sets


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (sources("bad"), "a.policy:1:1: error[P001]: bad; a.policy:2:1: error[P002]: more"),
        (PolicySourcesError("/etc/p contains no .policy file"), "/etc/p contains no .policy file"),
        (sources("crash"), "they could not be checked: ZeroDivisionError: a fault"),
    ],
)
async def test_a_start_without_good_policies_goes_on_with_the_last_that_were_accepted(
    found: PolicySources | PolicySourcesError, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(past=PastPolicies(Former("one", "two"))) as scheduler:
        await scheduler.offered(found)
        await scheduler.reloader.in_force.wait()
        assert scheduler.activated == ["one"]
        assert scheduler.reloader.ready
        record = scheduler.records[-1]
        assert (record.result, record.generation, record.hash) == (ReloadResult.RESTORED, 1, sources("one").hash)
        assert not record.successful
        summary = f"policies restored from revision 9 (hash {record.hash}), the newest cannot be used: {problem}"
        assert record.summary() == summary
        assert scheduler.reloader.problem() == summary
        assert summary in caplog.text
        assert scheduler.reloader.last is scheduler.records[0], "the newest candidate is what it was"

        await scheduler.offered(sources("bad again"))
        assert scheduler.activated == ["one"]
        await scheduler.offered(sources("one"))
        assert scheduler.reloader.problem() is None
        assert (await scheduler.offered(sources("three"))).generation == 2
        assert scheduler.activated == ["one", "three"]


async def test_of_former_sets_the_newest_that_can_be_used_decides(caplog: pytest.LogCaptureFixture) -> None:
    async with running(past=PastPolicies(Former("crash", "bad", "good", "older"))) as scheduler:
        await scheduler.offered(sources("bad"))
        await scheduler.reloader.in_force.wait()
        assert scheduler.activated == ["good"]
        assert scheduler.records[-1].origin == "revision 7"
    assert "cannot use revision 9" in caplog.text
    assert "cannot use revision 8" in caplog.text


async def test_where_there_is_nothing_to_start_from_good_policies_are_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    former = Former()
    async with running(past=PastPolicies(former)) as scheduler:
        await scheduler.offered(sources("bad"))
        await scheduler.offered(sources("bad too"))
        assert not scheduler.reloader.ready
        assert not scheduler.reloader.in_force.is_set()
        await scheduler.offered(sources("good"))
        assert scheduler.reloader.in_force.is_set()
    assert scheduler.activated == ["good"]
    assert former.asked == 2
    assert "no pods are scheduled until there are usable policies" in caplog.text


async def test_good_policies_that_come_while_former_ones_are_looked_for_go_first() -> None:
    former = Former("one")
    former.answers.clear()
    async with running(past=PastPolicies(former)) as scheduler:
        await scheduler.offered(sources("bad"))
        assert (await scheduler.offered(sources("good"))).successful
        former.answers.set()
        assert (await scheduler.offered(sources("better"))).successful
    assert scheduler.activated == ["good", "better"]


async def test_unavailable_former_policies_do_not_end_the_scheduler() -> None:
    async def broken() -> Sequence[FormerPolicies]:
        raise ZeroDivisionError

    async with running(past=PastPolicies(broken)) as scheduler:
        await scheduler.offered(sources("bad"))
        assert (await scheduler.offered(sources("good"))).successful


async def test_an_activation_that_breaks_at_the_start_leads_to_the_last_accepted_set() -> None:
    activated: list[str] = []

    def activate(policies: str, _: ReloadRecord) -> None:
        activated.append(policies)
        if policies == "two":
            raise ZeroDivisionError("half-way")

    async with running(activate=activate, past=PastPolicies(Former("one"))) as scheduler:
        assert (await scheduler.offered(sources("two"))).result is ReloadResult.FAILED
        await scheduler.reloader.in_force.wait()
        assert activated == ["two", "one"]


async def test_the_event_loop_goes_on_while_policies_compile_and_only_the_newest_waits() -> None:
    started, release = threading.Event(), threading.Event()
    compiled: list[str] = []

    def slow(given: PolicySources) -> Accepted[str] | Refused:
        started.set()
        release.wait(20)
        compiled.append(given.files[0][1])
        return compile_text(given)

    async with running(compile_policies=slow) as scheduler:
        scheduler.reloader.offer(sources("one"))
        await asyncio.to_thread(started.wait, 20)
        assert scheduler.activated == []
        scheduler.reloader.offer(sources("two"))
        scheduler.reloader.offer(sources("three"))
        release.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(scheduler.records) < 2:
                scheduler._more.clear()
                await scheduler._more.wait()
    assert scheduler.activated == ["one", "three"]
    assert compiled == ["one", "three"]


def _failing(_: str) -> Awaitable[None]:
    raise RuntimeError("no metrics")


@pytest.mark.parametrize("prepare", [None, _failing], ids=["prepared", "preparation fails"])
async def test_a_set_is_prepared_before_it_decides(prepare: Callable[[str], Awaitable[None]] | None) -> None:
    seen: list[list[str]] = []

    async def look(policies: str) -> None:
        seen.append([policies, *scheduler.activated])

    async with running(prepare=prepare or look) as scheduler:
        await scheduler.offered(sources("one"))
    assert scheduler.activated == ["one"]
    assert seen == ([["one"]] if prepare is None else [])


async def test_an_event_message_keeps_within_the_apis_limit() -> None:
    def refuse(given: PolicySources) -> Refused:
        return Refused(tuple(f"a.policy:{line}:1: error[P001]: {'x' * 80}" for line in range(1, 100)))

    def refuse_at_length(given: PolicySources) -> Refused:
        return Refused(("y" * 5000,))

    async with running(compile_policies=refuse) as scheduler:
        summary = (await scheduler.offered(sources("one"))).summary()
        assert EVENT_MESSAGE_LIMIT - 150 < len(summary) <= EVENT_MESSAGE_LIMIT
        assert summary.endswith("more)")
    async with running(compile_policies=refuse_at_length) as scheduler:
        assert len((await scheduler.offered(sources("one"))).summary()) == EVENT_MESSAGE_LIMIT


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["one", "two", "bad", "bad too", "crash", "gone"]), max_size=8))
def test_the_active_set_is_always_the_last_good_one(texts: list[str]) -> None:
    async def scenario() -> None:
        expected = None
        async with running() as scheduler:
            for text in texts:
                found = PolicySourcesError("gone") if text == "gone" else sources(text)
                record = await scheduler.offered(found)
                if text in ("one", "two"):
                    expected = text
                assert scheduler.reloader.active == expected
                assert record.successful == (text in ("one", "two"))
                assert scheduler.reloader.ready == (expected is not None)
                assert (scheduler.activated or [None])[-1] == expected

    asyncio.run(scenario())
