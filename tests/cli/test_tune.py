"""`policyctl tune` beyond its transcript: Ctrl-C, its page, JSON, and the experiment with seeds for windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.commands import tune
from kube_policy_scheduler.cli.main import run

POLICY = """\
let packing = 0.5 from 0.1 to 10
score least_allocated(cpu)
score packing * most_allocated(cpu)
"""
NODE = (
    "- {{apiVersion: v1, kind: Node, metadata: {{name: {}}}, "
    "status: {{allocatable: {{cpu: '8', memory: 32Gi, pods: '110'}}}}}}\n"
)
CLUSTER = "apiVersion: v1\nkind: List\nitems:\n" + "".join(NODE.format(name) for name in ("a", "b", "c"))
PODS = """\
pods:
- {name: web, cpu: 1, mem: 1Gi, count: 60, every: 60s, lasts: 10min}
- {name: wide, cpu: 6, mem: 2Gi, count: 12, every: 5min, lasts: 7min}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.policy": POLICY, "cluster.yaml": CLUSTER, "pods.yaml": PODS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def tuned(*more: str, cluster: str = "cluster.yaml", pods: str = "pods.yaml") -> int:
    return run(["tune", "a.policy", "--cluster", cluster, "--pods", pods, "--seeds", "1", "--jobs", "1", *more])


def test_ctrl_c_judges_what_was_found_and_the_next_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 0

    @contextmanager
    def pressed() -> Iterator[Callable[[], bool]]:
        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > 1

        yield stop

    with monkeypatch.context() as patched:
        patched.setattr(tune, "interruptible", pressed)
        assert tuned("--objective", "wait", "--trials", "12", "--record", "log", "--format", "json") == 130
    first = json.loads(capsys.readouterr().out)
    assert not first["complete"]
    assert len(first["trials"]) == 4
    assert tuned("--objective", "wait", "--trials", "12", "--record", "log", "--format", "json") in (0, 1)
    second = json.loads(capsys.readouterr().out)
    assert second["complete"]
    assert second["trials"][:4] == first["trials"]
    assert len(second["trials"]) == 12


def test_the_page_has_verdict_diff_and_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tuned("--objective", "nodes", "--trials", "8", "--html", "t.html", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    text = (folder / "t.html").read_text()

    assert found["verdict"].startswith("better: `nodes` -")
    assert "+let packing = " in found["difference"]
    assert "+let packing = " in text
    assert text.count("<svg") >= 4
    assert "<script" not in text


def test_with_until_seeds_take_the_place_of_windows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,65536,2,T4\nn2,32000,65536,2,T4\n")
    pods = "".join(f"p{at},1000,1024,1,{share}\n" for at, share in enumerate([250, 500, 750, 1000] * 5))
    (folder / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + pods)
    options = ("--until", "130%", "--objective", "unused", "--trials", "4", "--format", "json")

    assert tuned(*options, cluster="nodes.csv", pods="pods.csv") in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert [(one["for"], one["seed"]) for one in found["samples"]] == [
        ("search", 0), ("judge", 1), ("judge", 2), ("confirm", 3),
    ]  # fmt: skip
