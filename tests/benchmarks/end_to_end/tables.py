"""Results side by side: medians with the lowest and the highest, and ours as a multiple of kube-scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from tests.benchmarks.end_to_end.measurements import Latency, Start, Throughput
from tests.benchmarks.end_to_end.workloads import WORKLOADS

R = TypeVar("R", Throughput, Latency, Start)
GOALS = {workload.name: workload.goal for workload in WORKLOADS}
"""Multiples of kube-scheduler's pods per second."""
PLAIN_CPU_MILLIS = 0.3
"""What a plain pod may take of our processor time, its event included."""
LATENCY_GOALS = {100: (10.0, 20.0), 300: (10.0, 50.0)}
"""p50 and p99 in ms, by pods per second."""
START_GOAL = 1.0
"""As a multiple of kube-scheduler's."""


def show(results: Sequence[Throughput | Latency | Start], console: Console) -> None:
    """Print a table for each kind of measurement; medians where one was made several times."""
    _show_throughput([result for result in results if isinstance(result, Throughput)], console)
    _show_latency([result for result in results if isinstance(result, Latency)], console)
    _show_start([result for result in results if isinstance(result, Start)], console)
    for result in results:
        for problem in getattr(result, "wrong", ()):
            console.print(f"[red]wrong[/red] {result.scheduler}: {problem}")


def _show_throughput(results: list[Throughput], console: Console) -> None:
    titles = (
        "workload",
        "scheduler",
        "runs",
        "pods/s",
        "lowest",
        "highest",
        "× kube",
        "goal",
        "CPU ms/pod",
        "CPU goal",
    )
    table = _table("throughput", *titles, "× kube's", "MB", "peak MB")
    for runs in _groups(results, lambda run: (run.workload, run.scheduler)):
        of_kube = [run for run in results if (run.workload, run.scheduler) == (runs[0].workload, "kube")]
        speeds, ours = [run.pods_per_second for run in runs], runs[0].scheduler == "ours"
        cpu = median(run.cpu_millis_per_pod for run in runs)
        beside, cpu_beside = "", ""
        if ours and of_kube:
            beside = f"{median(speeds) / median(run.pods_per_second for run in of_kube):.1f}"
            cpu_beside = f"{cpu / median(run.cpu_millis_per_pod for run in of_kube):.2f}"
        table.add_row(
            runs[0].workload,
            runs[0].scheduler,
            str(len(runs)),
            f"{median(speeds):,.0f}",
            f"{min(speeds):,.0f}",
            f"{max(speeds):,.0f}",
            beside,
            f"≥ {GOALS[runs[0].workload]:g}" if ours else "",
            f"{cpu:.2f}",
            f"≤ {PLAIN_CPU_MILLIS:.2f}" if ours and runs[0].workload == WORKLOADS[0].name else "",
            cpu_beside,
            f"{median(run.rss_mb for run in runs):.0f}",
            f"{median(run.peak_rss_mb for run in runs):.0f}",
        )
    _print(table, console)


def _show_latency(results: list[Latency], console: Console) -> None:
    titles = ("pods/s", "scheduler", "runs", "reached", "p50 ms", "goal", "p90 ms", "p99 ms", "goal", "max ms")
    table = _table("creation to binding", *titles)
    for runs in _groups(results, lambda run: (run.pods_per_second, run.scheduler)):
        goals = LATENCY_GOALS.get(runs[0].pods_per_second) if runs[0].scheduler == "ours" else None
        of_p50, of_p99 = (f"≤ {goal:g}" for goal in goals) if goals is not None else ("", "")
        table.add_row(
            str(runs[0].pods_per_second),
            runs[0].scheduler,
            str(len(runs)),
            f"{median(run.created_per_second for run in runs):.0f}",
            f"{median(run.p50_millis for run in runs):.1f}",
            of_p50,
            f"{median(run.p90_millis for run in runs):.1f}",
            f"{median(run.p99_millis for run in runs):.1f}",
            of_p99,
            f"{median(run.max_millis for run in runs):.1f}",
        )
    _print(table, console)
    _show_stages([result for result in results if result.stages], console)


def _show_stages(results: list[Latency], console: Console) -> None:
    table = _table("where the time of ours goes", "pods/s", "step", "p50 ms", "p90 ms", "p99 ms")
    for runs in _groups(results, lambda run: run.pods_per_second):
        for step in runs[0].stages:
            values = zip(*(run.stages[step] for run in runs), strict=True)
            table.add_row(str(runs[0].pods_per_second), step, *(f"{median(value):.2f}" for value in values))
    _print(table, console)


def _show_start(results: list[Start], console: Console) -> None:
    titles = ("scheduler", "runs", "nodes", "pods", "seconds", "lowest", "highest", "× kube", "goal")
    table = _table("start to first binding", *titles)
    of_kube = [run.first_binding_seconds for run in results if run.scheduler == "kube"]
    for runs in _groups(results, lambda run: run.scheduler):
        seconds, ours = [run.first_binding_seconds for run in runs], runs[0].scheduler == "ours"
        table.add_row(
            runs[0].scheduler,
            str(len(runs)),
            f"{runs[0].nodes:,}",
            f"{runs[0].pods:,}",
            f"{median(seconds):.2f}",
            f"{min(seconds):.2f}",
            f"{max(seconds):.2f}",
            f"{median(seconds) / median(of_kube):.2f}" if ours and of_kube else "",
            f"≤ {START_GOAL:g}" if ours else "",
        )
    _print(table, console)


def _groups(results: Sequence[R], key: Callable[[R], Hashable]) -> list[list[R]]:
    groups: dict[Hashable, list[R]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return list(groups.values())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        words = column in ("workload", "scheduler", "step")
        table.add_column(column, justify="left" if words else "right")
    return table


def _print(table: Table, console: Console) -> None:
    if table.row_count:
        console.print(table)
