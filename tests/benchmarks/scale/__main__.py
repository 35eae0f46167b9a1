"""`make bench ARGS='--scale'`: decisions, start, memory and stalls in the largest clusters, in under fifteen minutes.

A synthetic API server sends nodes and pods of the size that real ones have. Nodes and pods change during every
workload. Writes `scale.json`, `scale.html` and `scale-growth.svg` to build/benchmarks/. Ctrl-C ends it and keeps what
has been measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader
from markupsafe import Markup
from rich.console import Console
from rich.table import Table

from kube_policy_scheduler.adapters.process.freed_memory import return_freed_memory
from kube_policy_scheduler.pages.charts import bar_chart
from tests.benchmarks.chart import svg
from tests.benchmarks.decisions import Measurement
from tests.benchmarks.decisions import measure as measure_workload
from tests.benchmarks.decisions import start as start_workload
from tests.benchmarks.growth import Curve
from tests.benchmarks.reference import Reference
from tests.benchmarks.report import SLOWER, baseline, store_baseline
from tests.benchmarks.scale.api import synthetic_api
from tests.benchmarks.scale.daemon_loop import EVENTS, Bound, measure_daemon
from tests.benchmarks.scale.gang import (
    RACK_NODES,
    RACK_PODS_PER_SECOND,
    RACK_SIZES,
    SIZES,
    Gangs,
    gang_row,
    measure_gangs,
    measure_gangs_in_racks,
    racks_row,
)
from tests.benchmarks.scale.gated import NAME as WHILE_GATED
from tests.benchmarks.scale.gated import measure_gated
from tests.benchmarks.scale.growth import Size, measure_growth
from tests.benchmarks.scale.loads import AT_5000, LOADS, THRESHOLDS
from tests.benchmarks.scale.per_pod import Part, measure_pods
from tests.benchmarks.scale.shards import Fragmentation, measure_shards
from tests.benchmarks.scale.site import (
    NODES_REPLACED,
    PODS_ENDED,
    SECONDS_BETWEEN_HEARTBEATS,
    STATIC_CHANGES,
    ClusterFull,
    Decided,
    Started,
    measure,
    resident_mb,
    started,
)
from tests.benchmarks.scale.stalls import BOUNDS_MS, CAUSES, GOAL_MS, Stalls, measure_stalls
from tests.benchmarks.workloads import named

NODES, PODS = 130_000, 500_000
START_NODES = 100_000
"""The goals of start and memory are for so many nodes, and for 500,000 pods."""
START_SECONDS, MEMORY_MB = 10.0, 1_200.0
START_SECONDS_BEFORE, MEMORY_MB_BEFORE = 26.0, 2_400.0
AT_FULL_SIZE = (*(load.name for load in LOADS), "gang", "pod", "stalls")
"""Rows that need the cluster at full size; `start` is part of each of them."""
ROWS = ("start", *AT_FULL_SIZE, "daemon", "racks", "small", "thresholds", "shards", "growth")
DAEMON_PLACED, DAEMON_PODS = 50_000, 3_000
"""Pods that are on nodes when the daemon starts, at most, and pods that come."""
GROWTH_SECONDS = 420.0
INTERRUPTED = 130
_TEMPLATE = "scale.html"

EPILOG = f"""\
rows: {", ".join(ROWS)}

examples:
  make bench ARGS='--scale'                                   # all rows: 130,000 nodes, 500,000 pods
  make bench ARGS='--scale --only rules,card,clauses,own'     # only these rows of the table
  make bench ARGS='--scale --only racks'                      # gangs in one rack each, 5,000 nodes
  make bench ARGS='--scale --only stalls --causes relist,scrape'
  make bench ARGS='--scale --nodes 5000 --pods 20000'         # about two minutes
  make bench ARGS='--scale --store'                           # make this run the baseline
  make bench ARGS='--scale --only rules,own --store'          # make these rows of the baseline
