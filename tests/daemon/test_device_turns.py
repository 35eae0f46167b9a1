"""A claim that takes long to search for holds up nobody: it is searched in turns, and each attempt has one budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects, search_work
from kube_policy_scheduler.cluster.search_work import STEPS_IN_A_TURN, Work, most_steps
from kube_policy_scheduler.framework.devices import allocator
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from tests.growth import stage as stages
from tests.growth.stage import Json, Stage
from tests.test_kubernetes_rules import rules_of

DRIVER = "gpu.example.com"
NODES = stages.NODES
POLICY = "spread by pod.label.app\n"
OVERSHOOT = 300
"""Steps by which a turn may be longer: what one device, or one look at all of them, takes."""
TENS = "[1,2,3,4,5,6,7,8,9,10]"
COSTLY = f'{TENS}.all(a, {TENS}.all(b, {TENS}.all(c, a + b + c + device.attributes["{DRIVER}"].n > 0)))'


class Meter:
    """Notes what each turn took, in steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[float] = []
        attempt = Work.attempt

        def noted(work: Work, pod_uid: str, **more: Any) -> Any:
            return self._around(work, attempt(work, pod_uid, **more))

        monkeypatch.setattr(Work, "attempt", noted)

    def _around(self, work: Work, inner: Any) -> Any:
        meter = self

        class Noted:
            def __enter__(self) -> None:
                self.is_outer = not work.is_open
                inner.__enter__()
                self.began = work.left_now

            def __exit__(self, *error: Any) -> Any:
                if self.is_outer:
                    meter.turns.append(self.began - work.left_now)
                return inner.__exit__(*error)

        return Noted()


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(monkeypatch)


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(stages._Quiet, "failed", lambda self, pod, why: found.append(why))
    return found


def device(number: int, n: int = 0) -> Json:
    values = {"numa": number % 2, "rest": number % 3, "n": n or number + 1}
    return {"name": f"d{number}", "attributes": {name: {"int": value} for name, value in values.items()}}


def publish(stage: Stage, name: str, devices: list[Json], **where: Any) -> None:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "devices": devices, **where}}
    stage.event_handlers.object_changed(stage.thing(objects.ResourceSlice, body))


def nodes_with(stage: Stage, count: int, *, apart: bool = False) -> None:
    """Give each node so many devices. apart: each with another value of n."""
    for row in range(NODES):
        devices = [device(number, row * count + number + 1 if apart else 0) for number in range(count)]
        publish(stage, f"s{row}", devices, nodeName=f"n{row}")


