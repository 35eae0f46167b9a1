"""`make bench ARGS='--scale'`: decisions, start, memory and stalls in the largest clusters, in under fifteen minutes.

A synthetic API server sends nodes and pods of the size that real ones have. Nodes and pods change during every
workload. Writes `scale.json` and `scale.html` to build/benchmarks/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader
from markupsafe import Markup
from rich.console import Console
from rich.table import Table

from kube_policy_scheduler.pages.charts import bar_chart
from tests.benchmarks.chart import svg
from tests.benchmarks.decisions import Measurement
from tests.benchmarks.decisions import measure as measure_workload
from tests.benchmarks.decisions import start as start_workload
from tests.benchmarks.growth import Curve
from tests.benchmarks.reference import Reference
from tests.benchmarks.report import SLOWER
from tests.benchmarks.scale.api import synthetic_api
from tests.benchmarks.scale.gang import Gang, measure_gang
from tests.benchmarks.scale.growth import Size, measure_growth
from tests.benchmarks.scale.loads import AT_5000, LOADS, THRESHOLDS
from tests.benchmarks.scale.site import (
    NODES_REPLACED,
    PODS_ENDED,
    SECONDS_BETWEEN_HEARTBEATS,
    STATIC_CHANGES,
    Decided,
    Started,
    measure,
    started,
)
from tests.benchmarks.scale.stalls import BOUNDS_MS, GOAL_MS, Stalls, measure_stalls
from tests.benchmarks.workloads import named

NODES, PODS = 130_000, 500_000
START_NODES = 100_000
"""The goals of start and memory are for so many nodes, and for 500,000 pods."""
START_SECONDS, MEMORY_MB = 10.0, 1_200.0
START_SECONDS_BEFORE, MEMORY_MB_BEFORE = 26.0, 2_400.0
PARTS = ("decisions", "gang", "stalls", "growth", "thresholds")
BASELINE = Path(__file__).with_name("baseline.json")
_TEMPLATE = "scale.html"

EPILOG = """\
examples:
  make bench ARGS='--scale'                                   # 130,000 nodes, 500,000 pods
  make bench ARGS='--scale --nodes 5000 --pods 20000'         # about two minutes
  make bench ARGS='--scale --part stalls --seconds 1'
  make bench ARGS='--scale --only plain --only preemption --nodes 20000 --pods 80000'