"""


@dataclass
class Run:
    """Everything that one run measured."""

    python: str
    numpy: str
    machine: str
    turn_us: float
    start: Started | None = None
    decisions: list[Decided] = field(default_factory=list)
    gangs: list[Gangs] = field(default_factory=list)
    stalls: list[Stalls] = field(default_factory=list)
    growth: list[Size] = field(default_factory=list)
    workloads: list[Measurement] = field(default_factory=list)
    pod: list[Part] = field(default_factory=list)
    """What the daemon spends on one pod."""
    daemon: Bound | None = None
    """What the daemon spends on pods from a server to their end."""
    shards: list[Fragmentation] = field(default_factory=list)
    memory_mb: float = 0.0
    """Of the process after all rows at full size, with everything that is kept; 0 without such rows."""
    noise: dict[str, float] = field(default_factory=dict)
    """By row: how much the turns of the reference loop just before and after it differ, as a ratio from 1."""
    seconds: float = 0.0
    """Wall time of the run."""
    interrupted: bool = False
    """Whether Ctrl-C ended it: rows are missing."""

    def key(self, row: str) -> str:
        """Return under which name the baseline has a row at this size."""
        return f"{row}/{self.start.nodes}/{self.start.pods}" if self.start is not None else row

    def relatives(self) -> dict[str, float]:
        """Return every cost that is compared with the baseline, in turns of the reference loop, by name."""
        found = {self.key("start"): self.start.relative} if self.start is not None else {}
        found |= {self.key(one.name): one.relative for one in self.decisions}
        found |= {self.key(one.name): one.relative for one in self.gangs}
        found |= {self.key("pod"): sum(part.relative for part in self.pod)} if self.pod else {}
        if self.daemon is not None:
            found[f"daemon/{self.daemon.nodes}/{self.daemon.placed}"] = self.daemon.relative
        return found | {f"{one.workload}/{one.nodes}": one.relative for one in self.workloads}

    def slower(self, stored: Mapping[str, float]) -> list[str]:
        """Return what became slower than the stored costs by more than noise, as texts."""
        bounds = {name: SLOWER * self.noise.get(name, 1.0) for name in self.relatives()}
        return [
            f"{name}: {value / stored[name]:.2f} times its baseline; up to {bounds[name]:.2f} is noise"
            for name, value in self.relatives().items()
            if name in stored and value > bounds[name] * stored[name]
        ]


@dataclass(frozen=True)
class Row:
    """One line of the table: a goal, and what was measured."""

    name: str
    what: str
    before: str
    now: str
    goal: str
    turns: float | None
    """The cost as a multiple of one turn of the reference loop."""
    base: float | None
    """The same as a multiple of the baseline; None without one."""
    ok: bool | None
    """Whether the goal is reached; None at another size than the goal is for."""

    def cells(self) -> tuple[str, ...]:
        """Return what is shown."""
        mark = "" if self.ok is None else "✓" if self.ok else "✗"
        turns = f"{self.turns:,.1f}" if self.turns is not None else ""
        base = f"{self.base:.2f}" if self.base is not None else ""
        return self.name, self.what, self.before, self.goal, self.now, turns, base, mark


ROW_TITLES = ("row", "what", "before", "goal", "now", "× reference loop", "× baseline", "")


def main(arguments: list[str]) -> int:
    """Measure, print, write; return 1 where `--check` finds something slower."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.causes and options.only and "stalls" not in options.only:
        parser.error("--causes: these rows have no causes; add stalls to --only")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {error}")
    began = time.monotonic()
    reference = Reference()
    run = Run(platform.python_version(), np.__version__, platform.machine(), reference.seconds() * 1e6)
    progress = Progress(began)
    try:
        _measure(run, options, reference, progress)
    except KeyboardInterrupt:
        run.interrupted = True
    except ClusterFull as error:
        parser.error(f"the cluster is too small: {error}; give more --nodes or fewer --seconds")
    progress.say("")
    run.seconds = time.monotonic() - began
    console = Console(width=150) if not sys.stdout.isatty() else Console()
    _show(run, console)
    written = _write(run, options.out)
    console.print(f"{run.seconds:.0f} s; written: {', '.join(map(str, written))}")
    stored = baseline()
    compared = run.relatives().keys() & stored.keys()
    console.print(f"compared with the baseline: {len(compared)} of {len(run.relatives())} costs")
    for problem in (slower := run.slower(stored)):
        console.print(problem)
    if options.store:
        store_baseline(run)
        console.print(f"baseline: {len(run.relatives())} costs are of this run")
    if run.interrupted:
        console.print("interrupted: rows are missing")
        return INTERRUPTED
    return 1 if options.check and slower else 0


