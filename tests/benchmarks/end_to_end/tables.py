"""Results side by side: each figure of ours as a multiple of kube-scheduler's in the same run."""

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


def show(results: Sequence[Throughput | Latency | Start], console: Console) -> None:
    """Print a table for each kind of measurement; medians where one was made several times."""
    _show_throughput([result for result in results if isinstance(result, Throughput)], console)
    _show_latency([result for result in results if isinstance(result, Latency)], console)
    _show_start([result for result in results if isinstance(result, Start)], console)
    for result in results:
        for problem in getattr(result, "wrong", ()):
            console.print(f"[red]wrong[/red] {result.scheduler}: {problem}")


def _show_throughput(results: list[Throughput], console: Console) -> None:
    table = _table("throughput", "workload", "scheduler", "pods/s", "× kube", "goal", "CPU ms/pod", "MB", "peak MB")
    for runs in _groups(results, lambda run: (run.workload, run.scheduler)):
        of_kube = [run for run in results if (run.workload, run.scheduler) == (runs[0].workload, "kube")]
        speed = median(run.pods_per_second for run in runs)
        ours = runs[0].scheduler == "ours"
        table.add_row(
            runs[0].workload,
            runs[0].scheduler,
            f"{speed:,.0f}",
            f"{speed / median(run.pods_per_second for run in of_kube):.1f}" if ours and of_kube else "",
            f"≥ {GOALS[runs[0].workload]:g}" if ours else "",
            f"{median(run.cpu_millis_per_pod for run in runs):.2f}",
            f"{median(run.rss_mb for run in runs):.0f}",
            f"{median(run.peak_rss_mb for run in runs):.0f}",
        )
    _print(table, console)


def _show_latency(results: list[Latency], console: Console) -> None:
    table = _table("creation to binding", "pods/s", "scheduler", "reached", "p50 ms", "p90 ms", "p99 ms", "max ms")
    for runs in _groups(results, lambda run: (run.pods_per_second, run.scheduler)):
        table.add_row(
            str(runs[0].pods_per_second),
            runs[0].scheduler,
            f"{median(run.created_per_second for run in runs):.0f}",
            *(
                f"{median(values):.1f}"
                for values in zip(
                    *((run.p50_millis, run.p90_millis, run.p99_millis, run.max_millis) for run in runs), strict=True
                )
            ),
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
    table = _table("start to first binding", "scheduler", "nodes", "pods", "seconds", "× kube")
    of_kube = [run.first_binding_seconds for run in results if run.scheduler == "kube"]
    for runs in _groups(results, lambda run: run.scheduler):
        seconds = median(run.first_binding_seconds for run in runs)
        ratio = f"{seconds / median(of_kube):.2f}" if runs[0].scheduler == "ours" and of_kube else ""
        table.add_row(runs[0].scheduler, f"{runs[0].nodes:,}", f"{runs[0].pods:,}", f"{seconds:.2f}", ratio)
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
