"""Pods that are compared with earlier ones are the pods that they would be if they were decoded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube import pages as kube_pages
from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.adapters.kube.resources import PODS
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from tests.adapters.kube.alike import SCALARS, decoded_both, told, varied_pages
from tests.benchmarks.manifests import Json
from tests.benchmarks.scale import recorded

DECODER = ObjectDecoder(objects.Pod)
FIELDS = PodInfo.__struct_fields__


def described(templates: Templates, listed: Any) -> Any:
    """Return a pod's facts, with what is the same object for all by its identity; or why there are none."""
    try:
        info = templates.pod(listed)
    except ValueError as error:
        return listed.metadata.name, str(error)
    return {field: getattr(info, field) for field in FIELDS}


def was_compared(pod: Any) -> bool:
    """Return whether a pod was found to be like an earlier one, and not decoded."""
    return isinstance(pod, objects.ListedPod) and pod.uid != pod.like.pod.metadata.uid


def both(pages: list[bytes]) -> tuple[int, list[list[Any]]]:
    """Return how many pods were compared, and what both ways make of the pages."""
    compared, found = 0, []
    for decoded in decoded_both(DECODER, pages):
        templates, kept = Templates(), []
        found.append(kept)
        for page in decoded:
            if isinstance(page, str):
                kept.append(page)
                continue
            compared += sum(was_compared(pod) for pod in page.objects)
            kept += told(page)
            kept += [described(templates, pod) for pod in page.objects]
        for facts in kept:
            if isinstance(facts, dict):  # of another set of templates, but equal
                template = facts.pop("template")
                facts["template"] = (template.namespace, template.labels, template.spec, template.controller)
                facts["template"] += (template.demand, template.size)
    return compared, found


def page_of(items: list[bytes]) -> bytes:
    return recorded.page("Pod", items, version=7, token="next")


def test_pods_of_the_benchmark_are_compared_and_the_same() -> None:
    items = [recorded.pod(number, node_name=f"node-{number % 40}") for number in range(1_000)]
    compared, (plain, fast) = both([page_of(items[:500]), page_of(items[500:])])
    assert fast == plain
    assert compared > 400


def real(number: int) -> Json:
    """Return a pod as kubelets and controllers leave it behind: what is random differs from pod to pod."""
    made: Json = json.loads(recorded.pod(5 + 50 * number, node_name=f"node-{number % 7}"))
    token, address = f"kube-api-access-{number:05x}", f"10.1.{number % 200}.{number % 250}"
    made["spec"]["volumes"][0]["name"] = token
    made["spec"]["containers"][0]["volumeMounts"][0]["name"] = token
    inner = {'k:{"ip":"' + address + '"}': {".": {}, "f:ip": {}}}
    made["metadata"]["managedFields"][0]["fieldsV1"]["f:status"] = {"f:podIPs": inner}
    made["metadata"]["managedFields"][0]["time"] = f"2026-11-20T08:00:{number % 60:02}Z"
    made["status"] |= {"podIP": address, "podIPs": [{"ip": address}], "hostIP": f"10.0.0.{number % 7}"}
    made["status"]["containerStatuses"][0]["restartCount"] = number % 4
    return made


def test_what_kubelets_write_at_random_keeps_no_pod_from_being_compared() -> None:
    items = [msgspec.json.encode(real(number)) for number in range(300)]
    compared, (plain, fast) = both([page_of(items)])
    assert fast == plain
    assert compared > 200


def test_restarts_of_the_first_containers_may_differ_and_are_read() -> None:
    items = []
    for number in range(300):
        made = real(number)
        (first,) = made["status"]["containerStatuses"]
        made["status"]["containerStatuses"] = [
            {**first, "name": f"c{at}", "restartCount": number * (at + 1) % 7 if at < 3 else 2} for at in range(4)
        ]
        items.append(msgspec.json.encode(made))
    compared, (plain, fast) = both([page_of(items)])
    assert fast == plain
    assert compared > 200
    assert fast[-1]["restarts"] == sum(299 * (at + 1) % 7 for at in range(3)) + 2


def test_a_number_of_restarts_that_is_too_large_is_refused_as_ever() -> None:
    items = [msgspec.json.encode(real(number)) for number in range(40)]
    items[-1] = items[-1].replace(b'"restartCount":3', b'"restartCount":99999999999')
    _, (plain, fast) = both([page_of(items)])
    assert fast == plain


