"""Background writes: a failure delays no other item, and nothing is lost, duplicated or sent too often."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.errors import Fenced, KubeError, Unreachable, error_from_answer
from kube_policy_scheduler.adapters.kube.outbox import Outbox, OutboxLimits
from tests.simulation.virtual_time import run

DENIED = b'{"kind":"Status","message":"admission webhook \\"w.x\\" denied the request: no","reason":"InternalError"}'
Keys = tuple[str, str]
"""Namespace and name."""


def refused(status: int) -> KubeError:
    return error_from_answer(status, DENIED)


@dataclass
class Api:
    """Takes items, unless something is wrong with their object, and records the time of each call."""

    bad: dict[Keys, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    seconds: float = 0.002
    asked: list[tuple[float, Keys]] = field(default_factory=list)
    taken: dict[Keys, list[Any]] = field(default_factory=lambda: defaultdict(list))
    busy: set[Keys] = field(default_factory=set)

    async def __call__(self, key: Keys, item: Any) -> None:
        assert key not in self.busy, "two sends of one key overlap"
        self.busy.add(key)
        self.asked.append((asyncio.get_running_loop().time(), key))
        try:
            await asyncio.sleep(self.seconds)
            if key in self.bad:
                await self.bad[key]()
            self.taken[key].append(item)
        finally:
            self.busy.discard(key)

    def asked_between(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at, _ in self.asked)


async def denies() -> None:
    raise refused(503)


async def hangs() -> None:
    await asyncio.sleep(30.0)  # as long as a webhook may take
    raise refused(500)


def story(tell: Callable[[Api, Outbox[Keys, Any]], Awaitable[None]], **options: Any) -> Api:
    """Run a test in virtual time, with an outbox that sends."""
    api = Api()

    async def main() -> None:
        box: Outbox[Keys, Any] = Outbox(
            api,
            name="things",
            about=lambda key, _: key,
            random=Random(1),
            **({"limits": OutboxLimits(capacity=10_000)} | options),
        )
        running = asyncio.create_task(box.run())
        try:
            await tell(api, box)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    run(main())
    return api


@pytest.mark.parametrize("status", [401, 409, 429, 500, 503, 504])
def test_objects_that_a_webhook_refuses_hold_back_no_others(status: int) -> None:
    async def deny() -> None:
        raise refused(status)

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(20):
            api.bad["default", f"bad{number}"] = deny
            box.put(("default", f"bad{number}"), "text")
        for number in range(300):
            box.put(("default", f"good{number}"), "text")
        await asyncio.sleep(5.0)
        assert len(api.taken) == 300
        assert box.backlog.failing == len(box) == 20
        assert box.counts.retried >= 20
        assert box.backlog.oldest_seconds == pytest.approx(5.0)
        api.bad.clear()
        await asyncio.sleep(31.0)
        assert len(api.taken) == 320
        assert len(box) == box.backlog.failing == 0
        assert box.backlog.oldest_seconds == 0.0

    story(tell)


def test_objects_whose_writes_hang_hold_back_no_other_namespace() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(1000):
            api.bad["slow", f"bad{number}"] = hangs
            box.put(("slow", f"bad{number}"), "text")
        for minute in range(3):
            for number in range(300):
                box.put((f"team{number % 7}", f"good{minute}.{number}"), "text")
            await asyncio.sleep(2.0)
            assert len(api.taken) == 300 * (minute + 1)
            await asyncio.sleep(58.0)

    story(tell)


def test_many_namespaces_that_fail_leave_room_for_one_that_does_not() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(2000):
            key = (f"bad{number % 50}", f"{number}")
            api.bad[key] = hangs if number % 2 else denies
            box.put(key, "text")
        await asyncio.sleep(300.0)  # by now it is known of each
        for number in range(300):
            box.put(("good", f"{number}"), "text")
        await asyncio.sleep(2.0)
        assert len(api.taken) == 300

    story(tell)


@pytest.mark.long
@pytest.mark.parametrize("wrong", [hangs, denies], ids=["hang", "are refused"])
@pytest.mark.parametrize("number", [1, 2, 50, 1000])
def test_what_is_written_first_waits_for_nothing_that_failed_before_in_its_namespace(
    number: int, wrong: Callable[[], Awaitable[None]]
) -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for each in range(number):
            api.bad["slow", f"bad{each}"] = wrong
            box.put(("slow", f"bad{each}"), "text")
        for minute in range(10):
            await asyncio.sleep(100.0)
            box.put(("slow", f"good{minute}"), "text")
            await asyncio.sleep(61.0 if number >= 50 and wrong is hangs else 1.0)  # others hang for the first time
            assert len(api.taken) == minute + 1
        tried = Counter(key for _, key in api.asked)
        again = [each for each in range(number) if tried["slow", f"bad{each}"] > 1]
        assert len(again) == number if wrong is denies or number <= 2 else again

    story(tell)


def test_pods_that_come_and_fail_in_turn_hold_back_neither_new_ones_nor_those_that_are_tried_again() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        mended = ("slow", "mended")
        api.bad[mended] = denies
        box.put(mended, "text")
        for number in range(600):
            if number == 100:
                del api.bad[mended]
            bad = ("slow", f"bad{number}")
            api.bad[bad] = denies if number % 20 else hangs
            box.put(bad, "text")
            box.put(("slow", f"good{number}"), "text")
            await asyncio.sleep(1.0)
        assert mended in api.taken
        await asyncio.sleep(31.0)
        good = [at for at, (_, name) in api.asked if name.startswith("good")]
        assert len(good) == 600
        late = sorted(at - number for number, at in enumerate(good))
        assert late[300] < 0.1
        assert late[-1] < 31.0

    story(tell)


def test_first_tries_that_hang_in_namespaces_that_are_known_to_fail_leave_room_for_others() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for minute in range(20):
            for number in range(40):  # each namespace has nothing new for a while, and then a few again
                key = (f"slow{number % 4}", f"{minute}.{number}")
                api.bad[key] = hangs
                box.put(key, "text")
            await asyncio.sleep(60.0)
            for number in range(50):
                box.put(("good", f"{minute}.{number}"), "text")
            await asyncio.sleep(2.0)
            assert len(api.taken) == 50 * (minute + 1)
            assert len(api.busy) <= 6

    story(tell)


@pytest.mark.long
def test_namespaces_that_have_nothing_to_write_any_more_are_forgotten() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        gc.collect()
        known = {id(each) for each in gc.get_objects()}
        for number in range(300):
            api.bad[f"team{number}", "bad"] = denies
            for name in ("bad", "good"):
                box.put((f"team{number}", name), "text")
        await asyncio.sleep(60.0)
        for number in range(100):
            box.discard((f"team{number}", "bad"))
        api.bad.clear()
        await asyncio.sleep(60.0)
        assert len(box) == 0
        api.asked.clear()
        api.taken.clear()
        gc.collect()
        assert sum(id(each) not in known for each in gc.get_objects()) < 300

    story(tell)


@pytest.mark.parametrize("number", [64, 512, 2048])
def test_a_server_in_trouble_is_asked_no_more_often_for_having_more_to_say(number: int) -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for each in range(number):
            key = ("default", f"{each}")
            api.bad[key] = denies
            box.put(key, "text")
        await asyncio.sleep(120.0)
        assert api.asked_between(60.0, 120.0) <= 60 * 21
        assert api.asked_between(0.0, 10.0) <= 10 * 21 + 8
        api.bad.clear()
        await asyncio.sleep(number / 20 + 60.0)
        assert len(api.taken) == number

    story(tell)


def test_an_object_that_fails_is_tried_after_growing_pauses() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "bad"] = denies
        box.put(("default", "bad"), "text")
        await asyncio.sleep(300.0)
        times = [at for at, _ in api.asked]
        pauses = [late - early for early, late in itertools.pairwise(times)]
        assert 0.25 <= pauses[0] <= 0.6
        assert max(pauses) <= 31.0
        assert len(times) < 24

    story(tell)


def test_what_says_something_new_of_an_object_that_fails_is_tried_no_sooner() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "bad"] = denies
        for number in range(3000):
            box.put(("default", "bad"), f"text {number}")
            await asyncio.sleep(0.1)
        assert len(api.asked) < 24
        api.bad.clear()
        await asyncio.sleep(31.0)
        assert api.taken == {("default", "bad"): ["text 2999"]}

    story(tell)


def test_while_the_server_cannot_be_reached_everything_waits_and_nothing_is_lost() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        async def unreachable() -> None:
            raise Unreachable("no connection")

        for number in range(500):
            key = (f"team{number % 9}", f"{number}")
            api.bad[key] = unreachable
            box.put(key, number)
        await asyncio.sleep(300.0)
        assert len(api.asked) < 300
        assert box.backlog.failing == 0
        api.bad.clear()
        await asyncio.sleep(20.0)
        assert api.taken == {(f"team{number % 9}", f"{number}"): [number] for number in range(500)}

    story(tell)


def test_when_full_the_largest_holder_loses_items() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(40):
            api.bad["big", f"{number}"] = denies
            box.put(("big", f"{number}"), "text")
        await asyncio.sleep(10.0)  # all have failed
        box.put(("small", "0"), "text")
        api.seconds = 1.0  # so that they wait
        for number in range(200):
            box.put(("big", f"new{number}"), "text")
        for number in range(1, 30):
            box.put(("small", f"{number}"), "text")
        assert len(box) <= 100
        assert box.counts.dropped == 40 + 200 + 30 - 100
        api.bad.clear()
        await asyncio.sleep(300.0)
        by_namespace = Counter(namespace for namespace, _ in api.taken)
        assert by_namespace == {"small": 30, "big": 70}
        assert ("big", "new199") in api.taken

    story(tell, limits=OutboxLimits(capacity=100))


def denying(status: int, message: str = "") -> Callable[[], Awaitable[None]]:
    async def deny() -> None:
        text = message or 'admission webhook "w.x" denied the request: no'
        raise error_from_answer(status, msgspec.json.encode({"kind": "Status", "message": text, "reason": "No"}))

    return deny


@pytest.mark.parametrize("status", [400, 403, 405, 410, 413, 415, 422])
def test_what_is_refused_is_tried_again_until_it_is_taken_and_holds_back_no_others(status: int) -> None:
    """Of a denial a webhook says the status, by default 400; an admission policy answers with 422."""

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "bad"] = denying(status)
        box.put(("default", "bad"), "text")
        box.put(("default", "good"), "text")
        await asyncio.sleep(1.0)
        assert list(api.taken) == [("default", "good")]
        await asyncio.sleep(1199.0)
        asked = [at for at, key in api.asked if key == ("default", "bad")]
        assert 1200 / 30 <= len(asked) <= 1200 / 15 + 10, "pauses grow up to half a minute"
        assert (len(box), box.backlog.failing, box.backlog.counts.refused) == (1, 1, 0)
        assert box.backlog.refusals == len(asked)
        assert box.backlog.oldest_seconds == pytest.approx(1200.0)
        assert box.backlog.refused.startswith(f"default/bad: {status} No: admission webhook")
        box.put(("default", "bad"), "newer")
        api.bad.clear()
        await asyncio.sleep(31.0)
        assert api.taken["default", "bad"] == ["newer"]
        assert len(box) == 0
        await asyncio.sleep(601.0)
        assert box.backlog.refused == ""

    story(tell)


def test_what_was_refused_for_an_hour_is_given_up() -> None:
    lost: list[tuple[Any, str]] = []

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "bad"] = denying(422)
        box.put(("default", "bad"), "text")
        await asyncio.sleep(3590.0)
        assert lost == []
        await asyncio.sleep(60.0)
        assert [text for text, _ in lost] == ["text"]
        assert (len(box), box.counts.refused) == (0, 1)

    story(tell, on_lost=lambda item, why: lost.append((item, why)))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "namespaces not found"),
        (403, "unable to create new content in namespace x because it is being terminated"),
    ],
)
def test_what_nobody_can_ever_take_again_is_given_up_at_once(status: int, message: str) -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "gone"] = denying(status, message)
        box.put(("default", "gone"), "text")
        await asyncio.sleep(1.0)
        assert (len(box), box.counts.refused, len(api.asked)) == (0, 1, 1)

    story(tell)


@pytest.mark.parametrize("names", [["a"], ["a", "b"], [f"p{number}" for number in range(50)]])
def test_however_many_objects_are_refused_by_turns_the_log_names_one_of_them_now_and_then(
    names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The reason names the object, too: no two lines are the same."""

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for name in names:
            api.bad["default", name] = denying(400, f'admission webhook "w.x" denied the request: {name} is not nice')
        for minute in range(20):
            for name in names:
                box.put(("default", name), f"text {minute}")
            await asyncio.sleep(60.0)

    story(tell)
    told = [record.getMessage() for record in caplog.records]
    assert 2 <= len(told) <= 4
    for line in told:
        assert "things of default/" in line
        assert "is not nice; retrying with backoff" in line
    assert ("others fail, too" in told[-1]) == (len(names) > 1)


