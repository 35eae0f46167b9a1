"""JSON that is nested too deep does not prevent other objects from being read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.decoding import Malformed, ObjectDecoder, WatchEvent
from kube_policy_scheduler.adapters.kube.nesting import MAX_DEPTH, bounded, flattened
from kube_policy_scheduler.cluster.objects import Pod
from tests.adapters.kube.scripted_server import pod

DECODER = ObjectDecoder(Pod)
DEEPEST = 10_000
"""What an API server takes of a client that creates a pod."""
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.sampled_from(['"', "\\", '\\"[', "{", "]]"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)


def deep(name: str, depth: int = DEEPEST) -> bytes:
    """Return a pod whose managedFields are nested, as its author may write them."""
    made = json.dumps(pod(name, managedFields=[{"fieldsV1": "DEEP", "manager": 'an "odd" \\ one['}]))
    return made.replace('"DEEP"', '{"f:a":' * depth + "{}" + "}" * depth).encode()


def test_a_list_with_such_a_pod_has_all_pods() -> None:
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % b",".join(
        [msgspec.json.encode(pod("before")), deep("deep"), msgspec.json.encode(pod("after"))]
    )
    with pytest.raises(RecursionError):
        msgspec.json.decode(body)
    page = DECODER.page(body)
    assert [each.metadata.name for each in page.objects] == ["before", "deep", "after"]
    assert page.malformed == []


def test_so_has_one_in_which_another_pod_is_broken() -> None:
    broken = msgspec.json.encode({**pod("broken"), "spec": 3})
    page = DECODER.page(b'{"metadata":{"resourceVersion":"7"},"items":[%b,%b]}' % (deep("deep"), broken))
    assert [each.metadata.name for each in page.objects] == ["deep"]
    (malformed,) = page.malformed
    assert isinstance(malformed, Malformed)
    assert malformed.metadata.name == "broken"


def test_a_watch_continues() -> None:
    lines = b"".join(b'{"type":"ADDED","object":%b}\n' % each for each in (deep("a"), deep("b", 3), deep("c")))
    assert [event.object.metadata.name for event in DECODER.events(lines) if isinstance(event, WatchEvent)] == [
        "a",
        "b",
        "c",
    ]


@given(VALUES)
def test_what_is_not_too_deep_stays_as_it_is(value: Any) -> None:
    text = json.dumps(value).encode()
    assert flattened(text) == text
    wrapped = b"[" * MAX_DEPTH + text + b"]" * MAX_DEPTH
    expected: Any = None if isinstance(value, list | dict) else value
    for _ in range(MAX_DEPTH):
        expected = [expected]
    assert bounded(json.loads)(flattened(wrapped)) == expected


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[" * 100_000 + b"]" * 99_999, b"]" * 1000, b'"' + b"[" * 1000])
def test_invalid_json_raises_its_usual_error(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        bounded(msgspec.json.decode)(text)
