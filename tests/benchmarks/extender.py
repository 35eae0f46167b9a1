"""What kube-scheduler waits for: `python -m tests.benchmarks.extender [NODES]`. filter and prioritize over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.workloads import NODES
from tests.daemon.extender_stage import Client, Stage, pod

ROUNDS = 200
WHOLE_ROUNDS = 5
ANNOTATIONS = {f"example.com/annotation-{number}": "x" * 150 for number in range(50)}
"""With them a node is about 10 KB of JSON, as in a large cluster."""
RULES = """
policy apps
filter node.label.disk == "ssd" and count(p in node.pods where p.label.app == "web") < 10
score 10 if node.label.speed == "fast"
score -1 * count(p in node.pods)
score -5 if node.label.zone == "z1"
"""


def node(number: int) -> dict[str, Any]:
    """Return a node as the API server has it."""
    labels = {
        "disk": "ssd" if number % 10 else "hdd",
        "speed": "fast" if number % 3 else "slow",
        "zone": f"z{number % 3}",
    }
    return {
        "metadata": {"name": f"node-{number:05}", "labels": labels, "annotations": ANNOTATIONS},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    }


async def main() -> None:
    """Ask for one pod after the other; print what the answers took."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    stage = Stage(rules=RULES, max_bytes=512 << 20)
    nodes = [node(each) for each in range(number)]
    for each in nodes:
        stage.add_whole_node(each)
    names = [each["metadata"]["name"] for each in nodes]
    async with stage.served() as client:
        await _measure(client, "names", ROUNDS, lambda: {"NodeNames": names})
        whole = {"metadata": {}, "items": nodes}
        await _measure(client, "whole nodes", WHOLE_ROUNDS, lambda: {"Nodes": whole})


async def _measure(client: Client, what: str, rounds: int, nodes: Callable[[], dict[str, Any]]) -> None:
    took: dict[str, list[float]] = {"filter": [], "prioritize": []}
    size = 0
    for turn in range(rounds):
        body = json.dumps({"Pod": pod(f"p{turn}"), "Nodes": None, "NodeNames": None} | nodes()).encode()
        size = len(body)
        for verb, seconds in took.items():
            seconds.append(await _timed(partial(client.post, verb, body)))
    for verb, seconds in took.items():
        high = quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
        print(
            f"{what}, {verb}: median {1000 * median(seconds):.1f} ms, 99 % {1000 * high:.1f} ms, {size / 2**20:.1f} MiB"
        )


async def _timed(ask: Callable[[], Awaitable[tuple[int, str]]]) -> float:
    began = time.perf_counter()
    code, text = await ask()
    assert code == 200, text
    return time.perf_counter() - began


if __name__ == "__main__":
    asyncio.run(main())