def request(name: str, count: int, selector: str = "") -> Json:
    exactly: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def claim(stage: Stage, name: str, requests: list[Json], *constraints: Json) -> Any:
    """Return a pod with a claim."""
    spec = {"devices": {"requests": requests, "constraints": list(constraints)}}
    metadata = {"name": name, "namespace": "tenant", "uid": name}
    stage.event_handlers.object_changed(stage.thing(objects.ResourceClaim, {"metadata": metadata, "spec": spec}))
    return stage.pod("tenant", {"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}})


def run(tell: Callable[[Stage], None], rules: KubernetesRules = DEFAULT_RULES) -> None:
    async def told() -> None:
        stage = Stage(POLICY, rules=rules)
        stage.event_handlers.object_changed(stage.thing(objects.DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        tell(stage)
        await stage.scheduler.drained()

    asyncio.run(told())


def decide(stage: Stage, pod: Any) -> int:
    """Let a pod come, and its attempt end; return how many turns it took."""
    stage.event_handlers.pod_changed(pod)
    turns = 0
    while stage.scheduler.queue.has_active() or stage.scheduler.is_searching:
        stage.scheduler.schedule_batch()
        turns += 1
        assert turns < 10_000
    return turns


ONE_VALUE = {"matchAttribute": f"{DRIVER}/numa"}
ADMIN: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "adminAccess": True}
HOSTILE: dict[str, Callable[[Stage, str], Any]] = {
    "more of one value than there are": lambda stage, name: claim(stage, name, [request("a", 16)], ONE_VALUE),
    "a later request that nothing serves": lambda stage, name: claim(
        stage, name, [request("a", 8), request("b", 1, f'device.attributes["{DRIVER}"].n == 0')]
    ),
    "more than there are together": lambda stage, name: claim(stage, name, [request("a", 16), request("b", 15)]),
    "one beside them for administrators": lambda stage, name: claim(
        stage,
        name,
        [request("a", 8), request("b", 7), request("c", 10), {"name": "d", "exactly": ADMIN}],
        {**ONE_VALUE, "requests": ["a", "b"]},
        {"matchAttribute": f"{DRIVER}/rest", "requests": ["c"]},
    ),
    "a costly selector": lambda stage, name: claim(stage, name, [request("a", 31, COSTLY)]),
}


@pytest.mark.parametrize(
    "hostile",
    [pytest.param(name, marks=[pytest.mark.long] if name == "a costly selector" else []) for name in HOSTILE],
)
def test_no_turn_is_long_and_no_attempt_takes_more_than_its_budget(
    meter: Meter, failures: list[str], hostile: str
) -> None:
    def tell(stage: Stage) -> None:
        nodes_with(stage, 30, apart=hostile == "a costly selector")
        for number in range(3):
            meter.turns.clear()
            decide(stage, HOSTILE[hostile](stage, f"c{number}"))
            assert max(meter.turns) <= STEPS_IN_A_TURN + OVERSHOOT
            assert sum(meter.turns) <= most_steps(NODES) + OVERSHOOT
        neighbour = stage.pod("neighbour")
        assert decide(stage, neighbour) == 1

    run(tell)


def test_another_pod_is_placed_between_two_turns(failures: list[str]) -> None:
    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        hostile = HOSTILE["one beside them for administrators"](stage, "c")
        stage.event_handlers.pod_changed(hostile)
        stage.scheduler.schedule_batch()
        others = [stage.pod("neighbour") for _ in range(3)]
        for other in others:
            stage.event_handlers.pod_changed(other)
        for number in range(1, 4):
            stage.scheduler.schedule_batch()
            stage.scheduler.schedule_batch()
            assert sum(stage.node_of(other) is not None for other in others) >= number
        assert not failures
        turns = 0
        while stage.scheduler.queue.has_active() or stage.scheduler.is_searching:
            stage.scheduler.schedule_batch()
            turns += 1
        assert turns > 10
        assert failures

    run(tell)


@pytest.mark.parametrize("number", [2, 12])
def test_a_pod_behind_many_that_search_waits_for_one_turn_of_each(
    meter: Meter, failures: list[str], number: int
) -> None:
    """Two that search had taken turns with each other alone."""

    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        for each in range(number):
            stage.now += 1.0
            stage.event_handlers.pod_changed(HOSTILE["one beside them for administrators"](stage, f"c{each}"))
        stage.now += 1.0
        neighbour = stage.pod("neighbour")
        stage.event_handlers.pod_changed(neighbour)
        while stage.node_of(neighbour) is None:
            stage.now += 0.01
            stage.scheduler.schedule_batch()
        at_most = number + 1  # and what the rest of its batch does
        assert next(at for at, steps in enumerate(meter.turns) if steps < 1) <= at_most
        assert not failures
        while stage.scheduler.queue.has_active() or stage.scheduler.is_searching:
            stage.scheduler.schedule_batch()
        assert len(failures) == number
        assert sum(meter.turns) <= number * (most_steps(NODES) + OVERSHOOT)

    run(tell)


def test_a_pod_that_is_deleted_between_two_turns_is_gone(failures: list[str]) -> None:
    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        hostile = HOSTILE["one beside them for administrators"](stage, "c")
        stage.event_handlers.pod_changed(hostile)
        stage.scheduler.schedule_batch()
        stage.event_handlers.pod_deleted(hostile)
        stage.scheduler.schedule_batch()
        assert not stage.scheduler.queue.has_active()
        assert not stage.scheduler.is_searching
        assert stage.scheduler.queue.get(hostile.metadata.uid) is None
        assert decide(stage, stage.pod("neighbour")) == 1

    run(tell)


@pytest.mark.long
def test_what_failed_for_a_template_is_not_searched_again(meter: Meter, failures: list[str]) -> None:
    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        for hostile in HOSTILE:
            while decide(stage, HOSTILE[hostile](stage, f"first {hostile}")) > 1:
                pass
            meter.turns.clear()
            for number in range(20):
                decide(stage, HOSTILE[hostile](stage, f"{hostile} {number}"))
            assert sum(meter.turns) <= 20 * NODES

    run(tell)


def test_an_attempt_that_takes_too_long_says_so_and_the_next_one_goes_on(
    meter: Meter, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_work, "STEPS_AT_LEAST", 1_000)
    monkeypatch.setattr(search_work, "STEPS_A_NODE", 0)

    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        pods = [HOSTILE["more of one value than there are"](stage, f"c{number}") for number in range(NODES)]
        known = []
        for pod in pods:
            decide(stage, pod)
            known.append(failures[-1] if failures else "")
            if len(failures) < len(known):
                break
        assert "timed out trying to allocate devices: the claims take more than the 1000 steps of one" in known[0]
        done = [int(why.rpartition("; ")[2].split()[0]) for why in known if why]
        assert done[0] > 0
        assert done[:-1] == sorted(set(done[:-1]))
        assert len(known) < NODES

    run(tell)


def test_an_error_on_a_node_ends_the_attempt_there(failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    allocate = allocator.allocate_in_steps

    def noted(*given: Any, **named: Any) -> Any:
        asked.append(given[1].name)
        return allocate(*given, **named)

    monkeypatch.setattr("kube_policy_scheduler.framework.devices.allocations.allocate_in_steps", noted)

    def tell(stage: Stage) -> None:
        nodes_with(stage, 2)
        decide(stage, claim(stage, "c", [request("a", 1, f'device.attributes["{DRIVER}"].none == 1')]))
        assert asked == ["n0"]
        assert "no such key: none" in failures[0]

    run(tell)


def test_devices_are_searched_only_on_nodes_that_nothing_else_refuses(failures: list[str]) -> None:
    """As in kube-scheduler: what would take too long, or has an error, on other nodes does not matter."""

    def tell(stage: Stage) -> None:
        nodes_with(stage, 30)
        publish(stage, "fits", [device(2 * number) for number in range(16)], nodeName="n3")
        publish(stage, "s3", [{"name": "plain"}], nodeName="n3")
        pod = HOSTILE["more of one value than there are"](stage, "c")
        selector = f'!("n" in device.attributes["{DRIVER}"]) || device.attributes["{DRIVER}"].none == 1'
        other = claim(stage, "d", [request("a", 1, selector)])
        for each in (pod, other):
            there = msgspec.structs.replace(each.spec, node_selector={"kubernetes.io/hostname": "n3"})
            decide(stage, msgspec.structs.replace(each, spec=there))
            assert stage.node_of(each) == "n3", failures

    run(tell)


def test_devices_that_all_nodes_see_are_looked_at_once(meter: Meter, failures: list[str]) -> None:
    def tell(stage: Stage) -> None:
        publish(stage, "all", [device(number) for number in range(128)], allNodes=True)
        decide(stage, claim(stage, "c", [request("a", 1, f'device.attributes["{DRIVER}"].n == 0')]))
        assert sum(meter.turns) < 128 * 10  # and not 12 times as much

    run(tell)


def test_a_pod_that_a_taint_rule_keeps_away_is_tried_when_the_rule_goes_not_when_its_status_changes() -> None:
    rule = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "bad", "effect": "NoSchedule"}}

    def tell(stage: Stage) -> None:
        nodes_with(stage, 1)
        added = stage.thing(objects.DeviceTaintRule, {"metadata": {"name": "bad"}, "spec": rule})
        stage.event_handlers.object_changed(added)
        pod = claim(stage, "c", [request("a", 1)])
        decide(stage, pod)
        assert stage.node_of(pod) is None
        stage.event_handlers.object_changed(msgspec.structs.replace(added))  # with another status
        stage.now += 10
        stage.move_pods()
        assert not stage.scheduler.queue.has_active(), "nothing is new"
        stage.event_handlers.object_deleted(added)
        stage.now += 10
        stage.move_pods()
        stage.decide()
        assert stage.node_of(pod) is not None

    run(tell, rules_of("1.37"))
