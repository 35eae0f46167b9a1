"""The demo's cpu measurements: what they start ends with them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kube_policy_scheduler.demo.measurements import Measurements
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.long


async def test_an_interrupted_start_leaves_no_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never_ready, started = tmp_path / "prometheus", tmp_path / "pid"
    never_ready.write_text(f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 600\n")
    never_ready.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    async def start() -> None:
        async with Measurements({"node-1": 50.0}, directory=tmp_path):
            raise AssertionError("it has no sample")

    starting = asyncio.create_task(start())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not started.exists():  # noqa: ASYNC110 (only the file tells)
            await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
