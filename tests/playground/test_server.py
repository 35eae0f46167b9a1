"""The server of the playground, asked by a real client: who may ask, and what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from kube_policy_scheduler.playground import server
from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.server import (
    HEADERS,
    MOST_PAGES,
    MOST_REQUEST_BYTES,
    MOST_WAITING,
    POLICY,
    FileChanged,
    Newest,
    NoDoors,
    Playground,
    PortTaken,
)
from kube_policy_scheduler.playground.session import Session, Superseded
from kube_policy_scheduler.playground.worker import Job
from tests.patience import PATIENCE_SECONDS

TOKEN = "a-token-of-tests"
POD = {"key": "shop/web-next"}


@pytest.fixture(scope="module")
def session() -> Session:
    started = start()
    now = started.cluster.now
    texts = {"start.policy": start_policy()}
    return Session(texts, started.cluster, measure=lambda queries: started.metrics.signals(queries, now=now))


@pytest_asyncio.fixture
async def playground(session: Session) -> AsyncIterator[Playground]:
    async with Playground(session, token=TOKEN) as server:
        yield server


async def asked(server: Playground, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
    sent = {"Authorization": f"Bearer {TOKEN}"} | {key.replace("_", "-"): text for key, text in headers.items()}
    origin = server.url.partition("/#")[0]
    async with (
        aiohttp.ClientSession() as client,
        client.post(
            f"{origin}/api/{path}",
            json=body or {},
            headers={key: text for key, text in sent.items() if text is not None},
        ) as answer,
    ):
        for name, text in HEADERS.items():
            assert answer.headers[name] == text
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": "Bearer ü"}, 401),
        ({"Content_Type": "text/plain"}, 415),
    ],
    ids=str,
)
async def test_only_the_page_itself_may_ask(
    playground: Playground, headers: dict[str, str | None], status: int
) -> None:
    got, answer = await asked(playground, "state", **headers)
    assert got == status
    assert ("error" in answer) == (status != 200)


async def test_the_first_questions_of_a_page(playground: Playground) -> None:
    _, state = await asked(playground, "state")
    files = {file["name"]: file["text"] for file in state["files"]}
    status, answer = await asked(playground, "evaluate", {"id": 1, "files": files, "pod": POD})
    assert status == 200
    assert answer["id"] == 1
    assert answer["diagnostics"] == []
    assert len(answer["verdict"]["total"]) == len(state["names"]) == len(answer["verdict"]["rejectedBy"])


async def test_a_port_that_is_taken_is_an_error(playground: Playground, session: Session) -> None:
    port = int(playground.url.partition("/#")[0].rpartition(":")[2])
    with pytest.raises(PortTaken, match=f"127.0.0.1:{port}: address already in use"):
        async with Playground(session, port=port):
            pass


def files() -> dict[str, str]:
    return {"start.policy": start_policy()}


QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "complete": ({"file": "start.policy", "offset": 60}, "items"),
    "hover": ({"file": "start.policy", "offset": start_policy().index("fits")}, "markdown"),
    "format": ({"file": "start.policy"}, "text"),
    "lint": ({}, "diagnostics"),
    "node": ({"pod": POD, "node": "a01"}, "sum"),
    "why": ({"pod": POD}, "text"),
    "command": ({"pod": POD}, "command"),
    "simulate": ({"count": 3}, "frames"),
    "share": ({"pod": POD}, "file"),
}


@pytest.mark.parametrize("path", QUESTIONS)
async def test_each_question_has_its_answer(playground: Playground, path: str) -> None:
    more, key = QUESTIONS[path]
    status, answer = await asked(playground, path, {"files": files(), **more})
    assert status == 200, answer
    assert key in answer


BAD: dict[str, tuple[str, Any, int]] = {
    "no such question": ("nothing", {}, 404),
    "a list": ("evaluate", [1], 400),
    "no pod": ("evaluate", {"id": 1, "files": {}}, 400),
    "an id that is a text": ("evaluate", {"id": "1", "files": {}, "pod": POD}, 400),
    "a text that is a number": ("evaluate", {"id": 1, "files": {"a.policy": 1}, "pod": POD}, 400),
    "an unknown pod": ("evaluate", {"id": 1, "files": {}, "pod": {"key": "a/b"}}, 400),
    "a pod with other members": ("evaluate", {"id": 1, "files": {}, "pod": {"key": "a/b", "path": "/etc"}}, 400),
    "no such clause": ("values", {"files": {}, "pod": POD, "clause": 100_000}, 400),
    "no such side": ("values", {"files": {}, "pod": POD, "clause": 0, "side": "__class__"}, 400),
    "no such node": ("node", {"files": {}, "pod": POD, "node": "x"}, 400),
    "no such file": ("hover", {"files": {}, "file": "a.policy", "offset": 0}, 400),
    "files that it must not write": ("save", {"file": "start.policy", "text": "", "replaced": ""}, 400),
    "files that it must not open": ("open", {"path": "/etc/passwd"}, 400),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_questions_are_answered_with_a_sentence(playground: Playground, case: str) -> None:
    path, body, status = BAD[case]
    got, answer = await asked(playground, path, body)
    assert got == status, answer
    assert answer["error"]


class ChangedFile(NoDoors):
    """A file that somebody else wrote to."""

    def save(self, name: str, text: str, *, replaced: str) -> None:
        if replaced != "theirs":
            raise FileChanged(f"{name} was changed", "theirs")


async def test_a_file_that_changed_is_answered_with_its_text() -> None:
    session = Session(files(), start().cluster)
    async with Playground(session, token=TOKEN, doors=ChangedFile()) as server:
        save = {"file": "start.policy", "text": "mine"}
        refused = await asked(server, "save", save | {"replaced": start_policy()})
        assert refused == (412, {"error": "start.policy was changed", "text": "theirs"})
        assert session.opened == files()
        assert await asked(server, "save", save | {"replaced": "theirs"}) == (200, {"saved": True})


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'"\\ud800"', b"\xff", b'{"id": 1e400}'])
async def test_bytes_that_are_no_json_are_refused(playground: Playground, body: bytes) -> None:
    url = f"{playground.url.partition('/#')[0]}/api/evaluate"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]


async def test_a_request_has_a_limit(playground: Playground) -> None:
    url = f"{playground.url.partition('/#')[0]}/api/format"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = io.BytesIO(b" " * (MOST_REQUEST_BYTES + 1))
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]


@pytest.mark.parametrize(
    "path", ["/../session.py", "/%2e%2e/session.py", "/session.py", "/page/index.html", "//", "/api"]
)
async def test_only_the_files_of_the_page_are_served(playground: Playground, path: str) -> None:
    url = URL(f"{playground.url.partition('/#')[0]}{path}", encoded=True)
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        assert answer.status == 404
        assert answer.headers["Content-Security-Policy"] == POLICY


async def test_a_token_of_any_bytes_is_wrong(playground: Playground) -> None:
    host, port = playground.url.partition("/#")[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /api/state HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\nContent-Length: 0\r\n".encode()
    writer.write(head + b"Authorization: Bearer \xff\xfe\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_no_question_is_answered_to_a_get(playground: Playground) -> None:
    url = f"{playground.url.partition('/#')[0]}/api/state"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
        assert answer.status == 405


class Slow(Session):
    """Waits in each evaluation until a test lets it go on."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def evaluate(self, *given: Any, go_on: Any, **more: Any) -> dict[str, Any]:
        self.begun.set()
        assert self.may_go_on.wait(30)
        go_on()
        return super().evaluate(*given, go_on=go_on, **more)


