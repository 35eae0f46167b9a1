"""`policyctl dataset` where a transcript does not reach: Ctrl-C, and metrics of a Prometheus."""

from __future__ import annotations

import csv
import gc
import http.server
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from pyarrow import parquet

from kube_policy_scheduler.cli.commands import dataset
from tests.adapters.test_prometheus import Answer, answering
from tests.cli.transcript import command

FILES = {
    "config.yaml": "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
    "policies: {extensions: [onnx]}\n",
    "learned.policy": 'score model("m.onnx", promql("cpu") ?? 0, node.free.cpu / 1core)\n',
    "cluster.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
    'status: {allocatable: {cpu: "64", memory: 16Gi, pods: "110"}}\n',
    "pods.yaml": "pods:\n- {name: web, cpu: 1, mem: 1Gi, count: 30, every: 10s}\n",
    "decisions.jsonl": "".join(
        json.dumps(
            {
                "version": 1,
                "time": at,
                "outcome": "assigned",
                "node": "a",
                "pod": {"metadata": {"name": f"p{at}", "namespace": "shop"}},
            }
        )
        + "\n"
        for at in (1_767_225_600, 1_767_225_900)
    ),
}
ASKED = "policyctl dataset learned.policy --config config.yaml --cluster cluster.yaml --output rows.csv"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


def rows() -> list[dict[str, str]]:
    with Path("rows.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("source", ["--pods pods.yaml", "--record decisions.jsonl"])
def test_ctrl_c_keeps_the_rows_that_are_done(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, code = command(f"{ASKED} {source}", tmp_path)
    assert code == 0
    every = rows()

    @contextmanager
    def pressed() -> Iterator[Callable[[], bool]]:
        asked = iter([False] * (len(every) // 2))
        yield lambda: next(asked, True)

    monkeypatch.setattr(dataset, "interruptible", pressed)
    _, code = command(f"{ASKED} {source}", tmp_path)
    assert code == 130
    assert 0 < len(rows()) < len(every)
    assert rows() == every[: len(rows())]


def _number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize("options", ["--output rows.parquet", "--output rows.table --format parquet"])
def test_parquet_has_the_rows_of_the_csv_file(options: str, tmp_path: Path) -> None:
    printed, code = command(f"{ASKED} --record decisions.jsonl", tmp_path)
    assert code == 0, printed
    wanted = rows()
    printed, code = command(f"{ASKED} --record decisions.jsonl {options}", tmp_path)
    assert code == 0, printed
    found = parquet.read_table(options.split()[1]).to_pylist()
    assert len(found) == 2
    for row, other in zip(wanted, found, strict=True):
        assert {
            key: value if key in ("pod", "node") else float(value) if value else None for key, value in row.items()
        } == other


def test_parquet_of_a_command_that_fails_is_closed_and_not_written(tmp_path: Path) -> None:
    Path("pods.csv").write_text("name,cpu_milli,memory_mib,creation_time\n")
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib\na,4000,8192\n")
    asked = ASKED.replace("rows.csv", "rows.parquet").replace("cluster.yaml", "nodes.csv")
    printed, code = command(f"{asked} --pods pods.csv", tmp_path)
    assert code == 2
    assert "the list has no pods" in printed
    gc.collect()  # a writer that is not closed complains here: warnings are errors
    assert not Path("rows.parquet").exists()


def test_parquet_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    printed, code = command(f"{ASKED} --record decisions.jsonl --output rows.parquet", tmp_path)
    assert code == 2
    assert printed.startswith("Error: Parquet needs pyarrow: run ")
    assert not Path("rows.parquet").exists()


def test_metrics_of_the_time_of_a_log_come_from_prometheus(tmp_path: Path) -> None:
    """The answer's values are the seconds since the first decision."""
    asked: list[tuple[str, float, float]] = []

    def reply(handler: http.server.BaseHTTPRequestHandler) -> Answer:
        query = parse_qs(urlsplit(handler.path).query)
        start, end, step = (float(query[key][0]) for key in ("start", "end", "step"))
        asked.append((query["query"][0], start, end))
        times = [start + at * step for at in range(int((end - start) // step) + 1)]
        values = [[at, f"{at - 1_767_225_600:g}"] for at in times]
        result = [{"metric": {"node": "a"}, "values": values}]
        return 200, "application/json", json.dumps({"data": {"resultType": "matrix", "result": result}})

    with answering(reply) as url:
        more = f"--record decisions.jsonl --prometheus-url {url} --step 60s --outcome later=cpu@10min"
        printed, code = command(f"{ASKED} {more}", tmp_path)
    assert code == 0, printed
    assert asked == [("cpu", 1_767_225_300, 1_767_226_800)], (
        "from 5 min before the first to 5 min after the last outcome"
    )
    found = [(row['promql("cpu") ?? 0'], row["node.free.cpu / 1core"], row["later"]) for row in rows()]
    assert found == [("0", "64", "600"), ("300", "64", "900")]


def test_metrics_of_another_time_than_the_log_are_said(tmp_path: Path) -> None:
    Path("old.csv").write_text("time,node,cpu\n2020-01-01T00:00:00Z,a,1\n2020-01-01T00:01:00Z,a,1\n")
    printed, _ = command(f"{ASKED} --record decisions.jsonl --metrics old.csv", tmp_path)
    assert (
        "no metric has a sample in the time of the decisions, 2026-01-01T00:00:00Z to 2026-01-01T00:05:00Z" in printed
    )
