"""A server between kube-scheduler and its extender: it passes requests on, and keeps them with their answers."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import requests


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
