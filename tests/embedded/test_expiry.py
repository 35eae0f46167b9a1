"""Expired versions cannot be watched or paged through; tests can make requests fail."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.store import Collection
from kube_policy_scheduler.embedded.views import Stored
from kube_policy_scheduler.embedded.watches import Watch, WatchOptions
from tests.embedded.refusals import Refusals
from tests.embedded.rest import Client, WatchStream

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def cluster(refusals: Refusals) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(kubelets=None, controllers=None, intercept=refusals).in_thread() as running:
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Client:
    return Client(cluster.url)


def test_what_is_refused_is_not_carried_out(refusals: Refusals, client: Client) -> None:
    refusals.add("create", "pods", skip=1, times=2)
    answers = [client.send("POST", PODS, body={**POD, "metadata": {"name": name}}) for name in "abcd"]
    assert [(answer.code, answer.body["kind"]) for answer in answers[1:3]] == [(500, "Status")] * 2
    assert [item["metadata"]["name"] for item in client.send("GET", PODS).body["items"]] == ["a", "d"]


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


async def test_a_watcher_that_falls_behind_gets_an_error_and_ends() -> None:
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
