"""Karmada's own programs as processes, and its own definitions, where KARMADA_ASSETS names a folder with them.

The folder has `karmada-scheduler`, `karmada-scheduler-estimator`, `karmada-controller-manager` and `karmada-webhook`,
and `crds/` with the definitions of Karmada's chart. The control plane is that of KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.children import child
from tests.integration.control_plane import assets as control_plane_assets

END_SECONDS = 15.0


def assets() -> Path | None:
    """Return the folder with the programs, None where none is named."""
    named = os.environ.get("KARMADA_ASSETS")
    return Path(named) if named and control_plane_assets() is not None else None


def program(name: str) -> Path:
    """Return where a program is; skip the test where there is none."""
    folder = assets()
    if folder is None or not (folder / name).exists():
        pytest.skip(f"needs KUBEBUILDER_ASSETS, and KARMADA_ASSETS with {name}")
    return folder / name


def definitions(*groups: str) -> list[dict[str, Any]]:
    """Return Karmada's own definitions of some API groups; none where there are no assets."""
    folder = assets()
    if folder is None:
        return []
    found = [yaml.safe_load(path.read_text()) for path in sorted((folder / "crds").glob("*.yaml"))]
    return [each for each in found if each["spec"]["group"] in groups]


def free_port() -> int:
    """Return a port that nobody listens at; another process may take it before it is used."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], *, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, and end it by its process id."""
    with log.open("wb") as out:
        process = child([str(each) for each in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")


def karmada_scheduler_command(kubeconfig: Path) -> list[str]:
    """Return how karmada-scheduler is started; skip the test where there is none."""
    return [
        str(program("karmada-scheduler")),
        f"--kubeconfig={kubeconfig}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        "--leader-elect=false",
        "--kube-api-qps=5000",  # its own limit of 40 would be all that is measured
        "--kube-api-burst=5000",
    ]


@contextmanager
def karmada_scheduler(kubeconfig: Path, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run karmada-scheduler as the scheduler `default-scheduler`; skip the test where there is none."""
    with running([*karmada_scheduler_command(kubeconfig), *arguments], log=log) as process:
        yield process