def test_objects_that_come_and_are_refused_by_turns_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(600):
            key = ("default", f"p{number}")
            api.bad[key] = denying(400, f'admission webhook "w.x" denied the request: p{number}')
            box.put(key, "text")
            await asyncio.sleep(1.0)
            box.discard(key)

    story(tell)
    assert len(caplog.records) <= 600 / 60 + 1


@pytest.mark.parametrize(("status", "tries"), [(403, 5), (422, 1)])
def test_whoever_waits_for_an_answer_is_told_soon_what_is_refused_and_why(status: int, tries: int) -> None:
    lost: list[tuple[Any, str]] = []

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.bad["default", "bad"] = denying(status)
        for text in ("one", "two"):
            box.put(("default", "bad"), text)
            await asyncio.sleep(60.0)
        assert [text for text, _ in lost] == ["one", "two"]
        assert "webhook" in lost[0][1]
        assert len(api.asked) == 2 * tries

    story(tell, insists=lambda item: False, on_lost=lambda item, why: lost.append((item, why)))


def test_whoever_sends_is_told_what_is_dropped_for_want_of_room() -> None:
    lost: list[tuple[Any, str]] = []

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.seconds = 60.0
        for number in range(50):
            box.put(("default", f"{number}"), number)
        assert [number for number, _ in lost] == list(range(40))
        assert lost[0][1] == "more than 10 writes wait"

    story(tell, on_lost=lambda item, why: lost.append((item, why)), limits=OutboxLimits(capacity=10))


