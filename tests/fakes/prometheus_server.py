"""A real Prometheus on loopback for tests: filled from the start (fast), or scraping (about six seconds).

server = PrometheusServer(tmp_path)
server.backfill({"cpu_usage": [({"node": "a"}, 10.0)]})
server.start()
... server.url ...
server.stop()          # and .start() again: same port, same data
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""Metric name to its series: labels and value."""


def require_prometheus() -> None:
    """Skip the test, or fail it under CI, where Debian's prometheus package is not installed."""
    if shutil.which("prometheus") and shutil.which("promtool"):
        return
    text = "prometheus and promtool are not installed: apt-get install --no-install-recommends prometheus"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


class PrometheusServer:
    """One process, one port, one data folder; ended by its process id."""

    def __init__(self, folder: Path) -> None:
        require_prometheus()
        self._folder = folder
        self._data = folder / "data"
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text("{}\n")
        self._log = folder / "prometheus.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> PrometheusServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL; stays the same over stop and start."""
        return f"http://127.0.0.1:{self._port}"

    def backfill(self, samples: Samples, *, age_seconds: float = 1.0) -> None:
        """Write samples of `age_seconds` ago; call before start, as often as there are ages."""
        assert self._process is None, "backfill before start"
        at = time.time() - age_seconds
        lines = []
        for name, series in samples.items():
            lines.append(f"# TYPE {name} gauge")
            for labels, value in series:
                pairs = ",".join(f"{label}={json.dumps(text)}" for label, text in labels.items())
                lines.append(f"{name}{{{pairs}}} {value} {at:.3f}")
        source = self._folder / "backfill.txt"
        source.write_text("\n".join([*lines, "# EOF", ""]))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(self._data)]
        subprocess.run(command, check=True, capture_output=True)

    def scrape(
        self,
        targets: Mapping[str, Mapping[str, str]] | Sequence[str],
        *,
        interval_seconds: float = 1.0,
        **options: object,
    ) -> None:
        """Scrape `host:port` targets, with extra labels where a mapping gives them; call before start.

        options: further ones of Prometheus' scrape_config.
        """
        assert self._process is None, "set targets before start"
        labels_by_target = targets if isinstance(targets, Mapping) else {target: {} for target in targets}
        interval = f"{int(interval_seconds * 1000)}ms"
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [
                {
                    "job_name": "test",
                    **options,
                    "static_configs": [
                        {"targets": [target], "labels": dict(labels)} for target, labels in labels_by_target.items()
                    ],
                }
            ],
        }
        self._configuration.write_text(json.dumps(configuration))  # JSON is YAML

    def start(self) -> None:
        """Start the process and wait until it answers."""
        assert self._process is None, "started twice"
        for _ in range(5):
            # a free port may be taken by someone else before Prometheus opens it
            port = self._port or _free_port()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        "prometheus",
                        f"--config.file={self._configuration}",
                        f"--storage.tsdb.path={self._data}",
                        f"--web.listen-address=127.0.0.1:{port}",
                    ],
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env={**os.environ, "GOMAXPROCS": "1"},
                )
            if self._ready(port):
                self._port = port
                return
            self.stop()
        raise RuntimeError(f"prometheus does not start: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End the process; its data stays for the next start."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def _ready(self, port: int) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as response:
                    if response.status == 200:
                        return True
            except (OSError, urllib.error.URLError):
                time.sleep(0.02)
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
