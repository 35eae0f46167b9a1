"""Nodes that are compared with earlier ones are the nodes that they would be if they were decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import psutil
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.cluster import objects
from tests.adapters.kube.alike import SCALARS, decoded_both, told, varied_pages
from tests.benchmarks.manifests import Json
from tests.benchmarks.scale import recorded

DECODER = ObjectDecoder(objects.Node)


def both(pages: list[bytes]) -> tuple[int, list[Any], list[Any]]:
    """Return how many lists of images are shared, and what both ways make of the pages."""
    plain, fast = decoded_both(DECODER, pages)
    nodes = [node for page in fast if not isinstance(page, str) for node in page.objects]
    shared = len(nodes) - len({id(node.status.images) for node in nodes})
    return shared, *(
        [page if isinstance(page, str) else (told(page), page.objects) for page in each] for each in (plain, fast)
    )


def page_of(items: list[bytes]) -> bytes:
    return recorded.page("Node", items, version=7, token="next")


def test_nodes_of_the_benchmark_are_compared_and_the_same() -> None:
    items = [recorded.node(number, state=number // 40 % 5, beat=number) for number in range(400)]
    shared, plain, fast = both([page_of(items[:200]), page_of(items[200:])])
    assert fast == plain
    assert shared > 150


def small(number: int) -> Json:
    return {
        "metadata": {
            "name": f"node-{number}",
            "uid": f"u{number}",
            "resourceVersion": f"{number}",
            "creationTimestamp": "2026-11-21T09:00:00Z",
            "labels": {"kubernetes.io/hostname": f"node-{number}", "zone": "a"},
            "annotations": {"csi": f'{{"driver":"{number}"}}'},
            "managedFields": [{"time": "2026-11-21T09:00:00Z", 'k:{"ip":"1"}': {}}],
        },
        "spec": {"providerID": f"moon://{number}", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "", "lastTransitionTime": "x"}],
            "addresses": [{"type": "Hostname", "address": f"node-{number}"}],
            "images": [{"names": ["a", "b"], "sizeBytes": 5}, {"names": ["c"], "sizeBytes": number % 2}],
        },
        # a page must be longer than the longest hole, or nothing in it is compared
        "padding": "x" * 1500,
    }


PLACES = [
    ("metadata", "name"),
    ("metadata", "resourceVersion"),
    ("metadata", "creationTimestamp"),
    ("metadata", "labels", "zone"),
    ("metadata", "labels", "other"),
    ("metadata", "annotations", "csi"),
    ("metadata", "managedFields", 0, "time"),
    ("spec", "providerID"),
    ("spec", "unschedulable"),
    ("spec", "taints", 0, "key"),
    ("status", "allocatable", "cpu"),
    ("status", "conditions", 0, "status"),
    ("status", "conditions", 0, "lastHeartbeatTime"),
    ("status", "conditions", 0, "lastTransitionTime"),
    ("status", "addresses", 0, "address"),
    ("status", "images"),
    ("status", "images", 0, "names"),
    ("status", "images", 0, "sizeBytes"),
    ("status", "images", 0, "other"),
]
IMAGES = st.one_of(
    st.sampled_from([[], None, [{}], [[]], {}, ["\n"], ["]"]]),
    st.sampled_from([[{"names": ["}]"], "sizeBytes": 1}], [{"names": ["é"]}], [{"names": ["\n"]}]]),
)
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), st.one_of(SCALARS, IMAGES)), max_size=2)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(varied_pages("Node", small, CHANGES))
def test_both_ways_make_the_same_of_any_nodes(pages: list[bytes]) -> None:
    _, plain, fast = both(pages)
    assert fast == plain


def test_the_end_of_the_images_is_found_wherever_it_is() -> None:
    for spoil in ("", "}]", "]", "\x1f", "}", "}]}"):
        items: list[bytes] = []
        for number in range(150):
            node = small(number)
            node["status"]["images"] = [{"names": ["n" * (number // 2)], "sizeBytes": 5}] if number else []
            items += [msgspec.json.encode(node).replace(b'"sizeBytes"', b'\n"sizeBytes"')] if number % 9 == 8 else []
            items += [msgspec.json.encode(node), msgspec.json.encode(node).replace(b'nn"', spoil.encode() + b'nn"')]
        shared, plain, fast = both([page_of(items)])
        assert fast == plain
        assert spoil in ("}]", "\x1f", "}]}") or shared > 50


def test_room_for_what_differs_takes_memory_once_something_does() -> None:
    before = psutil.Process().memory_info().rss
    similar = DECODER.similar_items()
    assert similar is not None
    assert psutil.Process().memory_info().rss - before < 32 << 20