def test_what_is_discarded_is_not_sent_and_not_tried_again() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for name in ("resting", "in-flight", "waiting"):
            api.bad["default", name] = denies
        box.put(("default", "resting"), "text")
        await asyncio.sleep(0.1)
        box.put(("default", "in-flight"), "text")
        await asyncio.sleep(0.06)  # not before a namespace that failed has its turn again
        assert api.busy or len(api.asked) == 2
        box.put(("default", "waiting"), "text")
        for name in ("resting", "in-flight", "waiting"):
            box.discard(("default", name))
        asked = len(api.asked)
        await asyncio.sleep(60.0)
        assert len(api.asked) == asked
        assert len(box) == box.backlog.failing == 0

    story(tell)


def test_what_comes_while_its_object_is_written_goes_out_after_that() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        api.seconds = 1.0
        box.put(("default", "web"), "one")
        await asyncio.sleep(0.5)
        box.put(("default", "web"), "two")
        box.put(("default", "web"), "three")
        await asyncio.sleep(3.0)
        assert api.taken == {("default", "web"): ["one", "three"]}
        assert box.counts.merged == 1

    story(tell)


def test_behind_the_fence_things_wait_and_those_that_need_none_go() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        async def fenced() -> None:
            raise Fenced("not the leader")

        for number in range(100):
            api.bad["default", f"{number}"] = fenced
            box.put(("default", f"{number}"), "text")
        box.put(("default", "free"), "text")
        await asyncio.sleep(1.0)
        assert list(api.taken) == [("default", "free")]
        api.bad.clear()
        await asyncio.sleep(6.0)
        assert len(api.taken) == 101
        assert box.counts.retried == 0

    story(tell)


