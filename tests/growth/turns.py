"""The longest turn of the event loop on many nodes, for each thing that there can be more of.

`python -m tests.growth.turns [--most 4096] [WORD ...]` grows each by fours up to what the API server admits, and
prints the CPU time of the longest call of each kind: for people, not for tests. `tests/growth/test_turns.py` counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from tests.growth.axes import IN_A_POD, MANY, TENANT, Axis, container
from tests.growth.device_axes import DEVICES
from tests.growth.scenes import SCENES
from tests.growth.stage import Json, Stage

NODES = 2_000
LONG_SECONDS = 0.1
MOST_BYTES = 1_500_000
"""Of an object that the API server takes."""
MOST_NOTED = 2**18
"""Bytes of annotations."""
ENOUGH_SECONDS = 2.0
"""A turn so long is not made longer."""


@dataclass
class Turns:
    """The longest turn of each kind."""

    longest: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, run: Callable[[], Any]) -> Any:
        """Run a turn, and note what it took if it was the longest by its name."""
        began = time.process_time()
        try:
            return run()
        finally:
            self.longest[name] = max(self.longest.get(name, 0.0), time.process_time() - began)


class _Handlers:
    """Event handlers of which each call is a turn."""

    def __init__(self, handlers: Any, turns: Turns) -> None:
        self._handlers, self._turns = handlers, turns

    def __getattr__(self, name: str) -> Callable[..., Any]:
        called = getattr(self._handlers, name)
        return lambda *args: self._turns.take(name, partial(called, *args))


class TimedStage(Stage):
    """A stage whose turns are timed."""

    def __init__(self, turns: Turns, nodes: int, policy: str | None = None) -> None:
        super().__init__(*(() if policy is None else (policy,)), nodes=nodes)
        self.turns = turns
        self.event_handlers: Any = _Handlers(self.scheduler.event_handlers, turns)
        self.who = ""
        for _ in self.scheduler.columns_in_steps():
            pass
        for _ in self.scheduler.reading_ahead():
            pass

    def move_pods(self) -> None:
        while self.turns.take(f"{self.who} move", lambda: self.scheduler.queue.move_some(self.now)):
            pass

    def decide(self) -> None:
        self.move_pods()
        while self.scheduler.queue.has_active() or self.scheduler.is_searching:
            self.turns.take(f"{self.who} decide", self.scheduler.schedule_batch)
            if self.scheduler.in_flight.is_saturated:  # bindings need the loop
                break


async def _life(stage: TimedStage, who: str, pod: Any) -> None:
    stage.who = who
    handlers = stage.event_handlers
    handlers.pod_changed(pod)
    stage.decide()
    await stage.scheduler.drained()
    node = stage.node_of(pod)
    if node is not None:
        handlers.pod_changed(stage.on_node(pod, node))
    handlers.pod_deleted(pod)
    stage.move_pods()


async def _beside(axis: Axis, n: int, nodes: int, turns: Turns) -> None:
    stage = TimedStage(turns, nodes)
    body: Any = {"metadata": {"labels": {"app": "web"}}}
    for number in range(4 * nodes):
        stage.place(stage.pod("neighbour", body), number)
    await _life(stage, "before", stage.pod("neighbour", body))
    turns.longest.clear()
    stage.who = "world"
    if axis.world is not None:
        axis.world(stage, n)
    if axis.pod is not None:
        mine = axis.pod(n)
        await _life(stage, "own", stage.pod(TENANT, mine))
        await _life(stage, "own again", stage.pod(TENANT, mine))
        huge = {"spec": (mine.get("spec") or {}) | {"containers": [container(cpu="100000")]}}
        await _life(stage, "own refused", stage.pod(TENANT, {k: v for k, v in mine.items() if k != "spec"}, huge))
        prior = {"spec": huge["spec"] | {"priority": 10, "containers": [container(cpu="999")]}}
        await _life(stage, "own evicts", stage.pod(TENANT, {k: v for k, v in mine.items() if k != "spec"}, prior))
        stage.place(stage.pod(TENANT, mine), 0)
    await _life(stage, "other", stage.pod("neighbour", body))
    big: Any = {"spec": {"containers": [container(cpu="999")], "priority": 2000}}
    await _life(stage, "evicts", stage.pod("neighbour", big))
    stage.who = "other"
    stage.event_handlers.node_changed(stage.node(3, fresh="yes"))
    stage.decide()


def measure(axis: Axis, n: int, nodes: int = NODES) -> dict[str, float]:
    """Return the longest turn of each kind, in seconds of CPU, with n of the axis's things."""
    turns = Turns()
    before = logging.root.manager.disable
    logging.disable()
    gc.collect()
    gc.disable()
    try:
        asyncio.run(_beside(axis, n, nodes, turns))
    finally:
        gc.enable()
        logging.disable(before)
    return turns.longest


def is_admitted(axis: Axis, n: int) -> bool:
    """Return whether the API server takes a pod with so many things."""
    if axis.pod is None:
        return True
    body: Json = axis.pod(n)
    notes = body.get("metadata", {}).get("annotations", {})
    return (
        len(msgspec.json.encode(body)) <= MOST_BYTES and sum(map(len, notes)) + sum(map(len, notes.values())) <= 2**18
    )


def main(arguments: Sequence[str]) -> None:
    """Print for each axis the sizes, and the longest turns of those that are long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--most", type=int, default=65_536)
    parser.add_argument("--least", type=int, default=256)
    parser.add_argument("--nodes", type=int, default=NODES)
    options = parser.parse_args(arguments)
    for axis in (*IN_A_POD, *MANY, *DEVICES, *SCENES):
        if options.words and not any(word in axis.name for word in options.words):
            continue
        n, line = options.least, ""
        while n <= options.most and is_admitted(axis, n):
            try:
                found = measure(axis, n, options.nodes)
            except Exception as error:
                line += f" {n}: {error!r}"[:300]
                break
            name = max(found, key=lambda each: found[each])
            line += f"  {n}: {1e3 * found[name]:.0f} ({name})"
            if found[name] > ENOUGH_SECONDS:
                break
            n *= 4
        others = {k: round(1e3 * v) for k, v in found.items() if v >= LONG_SECONDS}
        print(f"{'LONG' if others else '    '} {axis.name:45}{line}  {others or ''}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
