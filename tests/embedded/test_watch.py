"""Watching and paging, as clients rely on them; the same against the embedded API server and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.embedded.conftest import Server
from tests.embedded.rest import Answer, WatchStream

_numbers = count()


class Namespace:
    """A namespace of its own for one test."""

    def __init__(self, server: Server) -> None:
        self.client = server.client
        self.name = f"watch-{next(_numbers)}"
        self.pods = f"/api/v1/namespaces/{self.name}/pods"
        self.client.send("POST", "/api/v1/namespaces", body={"metadata": {"name": self.name}})

    def create(self, name: str, **labels: str) -> Any:
        spec = {"containers": [{"name": "c", "image": "x"}]}
        answer = self.client.send("POST", self.pods, body={"metadata": {"name": name, "labels": labels}, "spec": spec})
        assert answer.code == 201
        return answer.body

    def label(self, name: str, **labels: str | None) -> Any:
        body = {"metadata": {"labels": labels}}
        return self.client.send("PATCH", f"{self.pods}/{name}", body=body, content_type="merge").body

    def bind(self, name: str, node: str) -> None:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        assert self.client.send("POST", f"{self.pods}/{name}/binding", body=body).code == 201

    def delete(self, name: str) -> None:
        assert self.client.send("DELETE", f"{self.pods}/{name}?gracePeriodSeconds=0").code == 200

    def version(self) -> str:
        return str(self.client.send("GET", self.pods).body["metadata"]["resourceVersion"])

    def watch(self, query: str, **more: str) -> WatchStream:
        return WatchStream(self.client, f"{self.pods}?watch=true&timeoutSeconds=15&{query}", **more)


@pytest.fixture
def namespace(server: Server) -> Iterator[Namespace]:
    made = Namespace(server)
    yield made
    server.client.send("DELETE", f"{made.pods}?gracePeriodSeconds=0")


def seen(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_from_a_version_shows_what_came_after_it(namespace: Namespace) -> None:
    namespace.create("before")
    start = namespace.version()
    namespace.create("a")
    namespace.label("a", x="y")
    namespace.delete("a")
    with namespace.watch(f"resourceVersion={start}") as watch:
        events = watch.take(4)  # a pod's deletion is two steps even when nothing waits for it
    assert seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_the_versions_of_a_watch_never_go_back(namespace: Namespace) -> None:
    start = namespace.version()
    for number in range(3):
        namespace.create(f"p{number}")
        namespace.delete(f"p{number}")
    with namespace.watch(f"resourceVersion={start}") as watch:
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watch.take(9)]
    assert versions == sorted(versions)
    assert len(set(versions)) == 9


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_without_a_version_begins_with_what_there_is(namespace: Namespace, version: str) -> None:
    namespace.create("a")
    namespace.create("b")
    with namespace.watch(f"resourceVersion={version}") as watch:
        assert sorted(seen(watch.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
        namespace.create("c")
        assert seen(watch.take(1)) == [("ADDED", "c")]


def test_an_object_that_leaves_the_selection_is_shown_as_deleted_and_comes_back_as_added(namespace: Namespace) -> None:
    start = namespace.version()
    namespace.create("a", app="web")
    namespace.label("a", app="db")
    namespace.label("a", other="x")
    namespace.label("a", app="web")
    with namespace.watch(f"resourceVersion={start}&labelSelector=app%3Dweb") as watch:
        assert seen(watch.take(3)) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


def test_a_pod_that_is_bound_leaves_the_watch_of_pending_pods_at_the_version_of_its_binding(
    namespace: Namespace,
) -> None:
    start = namespace.version()
    namespace.create("a")
    namespace.bind("a", "some-node")
    bound = namespace.client.send("GET", f"{namespace.pods}/a").body
    with namespace.watch(f"resourceVersion={start}&fieldSelector=spec.nodeName%3D") as watch:
        added, deleted = watch.take(2)
    assert (added["type"], deleted["type"]) == ("ADDED", "DELETED")
    assert deleted["object"]["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    assert not deleted["object"]["spec"].get("nodeName")  # the last state that was selected


def test_a_watch_of_one_name_shows_nothing_else(namespace: Namespace) -> None:
    start = namespace.version()
    namespace.create("a")
    namespace.create("b")
    with namespace.watch(f"resourceVersion={start}&fieldSelector=metadata.name%3Db") as watch:
        assert seen(watch.take(1)) == [("ADDED", "b")]


def test_a_watch_list_ends_its_beginning_with_a_marked_bookmark(namespace: Namespace) -> None:
    namespace.create("a")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion="
    with namespace.watch(query) as watch:
        added, mark = watch.take(2)
        namespace.create("b")
        rest = [event for event in watch.take(1) if event["type"] != "BOOKMARK"]
    assert seen([added]) == [("ADDED", "a")]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Pod"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) > 0
    assert seen(rest) == [("ADDED", "b")]


def test_a_watch_ends_after_its_timeout(namespace: Namespace) -> None:
    path = f"{namespace.pods}?watch=1&timeoutSeconds=2&allowWatchBookmarks=true&resourceVersion={namespace.version()}"
    with WatchStream(namespace.client, path) as watch:
        events = list(watch)
    assert {event["type"] for event in events} <= {"BOOKMARK"}


def test_a_watch_as_tables_declares_its_columns_once(namespace: Namespace) -> None:
    namespace.create("a")
    with namespace.watch("resourceVersion=0", accept="application/json;as=Table;v=v1;g=meta.k8s.io") as watch:
        first = watch.take(1)[0]
        namespace.create("b")
        second = watch.take(1)[0]
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert not second["object"].get("columnDefinitions")
    assert second["object"]["rows"][0]["cells"][0] == "b"


def pages(namespace: Namespace, first: Answer) -> list[str]:
    names, answer = [], first
    while True:
        names += [item["metadata"]["name"] for item in answer.body["items"]]
        token = answer.body["metadata"].get("continue")
        if not token:
            return names
        answer = namespace.client.send("GET", f"{namespace.pods}?limit=2&continue={token}")
        assert answer.code == 200


def test_pages_show_the_list_as_it_was_when_the_first_page_was_read(namespace: Namespace) -> None:
    for name in "abcdef":
        namespace.create(name)
    first = namespace.client.send("GET", f"{namespace.pods}?limit=2")
    assert first.body["metadata"]["remainingItemCount"] == 4
    namespace.create("ca")
    namespace.delete("e")
    namespace.label("f", x="y")
    assert pages(namespace, first) == ["a", "b", "c", "d", "e", "f"]


def test_all_pages_have_the_version_of_the_first(namespace: Namespace) -> None:
    for name in "abc":
        namespace.create(name)
    first = namespace.client.send("GET", f"{namespace.pods}?limit=2").body["metadata"]
    namespace.create("d")
    second = namespace.client.send("GET", f"{namespace.pods}?limit=2&continue={first['continue']}").body["metadata"]
    assert second["resourceVersion"] == first["resourceVersion"]


def test_an_update_that_changes_nothing_makes_no_event(namespace: Namespace) -> None:
    made = namespace.create("a", x="y")
    again = namespace.label("a", x="y")
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_items_of_a_list_carry_no_type_but_watched_objects_do(namespace: Namespace) -> None:
    namespace.create("a")
    listed = namespace.client.send("GET", namespace.pods).body
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    with namespace.watch("resourceVersion=0") as watch:
        assert watch.take(1)[0]["object"]["kind"] == "Pod"


def test_a_pod_on_a_node_is_deleted_after_its_grace_period(namespace: Namespace) -> None:
    namespace.create("a")
    namespace.bind("a", "some-node")
    start = namespace.version()
    assert namespace.client.send("DELETE", f"{namespace.pods}/a").body["metadata"]["deletionGracePeriodSeconds"] == 30
    namespace.delete("a")
    with namespace.watch(f"resourceVersion={start}") as watch:
        begun, last, ended = watch.take(3)
    assert [begun["type"], last["type"], ended["type"]] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert begun["object"]["metadata"]["deletionGracePeriodSeconds"] == 30
    assert last["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


def test_a_finalizer_keeps_an_object_until_it_is_taken_off(namespace: Namespace) -> None:
    namespace.create("a")
    body = {"metadata": {"finalizers": ["example.com/wait"]}}
    namespace.client.send("PATCH", f"{namespace.pods}/a", body=body, content_type="merge")
    deleted = namespace.client.send("DELETE", f"{namespace.pods}/a?gracePeriodSeconds=0")
    assert deleted.body["metadata"]["deletionTimestamp"]
    assert namespace.client.send("GET", f"{namespace.pods}/a").code == 200
    namespace.client.send("PATCH", f"{namespace.pods}/a", body={"metadata": {"finalizers": None}}, content_type="merge")
    assert namespace.client.send("GET", f"{namespace.pods}/a").code == 404


def test_generated_names_begin_with_what_was_asked_for(namespace: Namespace) -> None:
    body = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    names = {namespace.client.send("POST", namespace.pods, body=body).body["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("web-") and len(name) == 9 for name in names)