"""


@dataclass
class Run:
    """Everything that one run measured."""

    python: str
    numpy: str
    machine: str
    turn_us: float
    start: Started
    decisions: list[Decided] = field(default_factory=list)
    gang: Gang | None = None
    stalls: list[Stalls] = field(default_factory=list)
    growth: list[Size] = field(default_factory=list)
    workloads: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0
    """Wall time of the run."""

    def relatives(self) -> dict[str, float]:
        """Return every cost that is compared with the baseline, in turns of the reference loop, by name."""
        size = f"{self.start.nodes}/{self.start.pods}"
        found = {f"start/{size}": self.start.relative}
        found |= {f"{one.name}/{size}": one.relative for one in self.decisions}
        found |= {f"gang/{size}": self.gang.relative} if self.gang is not None else {}
        return found | {f"{one.workload}/{one.nodes}": one.relative for one in self.workloads}


def main(arguments: list[str]) -> int:
    """Measure, print, write; return 1 where `--check` finds something slower."""
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory:
        run = asyncio.run(_measure(options, Path(directory)))
    run.seconds = time.monotonic() - began
    _say("")
    console = Console(width=150) if not sys.stdout.isatty() else Console()
    _show(run, console)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scale.json").write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")
    (options.out / _TEMPLATE).write_text(page(run), encoding="utf-8")
    console.print(f"{run.seconds:.0f} s; written: {options.out / 'scale.json'}, {options.out / _TEMPLATE}")
    stored = _baseline()
    slower = [
        f"{name}: {value / stored[name]:.2f} times its baseline"
        for name, value in run.relatives().items()
        if name in stored and value > SLOWER * stored[name]
    ]
    for problem in slower:
        console.print(problem)
    if options.store:
        kept = stored | {name: round(value, 3) for name, value in run.relatives().items()}
        BASELINE.write_text(json.dumps({"relative": dict(sorted(kept.items()))}, indent=1) + "\n", encoding="utf-8")
    return 1 if options.check and slower else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks --scale",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=_at_least(10), default=NODES, help=f"nodes of the cluster; default {NODES:,}")
    parser.add_argument("--pods", type=_at_least(1), help=f"pods on them; default: {PODS:,} for {NODES:,} nodes")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument(
        "--only", action="append", choices=[load.name for load in LOADS], help="only this workload; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU seconds of each workload; default 5")
    parser.add_argument("--checks", type=int, default=3, help="decisions held against the plain path; default 3")
    parser.add_argument("--most", type=_at_least(1_000), help="nodes up to which growth is measured; default 1,000,000")
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    parser.add_argument("--check", action="store_true", help="fail where something is slower than the baseline")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for JSON and HTML")
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text.replace(",", "").replace("_", ""))
        if value < least:
            raise argparse.ArgumentTypeError(f"{value}: expected at least {least}")
        return value

    return number


async def _measure(options: argparse.Namespace, directory: Path) -> Run:
    nodes = options.nodes
    pods = options.pods or max(1, PODS * nodes // NODES)
    parts = options.part or (["decisions"] if options.only else PARTS)
    reference = Reference()
    _say(f"start with {nodes:,} nodes and {pods:,} pods")
    with synthetic_api(nodes=nodes, pods=pods) as url:
        async with started(url, directory, nodes=nodes, pods=pods) as (site, start):
            run = Run(platform.python_version(), np.__version__, platform.machine(), reference.seconds() * 1e6, start)
            if "decisions" in parts:
                for load in LOADS:
                    if options.only and load.name not in options.only:
                        continue
                    _say(f"{load.name}, {nodes:,} nodes")
                    run.decisions.append(measure(site, load, reference, seconds=options.seconds, checks=options.checks))
            if "gang" in parts:
                _say(f"gang, {nodes:,} nodes")
                run.gang = await measure_gang(site, reference)
            if "stalls" in parts:
                run.stalls = await measure_stalls(site, say=_say)
    del site
    if "thresholds" in parts:
        wanted = {(ours, size) for *_, ours, size in THRESHOLDS if size} | {(name, 5_000) for name, _ in AT_5000}
        for name, size in sorted(wanted):
            _say(f"{name}, {size:,} nodes")
            workload = start_workload(named(name), nodes=size)
            run.workloads.append(measure_workload(workload, reference, at_least=300 if named(name).preempts else 1_000))
    if "growth" in parts:
        run.growth = measure_growth(most=options.most or _most(nodes), seconds=300.0, say=_say)
    return run


def _most(nodes: int) -> int:
    """Return up to where growth is measured: a small run stays small."""
    return 1_000_000 if nodes >= NODES else max(1_000, nodes)


def _baseline() -> dict[str, float]:
    return dict(json.loads(BASELINE.read_text(encoding="utf-8"))["relative"]) if BASELINE.exists() else {}


# --- what is shown ---------------------------------------------------------------------------------------


def _goals(run: Run) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each goal: what, before, now, goal, and whether it was reached (only at the size that it is for)."""
    full = run.start.nodes >= NODES

    def reached(ok: bool, *, counts: bool = full) -> str:
        return ("✓" if ok else "✗") if counts else ""

    for one in run.decisions:
        now, ok = f"{one.per_second:,.0f}", one.per_second >= one.goal
        yield f"{one.text}, decisions/s", f"{one.before:,.0f}", now, f"≥ {one.goal:,}", reached(ok)
    if run.gang is not None:
        gang = run.gang
        ok = gang.cpu_seconds <= gang.goal_seconds
        now, goal = f"{gang.cpu_seconds:.2f} s", f"≤ {gang.goal_seconds} s"
        yield f"gang of {gang.pods:,}, CPU time", f"{gang.before_seconds} s", now, goal, reached(ok)
    if run.stalls:
        longest = max(run.stalls, key=lambda one: one.longest_ms)
        now, ok = f"{longest.longest_ms:.0f} ms ({longest.cause})", longest.longest_ms <= GOAL_MS
        yield "longest stall of the loop, any cause", "1.7 s", now, f"≤ {GOAL_MS} ms", reached(ok)
    start = run.start
    at_size = start.nodes >= START_NODES and start.pods >= PODS
    yield (
        f"start: {start.nodes:,} nodes, {start.pods:,} pods, CPU time",
        f"{START_SECONDS_BEFORE:.0f} s",
        f"{start.cpu_seconds:.1f} s",
        f"≤ {START_SECONDS:.0f} s",
        reached(start.cpu_seconds <= START_SECONDS, counts=at_size),
    )
    yield (
        "memory after the start",
        f"{MEMORY_MB_BEFORE / 1e3:.1f} GB",
        f"{start.memory_mb / 1e3:.2f} GB",
        f"≤ {MEMORY_MB / 1e3:.1f} GB",
        reached(start.memory_mb <= MEMORY_MB, counts=at_size),
    )
    for name, goal_per_second in AT_5000:
        for measured in run.workloads:
            if (measured.workload, measured.nodes) == (name, 5_000):
                ok = measured.per_second >= goal_per_second
                now = f"{measured.per_second:,.0f}"
                yield f"{name} at 5,000 nodes, decisions/s", "", now, f"≥ {goal_per_second:,}", reached(ok, counts=True)