async def test_a_newer_evaluation_makes_older_ones_void() -> None:
    slow = Slow(files(), start().cluster)
    async with Playground(slow, token=TOKEN) as server:
        requests = []
        for number in range(4):
            body = {"id": number, "files": files(), "pod": POD}
            requests.append(asyncio.create_task(asked(server, "evaluate", body)))
            if number == 0:
                await asyncio.to_thread(slow.begun.wait, 30)
            else:
                await until(lambda count=number + 1: server.asked == count)  # type: ignore[misc]
        slow.may_go_on.set()
        answers = await asyncio.gather(*requests)
    assert [status for status, _ in answers] == [409, 409, 409, 200]
    assert answers[-1][1]["id"] == 3


async def test_findings_that_nobody_waits_for_are_none() -> None:
    slow = Slow(files(), start().cluster)
    async with Playground(slow, token=TOKEN) as server:
        body = {"id": 1, "files": files(), "pod": POD}
        evaluations = [asyncio.create_task(asked(server, "evaluate", body))]
        await asyncio.to_thread(slow.begun.wait, 30)
        lint = asyncio.create_task(asked(server, "lint", {"files": files()}))
        await until(lambda: server.waiting == 2)
        evaluations.append(asyncio.create_task(asked(server, "evaluate", body)))
        await until(lambda: server.asked == 2)
        slow.may_go_on.set()
        assert await lint == (200, {"diagnostics": None})
        await asyncio.gather(*evaluations)


