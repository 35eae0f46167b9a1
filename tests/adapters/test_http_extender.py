"""One extender, asked: what it is sent, and what its answers may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from kube_policy_scheduler.adapters.http import extender as http_extender
from kube_policy_scheduler.adapters.http.extender import Filtered, HttpExtender
from kube_policy_scheduler.adapters.http.extender_error import ExtenderError
from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings
from tests.fakes.extender_server import Answer, ExtenderServer, only, scoring

POD = b'{"metadata":{"name":"web","uid":"u"}}'
NODES = {"a": b'{"metadata":{"name":"a"}}', "b": b'{"metadata":{"name":"b"}}'}
VERBS = {"filter_verb": "filter", "prioritize_verb": "prioritize", "preempt_verb": "preempt", "bind_verb": "bind"}


def asked(
    server: ExtenderServer, ask: Callable[[HttpExtender], Awaitable[Any]], **settings: Any
) -> tuple[Any, list[tuple[str, str]]]:
    """Return what an extender answered, and what was counted: verb and result of each request."""
    counted: list[tuple[str, str]] = []

    async def run() -> Any:
        async with server.served():
            given = VERBS | {"weight": 1, "node_cache_capable": True} | settings
            extender = HttpExtender(
                HttpExtenderSettings(url_prefix=server.url, **given),
                observe=lambda name, verb, result, seconds: counted.append((verb, result)),
            )
            try:
                return await ask(extender)
            finally:
                await extender.close()

    return asyncio.run(run()), counted


def filtered(server: ExtenderServer, *, whole: bool = False, **settings: Any) -> Filtered:
    nodes = list(NODES.values()) if whole else None
    found, _ = asked(server, lambda each: each.filter(POD, list(NODES), nodes), **settings)
    assert isinstance(found, Filtered)
    return found


def failure(answer: Answer, **settings: Any) -> str:
    """Return the error after an answer to `filter`, without the address."""
    server = ExtenderServer(filter=answer)
    counted: list[tuple[str, str]] = []

    async def run() -> str:
        async with server.served():
            extender = HttpExtender(
                HttpExtenderSettings(url_prefix=server.url, **(VERBS | {"node_cache_capable": True} | settings)),
                observe=lambda name, verb, result, seconds: counted.append((verb, result)),
            )
            with pytest.raises(ExtenderError) as caught:
                await extender.filter(POD, list(NODES), None)
            assert extender.problem
            assert str(caught.value).endswith(extender.problem)
            await extender.close()
            return extender.problem.replace(server.url, "URL")

    text = asyncio.run(run())
    assert counted in ([("filter", "error")], [("filter", "timeout")])
    return text


def test_names_are_sent_to_an_extender_that_knows_the_nodes() -> None:
    server = ExtenderServer(filter=only("b", a="no gpu"))
    assert filtered(server) == Filtered(("b",), {"a": "no gpu"})
    assert server.of("filter") == [
        {"Pod": {"metadata": {"name": "web", "uid": "u"}}, "Nodes": None, "NodeNames": ["a", "b"]}
    ]


def test_whole_nodes_are_sent_to_one_that_does_not() -> None:
    server = ExtenderServer(filter=only("a"))
    found = filtered(server, whole=True, node_cache_capable=False)
    assert found.passed == ("a",)
    assert found.refused == {"b": f"node(s) rejected by extender {server.url}"}
    (sent,) = server.of("filter")
    assert sent["NodeNames"] is None
    assert [node["metadata"]["name"] for node in sent["Nodes"]["items"]] == ["a", "b"]


@pytest.mark.parametrize("key", ["NodeNames", "nodenames", "nodeNames", "NODENAMES"])
def test_keys_are_read_whatever_their_case_as_go_does(key: str) -> None:
    answer = {key: ["a"], "failedNodes": {"b": "busy"}, "error": ""}
    assert filtered(ExtenderServer(filter=lambda _: answer)) == Filtered(("a",), {"b": "busy"})


def test_reasons_that_say_unresolvable_go_first_and_are_one_short_line() -> None:
    answer = {
        "NodeNames": [],
        "FailedNodes": {"a": "busy", "b": "x\n" * 500},
        "FailedAndUnresolvableNodes": {"a": "never"},
    }
    found = filtered(ExtenderServer(filter=lambda _: answer))
    assert found.refused["a"] == "never"
    assert "\n" not in found.refused["b"]
    assert len(found.refused["b"]) <= http_extender.REASON_CHARACTERS


def test_a_node_passes_once_and_only_if_it_was_asked_about() -> None:
    assert filtered(ExtenderServer(filter=lambda _: {"NodeNames": ["a", "a"]})).passed == ("a",)
    text = failure(lambda _: {"NodeNames": ["a", "mars"]})
    assert text == "it returned node 'mars', which was not in the request"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: web.Response(status=500, text="boom"), "filter was answered with HTTP 500"),
        (lambda _: web.Response(status=302, headers={"Location": "/else"}), "filter was answered with HTTP 302"),
        (lambda _: {"Error": "no license"}, "no license"),
        (lambda _: b"<html>login</html>", "the answer is not usable (JSON object)"),
        (lambda _: b"", "the answer is not usable (JSON object)"),
        (lambda _: [], "the answer is not usable (JSON object)"),
        (lambda _: {"NodeNames": "a"}, "the answer is not usable (nodenames)"),
        (lambda _: {"NodeNames": [1]}, "the answer is not usable (nodenames)"),
        (lambda _: {"NodeNames": ["a"], "FailedNodes": ["b"]}, "the answer is not usable (failednodes)"),
        (lambda _: b'{"NodeNames": ["\xff"]}', "the answer is not usable (nodenames)"),
        (lambda _: b'{"NodeNames": ' + b"[" * 100_000, "the answer is not usable (JSON object)"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_an_error(answer: Answer, text: str) -> None:
    assert failure(answer).startswith(text)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_extender, "MAX_NAMES_BYTES", 1 << 20)
    assert failure(lambda _: b" " * (3 << 20)) == "the answer to filter is longer than 1 MiB"


def test_a_slow_extender_is_given_up_after_its_timeout() -> None:
    server = ExtenderServer(delay_seconds=30.0)

    async def run() -> str:
        async with server.served():
            extender = HttpExtender(
                HttpExtenderSettings(url_prefix=server.url, filter_verb="filter", http_timeout=0.05)
            )
            with pytest.raises(ExtenderError) as caught:
                await extender.filter(POD, ["a"], None)
            await extender.close()
            return str(caught.value)

    assert asyncio.run(run()) == f"extender {server.url}: no answer to filter within 0.05 s"


def test_nobody_listens() -> None:
    async def run() -> str:
        extender = HttpExtender(
            HttpExtenderSettings(url_prefix="http://user:secret@127.0.0.1:1/x", filter_verb="filter")
        )
        with pytest.raises(ExtenderError) as caught:
            await extender.filter(POD, ["a"], None)
        await extender.close()
        return str(caught.value)

    assert asyncio.run(run()) == "extender http://127.0.0.1:1/x: connection refused"


def test_scores_of_nodes_that_were_asked_about_count_and_add_up() -> None:
    hosts = [{"host": "a", "score": 4}, {"Host": "a", "Score": 1}, {"Host": "mars", "Score": 10}, {"Host": ["b"]}]
    server = ExtenderServer(prioritize=lambda _: hosts)
    found, counted = asked(server, lambda each: each.prioritize(POD, ["a", "b"], None))
    assert found == {"a": 5}
    assert counted == [("prioritize", "ok")]


@pytest.mark.parametrize("score", [1.5, "7", 2**63, True])
def test_a_score_must_be_a_whole_number(score: object) -> None:
    server = ExtenderServer(prioritize=lambda _: [{"Host": "a", "Score": score}])
    with pytest.raises(ExtenderError, match="expected scores to be whole numbers"):
        asked(server, lambda each: each.prioritize(POD, ["a"], None))


def test_victims_are_sent_by_uid_or_whole_and_come_back_by_uid() -> None:
    victims = {"a": ([("u1", b'{"metadata":{"uid":"u1"}}'), ("u2", b'{"metadata":{"uid":"u2"}}')], 1)}
    server = ExtenderServer(preempt=lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u2"}]}}})
    found, _ = asked(server, lambda each: each.preempt(POD, victims))
    assert found == {"a": (("u2",), 0)}
    assert server.of("preempt")[0]["NodeNameToMetaVictims"] == {
        "a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}
    }
    asked(server, lambda each: each.preempt(POD, victims), node_cache_capable=False)
    assert server.of("preempt")[1]["NodeNameToVictims"]["a"]["Pods"][1] == {"metadata": {"uid": "u2"}}


@pytest.mark.parametrize("pods", [["u1"], [{"UID": 7}], {"UID": "u1"}])
def test_victims_must_be_meta_pods(pods: object) -> None:
    server = ExtenderServer(preempt=lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": pods}}})
    with pytest.raises(ExtenderError, match="are no MetaVictims"):
        asked(server, lambda each: each.preempt(POD, {"a": ([("u1", b"{}")], 0)}))


def test_an_extender_binds_or_says_why_not() -> None:
    server = ExtenderServer()
    pod = {"namespace": "shop", "name": "web", "uid": "u", "node": "a"}
    assert asked(server, lambda each: each.bind(**pod))[0] == ""
    assert server.of("bind") == [{"PodName": "web", "PodNamespace": "shop", "PodUID": "u", "Node": "a"}]
    server = ExtenderServer(bind=lambda _: {"Error": "no device left"})
    assert asked(server, lambda each: each.bind(**pod))[0] == "no device left"


def test_thousands_of_scores_are_read() -> None:
    names = [f"n{number}" for number in range(5_000)]
    server = ExtenderServer(prioritize=scoring(**dict.fromkeys(names, 3)))
    found, _ = asked(server, lambda each: each.prioritize(POD, names, None))
    assert found == dict.fromkeys(names, 3)
