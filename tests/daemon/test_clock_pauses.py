"""The wall clock is set during each kind of pause: everything goes on as if it had not been.

Each story is told without it, and with the clock set back and forward by three hours, at several moments. When each pod
is tried and when it gets a node must be the same, to half a second. A pause that is kept as a time of the wall clock
would last three hours longer, or end at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.simulation.calm import Calm, story

HOURS = 3 * 3600.0
LOOK_SECONDS = 0.5

GANG = "gang by pod.label.job size number(pod.label.size) within 30s if pod.label.job\n"
QUEUES = """\
queue research for pods where pod.label.team == "research" min cpu 4
queue production for pods where pod.label.team == "production" min cpu 4
order by queue.share, pod.priority desc, pod.queued
reclaim after 10s
"""
RACKS = (
    "gang by pod.label.job size number(pod.label.size) within one rack if pod.label.job\n"
    "limit count() to 1 over node of pods where pod.label.job\n"
)

Act = Callable[[Calm], None]


def pods(name: str, number: int, **more: Any) -> Act:
    """Return what creates pods."""

    def act(calm: Calm) -> None:
        for at in range(number):
            calm.pod(f"{name}-{at}", **more)

    return act


def gone(*names: str) -> Act:
    def act(calm: Calm) -> None:
        for name in names:
            calm.server.delete_pod(name)

    return act


def node(name: str, cpu: int, **labels: str) -> Act:
    return lambda calm: calm.server.set_node(name, cpu=cpu, labels=labels)


def takes_requests(yes: bool) -> Act:
    def act(calm: Calm) -> None:
        calm.process.connection.takes_requests = yes

    return act


@dataclass
class Story:
    """What happens when, and when the clock is set."""

    policy: str
    cpus: tuple[int, ...]
    acts: list[tuple[float, Act]]
    jumps_at: tuple[float, ...]
    until: float


STORIES = {
    "backoff after an error": Story(
        "score node.free.cpu\n",
        (4,),
        [(2, takes_requests(False)), (2, pods("a", 2)), (140, takes_requests(True))],
        (60.0, 139.0),
        170,
    ),
    "backoff after a refusal": Story(
        "score node.free.cpu\n",
        (4,),
        [(1, pods("a", 1, millis=9000)), *((3 + 4 * n, node(f"n{n + 1}", 1)) for n in range(6)), (40, node("big", 10))],
        (8.0, 24.5),
        60,
    ),
    "look after five minutes": Story(
        "score node.free.cpu\n",
        (4,),
        [(1, pods("a", 1, millis=9000))],
        (10.0, 290.0),
        640,
    ),
    "hold until a pod has waited": Story("hold if pod.waiting < 60s\n", (4,), [(1, pods("a", 2))], (10.0, 58.0), 100),
    "order by waiting": Story(
        "order by pod.priority + min(pod.waiting / 10s, 5) desc\n",
        (0,),
        [(1, pods("a", 2)), (32, pods("b", 2, priority=2)), (80, node("n1", 1)), (110, node("n2", 3))],
        (33.0, 79.0),
        140,
    ),
    "a gang waits for room": Story(
        GANG,
        (3,),
        [(1, pods("j", 3, millis=1500, job="j", size="3")), (150, node("n1", 4))],
        (40.0, 80.0, 149.0),
        260,
    ),
    "gangs that fail in turn": Story(
        GANG,
        (4,),
        [
            (1, pods("a", 4, millis=1500, job="a", size="4")),
            (9, pods("b", 3, millis=1500, job="b", size="3")),
            (60, node("n1", 4)),
            (120, node("n2", 4)),
        ],
        (12.0, 61.0),
        240,
    ),
    "reclaim for a pod": Story(
        QUEUES,
        (3, 3),
        [
            (1, pods("r", 18, team="research")),
            (6, pods("first", 1, millis=4000, team="production")),
            (46, gone("first-0")),
            (47, node("n9", 10)),
            (80, pods("second", 1, millis=4000, team="production")),
        ],
        (5.0, 12.0, 30.0, 78.0, 84.0),
        200,
    ),
    "reclaim for a gang": Story(
        QUEUES + GANG,
        (1, 1, 1, 1, 1, 1),
        [
            (1, pods("r", 18, team="research")),
            (6, pods("g", 2, millis=2000, team="production", job="g", size="2")),
            (46, gone("g-0", "g-1")),
            (47, node("n9", 10)),
            (80, pods("h", 2, millis=2000, team="production", job="h", size="2")),
        ],
        (12.0, 30.0, 78.0, 84.0),
        220,
    ),
    "a gang leaves a rack": Story(
        RACKS,
        (1,),
        [(0, node("a0", 4, rack="a")), (2, pods("g", 2, job="g", size="2")), (9, node("a1", 4, rack="a"))],
        (4.5, 8.0, 9.5),
        90,
    ),
    "victims that end late": Story(
        "score node.free.cpu\n",
        (4,),
        [(1, pods("low", 4)), (10, pods("high", 2, millis=2000, priority=10))],
        (10.0, 10.5, 12.0),
        120,
    ),
}


Told = dict[tuple[str, str], float]
PLACED = "has a node"


def told(story_of: Story, *, jump_at: float | None, seconds: float) -> Told:
    """Return when each pod was tried for the first time, the second time and so on, and when it got a node."""
    seen: Told = {}

    async def tell(calm: Calm) -> None:
        acts = sorted(story_of.acts, key=lambda each: each[0])
        passed = 0.0
        while passed < story_of.until:
            while acts and acts[0][0] <= passed:
                acts.pop(0)[1](calm)
            if jump_at is not None and passed >= jump_at:
                calm.server.clock_ahead = seconds
            await calm.after(LOOK_SECONDS)
            passed += LOOK_SECONDS
            for name in calm.on_nodes():
                seen.setdefault((name, PLACED), passed)
            for queued in calm.process.scheduler.queue:
                for attempt in range(1, queued.attempts + 1):
                    seen.setdefault((queued.pod.name, f"attempt {attempt}"), passed)

    story(story_of.policy, tell, cpus=story_of.cpus)
    return seen


CASES = [
    pytest.param(
        name,
        at,
        sign,
        id=f"{name}, {'forward' if sign > 0 else 'back'} at {at:g} s",
        marks=[pytest.mark.long] * (position % 2 == (sign > 0)),  # quick: back and forward by turns
    )
    for name, each in STORIES.items()
    for position, at in enumerate(each.jumps_at)
    for sign in (-1, 1)
]
_WITHOUT: dict[str, Told] = {}


@pytest.mark.parametrize(("name", "at", "sign"), CASES)
def test_all_goes_on_as_if_the_clock_had_not_been_set(name: str, at: float, sign: int) -> None:
    if name not in _WITHOUT:
        _WITHOUT[name] = told(STORIES[name], jump_at=None, seconds=0.0)
    found = told(STORIES[name], jump_at=at, seconds=sign * HOURS)

    assert found == _WITHOUT[name]
