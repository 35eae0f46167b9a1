"""Serves the playground's page on this machine and carries its questions to a session.

A client needs the token, which is in the fragment of the address: no browser sends that. Every answer that is not
a file of the page needs it. One thread answers: while it works, the newest evaluation waits and older ones are void.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from kube_policy_scheduler.adapters.http.access import token_of
from kube_policy_scheduler.adapters.http.limits import HANDLER_LIMITS
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.playground.live_tests import TestedFile
from kube_policy_scheduler.playground.opening import examples, start_fleet
from kube_policy_scheduler.playground.session import (
    CapturedTest,
    Checkpoint,
    Files,
    Measure,
    OpenedCluster,
    Origin,
    PodChoice,
    RequestError,
    Session,
    Superseded,
    WorkloadChoice,
    check_files,
)
from kube_policy_scheduler.playground.sharing import FORMAT, Share, SharedCluster, link_of, shared_text
from kube_policy_scheduler.playground.worker import Busy, Job, TooLong, Worker

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_REQUEST_BYTES = 2 * 2**20
MOST_WAITING = 16
"""Requests that wait for the thread; more are refused."""
MOST_PAGES = 64
"""Pages whose newest work is known; that of the one that was silent for the longest is void."""
ANSWER_SECONDS = 20.0
"""After which an answer is given up."""
PATIENCE_SECONDS = 2.0
"""How long an evaluation that nobody waits for any more may hold up a newer one."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "policyctl",
}
_KINDS: Mapping[str, str] = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_SIMULATION_SECONDS = 60.0
_TEST_SECONDS = 60.0
_READING_SECONDS = 120.0
"""The same for what reads clusters."""
_T = TypeVar("_T")


class FileChanged(RequestError):
    """A file is not what the page believes it to be, so it is not replaced."""

    def __init__(self, message: str, text: str) -> None:
        """Say it; text: what is in the file now."""
        super().__init__(message)
        self.text = text


class PortTaken(Exception):
    """The server cannot listen at its port."""


class _Request(msgspec.Struct, frozen=True):
    """Members that a request does not name are ignored: a page may be newer."""


class _OnFiles(_Request, frozen=True):
    files: Files


class _OnFile(_OnFiles, frozen=True):
    file: str


class _Place(_OnFile, frozen=True):
    offset: int


class _Completed(_Place, frozen=True):
    fleet: str = ""


class _OnPod(_OnFiles, frozen=True):
    pod: PodChoice


class _Evaluate(_OnPod, frozen=True, kw_only=True, rename="camel"):
    id: int
    page: str = ""
    against: Files | None = None
    clause: int | None = None
    names_version: int | None = None
    workload: WorkloadChoice | None = None


class _Lint(_OnFiles, frozen=True):
    page: str = ""


class _Values(_OnPod, frozen=True, kw_only=True):
    clause: int
    side: Literal["main", "against"] = "main"


class _Node(_OnPod, frozen=True):
    node: str


class _Pod(_Request, frozen=True):
    key: str


class _Simulate(_OnFiles, frozen=True):
    page: str = ""
    seed: int = 0
    count: int = 0


class _Share(_OnPod, frozen=True):
    cluster: bool = True
    fleet: str = ""


class _EditFleet(_Request, frozen=True):
    yaml: str
    cluster: str | None
    """None: the workload."""
    key: str
    value: str


class _Save(_Request, frozen=True, rename="camel"):
    file: str
    text: str
    replaced: str
    """What the caller believes to be in the file."""


class _Assume(_Request, frozen=True):
    now: str
    metrics: str


class _SaveTest(_OnPod, frozen=True, kw_only=True, rename="camel"):
    path: str
    replace: bool = False
    dry_run: bool = False
    workload: WorkloadChoice | None = None
    """Instead of the pod."""


class _Open(_Request, frozen=True):
    path: str = ""
    live: bool = False


class Doors(Protocol):
    """What leads out of the page: files and clusters. All of it runs in a thread, and raises a `RequestError`."""

    def open(self, path: str) -> tuple[OpenedCluster, Measure]:
        """Return the cluster in a file below the folder that the command was started in."""

    def live(self) -> tuple[OpenedCluster, Measure]:
        """Return the cluster of the kubeconfig, listed now."""

    def refresh(self) -> tuple[OpenedCluster, Measure]:
        """Return the cluster that was opened last as it is now."""

    def save(self, name: str, text: str, *, replaced: str) -> None:
        """Write a policy back to the file that it was opened from, unless the file has another text by now.

        Raises:
            FileChanged: it has.
        """

    def run_tests(self, texts: Mapping[str, str]) -> list[TestedFile]:
        """Return how the cases of the test files beside the policies end, with these texts of the policies."""

    def save_test(self, made: CapturedTest, path: str, *, replace: bool, dry_run: bool) -> tuple[str, str]:
        """Write a test below the folder that the command was started in; return its path and its text."""