@pytest.mark.parametrize("is_ending", [True, False])
def test_however_much_waits_behind_a_closed_fence_the_loop_goes_on(is_ending: bool) -> None:
    refused_in_turn, most, turns = 0, 0, 0

    async def main() -> None:
        async def refuses(key: Keys, item: Any) -> None:
            nonlocal refused_in_turn, most
            refused_in_turn += 1
            most = max(most, refused_in_turn)
            raise Fenced("not the leader")  # before anything is sent

        async def others() -> None:
            nonlocal refused_in_turn, turns
            while True:
                turns += 1
                refused_in_turn = 0
                await asyncio.sleep(0)

        box: Outbox[Keys, Any] = Outbox(
            refuses, name="things", about=lambda key, _: key, random=Random(1), limits=OutboxLimits(capacity=10_000)
        )
        for number in range(2_000):
            box.put((f"ns{number % 3}", str(number)), number)
        tasks = [asyncio.create_task(work) for work in (others(), box.run())]
        if is_ending:
            assert await box.drain(timeout_seconds=30.0)
            assert box.counts.withheld == 2_000
        else:
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert len(box) == 2_000
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert most <= 16  # as many as are sent at a time, begun and gone on with


def test_at_the_end_all_that_waits_goes_out_and_what_fails_is_tried_once_more() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(5):
            api.bad["default", f"bad{number}"] = denies
            box.put(("default", f"bad{number}"), "text")
        await asyncio.sleep(20.0)
        for number in range(100):
            box.put(("default", f"good{number}"), "text")
        del api.bad["default", "bad0"]
        began = asyncio.get_running_loop().time()
        assert not await box.drain(timeout_seconds=10.0)
        assert asyncio.get_running_loop().time() - began < 2.0
        assert len(api.taken) == 101
        assert len(box) == 4

    story(tell, defer_while=lambda: True)


