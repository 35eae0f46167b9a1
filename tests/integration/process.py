"""The scheduler as a process: started, queried, signalled and ended by its process id."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from tests.exposition import unique_series
from tests.integration.conditions import eventually
from tests.integration.forked import Forked
from tests.patience import PATIENCE_SECONDS


class SchedulerProcess:
    """One `python -m kube_policy_scheduler.daemon`, with its log in a file.

    Args:
        command: started instead, from an empty interpreter.
        subcommand: of `policy-scheduler`, such as "fleet"; "" for the scheduler of pods.
    """

    def __init__(
        self,
        directory: Path,
        *,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        subcommand: str = "",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "scheduler.log"
        self._address_file = directory / "address"
        self._command = command
        self._arguments = [
            *([subcommand] if subcommand else []),
            "--http-address-file",
            str(self._address_file),
            *arguments,
        ]
        if not any(argument.startswith("--http-address=") for argument in arguments):
            self._arguments.append("--http-address=127.0.0.1:0")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KUBE", "PYTEST"))}
        self._environment = {**inherited, "HOME": str(directory), "NO_PROXY": "*", **(environment or {})}
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> SchedulerProcess:
        self._address_file.unlink(missing_ok=True)
        if self._command is None:
            self._process = Forked(self._arguments, environment=self._environment, log_file=self.log_file)
            return self
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command, *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def start_serving(self) -> SchedulerProcess:
        """Start and wait until probes are answered."""
        return self.start().wait_serving()

    def wait_serving(self) -> SchedulerProcess:
        """Wait until probes are answered."""
        eventually(lambda: self.address or not self.is_alive, else_=self.log)
        assert self.is_alive, f"ended with {self.exit_code()}: {self.log()}"
        return self

    def start_ready(self) -> SchedulerProcess:
        """Start and wait until /readyz says ok."""
        self.start_serving()
        eventually(lambda: self.get("/readyz")[0] == 200, else_=self.log)
        return self

    # --- signals and the end -------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, *, within: float = PATIENCE_SECONDS) -> int:
        """Wait for the end."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:g} s: {self.log()}") from None

    def terminate(self) -> int:
        """End in order and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.exit_code()

    def kill(self) -> None:
        """End at once, if it has not ended already."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    # --- what it says --------------------------------------------------------------------------------

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def log_entries(self) -> list[dict[str, Any]]:
        """Return the lines of a log in JSON."""
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    @property
    def address(self) -> str:
        """`HOST:PORT` of probes and metrics, empty before it listens."""
        return self._address_file.read_text().strip() if self._address_file.exists() else ""

    def get_securely(self, path: str, *, authorization: str = "") -> tuple[int, str]:
        """GET over TLS without checking the certificate, as kubelets and Prometheus do."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self.address, context=context, timeout=10)
        try:
            connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        """GET a path of its HTTP server; (0, reason) where nothing answers."""
        if "--http-secure" in self._arguments:
            return self.get_securely(path)
        session = requests.Session()
        session.trust_env = False
        try:
            with session, session.get(f"http://{self.address}{path}", timeout=5) as answer:
                return answer.status_code, answer.text
        except requests.ConnectionError as error:
            return 0, str(error)

    def metrics(self) -> dict[str, float]:
        """Return all samples by name with labels, as they are written; an empty owner is no label, as in Prometheus.

        No series may be there twice.
        """
        found: dict[str, float] = {}
        text = self.get("/metrics")[1]
        unique_series(text)
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[re.sub(r'\{owner=""\}|owner="",|,owner=""', "", name)] = float(value)
        return found

    def policies(self) -> dict[str, Any]:
        """Return what /policies says."""
        code, text = self.get("/policies")
        assert code == 200, text
        answer: dict[str, Any] = json.loads(text)
        return answer