class NoDoors:
    """A page that can neither open nor write anything."""

    def open(self, path: str) -> tuple[OpenedCluster, Measure]:
        """Refuse."""
        raise RequestError("this playground opens no other files")

    def live(self) -> tuple[OpenedCluster, Measure]:
        """Refuse."""
        raise RequestError("this playground opens no other clusters")

    def refresh(self) -> tuple[OpenedCluster, Measure]:
        """Refuse."""
        raise RequestError("this cluster does not change")

    def save(self, name: str, text: str, *, replaced: str) -> None:
        """Refuse."""
        raise RequestError("this playground writes no files")

    def run_tests(self, texts: Mapping[str, str]) -> list[TestedFile]:
        """Return nothing: no files are beside these policies."""
        return []

    def save_test(self, made: CapturedTest, path: str, *, replace: bool, dry_run: bool) -> tuple[str, str]:
        """Refuse."""
        raise RequestError("this playground writes no files")


class Newest:
    """The newest work for each page; it makes that before it void. Several pages may ask one server."""

    def __init__(self) -> None:
        """Begin without any."""
        self._jobs: dict[str, Job] = {}

    def replace(self, page: str, job: Job) -> Job | None:
        """Take newer work for a page, and return the older."""
        before = self._jobs.pop(page, None)
        if len(self._jobs) >= MOST_PAGES:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[page] = job
        return before

    def checkpoint(self, page: str) -> Checkpoint:
        """Return what ends work once there is newer for its page."""
        mine = self._jobs.get(page)

        def go_on() -> None:
            if self._jobs.get(page) is not mine:
                raise Superseded

        return go_on

    def clear(self) -> None:
        """Make all work void."""
        self._jobs.clear()


@dataclass(frozen=True, slots=True)
class Answered:
    """What one kind of question takes and who answers it; in the thread."""

    takes: type
    answer: Callable[[Any], Any]
    seconds: float = ANSWER_SECONDS
    """After which it is given up."""