def test_items_wait_for_bindings_but_not_forever() -> None:
    busy = True

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        nonlocal busy
        box.put(("default", "a"), "text")
        await asyncio.sleep(4.0)
        assert not api.taken
        await asyncio.sleep(1.2)
        assert list(api.taken) == [("default", "a")]
        box.put(("default", "b"), "text")
        await asyncio.sleep(1.0)
        busy = False
        await asyncio.sleep(0.1)
        assert ("default", "b") in api.taken

    story(tell, defer_while=lambda: busy, limits=OutboxLimits(max_defer_seconds=5.0))


def test_what_comes_while_others_are_busy_wakes_nobody() -> None:
    asked = 0

    def is_busy() -> bool:
        nonlocal asked
        asked += 1
        return True

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        for number in range(100):
            box.put(("default", f"{number}"), "text")
            await asyncio.sleep(0.0001)
        assert asked < 130  # once for each item, and a few times for all of them together
        await asyncio.sleep(15.1)
        assert len(api.taken) == 100

    story(tell, defer_while=is_busy)


def test_items_in_flight_when_sending_stopped_are_sent_by_the_next_run() -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        running = asyncio.create_task(box.run())
        api.seconds = 1.0
        for number in range(20):
            box.put(("default", f"{number}"), number)
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.wait([running])
        assert len(box) == 20
        running = asyncio.create_task(box.run())
        await asyncio.sleep(10.0)
        running.cancel()
        assert api.taken == {("default", f"{number}"): [number] for number in range(20)}

    api = Api()

    async def main() -> None:
        await tell(api, Outbox(api, name="things", about=lambda key, _: key, random=Random(1)))

    run(main())


def test_once_items_can_be_sent_without_a_task_all_of_them_are() -> None:
    begun: list[Keys] = []
    is_up = False

    def begin(key: Keys, item: Any, done: Callable[[KubeError | None], None]) -> bool:
        if is_up:
            begun.append(key)
            asyncio.get_running_loop().call_soon(done, None)
        return is_up

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        nonlocal is_up
        box.send_without_task(begin)
        for number in range(1_000):
            box.put(("default", f"pod{number}"), "text")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way = len(api.busy)
        assert under_way, "they are sent by tasks as long as they cannot be sent otherwise"
        is_up = True
        assert await box.drain(timeout_seconds=60.0)
        assert len(api.asked) == under_way
        assert len(begun) == 1_000 - under_way

    story(tell)


def test_an_error_of_ours_is_tried_a_few_times_and_costs_no_other_item(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("a fault of ours")

    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        async def breaks() -> None:
            raise error

        api.bad["default", "bad"] = api.bad["default", "brief"] = breaks
        for name in ("bad", "brief", "good"):
            box.put(("default", name), "text")
        await asyncio.sleep(0.4)
        del api.bad["default", "brief"]
        await asyncio.sleep(60.0)
        assert list(api.taken) == [("default", "good"), ("default", "brief")]
        assert box.counts.refused == 1
        assert len(box) == 0
        assert sum(key == ("default", "bad") for _, key in api.asked) == 3

    story(tell)
    assert str(error) in caplog.text


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "discard", "wait", "break", "mend"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.001, 0.05, 0.6, 20.0]),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 4))
def test_the_newest_of_each_is_sent_last_after_any_failures(
    steps: list[tuple[str, int, float]], concurrency: int
) -> None:
    async def tell(api: Api, box: Outbox[Keys, Any]) -> None:
        newest: dict[Keys, int] = {}
        for number, (what, which, seconds) in enumerate(steps):
            key = (f"team{which % 3}", f"{which}")
            match what:
                case "put":
                    newest[key] = number
                    box.put(key, number)
                case "discard":
                    newest.pop(key, None)
                    box.discard(key)
                case "break":
                    api.bad[key] = denies
                case "mend":
                    api.bad.pop(key, None)
            await asyncio.sleep(seconds)
        api.bad.clear()
        await asyncio.sleep(60.0)
        assert len(box) == box.backlog.failing == 0
        for key, number in newest.items():
            assert api.taken[key][-1] == number
        for taken in api.taken.values():
            assert taken == sorted(set(taken))

    story(tell, limits=OutboxLimits(concurrency))
