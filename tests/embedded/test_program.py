"""`python -m kube_policy_scheduler.embedded` serves until it gets a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.embedded.rest import Client
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.long

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a"},
    "status": {"capacity": {"cpu": "1", "pods": "5"}},
}


def test_the_program_serves_what_it_was_given_and_ends_when_asked(tmp_path: Path) -> None:
    objects, kubeconfig = tmp_path / "nodes.json", tmp_path / "kubeconfig"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE]}), encoding="utf-8")
    arguments = ["--port", "0", "--nodes", str(objects), "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(
        [sys.executable, "-m", "kube_policy_scheduler.embedded", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            listed = Client(url).send("GET", "/api/v1/nodes")
            assert [item["metadata"]["name"] for item in listed.body["items"]] == ["a"]
            assert yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"] == url
            assert kubeconfig.stat().st_mode & 0o077 == 0
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
