"""Results as tables for people and JSON for machines, and held against a stored baseline.

Compared are multiples of the reference loop, measured in the same run: machines differ, and so does one machine
from one minute to the next.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.changes import AfterChange
from tests.benchmarks.clauses import BOUND_TURNS, Cost
from tests.benchmarks.decisions import Measurement
from tests.benchmarks.growth import Curve
from tests.benchmarks.memory import Memory
from tests.benchmarks.reload import Reload
from tests.benchmarks.startup import StartUp

BASELINE = Path(__file__).with_name("baseline.json")
SLOWER = 1.3
"""A ratio beyond is reported as slower than the baseline: two runs on a busy machine differ by up to 1.2."""


@dataclass
class Results:
    """Everything that one run measured."""

    turn_us: float
    """One turn of the reference loop, CPU time."""
    decisions: list[Measurement] = field(default_factory=list)
    clauses: list[Cost] = field(default_factory=list)
    changes: list[AfterChange] = field(default_factory=list)
    starts: list[StartUp] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    reloads: list[Reload] = field(default_factory=list)
    growth: list[Curve] = field(default_factory=list)

    def relatives(self) -> dict[str, float]:
        """Return every cost that is compared, in turns of the reference loop, by name."""
        found = {f"{m.workload}/{m.nodes}": m.relative for m in self.decisions}
        found |= {f"clause/{c.name}/{c.nodes}": c.relative for c in self.clauses}
        found |= {f"{c.what}/{c.workload}/{c.nodes}": c.relative for c in self.changes}
        found |= {f"start/{s.nodes}/{s.pods}": s.relative for s in self.starts}
        return found | {r.name: r.relative for r in self.reloads}

    def json(self) -> str:
        """Return everything as JSON."""
        machine = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
        }
        decisions = [asdict(m) | {"per_second": m.per_second} for m in self.decisions]
        return json.dumps({"machine": machine} | asdict(self) | {"decisions": decisions}, indent=1) + "\n"


def baseline() -> dict[str, float]:
    """Return the stored costs by name; empty where there are none."""
    if not BASELINE.exists():
        return {}
    stored: Mapping[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return dict(stored["relative"])


class Measured(Protocol):
    """A run whose costs can become the baseline."""

    @property
    def turn_us(self) -> float:
        """Return one turn of the reference loop, CPU time."""

    def relatives(self) -> dict[str, float]:
        """Return every cost in turns of the reference loop, by name."""


def store_baseline(results: Measured) -> None:
    """Make these costs the baseline; those that were not measured now stay."""
    kept = baseline() | {name: round(value, 3) for name, value in results.relatives().items()}
    BASELINE.write_text(
        json.dumps({"turn_us": round(results.turn_us, 2), "relative": dict(sorted(kept.items()))}, indent=1) + "\n",
        encoding="utf-8",
    )


def slower(results: Results) -> list[str]:
    """Return what became slower than the baseline, as texts."""
    stored = baseline()
    return [
        f"{name}: {value / stored[name]:.2f} times its baseline"
        for name, value in results.relatives().items()
        if name in stored and value > SLOWER * stored[name]
    ]


def missed(results: Results) -> list[str]:
    """Return which goals were not reached, as texts."""
    return [
        f"{m.workload} at {m.nodes:,} nodes: {m.per_second:,.0f}/s, the goal is {m.goal:,}/s"
        for m in results.decisions
        if m.goal is not None and m.nodes >= 5_000 and m.per_second < m.goal
    ] + [
        f"clause {c.name} at {c.nodes:,} nodes: {c.turns:.1f} turns, the bound is {BOUND_TURNS:.1f}"
        for c in results.clauses
        if c.is_over
    ]


def show(results: Results, console: Console) -> None:
    """Print all tables."""
    stored = baseline()
    if results.decisions:
        console.print(_decisions(results.decisions, stored))
    if results.clauses:
        console.print(_clauses(results.clauses, stored))
    if results.changes:
        console.print(_changes(results.changes, stored))
    if results.starts or results.reloads:
        console.print(_others(results, stored))
    for memory in results.memory:
        console.print(
            f"memory: {memory.empty_mb:.0f} MB empty, {memory.per_1000_nodes_mb:.2f} MB per 1,000 nodes, "
            f"{memory.per_1000_pods_mb:.2f} MB per 1,000 pods, {memory.per_1000_templates_mb:.2f} MB more where each "
            f"has a template of its own"
        )
    if results.growth:
        console.print(_growth(results.growth))
    console.print(f"one turn of the reference loop: {results.turn_us:.1f} µs")


def _ratio(stored: Mapping[str, float], name: str, relative: float) -> str:
    return f"{relative / stored[name]:.2f}" if name in stored else ""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    return table


def _decisions(measured: Sequence[Measurement], stored: Mapping[str, float]) -> Table:
    table = _table(
        "decisions, one core, no API", "workload", "nodes", "placed", "per s", "CPU µs", "p50", "p99", "goal", "× base"
    )
    for m in measured:
        goal = "" if m.goal is None or m.nodes < 5_000 else f"{m.goal:,} {'✓' if m.per_second >= m.goal else '✗'}"
        table.add_row(
            m.workload,
            f"{m.nodes:,}",
            f"{m.placed:,}",
            f"{m.per_second:,.0f}",
            f"{m.cpu_us:,.1f}",
            f"{m.p50_us:,.0f}",
            f"{m.p99_us:,.0f}",
            goal,
            _ratio(stored, f"{m.workload}/{m.nodes}", m.relative),
        )
    return table


def _clauses(costs: Sequence[Cost], stored: Mapping[str, float]) -> Table:
    table = _table(
        "clauses: CPU per decision on top of the plain policy",
        "clause", "nodes", "µs", "turns", "bound", "× free", "× base",
    )  # fmt: skip
    for cost in costs:
        bound = f"{BOUND_TURNS:.1f} {'✗' if cost.is_over else '✓'}" if cost.bounded else ""
        table.add_row(
            cost.name,
            f"{cost.nodes:,}",
            f"{cost.cpu_us:,.1f}",
            f"{cost.turns:,.2f}",
            bound,
            f"{cost.of_reference:,.1f}",
            _ratio(stored, f"clause/{cost.name}/{cost.nodes}", cost.relative),
        )
    return table


def _changes(measured: Sequence[AfterChange], stored: Mapping[str, float]) -> Table:
    table = _table("the first decision after a change", "change", "workload", "nodes", "CPU µs", "× base")
    for c in measured:
        ratio = _ratio(stored, f"{c.what}/{c.workload}/{c.nodes}", c.relative)
        table.add_row(c.what, c.workload, f"{c.nodes:,}", f"{c.cpu_us:,.0f}", ratio)
    return table


def _others(results: Results, stored: Mapping[str, float]) -> Table:
    table = _table("start and reload", "what", "CPU ms", "beside decisions, ms", "worst decision, ms", "× base")
    for s in results.starts:
        name = f"start/{s.nodes}/{s.pods}"
        what = f"bytes to first decision: {s.nodes:,} nodes, {s.pods:,} pods"
        table.add_row(what, f"{s.seconds * 1e3:,.0f}", "", "", _ratio(stored, name, s.relative))
    for r in results.reloads:
        policies = "policies" if r.policies > 1 else "policy"
        table.add_row(
            f"reload {r.policies} {policies} of {r.clauses} clauses, {r.changed} changed",
            f"{r.cpu_seconds * 1e3:,.1f}",
            f"{r.swap_seconds * 1e3:,.1f}",
            f"{r.worst_decision_seconds * 1e3:,.1f}",
            _ratio(stored, r.name, r.relative),
        )
    return table


def _growth(curves: Sequence[Curve]) -> Table:
    table = _table("growth: CPU µs per decision", "axis", "workload", "")
    for curve in curves:
        points = "  ".join(f"{x:,}: {y:,.0f}" for x, y in zip(curve.xs, curve.cpu_us, strict=True))
        table.add_row(curve.axis, curve.label, points)
    return table