def _thresholds(run: Run) -> Iterator[tuple[str, str, str, str]]:
    by_name = {(one.workload, one.nodes): one.per_second for one in run.workloads}
    by_load = {one.name: one.per_second for one in run.decisions}
    if run.gang is not None:
        by_load["gang"] = run.gang.pods / run.gang.cpu_seconds
    for name, text, threshold, ours, size in THRESHOLDS:
        found = by_name.get((ours, size)) if size else by_load.get(ours)
        yield name, text, f"{threshold:,}", f"{found:,.0f}" if found is not None else "–"


def _classes() -> list[str]:
    return [f"≤ {bound} ms" for bound in BOUNDS_MS] + ["longer"]


def _churn(run: Run) -> str:
    return (
        f"{run.start.nodes / SECONDS_BETWEEN_HEARTBEATS:,.0f} heartbeats, {STATIC_CHANGES} static changes of nodes,"
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
            str(one.checked),
        )


def _stall_rows(run: Run) -> Iterator[tuple[str, ...]]:
    for one in run.stalls:
        yield one.cause, f"{one.text}: {one.seconds:.1f} s", *(f"{turns:,}" if turns else "" for turns in one.histogram)


def page(run: Run) -> str:
    """Return the report as HTML."""
    loader = ChoiceLoader(
        [FileSystemLoader(Path(__file__).parent), PackageLoader("kube_policy_scheduler.pages", "templates")]
    )
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    names = list(run.growth[0].cpu_us) if run.growth else []
    values: dict[str, Any] = {
        "run": run,
        "goals": list(_goals(run)),
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
        "stalls": list(_stall_rows(run)),
        "thresholds": list(_thresholds(run)),
    }
    return environment.get_template(_TEMPLATE).render(values)


def _growth(sizes: list[Size]) -> str:
    xs = tuple(size.nodes for size in sizes)
    curves = [Curve("nodes", name, xs, tuple(size.cpu_us[name] for size in sizes), ()) for name in sizes[0].cpu_us]
    return svg(curves, title="How the cost of a decision grows")


def _show(run: Run, console: Console) -> None:
    stored, relatives = _baseline(), run.relatives()
    for title, columns, rows in (
        ("goals", ("what", "before", "now", "goal", ""), list(_goals(run))),
        (
            "decisions",
            ("workload", "per s", "changes", "p50 µs", "p99 µs", "worst µs", "checked"),
            list(_decision_rows(run)),
        ),
        (
            "turns of the event loop",
            ("cause", "longest ms", "by CPU", "collection", *_classes()),
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
        (
            "scheduler_perf's thresholds, pods/s",
            ("name", "", "threshold", "ours"),
            list(_thresholds(run)) if run.workloads else [],
        ),
        (
            "beside the baseline",
            ("cost", "turns", "× base"),
            [
                (name, f"{value:,.1f}", f"{value / stored[name]:.2f}")
                for name, value in relatives.items()
                if name in stored
            ],
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


def _say(text: str) -> None:
    """Show on terminals what is under way; elsewhere as lines."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
