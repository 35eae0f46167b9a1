"""The tables of the benchmark beside kube-scheduler: medians of several runs, and ours as a multiple of its figure."""

from __future__ import annotations

from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.end_to_end.measurements import Latency, Start, Throughput
from tests.benchmarks.end_to_end.tables import show


def throughput(scheduler: str, workload: str, speed: float, *, cpu: float, wrong: list[str]) -> Throughput:
    return Throughput(
        scheduler=scheduler,
        workload=workload,
        nodes=5_000,
        pods=10_000,
        pods_per_second=speed,
        cpu_millis_per_pod=cpu,
        rss_mb=200.0,
        peak_rss_mb=230.0,
        last_event_seconds=1.0,
        events=10_000,
        wrong=wrong,
        load_average=0.5,
    )


def latency(scheduler: str, p50: float, p99: float) -> Latency:
    return Latency(
        scheduler=scheduler,
        nodes=5_000,
        pods_per_second=300,
        created_per_second=299.0,
        p50_millis=p50,
        p90_millis=p50 + 1,
        p99_millis=p99,
        max_millis=p99 + 1,
        bound=4_500,
    )


def test_each_row_is_the_median_of_its_runs_and_ours_has_the_ratio(snapshot: SnapshotAssertion) -> None:
    plain, spread = "SchedulingBasic", "TopologySpreading"
    speeds = {"ours": (1_900.0, 1_700.0, 2_400.0), "kube": (500.0, 470.0, 520.0)}
    found: list[Throughput | Latency | Start] = [
        throughput(scheduler, plain, speed, cpu=0.3 if scheduler == "ours" else 1.8, wrong=[])
        for scheduler, of_scheduler in speeds.items()
        for speed in of_scheduler
    ]
    found.append(throughput("ours", spread, 1_500.0, cpu=0.4, wrong=["2 pods have no event"]))
    found += [latency("ours", 4.0, 28.0), latency("ours", 6.0, 90.0), latency("ours", 5.0, 30.0)]
    found.append(latency("kube", 21.0, 151.0))
    found += [Start("ours", 5_000, 10_000, seconds) for seconds in (1.3, 1.2, 2.5)]
    found.append(Start("kube", 5_000, 10_000, 1.0))

    text = StringIO()
    show(found, Console(file=text, width=160))
    assert text.getvalue() == snapshot


NAMED = ["--part", "end-to-end"]
WHOLE_TABLE = {"SchedulingBasic", "TopologySpreading", "SchedulingPodAntiAffinity", "SchedulingPreferredPodAffinity"}


@pytest.mark.parametrize(
    ("arguments", "control_plane", "times"),
    [(NAMED, True, "5"), ([*NAMED, "--times", "2"], True, "2"), (NAMED, False, None)],
)
def test_the_part_measures_the_whole_table_where_there_is_a_kube_scheduler(
    arguments: list[str],
    control_plane: bool,
    times: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[list[str]] = []

    def measure(options: list[str]) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr(benchmarks, "end_to_end", measure)
    monkeypatch.setattr(benchmarks, "schedulers", lambda: ["ours", "kube"] if control_plane else ["ours"])

    assert benchmarks.main([*arguments, "--out", str(tmp_path)]) == 0
    (options,) = asked
    only = {value for option, value in pairwise(options) if option == "--only"}
    assert dict(pairwise(options)).get("--times") == times
    assert only == (WHOLE_TABLE if control_plane else set())
    assert ("KUBEBUILDER_ASSETS" in capsys.readouterr().out) is not control_plane
