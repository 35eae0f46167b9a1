"""One plain pod's walk through the code, from the line of the watch that shows it to the binding of it.

    python -m tests.simulation.walk            # how many calls, of how many functions, in how many files
    python -m tests.simulation.walk --calls    # every call, in order, indented below who called it
    python -m tests.simulation.walk --new      # the pod is the first of its template

Each call of a function of the engine counts, also a generator or coroutine that goes on; the turns of the loop that
have nothing to do count, too. Nothing is measured in time: the same code walks the same way on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import kube_policy_scheduler
from kube_policy_scheduler.daemon.scheduling import schedule_one
from tests.simulation.calm import Calm
from tests.simulation.virtual_time import run

ENGINE = f"{Path(kube_policy_scheduler.__file__).parent}/"
POLICY = "score node.free.cpu\n"
SECONDS = 3.0
"""Virtual ones, in which a pod is bound and its binding is confirmed, and everything is at rest again."""
TICK_SECONDS = 0.001
"""Between two looks at whether it is bound."""


@dataclass
class Walk:
    """The calls, each as file, function and depth, in order."""

    steps: list[tuple[str, str, int]] = field(default_factory=list)
    crossings: int = 0
    """Calls from one file to another."""

    @property
    def functions(self) -> set[tuple[str, str]]:
        """The functions that were called."""
        return {(file, name) for file, name, _ in self.steps}

    @property
    def files(self) -> Counter[str]:
        """How many calls each file has."""
        return Counter(file for file, _, _ in self.steps)

    def __str__(self) -> str:
        return (
            f"{len(self.steps)} calls of {len(self.functions)} functions in {len(self.files)} files,"
            f" {self.crossings} of them from one file to another"
        )

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take a call down; for `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ENGINE) or code.co_name == "<module>":
            return
        depth, before, above = 0, "", frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith(ENGINE):
                before = before or above.f_code.co_filename
                depth += 1
            above = above.f_back
        file = code.co_filename.removeprefix(ENGINE)
        self.crossings += bool(before) and before != code.co_filename
        self.steps.append((file, code.co_qualname, depth))


def walk(*, new: bool = False) -> Walk:
    """Return the walk of a pod in a cluster at rest, where pods were placed before; new: all of other templates.

    A batch of the scheduler ends after one pod: whether it looks for another one depends on how fast the machine is.
    """
    found = Walk()

    async def main() -> None:
        calm = Calm(POLICY, cpus=(4, 4, 4))
        for number in range(3):
            calm.pod(f"before-{number}", millis=100 + number if new else 500)
            await asyncio.sleep(SECONDS)
        calm.pod("plain", millis=500)
        sys.setprofile(found.note)
        for _ in range(int(SECONDS / TICK_SECONDS)):
            await asyncio.sleep(TICK_SECONDS)
            if calm.server.pods["plain"]["spec"].get("nodeName"):
                break
        sys.setprofile(None)
        assert calm.server.pods["plain"]["spec"].get("nodeName"), "it is bound by now"
        await calm.after(SECONDS)

    with patch.object(schedule_one, "BATCH_SECONDS", -1.0):
        run(main())
    return found


def main() -> None:
    """Print the walk."""
    parser = argparse.ArgumentParser(description="One plain pod's walk, from the watch to its binding.")
    parser.add_argument("--calls", action="store_true", help="every call, in order")
    parser.add_argument("--new", action="store_true", help="the pod is the first of its template")
    given = parser.parse_args()
    found = walk(new=given.new)
    if given.calls:
        for file, name, depth in found.steps:
            print(f"{'  ' * depth}{name}  {file}")
    print(found)


if __name__ == "__main__":
    main()
