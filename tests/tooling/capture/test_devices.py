"""Captured decisions about pods that claim devices: what is left has the same devices, or lacks the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.cli.main import run
from tests.tooling.snapshot.test_devices import LARGE, POLICY, items


@pytest.mark.parametrize("more", [(), ("--anonymise",)], ids=["plain", "anonymised"])
@pytest.mark.parametrize(
    ("pod", "devices", "kept"),
    [("pod-two", 2, ""), ("pod-same", 2, ""), ("pod-many", 0, "count: 4")],
)
def test_a_captured_decision_about_claims_is_a_test_that_passes(
    pod: str, devices: int, kept: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items()}))
    (tmp_path / "p.policy").write_text(POLICY)
    out = tmp_path / "c.test.yaml"
    arguments = ["capture", f"ml/{pod}", "--cluster", str(tmp_path / "real.json")]
    assert run([*arguments, "--policies", str(tmp_path / "p.policy"), "-o", str(out), *more]) == 0, capsys.readouterr()
    case: dict[str, Any] = yaml.safe_load(out.read_text())["cases"][0]
    assert len(case["expect"].get("devices", ())) == devices
    objects = (tmp_path / "c.cluster.yaml").read_text()
    assert kept in objects
    if pod == "pod-many":
        assert LARGE not in objects
        assert case["expect"]["unschedulable"] == {"clause": "DynamicResources"}
    assert run(["test", str(out)]) == 0, capsys.readouterr().out
    capsys.readouterr()
