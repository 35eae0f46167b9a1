"""The real kube-scheduler of KUBEBUILDER_ASSETS, with an extender if there is to be one; ended by its process id."""

from __future__ import annotations

import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
import yaml

from tests.integration.control_plane import ControlPlane, assets

Json = dict[str, Any]


def needed(control_plane: ControlPlane | None) -> Path:
    """Return the program; skip the test where there is none."""
    programs = assets()
    if control_plane is None or programs is None or not (programs / "kube-scheduler").exists():
        pytest.skip("needs the real kube-scheduler: KUBEBUILDER_ASSETS names no folder that has one")
    return programs / "kube-scheduler"


class KubeScheduler:
    """A context manager: kube-scheduler for the pods of `default-scheduler`."""

    def __init__(
        self, program: Path, directory: Path, *, kubeconfig: Path, extenders: list[Json] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "kube-scheduler.log"
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "extenders": extenders or [],
        }
        config = directory / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(configuration))
        self._arguments = [str(program), f"--config={config}", "--secure-port=0", "-v=2"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KubeScheduler:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        print(f"--- log of kube-scheduler\n{self.log()[-6000:]}")

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


class Recorder:
    """A context manager: passes POST requests on to another server, and keeps them with their answers."""

    def __init__(self, target: str) -> None:
        self.kept: list[tuple[str, bytes, int, bytes]] = []
        """Path, body, code, answer."""
        recorder = self
        session = requests.Session()
        session.trust_env = False

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {"Content-Type": self.headers["Content-Type"]}
                answer = session.post(target + self.path, data=body, headers=headers, timeout=30)
                recorder.kept.append((self.path, body, answer.status_code, answer.content))
                self.send_response(answer.status_code)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._session = session

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._session.close()

    def of(self, verb: str) -> list[tuple[bytes, bytes]]:
        """Return the requests of a verb with their answers."""
        return [(body, answer) for path, body, _, answer in self.kept if path.endswith(f"/{verb}")]
