"""A synthetic API server and Prometheus in a process of its own, on the loopback interface.

`python -m tests.benchmarks.scale.api NODES PODS` prints its port, and ends when its standard input does. It serves
lists of nodes and pods in pages, watches that stay open, empty lists of everything else, and instant queries. The lists
are made while they are asked for: they would take gigabytes. They come as from kube-apiserver: in chunks, and with gzip
where the client accepts it.

`POST /renew/nodes` or `/renew/pods`: the list has a new resource version, and watches of older ones end with
"410 Gone", so that it is read again; as after most outages, the objects are the same.

`POST /create/pods?count=N`: the watch shows so many new pods. A binding of one is shown at once, then what the kubelet
reports, and soon the end of the pod. `GET /counts` says how many there were of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.scale import recorded
from tests.children import child

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bTransfer-Encoding: chunked\r\n\r\n"
_GZIP = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
_GZIP_LEVEL, _GZIP_FROM_BYTES, _CHUNK_BYTES = 1, 128 << 10, 2048
"""As in kube-apiserver; shorter lists are not compressed. Go's HTTP server makes chunks of so many bytes."""
_SUCCESS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
_ITEM = b'{"metadata":{"name":'
_KINDS = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}
_GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,'
    b'"message":"too old resource version"}}\n'
)
_KUBELET_SECONDS = (0.1, 0.2, 0.3)
"""After the binding: when the kubelet reports the pod."""
_ENDS_SECONDS = 1.0
_KEPT_LINES = 2_000
"""Of the watch of pods: one that opens late gets what it missed, as from the real API server."""
_YIELD = 50
"""Objects made between two turns of the loop, so that watches and other requests are served meanwhile."""


