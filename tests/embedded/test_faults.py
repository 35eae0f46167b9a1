"""Faults on order strike the requests they are meant for, as often as they should."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster, Fault
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.store import Collection
from kube_policy_scheduler.embedded.views import Stored
from kube_policy_scheduler.embedded.watches import Watch, WatchOptions
from tests.embedded.rest import Client, WatchStream

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(kubelets=None, controllers=None).in_thread() as running:
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Client:
    return Client(cluster.url)


@pytest.mark.parametrize("code", [410, 429, 500, 503])
def test_a_status_is_answered_instead_of_the_work(cluster: EmbeddedCluster, client: Client, code: int) -> None:
    cluster.faults.add(Fault("status", verb="create", resource="pods", code=code, retry_after_seconds=7))
    struck = client.send("POST", PODS, body=POD)
    assert (struck.code, struck.body["kind"], struck.body["code"]) == (code, "Status", code)
    assert struck.body["details"]["retryAfterSeconds"] == 7
    assert client.send("GET", f"{PODS}/p").code == 404
    assert client.send("POST", PODS, body=POD).code == 201


def test_a_conflict_looks_like_one(cluster: EmbeddedCluster, client: Client) -> None:
    client.send("POST", PODS, body=POD)
    cluster.faults.add(Fault("status", verb="patch", resource="pods/status", code=409))
    struck = client.send("PATCH", f"{PODS}/p/status", body={"status": {}}, content_type="merge")
    assert (struck.code, struck.body["reason"]) == (409, "Conflict")


def test_faults_skip_and_stop_as_they_are_told(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("status", resource="pods", verb="list", code=500, skip=1, times=2))
    assert [client.send("GET", PODS).code for _ in range(4)] == [200, 500, 500, 200]
    assert client.send("GET", "/api/v1/nodes").code == 200


def test_a_fault_can_go_on_until_it_is_cancelled(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("status", verb="list", times=None))
    assert [client.send("GET", PODS).code for _ in range(3)] == [500, 500, 500]
    assert cluster.faults.struck() == 3
    cluster.faults.clear()
    assert client.send("GET", PODS).code == 200


def test_a_dropped_answer_leaves_the_work_done(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("drop-answer", verb="create", resource="pods"))
    with pytest.raises((URLError, ConnectionError, http.client.HTTPException)):
        client.send("POST", PODS, body=POD)
    assert client.send("GET", f"{PODS}/p").code == 200


def test_a_cut_answer_ends_in_the_middle(cluster: EmbeddedCluster, client: Client) -> None:
    client.send("POST", PODS, body=POD)
    cluster.faults.add(Fault("cut", verb="list", resource="pods"))
    with pytest.raises(http.client.IncompleteRead):
        client.send("GET", PODS)


def test_a_cut_watch_ends_in_the_middle_of_a_line(cluster: EmbeddedCluster, client: Client) -> None:
    client.send("POST", PODS, body=POD)
    cluster.faults.add(Fault("cut", verb="watch", resource="pods"))
    lines: list[Any] = []
    with (
        WatchStream(client, f"{PODS}?watch=1&resourceVersion=0") as watch,
        pytest.raises((json.JSONDecodeError, http.client.IncompleteRead)),
    ):
        lines += watch
    assert lines == []


def test_a_watch_can_be_told_that_its_version_is_gone(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("gone-event", verb="watch", resource="pods"))
    with WatchStream(client, f"{PODS}?watch=1&resourceVersion=1") as watch:
        events = list(watch)
    assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]


def test_a_watch_from_before_the_kept_history_is_answered_200_and_an_error_event(
    cluster: EmbeddedCluster, client: Client
) -> None:
    first = client.send("GET", PODS).body["metadata"]["resourceVersion"]
    client.send("POST", PODS, body=POD)
    cluster.call(cluster.api.store.collection("pods").compact)
    with WatchStream(client, f"{PODS}?watch=1&resourceVersion={first}") as watch:
        (event,) = watch
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_continue_token_can_be_too_old(cluster: EmbeddedCluster, client: Client) -> None:
    for name in "abc":
        client.send("POST", PODS, body={**POD, "metadata": {"name": name}})
    token = client.send("GET", f"{PODS}?limit=1").body["metadata"]["continue"]
    client.send("POST", PODS, body=POD)
    cluster.call(cluster.api.store.collection("pods").compact)
    answer = client.send("GET", f"{PODS}?limit=1&continue={token}")
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_a_watcher_that_falls_behind_is_told_so_and_ended() -> None:
    api = Api(history_limit=50)
    things = api.store.collection("configmaps")
    kind = resource("configmaps")
    watch = Watch(
        api.store,
        Selection(None, (), None),
        resource=kind,
        view=Stored(kind),
        options=WatchOptions(0, initial_end=False, bookmarks=False, timeout_seconds=10),
        bookmark_seconds=10,
    )
    put(things, number=0)
    chunks = watch.chunks()
    assert b'"number":0' in await anext(chunks)
    for number in range(200):  # nobody reads meanwhile
        put(things, number=number)
    rest = [json.loads(line) async for chunk in chunks for line in chunk.splitlines()]
    assert [(event["type"], event["object"].get("code")) for event in rest] == [("ERROR", 410)]


def put(things: Collection, *, number: int) -> None:
    meta = {"name": "c", "namespace": "default"}
    things.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "number": number})


def test_a_hanging_request_gets_no_answer(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("hang", verb="list", resource="pods", seconds=0.05))
    with pytest.raises((URLError, ConnectionError, http.client.HTTPException)):
        client.send("GET", PODS)


def test_latency_delays_the_answer_and_nothing_else(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.add(Fault("latency", verb="list", resource="pods", seconds=0.01))
    assert client.send("GET", PODS).code == 200
