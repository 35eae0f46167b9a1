"""The real kube-scheduler as a process, where KUBEBUILDER_ASSETS has one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.control_plane import assets

END_SECONDS = 15.0


def program() -> Path:
    """Return where it is; skip the test where there is none."""
    folder = assets()
    if folder is None or not (folder / "kube-scheduler").exists():
        pytest.skip("needs KUBEBUILDER_ASSETS with etcd, kube-apiserver and kube-scheduler")
    return folder / "kube-scheduler"


@contextmanager
def kube_scheduler(
    kubeconfig: Path, *, log: Path, extender: dict[str, Any] | None = None, gates: str = ""
) -> Iterator[None]:
    """Run it against a cluster, as the scheduler `default-scheduler`; skip the test where there is none."""
    configured = [f"--kubeconfig={kubeconfig}"]
    if extender is not None:
        config = log.with_suffix(".yaml")
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "percentageOfNodesToScore": 100,
            "extenders": [extender],
        }
        config.write_text(yaml.safe_dump(configuration))
        configured = [f"--config={config}"]
    command = [
        str(program()),
        *configured,
        "--leader-elect=false",
        "--secure-port=0",  # it serves nothing
        f"--feature-gates={gates}",
        "--v=2",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent)
        try:
            yield
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