class _Server:
    def __init__(self, *, nodes: int, pods: int) -> None:
        self._totals = {"Node": nodes, "Pod": pods}
        self._versions = {"Node": 1, "Pod": 1}
        self._oldest = {"Node": 0, "Pod": 0}
        """The versions from which on a watch can continue."""
        self._watching: set[asyncio.StreamWriter] = set()
        """The watches of pods."""
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=_KEPT_LINES)
        """What they were shown last, with its resource version."""
        self._made = pods
        self._counts = {"created": 0, "bound": 0, "ended": 0, "events": 0}
        self._renewed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._queries = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                verb, target, _ = head[0].split(" ")
                headers = dict(entry.lower().split(": ", 1) for entry in head[1:] if ": " in entry)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                url = urlsplit(target)
                asked = {key: values[0] for key, values in parse_qs(url.query or body.decode()).items()}
                if asked.get("watch"):
                    await self._watch(_KINDS.get(url.path, ""), asked, writer)
                else:
                    answer = self._written(url.path, body, asked) if verb == "POST" else None
                    if answer is None:
                        answer = await self._answer(verb, url.path, asked)
                    if url.path in _KINDS:
                        accepts_gzip = "gzip" in headers.get("accept-encoding", "")
                        await self._list(answer, writer, accepts_gzip=accepts_gzip)
                    else:
                        writer.write(_HEAD % len(answer))
                        writer.write(answer)
                    await writer.drain()
        writer.close()

    async def _list(self, body: bytes, writer: asyncio.StreamWriter, *, accepts_gzip: bool) -> None:
        """Send a list as kube-apiserver does: compressed, or each item in two chunks."""
        is_gzip = accepts_gzip and len(body) >= _GZIP_FROM_BYTES
        if is_gzip:
            body = await asyncio.to_thread(zlib.compress, body, _GZIP_LEVEL, 16 + zlib.MAX_WBITS)
        size = _CHUNK_BYTES if is_gzip else max(_CHUNK_BYTES, len(body) // (2 * body.count(_ITEM) + 1))
        writer.write(_CHUNKED % (_GZIP if is_gzip else b""))
        pieces = (body[at : at + size] for at in range(0, len(body), size))
        writer.write(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")

    async def _answer(self, verb: str, path: str, asked: dict[str, str]) -> bytes:
        if path.startswith("/renew/"):
            kind = _KINDS[f"/api/v1/{path.rsplit('/', 1)[1]}"]
            self._versions[kind] += 1
            self._oldest[kind] = self._versions[kind]
            self._renewed.pop(kind, asyncio.Event()).set()
            return b"{}"
        if path == "/counts":
            return json.dumps(self._counts).encode()
        if path.endswith("/query"):
            self._queries += 1
            at = float(asked.get("time", "1800000000"))
            return recorded.series(self._totals["Node"], promql=asked["query"], at=at, offset=self._queries)
        kind = _KINDS.get(path, "")
        if not kind:
            return recorded.page("Thing", (), version=1)
        total, version = self._totals[kind], self._versions[kind]
        first, size = int(asked.get("continue", "0")), int(asked.get("limit", str(total)))
        items: list[bytes] = []
        for number in range(first, min(first + size, total)):
            items.append(
                recorded.node(number)
                if kind == "Node"
                else recorded.pod(number, node_name=f"node-{number % self._totals['Node']}")
            )
            if not number % _YIELD:
                await asyncio.sleep(0)
        token = str(first + size) if first + size < total else ""
        has_selector = "fieldSelector" in asked or "labelSelector" in asked
        remaining = total - first - size if token and not has_selector else None
        return recorded.page(kind, items, version=version, token=token, remaining=remaining)

    def _written(self, path: str, body: bytes, asked: dict[str, str]) -> bytes | None:
        """Take in what is created: pods, a binding or an event; return None if it is something else."""
        if path == "/create/pods":
            first, self._made = self._made, self._made + int(asked["count"])
            for number in range(first, self._made):
                self._show("ADDED", number)
            self._counts["created"] += self._made - first
            return b"{}"
        if path.endswith("/binding"):
            number = int(path.split("/")[-2].rpartition("-")[2])
            node_name = json.loads(body)["target"]["name"]
            if not number < self._made:
                return _SUCCESS  # not one of those that the watch showed
            self._counts["bound"] += 1
            self._show("MODIFIED", number, node_name)
            loop = asyncio.get_running_loop()
            for seconds in _KUBELET_SECONDS:
                loop.call_later(seconds, self._show, "MODIFIED", number, node_name)
            loop.call_later(_ENDS_SECONDS, self._end, number, node_name)
            return _SUCCESS
        if path.endswith("/events"):
            self._counts["events"] += 1
            return body
        return None

    def _show(self, kind: str, number: int, node_name: str = "") -> None:
        self._versions["Pod"] += 1
        line = recorded.line(kind, recorded.pod(number, node_name=node_name, version=self._versions["Pod"]))
        self._watching = {writer for writer in self._watching if not writer.is_closing()}
        chunk = b"%x\r\n%b\r\n" % (len(line), line)
        self._lines.append((self._versions["Pod"], chunk))
        for writer in self._watching:
            writer.write(chunk)

    def _end(self, number: int, node_name: str) -> None:
        self._show("DELETED", number, node_name)
        self._counts["ended"] += 1

    async def _watch(self, kind: str, asked: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        if int(asked["resourceVersion"]) >= self._oldest.get(kind, 0):
            if kind == "Pod":
                seen = int(asked["resourceVersion"])
                writer.write(b"".join(chunk for version, chunk in self._lines if version > seen))
                self._watching.add(writer)
            try:
                await self._renewed[kind].wait()
            finally:
                self._watching.discard(writer)
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_GONE), _GONE))
        await writer.drain()


async def _main(nodes: int, pods: int) -> None:
    server = await asyncio.start_server(_Server(nodes=nodes, pods=pods).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextlib.contextmanager
def synthetic_api(*, nodes: int, pods: int) -> Iterator[str]:
    """Start the server in a process of its own and return its URL; it ends with the context."""
    command = [sys.executable, "-m", "tests.benchmarks.scale.api", str(nodes), str(pods)]
    with child(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
