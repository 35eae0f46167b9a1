"""The official Python client works against the embedded API server as against a real one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from kubernetes import client as api
from kubernetes import config, watch

from tests.embedded.conftest import Server

_numbers = count()


class Account:
    """The official client's view of a namespace of its own."""

    def __init__(self, connection: Any, namespace: str) -> None:
        self.core = api.CoreV1Api(connection)
        self.coordination = api.CoordinationV1Api(connection)
        self.events = api.EventsV1Api(connection)
        self.namespace = namespace
        self.core.create_namespace(api.V1Namespace(metadata=api.V1ObjectMeta(name=namespace)))

    def create_pod(self, name: str, **labels: str) -> Any:
        container = api.V1Container(name="c", image="x")
        meta = api.V1ObjectMeta(name=name, labels=labels)
        pod = api.V1Pod(metadata=meta, spec=api.V1PodSpec(containers=[container]))
        return self.core.create_namespaced_pod(self.namespace, pod)

    def bind(self, name: str, node: str) -> None:
        target = api.V1ObjectReference(kind="Node", name=node)
        binding = api.V1Binding(metadata=api.V1ObjectMeta(name=name), target=target)
        # the answer is a Status, which the client does not expect
        answer = self.core.create_namespaced_pod_binding(name, self.namespace, binding, _preload_content=False)
        answer.release_conn()


@pytest.fixture
def account(server: Server) -> Iterator[Account]:
    with config.new_client_from_config(str(server.kubeconfig)) as connection:
        made = Account(connection, f"official-{next(_numbers)}")
        yield made
        made.core.delete_collection_namespaced_pod(made.namespace, grace_period_seconds=0)


def test_pods_are_created_listed_and_bound(account: Account) -> None:
    account.create_pod("a", app="web")
    account.create_pod("b")
    account.bind("a", "some-node")
    bound = account.core.list_namespaced_pod(account.namespace, field_selector="spec.nodeName=some-node")
    assert [pod.metadata.name for pod in bound.items] == ["a"]
    assert bound.items[0].spec.scheduler_name == "default-scheduler"
    labelled = account.core.list_namespaced_pod(account.namespace, label_selector="app in (web)")
    assert [pod.metadata.name for pod in labelled.items] == ["a"]


def test_a_second_binding_is_a_conflict(account: Account) -> None:
    account.create_pod("a")
    account.bind("a", "some-node")
    with pytest.raises(api.ApiException) as refused:
        account.bind("a", "other-node")
    assert (refused.value.status, "already assigned to node" in refused.value.body) == (409, True)


def test_a_watch_follows_pods(account: Account) -> None:
    start = account.core.list_namespaced_pod(account.namespace).metadata.resource_version
    account.create_pod("a")
    account.bind("a", "some-node")
    stream = watch.Watch().stream(
        account.core.list_namespaced_pod, account.namespace, resource_version=start, timeout_seconds=10
    )
    seen = [(event["type"], event["object"].spec.node_name) for _, event in zip(range(2), stream, strict=False)]
    assert seen == [("ADDED", None), ("MODIFIED", "some-node")]


def test_pages_are_followed(account: Account) -> None:
    for name in "abc":
        account.create_pod(name)
    first = account.core.list_namespaced_pod(account.namespace, limit=2)
    rest = account.core.list_namespaced_pod(account.namespace, limit=2, _continue=first.metadata._continue)
    assert [pod.metadata.name for page in (first, rest) for pod in page.items] == ["a", "b", "c"]


def test_a_lease_is_taken_once_and_renewed_by_its_holder(account: Account) -> None:
    now = datetime.now(UTC)
    spec = api.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    lease = api.V1Lease(metadata=api.V1ObjectMeta(name="l"), spec=spec)
    taken = account.coordination.create_namespaced_lease(account.namespace, lease)
    with pytest.raises(api.ApiException) as refused:
        account.coordination.create_namespaced_lease(account.namespace, lease)
    assert refused.value.status == 409
    taken.spec.renew_time = datetime.now(UTC)
    account.coordination.replace_namespaced_lease("l", account.namespace, taken)
    with pytest.raises(api.ApiException) as stale:
        account.coordination.replace_namespaced_lease("l", account.namespace, taken)
    assert stale.value.status == 409


def test_a_status_is_patched_condition_by_condition(account: Account) -> None:
    account.create_pod("a")
    for kind in ("PodScheduled", "Ready", "PodScheduled"):
        body = {"status": {"conditions": [{"type": kind, "status": "False", "reason": "R"}]}}
        account.core.patch_namespaced_pod_status("a", account.namespace, body)
    conditions = account.core.read_namespaced_pod_status("a", account.namespace).status.conditions
    assert sorted(condition.type for condition in conditions) == ["PodScheduled", "Ready"]


def test_events_are_read_in_both_their_versions(account: Account) -> None:
    event = api.EventsV1Event(
        metadata=api.V1ObjectMeta(name="e"),
        event_time=datetime.now(UTC),
        reporting_controller="some-scheduler",
        reporting_instance="here",
        action="Binding",
        reason="Scheduled",
        type="Normal",
        note="done",
        regarding=api.V1ObjectReference(kind="Pod", name="p", namespace=account.namespace),
    )
    account.events.create_namespaced_event(account.namespace, event)
    listed = account.core.list_namespaced_event(account.namespace, field_selector="involvedObject.name=p")
    assert [(item.message, item.reporting_component) for item in listed.items] == [("done", "some-scheduler")]
