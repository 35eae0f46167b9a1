"""Pages of items that are alike, with anything changed or spoiled in them, and both ways to decode them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, Page
from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from tests.benchmarks.manifests import Json
from tests.benchmarks.scale import recorded


def decoded_both(decoder: ObjectDecoder[Any], pages: list[bytes]) -> list[list[Page[Any] | str]]:
    """Return what is made of each page when it is decoded, and when it is compared: the page, or why there is none."""
    similar = decoder.similar_items()
    assert similar is not None, "numba is one of the packages for developers"
    found: list[list[Page[Any] | str]] = []
    for compared in (None, similar):
        kept: list[Page[Any] | str] = []
        found.append(kept)
        for page in pages:
            try:
                kept.append(decoder.page(page, compared))
            except MalformedAnswer as error:
                kept.append(str(error))
    return found


def told(page: Page[Any]) -> list[Any]:
    """Return what a page says beside its objects."""
    bad = [(each.metadata.name, each.problem) for each in page.malformed]
    return [page.metadata.resource_version, page.metadata.continue_, bad]


TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "2026-11-21T09:00:00Z", "k:{", 'k:{"ip":"1"}', "\x7f0", "\x7f1", "é", "\n", '"', "\\", "]}"]
    ),
    st.text(max_size=8),
)
SCALARS = st.one_of(TEXTS, st.integers(-5, 10**18), st.sampled_from([0, 1, 999999999999999, 10**15, 1.5, None, True]))
SPOILED = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.sampled_from(["insert", "delete", "replace"]), st.floats(0, 1), st.binary(max_size=3)),
    st.tuples(
        st.just("insert key"),
        st.sampled_from([b'"metadata":{', b'"spec":{', b'"status":{', b'"managedFields":[{', b'"containers":[{']),
        st.sampled_from(
            [
                b'"name":"x",',
                b'"nodeName":"x",',
                b'"startTime":"y",',
                b'"uid" : "x",',
                b'"n\\u0061me":"x",',
                b'"phase":1,',
                b'"k:{":"x",',
                b'"metadata":{},',
                b'"a":1e999,',
                b'"a":[[],{}],',
            ]
        ),
    ),
)


def varied_pages(
    kind: str, small: Callable[[int], Json], changes: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[bytes]]:
    """Return two pages: items of one or two kinds, three of each as they are, others changed and spoiled.

    changes: lists of places in an item, and what is written there.
    """

    def pages(kinds: list[Any], varied: list[Any], later: list[Any]) -> list[bytes]:
        known = [(kind, [], None) for kind in range(len(kinds)) for _ in range(3)]
        made: list[bytes] = []
        for each in ([*known, *varied], later):
            items: list[bytes] = []
            for number, changed, how in each:
                item = small(100 * len(made) + len(items))
                for place, value in (*kinds[number % len(kinds)], *changed):
                    with contextlib.suppress(TypeError, IndexError, KeyError):  # what holds it was replaced before
                        _write(item, place, value)
                items.append(_spoiled(msgspec.json.encode(item), how))
            made.append(recorded.page(kind, items, version=7, token="next"))
        return made

    varied = st.tuples(st.integers(0, 1), changes, SPOILED)
    return st.builds(
        pages,
        st.lists(changes, min_size=1, max_size=2),
        st.lists(varied, min_size=1, max_size=10),
        st.lists(varied, max_size=4),
    )


def _write(thing: Any, place: tuple[Any, ...], value: Any) -> None:
    for step in place[:-1]:
        thing = thing[step]
    thing[place[-1]] = copy.deepcopy(value)  # samples are shared, and a later write may go into what this one wrote


def _spoiled(item: bytes, how: Any) -> bytes:
    match how:
        case ("insert key", where, what):
            return bytes(item.replace(where, where + what))
        case (verb, where, what):
            at = int(where * len(item))
            return item[:at] + (b"" if verb == "delete" else what) + item[at + (verb != "insert") * max(1, len(what)) :]
    return item
