"""The server of the playground, asked by a real client: who may ask, and what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.server import HEADERS, Playground, PortTaken
from kube_policy_scheduler.playground.session import Session

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
    assert len(answer["verdict"]["total"]) == len(state["names"]) == len(answer["verdict"]["refusedBy"])


async def test_a_port_that_is_taken_is_an_error(playground: Playground, session: Session) -> None:
    port = int(playground.url.partition("/#")[0].rpartition(":")[2])
    with pytest.raises(PortTaken, match=f"127.0.0.1:{port}: address already in use"):
        async with Playground(session, port=port):
            pass
