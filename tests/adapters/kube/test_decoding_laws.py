"""How a stream is cut into chunks never matters, and neither does which of its objects are broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.decoding import (
    EMPTY_LIST_BYTES,
    Bookmark,
    LineBuffer,
    MalformedEvent,
    ObjectDecoder,
    WatchEvent,
    WatchFailure,
    pieces_of_lines,
)
from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from kube_policy_scheduler.cluster.objects import Pod
from tests.adapters.kube.scripted_server import pod

DECODER = ObjectDecoder(Pod)


def line(kind: str, version: int, payload: str) -> dict[str, Any]:
    match kind:
        case "BOOKMARK":
            return {"type": kind, "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}}
        case "ERROR":
            return {"type": kind, "object": {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410}}
        case "BROKEN":
            return {"type": "ADDED", "object": {**pod(f"p{version}", resourceVersion=str(version)), "spec": payload}}
        case _:
            made = pod(f"p{version}", resourceVersion=str(version), annotations={"payload": payload})
            return {"type": kind, "object": made}


KINDS = st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "BROKEN"])
LINES = st.lists(st.tuples(KINDS, st.text(max_size=40)), min_size=1, max_size=12)


def described(event: object) -> tuple[str, str]:
    match event:
        case WatchEvent(type=kind, object=obj):
            return kind, obj.metadata.resource_version
        case Bookmark(resource_version=version):
            return "BOOKMARK", version
        case MalformedEvent(type=kind, object=broken):
            return f"malformed {kind}", broken.metadata.resource_version
        case WatchFailure():
            return "ERROR", ""
    raise AssertionError(event)


@given(LINES, st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_events_come_out_whole_and_in_order_however_the_bytes_were_cut(
    lines: list[tuple[str, str]], cuts: list[int]
) -> None:
    raw = b"".join(msgspec.json.encode(line(kind, n, text)) + b"\n" for n, (kind, text) in enumerate(lines))
    buffer = LineBuffer()
    seen: list[tuple[str, str]] = []
    position = turn = 0
    while position < len(raw):
        size = cuts[turn % len(cuts)]
        for piece in pieces_of_lines(buffer.feed(raw[position : position + size]), size):
            seen += [described(event) for event in DECODER.events(piece)]
        position, turn = position + size, turn + 1
    wanted = []
    for n, (kind, _) in enumerate(lines):
        wanted.append(("ERROR", "") if kind == "ERROR" else ("malformed ADDED" if kind == "BROKEN" else kind, str(n)))
    assert seen == wanted


@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b" ") + b"\n")), st.integers(1, 100))
def test_pieces_are_whole_lines_and_only_a_single_line_is_longer(lines: list[bytes], most_bytes: int) -> None:
    pieces = list(pieces_of_lines(b"".join(lines), most_bytes))
    assert b"".join(pieces) == b"".join(lines)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= most_bytes or piece.count(b"\n") == 1 for piece in pieces)


@given(st.lists(st.booleans(), max_size=10))
def test_a_page_gives_every_sound_object_and_names_every_broken_one(sound: list[bool]) -> None:
    items = [pod(f"p{n}") if ok else {**pod(f"p{n}"), "status": []} for n, ok in enumerate(sound)]
    page = DECODER.page(msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": items}))
    assert [obj.metadata.name for obj in page.objects] == [f"p{n}" for n, ok in enumerate(sound) if ok]
    assert [bad.metadata.name for bad in page.malformed] == [f"p{n}" for n, ok in enumerate(sound) if not ok]
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "x")


EMPTY = {"metadata": {"resourceVersion": "7"}, "items": None}


@pytest.mark.parametrize(
    "answer", [EMPTY, EMPTY | {"items": []}, {"metadata": EMPTY["metadata"]}, EMPTY | {"kind": "x" * EMPTY_LIST_BYTES}]
)
def test_a_list_without_objects_is_read_at_any_length(answer: dict[str, Any]) -> None:
    page = ObjectDecoder(Pod).page(msgspec.json.encode(answer))
    assert (page.objects, page.malformed, page.metadata.resource_version) == ([], [], "7")


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"items": []}', b'{"metadata": {}, "items": 1}', b"\xff", b""])
def test_what_is_no_list_is_told_from_one_without_objects(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="the answer is not a list"):
        ObjectDecoder(Pod).page(answer)