async def test_pages_beside_each_other_have_answers_of_their_own() -> None:
    slow = Slow(files(), start().cluster)
    async with Playground(slow, token=TOKEN) as server:
        requests = []
        for page in ("one", "other"):
            body = {"id": 1, "page": page, "files": files(), "pod": POD}
            requests.append(asyncio.create_task(asked(server, "evaluate", body)))
        await until(lambda: server.asked == 2)
        slow.may_go_on.set()
        assert [status for status, _ in await asyncio.gather(*requests)] == [200, 200]


async def test_only_so_many_pages_are_known() -> None:
    newest = Newest()
    first = Job()
    newest.replace("page 0", first)
    checkpoints = [newest.checkpoint("page 0")]
    for number in range(1, MOST_PAGES + 1):
        newest.replace(f"page {number}", Job())
        checkpoints.append(newest.checkpoint(f"page {number}"))
    with pytest.raises(Superseded):
        checkpoints[0]()
    for each in checkpoints[1:]:
        each()


async def test_too_many_questions_at_once_are_refused() -> None:
    slow = Slow(files(), start().cluster)
    async with Playground(slow, token=TOKEN) as server:
        body = {"id": 1, "files": files(), "pod": POD}
        first = asyncio.create_task(asked(server, "evaluate", body))
        await asyncio.to_thread(slow.begun.wait, 30)
        others = [asyncio.create_task(asked(server, "state")) for _ in range(MOST_WAITING + 3)]
        done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        slow.may_go_on.set()
        answers = await asyncio.gather(*others)
        await first
    assert {task.result()[0] for task in done} == {503}
    assert [status for status, _ in answers].count(200) == MOST_WAITING - 1


class Endless(Session):
    """Never ends where a policy says so, whatever the work makes of exceptions."""

    begun = threading.Event()

    def evaluate(self, files: dict[str, str], *given: Any, **more: Any) -> dict[str, Any]:
        if "endless" in files["start.policy"]:
            self.begun.set()  # once: what ends the work, raised inside of it, would leave the event locked for good
        while "endless" in files["start.policy"]:
            with contextlib.suppress(Exception):
                sum(range(1000))
        return super().evaluate(files, *given, **more)


ENDLESS = {"start.policy": "# endless"}


async def test_work_without_an_end_is_stopped_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.5)
    async with Playground(Endless(files(), start().cluster), token=TOKEN) as playground:
        status, answer = await asked(playground, "evaluate", {"id": 1, "files": ENDLESS, "pod": POD})
        monkeypatch.setattr(server, "ANSWER_SECONDS", 100)
        assert (status, answer["error"].split(":")[0]) == (503, "gave up after 0.5 s")
        status, answer = await asked(playground, "evaluate", {"id": 2, "files": files(), "pod": POD})
        assert (status, answer["verdict"]["chosen"] is not None) == (200, True)


async def test_the_next_key_ends_work_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 0.1)
    endless = Endless(files(), start().cluster)
    endless.begun.clear()
    async with Playground(endless, token=TOKEN) as playground:
        first = asyncio.create_task(asked(playground, "evaluate", {"id": 1, "files": ENDLESS, "pod": POD}))
        await asyncio.to_thread(endless.begun.wait, 30)
        second, _ = await asked(playground, "evaluate", {"id": 2, "files": files(), "pod": POD})
        assert ((await first)[0], second) == (409, 200)


async def test_a_playground_ends_though_its_work_does_not() -> None:
    endless = Endless(files(), start().cluster)
    endless.begun.clear()
    async with Playground(endless, token=TOKEN) as playground:
        first = asyncio.create_task(asked(playground, "evaluate", {"id": 1, "files": ENDLESS, "pod": POD}))
        await asyncio.to_thread(endless.begun.wait, 30)
    with contextlib.suppress(aiohttp.ClientError):
        await first


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0.01)


class Broken(Session):
    """Has a bug."""

    def state(self) -> dict[str, Any]:
        raise ZeroDivisionError("secret words")


async def test_a_bug_is_one_answer_without_its_words() -> None:
    async with Playground(Broken(files(), start().cluster), token=TOKEN) as server:
        status, answer = await asked(server, "state")
        assert (status, answer) == (500, {"error": "unexpected error in policyctl: ZeroDivisionError"})
        assert (await asked(server, "format", {"files": files(), "file": "start.policy"}))[0] == 200
