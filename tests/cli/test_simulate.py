"""`policyctl simulate` where a transcript does not reach: Ctrl-C."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.commands import simulate
from kube_policy_scheduler.cli.main import run

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: a1}
status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
"""
PODS = "pods:\n- {name: web, cpu: 1, mem: 1Gi, count: 30, every: 10s, lasts: 1min}\n"


@pytest.mark.parametrize(
    ("seeds", "said", "runs"),
    [
        (0.2, "the run of kubernetes is partial: it ends after", [1]),
        (0.8, "the run of b is partial: it ends after", [1, 1]),
        (2.5, "stopped: these are the results of 2 of 4 seeds", [2, 2]),
    ],
)
def test_ctrl_c_keeps_the_runs_that_are_complete(
    seeds: float,
    said: str,
    runs: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"b.policy": "score most_allocated()", "cluster.yaml": CLUSTER, "pods.yaml": PODS}.items():
        Path(name).write_text(text)
    asked, stops_at = 0, math.inf

    @contextmanager
    def pressed() -> Iterator[Callable[[], bool]]:
        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > stops_at

        yield stop

    monkeypatch.setattr(simulate, "interruptible", pressed)
    both = ("simulate", "b.policy", "--against", "kubernetes")
    more = ("--format", "json", "--cluster", "cluster.yaml", "--pods", "pods.yaml")
    assert run([*both, *more]) == 0
    capsys.readouterr()
    asked, stops_at = 0, seeds * asked
    assert run([*both, *more, "--seeds", "4"]) == 130
    shown = capsys.readouterr()
    assert said in shown.err
    assert [len(each["runs"]) for each in json.loads(shown.out)["variants"]] == runs