def _write(run: Run, folder: Path) -> list[Path]:
    texts = {"scale.json": json.dumps(asdict(run), indent=1) + "\n", _TEMPLATE: page(run)}
    if run.growth:
        texts["scale-growth.svg"] = _growth(run.growth)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks --scale",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=_at_least(10), default=NODES, help=f"nodes of the cluster; default {NODES:,}")
    parser.add_argument("--pods", type=_at_least(1), help=f"pods on them; default: {PODS:,} for {NODES:,} nodes")
    parser.add_argument(
        "--only",
        action="extend",
        type=_some_of(ROWS),
        metavar="ROW,…",
        help="only these rows, separated by commas; may be repeated",
    )
    parser.add_argument(
        "--causes",
        action="extend",
        type=_some_of(CAUSES),
        metavar="CAUSE,…",
        help=f"only stalls of these causes: {', '.join(CAUSES)}",
    )
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="CPU seconds of each workload; default 5")
    parser.add_argument(
        "--checks", type=_at_least(0), default=3, help="decisions held against the plain path; default 3"
    )
    parser.add_argument("--most", type=_at_least(1_000), help="nodes up to which growth is measured; default 1,000,000")
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    parser.add_argument("--check", action="store_true", help="fail where something is slower than the baseline")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for JSON, HTML and SVG")
    return parser


def _some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    def found(text: str) -> list[str]:
        wanted = [name.strip() for name in text.split(",") if name.strip()]
        if unknown := [name for name in wanted if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is unknown: there are {', '.join(names)}")
        return wanted

    return found


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds above 0")
    return seconds


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text.replace(",", "").replace("_", ""))
        if value < least:
            raise argparse.ArgumentTypeError(f"{value}: expected at least {least}")
        return value

    return number


class Progress:
    """Shows what is under way, and each result as soon as it is there."""

    def __init__(self, began: float) -> None:
        self._began = began

    def say(self, text: str) -> None:
        """Show on terminals what is under way; elsewhere as a line."""
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)

    def found(self, text: str) -> None:
        """Show a result."""
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        print(f"{clear}{time.monotonic() - self._began:5.0f} s  {text}", file=sys.stderr, flush=True)


