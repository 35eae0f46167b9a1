"""Write days of a cluster whose nodes become hot, to train a model on and to judge it: the same for the same seed.

    python hot_days.py days                # days/train: three days; days/test: the day after them

There are 24 nodes, and what runs on them besides our pods uses their CPU. Ten nodes work for users by day, ten have a
job of 20 minutes in every hour, at a minute of their own, and four have neither. On each node, something unforeseen
takes a quarter of an hour twice a day on average. Our pods do not change the load: a simulation does not know by how
much they would.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

BUSY = "instance:node_cpu_utilisation:rate5m"
"""A recording rule of the mixin of node_exporter: the share of the CPU that is in use, 0 to 1."""
EARLIER = (10, 50)
"""Minutes before: what the CPU was then, which Prometheus answers with `offset`."""
STEP = 2
"""Minutes between two samples."""
DAY = 24 * 60 // STEP
BEGINS = datetime(2026, 3, 2, tzinfo=UTC)
TRAINED_DAYS, TESTED_DAYS = 3, 1
PODS_A_DAY = 720


@dataclass(frozen=True)
class Node:
    """A node, and why it is busy."""

    name: str
    base: float
    by_day: float
    """What users add at the busiest hour."""
    job_minute: int | None
    """Of each hour at which its job begins."""


def nodes(random: Random) -> list[Node]:
    """Return the nodes."""
    found = []
    for number in range(24):
        by_day = random.uniform(0.3, 0.5) if number < 10 else 0.0
        minute = random.randrange(60) if 10 <= number < 20 else None
        found.append(Node(f"node-{number:02}", random.uniform(0.05, 0.25), by_day, minute))
    return found


def load(node: Node, days: int, random: Random) -> list[float]:
    """Return the share of the CPU that is in use at each step."""
    found, noise, unforeseen = [], 0.0, 0
    for step in range(days * DAY):
        minute = step * STEP
        hour = minute / 60 % 24
        noise = 0.8 * noise + random.gauss(0, 0.02)
        if not unforeseen and random.random() < 2 / DAY:
            unforeseen = 15 // STEP
        unforeseen = max(0, unforeseen - 1)
        users = node.by_day * max(0.0, math.sin(math.pi * (hour - 7) / 14)) if 7 <= hour < 21 else 0.0
        has_job = node.job_minute is not None and (minute - node.job_minute) % 60 < 20
        value = node.base + users + 0.6 * has_job + (0.4 if unforeseen else 0.0) + noise
        found.append(min(1.0, max(0.0, value)))
    return found


def samples(loads: dict[str, list[float]], first: int, last: int) -> Iterator[list[str]]:
    """Yield the table of metrics from one step to another, with its line of names."""
    yield ["time", "node", BUSY, *(f"{BUSY} offset {minutes}m" for minutes in EARLIER)]
    for step in range(first, last):
        at = (BEGINS + timedelta(minutes=step * STEP)).isoformat().replace("+00:00", "Z")
        for name, values in loads.items():
            before = [step - minutes // STEP for minutes in EARLIER]
            known = [values[step], *(values[each] if each >= 0 else None for each in before)]
            yield [at, name, *("" if value is None else f"{value:.4f}" for value in known)]


def write(folder: Path, rows: Iterator[list[str]], *, days: int, random: Random) -> None:
    """Write the metrics and the pods of some days."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "usage.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    lines = ["pods:"]
    for number in range(days * PODS_A_DAY):
        seconds = number * 86_400 // PODS_A_DAY + random.randrange(60)
        lasts = round(random.lognormvariate(math.log(1800), 0.5))
        cpu = random.choice(("250m", "500m", "1", "2"))
        lines.append(f"- {{name: job-{number:04}, at: {seconds}s, cpu: {cpu}, mem: 1Gi, lasts: {lasts}s}}")
    (folder / "pods.yaml").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Write the days."""
    parser = argparse.ArgumentParser(description="Write days of a cluster whose nodes become hot.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random = Random(given.seed)
    every = nodes(random)
    loads = {node.name: load(node, TRAINED_DAYS + TESTED_DAYS, random) for node in every}
    given.folder.mkdir(parents=True, exist_ok=True)
    listed = [f"- {{apiVersion: v1, kind: Node, metadata: {{name: {node.name}}}, status: {STATUS}}}" for node in every]
    (given.folder / "nodes.yaml").write_text("\n".join(["apiVersion: v1", "kind: List", "items:", *listed]) + "\n")
    trained = TRAINED_DAYS * DAY
    write(given.folder / "train", samples(loads, 0, trained), days=TRAINED_DAYS, random=random)
    write(given.folder / "test", samples(loads, trained, trained + TESTED_DAYS * DAY), days=TESTED_DAYS, random=random)


STATUS = '{allocatable: {cpu: "16", memory: 64Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}'

if __name__ == "__main__":
    main()