PLACES = [
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("metadata", "resourceVersion"),
    ("metadata", "generation"),
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "labels", "app"),
    ("metadata", "annotations", "a"),
    ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
    ("metadata", "managedFields", 0, "time"),
    ("metadata", "managedFields", 0, "f:number"),
    ("spec", "nodeName"),
    ("spec", "priority"),
    ("spec", "schedulerName"),
    ("spec", "unknown"),
    ("spec", "volumes", 0, "name"),
    ("spec", "volumes", 1, "name"),
    ("spec", "containers", 0, "name"),
    ("spec", "containers", 0, "unknown"),
    ("spec", "containers", 0, "resources", "requests", "cpu"),
    ("status", "phase"),
    ("status", "startTime"),
    ("status", "podIP"),
    ("status", "nominatedNodeName"),
    ("status", "conditions", 0, "message"),
    ("status", "conditions", 0, "lastProbeTime"),
    ("status", "containerStatuses", 0, "restartCount"),
    ("status", "containerStatuses", 0, "started"),
]


def small(number: int) -> Json:
    return {
        "metadata": {
            "name": f"web-{number}",
            "namespace": "n",
            "uid": f"u{number}",
            "resourceVersion": f"{number}",
            "generation": 1,
            "creationTimestamp": "2026-11-21T09:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"a": "b"},
            "managedFields": [{"time": "2026-11-21T09:00:00Z", "f:number": 1, 'k:{"ip":"1"}': {}}],
        },
        "spec": {
            "nodeName": "node-1",
            "priority": 0,
            "volumes": [{"name": "token-1"}, {"name": "data", "emptyDir": {}}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-11-21T09:00:00Z",
            "podIP": "1",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "m", "lastProbeTime": None}],
            "containerStatuses": [{"name": "main", "restartCount": 0, "started": True}],
        },
        # a page must be longer than the longest hole, or nothing in it is compared
        "padding": "x" * 1500,
    }


CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), SCALARS), max_size=2)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(varied_pages("Pod", small, CHANGES))
def test_both_ways_make_the_same_of_any_pods(pages: list[bytes]) -> None:
    _, (plain, fast) = both(pages)
    assert fast == plain


class Server:
    """Answers with one page after the other."""

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies

    async def request(self, *_: object, **__: object) -> bytes:
        await asyncio.sleep(0)
        return self._bodies.pop(0)


@pytest.mark.parametrize(
    ("compare", "long_from", "remaining", "has_loop", "compared_from"),
    [
        (False, 100, None, True, None),
        (True, 2_000, None, False, None),
        (True, 100, None, False, 200),
        (True, 800, None, False, 800),
        (True, 800, 1_000, False, 200),
        (True, 2_000, None, True, 200),
    ],
    ids=["not wanted", "short", "long", "long at last", "known to be long", "another one was long"],
)
def test_a_long_list_is_compared_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
    *,
    compare: bool,
    long_from: int,
    remaining: int | None,
    has_loop: bool,
    compared_from: int | None,
) -> None:
    assert DECODER.similar_items() is not None  # compiled now: loading it does not last longer than the list
    monkeypatch.setattr(kube_pages, "COMPARED_FROM", long_from)
    monkeypatch.setattr(ObjectDecoder, "has_loop", has_loop)

    async def at_once(call: Callable[[], Any]) -> Any:
        return call()

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    items = [recorded.pod(50 * number, node_name="node-1") for number in range(1_200)]
    bodies = [
        recorded.page(
            "Pod",
            items[first : first + 200],
            version=7,
            token="next" if first < 1_000 else "",
            remaining=remaining if not first else None,
        )
        for first in range(0, 1_200, 200)
    ]

    async def listed() -> list[Any]:
        server: Any = Server(bodies)
        found = []
        async for page in kube_pages.pages(server, PODS, DECODER, compare=compare):
            found += page.objects
            await asyncio.sleep(0)
        return found

    found = asyncio.run(listed())
    assert [pod.metadata.uid for pod in found] == [
        DECODER.page(page_of([item])).objects[0].metadata.uid for item in items
    ]
    like = [number // 200 * 200 for number, pod in enumerate(found) if was_compared(pod)]
    assert like[0] in (compared_from, compared_from + 200) if compared_from is not None else not like


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"{}",
        b"[]",
        b'{"metadata":{},"items":[',
        b'{"metadata":{},"items":[]}',
        b'{"metadata":{},"items":null}',
        b'{"metadata":{},"items":[{"metadata":{"name":"a"}}],"items":[]}',
        b'{"items":[],"metadata":{},"items":[{"metadata":{"name":"a"}}]}',
        b'{"metadata":{"x,\\"items":[{"metadata":{"name":"a"}}]},"items":[]}',
        b'{"metadata":{"a":"b","items":[{"metadata":{"name":"a"}}]}}',
        b'{"metadata":{},"items":[{"metadata":{"name":"a"}}]} x',
        b'{"metadata":{},"items":[{"metadata":{"name":"a"}},]}',
        b'{"metadata":{},"items":[{"metadata":{"name":"a"},"list":[{"a":{}},{"metadata":{}}]}]}\n',
    ],
)
def test_pages_of_other_forms_are_decoded_as_a_whole(page: bytes) -> None:
    _, (plain, fast) = both([page])
    assert fast == plain