def _measure(run: Run, options: argparse.Namespace, reference: Reference, progress: Progress) -> None:
    """Measure row by row; what is done is in `run` if it is interrupted."""
    rows = options.only or (["stalls"] if options.causes else ROWS)
    nodes = options.nodes
    pods = options.pods or max(1, PODS * nodes // NODES)
    if not {"start", *AT_FULL_SIZE}.isdisjoint(rows):
        with tempfile.TemporaryDirectory(prefix="scale-") as directory, synthetic_api(nodes=nodes, pods=pods) as url:
            asyncio.run(_at_full_size(run, options, rows, url, Path(directory), reference, progress, pods=pods))
    if "daemon" in rows:
        placed = min(pods, DAEMON_PLACED)
        progress.say(f"the daemon, {nodes:,} nodes")
        with (
            _noise(run, reference, f"daemon/{nodes}/{placed}"),
            tempfile.TemporaryDirectory(prefix="scale-") as directory,
        ):
            count = min(DAEMON_PODS, max(100, nodes // 4))
            run.daemon = measure_daemon(Path(directory), reference, nodes=nodes, placed=placed, pods=count)
        progress.found(
            f"the daemon: {run.daemon.cpu_us:,.0f} µs of CPU time a pod, {run.daemon.per_second:,.0f} pods/s"
        )
    for gangs, size in RACK_SIZES if "racks" in rows else ():
        progress.say(f"{racks_row(gangs, size)}, {RACK_NODES:,} nodes")
        with _noise(run, reference, f"{racks_row(gangs, size)}/{RACK_NODES}"):
            run.workloads.append(asyncio.run(measure_gangs_in_racks(reference, gangs=gangs, size=size)))
        reached = run.workloads[-1].per_second
        progress.found(f"{racks_row(gangs, size)}: {reached:,.0f} pods/s, goal {RACK_PODS_PER_SECOND:,.0f}/s")
    wanted = {(name, 5_000) for name, _ in AT_5000} if "small" in rows else set()
    if "thresholds" in rows:
        wanted |= {(ours, size) for *_, ours, size in THRESHOLDS if size}
    for name, size in sorted(wanted):
        progress.say(f"{name}, {size:,} nodes")
        with _noise(run, reference, f"{name}/{size}"):
            if name == WHILE_GATED:
                run.workloads.append(asyncio.run(measure_gated(reference)))
            else:
                workload = start_workload(named(name), nodes=size)
                at_least = 300 if named(name).preempts else 1_000
                run.workloads.append(measure_workload(workload, reference, at_least=at_least))
        progress.found(f"{name}, {size:,} nodes: {run.workloads[-1].per_second:,.0f}/s")
    if "shards" in rows:
        for shards in measure_shards(say=progress.say):
            run.shards.append(shards)
            progress.found(f"{shards.shards} shards, {shards.divided}: {shards.lost:,} of {shards.pods:,} pods lost")
    if "growth" in rows:
        for one in measure_growth(most=options.most or _most(nodes), seconds=GROWTH_SECONDS, say=progress.say):
            run.growth.append(one)
            costs = ", ".join(f"{name} {cost:,.0f} µs" for name, cost in one.cpu_us.items())
            progress.found(f"growth, {one.nodes:,} nodes: {costs}")


async def _at_full_size(
    run: Run,
    options: argparse.Namespace,
    rows: Sequence[str],
    url: str,
    directory: Path,
    reference: Reference,
    progress: Progress,
    *,
    pods: int,
) -> None:
    nodes = options.nodes
    progress.say(f"start with {nodes:,} nodes and {pods:,} pods")
    seen = len(reference.seen)
    async with started(url, directory, reference, nodes=nodes, pods=pods) as (site, start):
        run.start = start
        run.noise[run.key("start")] = max(reference.seen[seen:]) / min(reference.seen[seen:])
        progress.found(f"start: {start.cpu_seconds:.1f} s of CPU time, {start.memory_mb:,.0f} MB")
        for load in (load for load in LOADS if load.name in rows):
            progress.say(f"{load.name}, {nodes:,} nodes")
            with _noise(run, reference, run.key(load.name)):
                run.decisions.append(measure(site, load, reference, seconds=options.seconds, checks=options.checks))
            progress.found(f"{load.name}: {run.decisions[-1].per_second:,.0f}/s, goal {load.goal:,}/s")
            await asyncio.sleep(0)  # where Ctrl-C ends it
        if "gang" in rows:
            for gangs, size in SIZES if "thresholds" in rows else SIZES[:1]:
                progress.say(f"{gangs:,} gangs of {size:,}, {nodes:,} nodes")
                with _noise(run, reference, run.key(gang_row(gangs, size))):
                    run.gangs.append(await measure_gangs(site, reference, gangs=gangs, size=size))
                progress.found(f"{gangs:,} gangs of {size:,}: {run.gangs[-1].cpu_seconds:.2f} s")
        if "pod" in rows:
            progress.say(f"one pod, {nodes:,} nodes")
            with _noise(run, reference, run.key("pod")):
                run.pod = await measure_pods(site, reference)
            progress.found(f"one pod: {sum(part.cpu_us for part in run.pod):,.0f} µs of CPU time")
        if "stalls" in rows:
            async for stall in measure_stalls(site, say=progress.say, only=options.causes or ()):
                run.stalls.append(stall)
                where = f", in {stall.where}" if stall.where else ""
                longest = f"{stall.longest_ms:.0f} ms, {stall.longest_cpu_ms:.0f} ms of CPU time"
                progress.found(f"longest stall, {stall.cause}: {longest}{where}")
        return_freed_memory()  # as the daemon does once a minute
        run.memory_mb = resident_mb()


@contextmanager
def _noise(run: Run, reference: Reference, row: str) -> Iterator[None]:
    """Note how much the turns of the reference loop differ that are measured meanwhile."""
    before = len(reference.seen)
    yield
    turns = reference.seen[before:]
    run.noise[row] = max(turns) / min(turns)


def _most(nodes: int) -> int:
    """Return up to where growth is measured: a small run stays small."""
    return 1_000_000 if nodes >= NODES else max(1_000, nodes)


# --- what is shown ---------------------------------------------------------------------------------------


def _table(run: Run) -> Iterator[Row]:
    """Yield each row of the table with its goal, as far as it was measured."""
    full = run.start is not None and run.start.nodes >= NODES
    stored = baseline()

    def row(
        name: str, what: str, before: str, now: str, goal: str, ok: bool, *, key: str = "", counts: bool = full
    ) -> Row:
        turns = run.relatives().get(key or run.key(name))
        base = stored.get(key or run.key(name))
        times = turns / base if turns is not None and base else None
        return Row(name, what, before, now, goal, turns, times, ok if counts else None)

    for one in run.decisions:
        now, ok = f"{one.per_second:,.0f}", one.per_second >= one.goal
        yield row(one.name, f"{one.text}, decisions/s", f"{one.before:,.0f}", now, f"≥ {one.goal:,}", ok)
    for gang in run.gangs[:1]:
        ok = gang.cpu_seconds <= gang.goal_seconds
        now, goal = f"{gang.cpu_seconds:.2f} s", f"≤ {gang.goal_seconds} s"
        yield row(gang.name, f"gang of {gang.size:,}, CPU time", f"{gang.before_seconds} s", now, goal, ok)
    if run.stalls:
        longest = max(run.stalls, key=lambda one: one.longest_cpu_ms)
        now, ok = f"{longest.longest_cpu_ms:.0f} ms ({longest.cause})", longest.longest_cpu_ms <= GOAL_MS
        yield row("stalls", "longest stall of the loop, any cause, CPU time", "1.7 s", now, f"≤ {GOAL_MS} ms", ok)
    if (start := run.start) is not None:
        at_size = start.nodes >= START_NODES and start.pods >= PODS
        yield row(
            "start",
            f"{start.nodes:,} nodes, {start.pods:,} pods, CPU time",
            f"{START_SECONDS_BEFORE:.0f} s",
            f"{start.cpu_seconds:.1f} s",
            f"≤ {START_SECONDS:.0f} s",
            start.cpu_seconds <= START_SECONDS,
            counts=at_size,
        )
        yield row(
            "memory",
            "after the start",
            f"{MEMORY_MB_BEFORE / 1e3:.1f} GB",
            f"{start.memory_mb / 1e3:.2f} GB",
            f"≤ {MEMORY_MB / 1e3:.1f} GB",
            start.memory_mb <= MEMORY_MB,
            counts=at_size,
        )
        if run.memory_mb:  # 0 if the run was ended before
            yield row(
                "memory",
                "after the rows at full size",
                "",
                f"{run.memory_mb / 1e3:.2f} GB",
                f"≤ {MEMORY_MB / 1e3:.1f} GB",
                run.memory_mb <= MEMORY_MB,
                counts=at_size,
            )
    for name, goal_per_second in AT_5000:
        for measured in run.workloads:
            if (measured.workload, measured.nodes) == (name, 5_000):
                ok = measured.per_second >= goal_per_second
                now, goal = f"{measured.per_second:,.0f}", f"≥ {goal_per_second:,}"
                what = f"{name} at 5,000 nodes, decisions/s"
                yield row("small", what, "", now, goal, ok, key=f"{name}/5000", counts=True)


def _thresholds(run: Run) -> Iterator[tuple[str, ...]]:
    by_name = {(one.workload, one.nodes): one.per_second for one in run.workloads}
    by_load = {one.name: one.per_second for one in run.decisions}
    by_load |= {gangs.name: gangs.per_second for gangs in run.gangs}
    for name, text, threshold, ours, size in THRESHOLDS:
        if (found := by_name.get((ours, size)) if size else by_load.get(ours)) is None:
            yield name, text, f"{threshold:,}", "–", ""
        else:
            yield name, text, f"{threshold:,}", f"{found:,.0f}", f"{found / threshold:.1f}"


THRESHOLD_TITLES = ("name", "", "threshold", "ours", "ours / threshold")


def _classes() -> list[str]:
    return [f"≤ {bound} ms" for bound in BOUNDS_MS] + ["longer"]


def _churn(run: Run) -> str:
    nodes = run.start.nodes if run.start is not None else NODES
    return (
        f"{nodes / SECONDS_BETWEEN_HEARTBEATS:,.0f} heartbeats, {STATIC_CHANGES} static changes of nodes,"
        f" {NODES_REPLACED} node added or removed and {PODS_ENDED} pods ended a second"
    )


def _decision_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for one in run.decisions:
        yield (
            one.text,
            f"{one.per_second:,.0f}",
            f"{one.churn_share:.0%}",
            f"{one.p50_us:,.0f}",
            f"{one.p99_us:,.0f}",
            f"{one.worst_us:,.0f}",
            f"{one.new_us:,.0f}",
            str(one.checked),
        )


def _stall_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for one in run.stalls:
        classes = (f"{turns:,}" if turns else "" for turns in one.histogram)
        yield one.cause, f"{one.text}: {one.seconds:.1f} s", *classes, one.where


def _pod_rows(run: Run) -> Iterator[tuple[str, str, str]]:
    for part in run.pod:
        yield part.name, f"{part.cpu_us:,.0f}", f"{part.relative:.1f}"
    if run.pod:
        total, turns = sum(part.cpu_us for part in run.pod), sum(part.relative for part in run.pod)
        yield f"in all: {1e6 / total:,.0f} pods/s on one core", f"{total:,.0f}", f"{turns:.1f}"


def _daemon_rows(run: Run) -> Iterator[tuple[str, str]]:
    if (found := run.daemon) is None:
        return
    yield f"{found.nodes:,} nodes, {found.placed:,} pods on them, {found.pods:,} pods come", ""
    yield "pods bound per second, wall time", f"{found.per_second:,.0f}"
    yield "pods per second, if the loop has a core of its own", f"{1e6 / found.loop_us:,.0f}"
    yield f"CPU time for a pod, with its event and {EVENTS} of the watch", f"{found.cpu_us:,.0f} µs"
    yield "the same in turns of the reference loop", f"{found.relative:.1f}"
    yield "of it the thread of the event loop", f"{found.loop_us / found.cpu_us:.0%}"
    yield "of it the operating system", f"{found.system_us / found.cpu_us:.0%}"


DAEMON_TITLES = ("the daemon, with a synthetic API server", "")
POD_TITLES = ("one pod", "CPU µs", "× reference loop")


def _shard_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for one in run.shards:
        yield (
            f"{one.shards}, {one.divided}",
            f"{one.nodes:,}",
            f"{one.pods:,}",
            f"{one.lost:,}",
            f"{one.first_lost_at:.1%}",
            f"{one.used:.1%}",
            str(one.overcommitted),
        )


SHARD_TITLES = ("shards", "nodes", "pods", "lost", "first lost at", "cpu used", "overcommitted nodes")


def page(run: Run) -> str:
    """Return the report as HTML."""
    loader = ChoiceLoader(
        [FileSystemLoader(Path(__file__).parent), PackageLoader("kube_policy_scheduler.pages", "templates")]
    )
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    names = list(run.growth[0].cpu_us) if run.growth else []
    values: dict[str, Any] = {
        "run": run,
        "nodes": run.start.nodes if run.start is not None else 0,
        "pods": run.start.pods if run.start is not None else 0,
        "titles": ROW_TITLES,
        "goals": [row.cells() for row in _table(run)],
        "churn": _churn(run),
        "decisions": list(_decision_rows(run)),
        "growth": Markup(_growth(run.growth)) if run.growth else "",
        "stopped": run.growth[-1].stopped if run.growth else "",
        "curves": [f"{name}, µs" for name in names],
        "sizes": [
            (
                f"{size.nodes:,}",
                f"{size.memory_mb:,.0f}",
                f"{size.build_seconds:.1f}",
                *tuple(f"{size.cpu_us[name]:,.0f}" for name in names),
            )
            for size in run.growth
        ],
        "longest": bar_chart(
            "Longest turn of the event loop",
            [one.cause for one in run.stalls],
            {
                "wall": [one.longest_ms for one in run.stalls],
                "CPU": [one.longest_cpu_ms for one in run.stalls],
                "garbage collection": [one.longest_collection_ms for one in run.stalls],
            },
            up="ms",
        ),
        "classes": _classes(),
        "lengths": bar_chart(
            "Turns of the event loop by their length",
            _classes(),
            {one.cause: [100 * turns / max(1, one.turns) for turns in one.histogram] for one in run.stalls},
            up="% of the turns",
        ),
        "stalls": list(_stall_rows(run)),
        "threshold_titles": THRESHOLD_TITLES,
        "thresholds": list(_thresholds(run)),
        "parts_of_pod": list(_pod_rows(run)),
        "daemon_titles": list(DAEMON_TITLES),
        "daemon": list(_daemon_rows(run)),
        "shard_titles": list(SHARD_TITLES),
        "shards": list(_shard_rows(run)),
    }
    return environment.get_template(_TEMPLATE).render(values)


def _growth(sizes: list[Size]) -> str:
    xs = tuple(size.nodes for size in sizes)
    curves = [Curve("nodes", name, xs, tuple(size.cpu_us[name] for size in sizes), ()) for name in sizes[0].cpu_us]
    return svg(curves, title="How the cost of a decision grows")


def _show(run: Run, console: Console) -> None:
    for title, columns, rows in (
        ("the table", ROW_TITLES, [row.cells() for row in _table(run)]),
        (
            "decisions",
            ("workload", "per s", "changes", "p50 µs", "p99 µs", "worst µs", "new µs", "checked"),
            list(_decision_rows(run)),
        ),
        (
            "turns of the event loop",
            ("cause", "longest ms", "CPU ms", "collection", *_classes()),
            [
                (
                    one.cause,
                    f"{one.longest_ms:.1f}",
                    f"{one.longest_cpu_ms:.1f}",
                    f"{one.longest_collection_ms:.1f}",
                    *tuple(f"{turns:,}" if turns else "" for turns in one.histogram),
                )
                for one in run.stalls
            ],
        ),
        (
            "growth, CPU µs per decision",
            ("nodes", "MB", *(run.growth[0].cpu_us if run.growth else ())),
            [
                (f"{size.nodes:,}", f"{size.memory_mb:,.0f}", *(f"{cost:,.0f}" for cost in size.cpu_us.values()))
                for size in run.growth
            ],
        ),
        ("what the daemon spends on one pod", POD_TITLES, list(_pod_rows(run))),
        ("the daemon, without TLS", DAEMON_TITLES, list(_daemon_rows(run))),
        ("shards: the same pods, until 97 % of the capacity are requested", SHARD_TITLES, list(_shard_rows(run))),
        (
            "scheduler_perf's thresholds, pods/s",
            THRESHOLD_TITLES,
            list(_thresholds(run)) if run.workloads else [],
        ),
    ):
        if rows:
            table = Table(title=title, title_justify="left", box=None, pad_edge=False)
            for position, column in enumerate(columns):
                table.add_column(column, justify="right" if position else "left", no_wrap=position > 0)
            for row in rows:
                table.add_row(*row)
            console.print(table)
    if run.growth and run.growth[-1].stopped:
        console.print(f"growth stopped at {run.growth[-1].nodes:,} nodes: {run.growth[-1].stopped}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