class Playground:
    """The server. Use it as a context: it listens from its beginning to its end."""

    def __init__(
        self, session: Session, *, doors: Doors | None = None, port: int = 0, token: str | None = None
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            session: answers.
            doors: opens and writes files; None: nothing does.
            port: 0 takes a free one.
            token: who knows it may ask; None makes one.
        """
        self._session = session
        self._doors = doors or NoDoors()
        self._port = port
        self._token = token or secrets.token_urlsafe(24)
        self.asked = 0
        """Evaluations that came so far."""
        self._evaluations = Newest()
        self._simulations = Newest()
        self._simulating = Worker("playground-simulation", most_waiting=MOST_WAITING)
        self._reading = Worker("playground-reading", most_waiting=1)
        """Reads clusters, which may take long; meanwhile, the page can be used."""
        self._testing = Worker("playground-tests", most_waiting=2)
        self._worker = Worker("playground", most_waiting=MOST_WAITING, recover=session.reopen)
        self._server: asyncio.Server | None = None
        self._stack = contextlib.AsyncExitStack()
        self._origin = ""

    @property
    def url(self) -> str:
        """Return the address to open, with the token."""
        return f"{self._origin}/#{self._token}"

    @property
    def waiting(self) -> int:
        """Return how many requests wait for an answer of the session."""
        return self._worker.waiting

    async def __aenter__(self) -> Playground:
        """Listen.

        Raises:
            PortTaken: the port is taken or not allowed.
        """
        app = web.Application(middlewares=[self._guard, _said], client_max_size=MOST_REQUEST_BYTES)
        app.on_response_prepare.append(_add_headers)
        for path, (content, kind) in _page().items():
            app.router.add_get(path, _file(content, kind))
        for path, answered in self._questions().items():
            app.router.add_post(f"/api/{path}", self._answering(answered))
        app.router.add_post("/api/evaluate", self._evaluate)
        app.router.add_post("/api/lint", self._lint)
        app.router.add_post("/api/open", self._open)
        app.router.add_post("/api/refresh", self._refresh)
        app.router.add_post("/api/simulate", self._simulate)
        app.router.add_post("/api/tests", self._tests)
        async with contextlib.AsyncExitStack() as stack:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, **HANDLER_LIMITS)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            stack.callback(self._worker.end)
            stack.callback(self._simulating.end)
            stack.callback(self._reading.end)
            stack.callback(self._testing.end)
            site = web.TCPSite(runner, HOST, self._port, backlog=32)
            try:
                await site.start()
            except OSError as error:
                reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
                raise PortTaken(f"cannot listen at {HOST}:{self._port}: {reason}") from error
            self._origin = f"http://{HOST}:{runner.addresses[0][1]}"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; what is under way is void."""
        self._evaluations.clear()
        self._simulations.clear()
        await self._stack.aclose()

    # --- guards ------------------------------------------------------------------------------------------

    @property
    def _guard(self) -> Any:
        """Return the middleware that keeps everybody out but the page itself, at its own address."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            port = self._origin.rpartition(":")[2]
            hosts = {f"{HOST}:{port}", f"localhost:{port}"}
            if request.headers.get("Host", "") not in hosts:
                return _refused(421, f"this server answers only at {self._origin}")
            origin = request.headers.get("Origin")
            if origin is not None and origin not in {f"http://{host}" for host in hosts}:
                return _refused(403, "another web page must not ask this server")
            if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                return _refused(403, "another web page must not ask this server")
            if not request.path.startswith("/api/"):
                return await handler(request)
            given = token_of(request.headers.get("Authorization", ""))
            # a header may have any bytes
            if not hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
                return _refused(401, "the token is missing or wrong: open the address that policyctl printed")
            if request.content_type != "application/json":
                return _refused(415, f"expected application/json, got {request.content_type}")
            return await handler(request)

        return guarded

    # --- questions ---------------------------------------------------------------------------------------

    def _questions(self) -> Mapping[str, Answered]:
        session = self._session
        return {
            "state": Answered(_Request, lambda _: self._state()),
            "values": Answered(
                _Values, lambda asked: {"values": session.values(asked.files, asked.pod, asked.clause, side=asked.side)}
            ),
            "complete": Answered(
                _Completed,
                lambda asked: {"items": session.complete(asked.files, asked.file, asked.offset, fleet=asked.fleet)},
            ),
            "hover": Answered(_Place, lambda asked: session.hover(asked.files, asked.file, asked.offset)),
            "format": Answered(_OnFile, lambda asked: {"text": session.format(asked.files, asked.file)}),
            "node": Answered(_Node, lambda asked: session.node(asked.files, asked.pod, asked.node)),
            "pod": Answered(_Pod, lambda asked: {"yaml": session.pod_text(asked.key)}),
            "why": Answered(_OnPod, lambda asked: session.why(asked.files, asked.pod)),
            "command": Answered(_OnPod, lambda asked: {"command": session.command(asked.files, asked.pod)}),
            "edit-fleet": Answered(
                _EditFleet,
                lambda asked: {"yaml": session.edit_fleet(asked.yaml, asked.cluster, asked.key, asked.value)},
            ),
            "share": Answered(_Share, self._share),
            "inputs": Answered(_OnFiles, lambda asked: session.inputs(asked.files)),
            "assume": Answered(_Assume, self._assume),
            "save": Answered(_Save, self._save),
            "save-test": Answered(_SaveTest, self._save_test, _TEST_SECONDS),
        }

    def _state(self) -> dict[str, Any]:
        state, taken = self._session.state(), self._session.cluster.taken
        state["cluster"]["age"] = max(0.0, time.time() - taken) if taken is not None else None
        state["fleet"] = self._session.first_fleet or start_fleet()
        state["examples"] = [{"title": title, "files": files} for title, files in examples().items()]
        return state

    async def _open(self, request: web.Request) -> web.StreamResponse:
        asked = _decoded(await request.read(), _Open)
        doors = self._doors
        return await self._opened(doors.live if asked.live else lambda: doors.open(asked.path))

    async def _refresh(self, _: web.Request) -> web.StreamResponse:
        return await self._opened(self._doors.refresh)

    async def _opened(self, read: Callable[[], tuple[OpenedCluster, Measure]]) -> web.StreamResponse:
        found = await self._reading.do(read, seconds=_READING_SECONDS)

        def work() -> bytes:
            self._session.open(*found)
            return orjson.dumps(self._state(), option=_OPTIONS)

        return _json(await self._worker.do(work, seconds=_READING_SECONDS))

    async def _tests(self, request: web.Request) -> web.StreamResponse:
        """Run tests in a thread of their own: they take longer than the next key may wait."""
        asked = _decoded(await request.read(), _OnFiles)
        check_files(asked.files)
        found = await self._testing.do(lambda: self._doors.run_tests(asked.files), seconds=_TEST_SECONDS)
        return _json(msgspec.json.encode({"files": found}))

    def _share(self, asked: _Share) -> dict[str, Any]:
        session, cluster = self._session, self._session.cluster
        shared: SharedCluster | None = None
        if asked.cluster and cluster.origin is not Origin.FIXTURE:
            shared = SharedCluster(cluster.name, cluster.now, **session.recorded(asked.files))
        share = Share(FORMAT, asked.files, asked.pod, shared, asked.fleet)
        return {"file": shared_text(share), "link": link_of(share, self._origin)}

    def _assume(self, asked: _Assume) -> dict[str, Any]:
        self._session.assume(asked.now, asked.metrics)
        return self._state()

    def _save(self, asked: _Save) -> dict[str, Any]:
        check_files({asked.file: asked.text})
        self._doors.save(asked.file, asked.text, replaced=asked.replaced)
        self._session.opened[asked.file] = asked.text
        return {"saved": True}

    def _save_test(self, asked: _SaveTest) -> dict[str, Any]:
        session = self._session
        if asked.workload is not None:
            made = session.test_of_workload(asked.files, asked.workload)
        else:
            made = session.test_of(asked.files, asked.pod)
        path, text = self._doors.save_test(made, asked.path, replace=asked.replace, dry_run=asked.dry_run)
        return {"path": path, "text": text, "saved": not asked.dry_run}

    def _answering(self, answered: Answered) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked: Any = _decoded(await request.read(), answered.takes)
            work = lambda: orjson.dumps(answered.answer(asked), option=_OPTIONS)  # noqa: E731
            return _json(await self._worker.do(work, seconds=answered.seconds))

        return answer

    async def _evaluate(self, request: web.Request) -> web.StreamResponse:
        asked = _decoded(await request.read(), _Evaluate)
        self.asked += 1
        job = Job()
        before = self._evaluations.replace(asked.page, job)
        if before is not None:
            asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._worker.stop, before, Superseded())
        go_on = self._evaluations.checkpoint(asked.page)
        began = time.perf_counter()

        def work() -> bytes:
            go_on()
            found = self._session.evaluate(
                asked.files,
                asked.pod,
                against=asked.against,
                clause=asked.clause,
                known_names=asked.names_version,
                workload=asked.workload,
                go_on=go_on,
            )
            milliseconds = round(1000 * (time.perf_counter() - began), 1)
            return orjson.dumps({"id": asked.id, "ms": milliseconds, **found}, option=_OPTIONS)

        return _json(await self._worker.do(work, seconds=ANSWER_SECONDS, job=job))

    async def _lint(self, request: web.Request) -> web.StreamResponse:
        asked = _decoded(await request.read(), _Lint)
        go_on = self._evaluations.checkpoint(asked.page)

        def work() -> bytes:
            found: list[dict[str, Any]] | None = None  # where a newer evaluation came, which is no error
            with contextlib.suppress(Superseded):
                go_on()
                found = self._session.lint(asked.files, go_on=go_on)
            return orjson.dumps({"diagnostics": found})

        return _json(await self._worker.do(work, seconds=ANSWER_SECONDS))

    async def _simulate(self, request: web.Request) -> web.StreamResponse:
        asked = _decoded(await request.read(), _Simulate)
        self._simulations.replace(asked.page, Job())
        go_on = self._simulations.checkpoint(asked.page)
        simulated = self._session.simulation(asked.files)

        def work() -> bytes:
            go_on()
            return orjson.dumps(simulated(asked.seed, asked.count, go_on), option=_OPTIONS)

        return _json(await self._simulating.do(work, seconds=_SIMULATION_SECONDS))


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def _decoded(body: bytes, takes: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body or b"{}", type=takes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the request cannot be read: {error}") from error


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refused(status: int, text: str) -> web.Response:
    return _json(orjson.dumps({"error": text}), status=status)


@web.middleware
async def _said(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with a sentence where a question cannot be answered."""
    try:
        return await handler(request)
    except Superseded:
        return _refused(409, "void: a newer request came")
    except (TooLong, Busy) as error:
        return _refused(503, str(error) or "too many requests wait")
    except FileChanged as error:
        return _json(orjson.dumps({"error": str(error), "text": error.text}), status=412)
    except RequestError as error:
        return _refused(400, str(error))
    except DocumentError as error:
        return _refused(400, "; ".join(each.message for each in error.diagnostics[:5]))
    except web.HTTPException as error:
        return _refused(error.status, error.reason.lower())
    except Exception as error:
        log.exception("failed to answer %s", request.path)
        return _refused(500, f"unexpected error in policyctl: {type(error).__name__}")


def _page() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page by their paths, with their types; they are read once."""
    folder = resources.files("kube_policy_scheduler.playground") / "page"
    look = resources.files("kube_policy_scheduler.pages") / "templates" / "look.css"
    found: dict[str, tuple[bytes, str]] = {}
    for file in (*(folder.iterdir() if folder.is_dir() else ()), look):
        kind = _KINDS.get(PurePath(file.name).suffix)
        if kind is not None and file.is_file():
            found["/" if file.name == "index.html" else f"/{file.name}"] = file.read_bytes(), kind
    return found


def _file(content: bytes, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return answer


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
