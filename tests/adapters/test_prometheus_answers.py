"""Decoding what Prometheus answers: the same as a plain decoder finds, within bounds of time and memory."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.prometheus.answers import (
    AnswerError,
    MalformedResultError,
    NotAnAnswerError,
    Scalar,
    Vector,
    decode_answer,
    decode_failure,
)

NUMBERS = st.one_of(st.floats(allow_nan=False, width=64).map(str), st.sampled_from(["NaN", "+Inf", "-Inf", "1e3"]))
TIMES = st.floats(0, 4e9)
TEXTS = st.one_of(st.text(max_size=20), st.just(',{"metric":{'), st.just('"result":['), st.just('\\"},{"metric":'))
LABELS = st.dictionaries(
    st.one_of(st.sampled_from(["__name__", "node", "instance", "metric"]), TEXTS), TEXTS, max_size=4
)
SERIES = st.fixed_dictionaries({"metric": LABELS}, optional={"value": st.tuples(TIMES, NUMBERS)})


def written(result: Any, *, kind: str = "vector", compact: bool = True, **more: Any) -> bytes:
    answer = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return json.dumps(answer, separators=(",", ":") if compact else None, ensure_ascii=False).encode()


@given(
    series=st.lists(SERIES, max_size=30),
    warnings=st.lists(TEXTS, max_size=3),
    piece_bytes=st.integers(1, 500),
    compact=st.booleans(),
)
def test_what_is_decoded_piece_by_piece_is_what_was_written(
    series: list[dict[str, Any]], warnings: list[str], piece_bytes: int, compact: bool
) -> None:
    body = written(series, compact=compact, warnings=warnings)
    expected = [(one["metric"], one["value"]) for one in series if "value" in one]
    if series and not expected:
        with pytest.raises(AnswerError, match="histograms"):
            decode_answer(body, piece_bytes=piece_bytes)
        return
    found = decode_answer(body, piece_bytes=piece_bytes)
    assert isinstance(found, Vector)
    assert found.warnings == tuple(warnings)
    assert len(found.series) == len(expected)
    for one, (labels, (timestamp, text)) in zip(found.series, expected, strict=True):
        assert one.labels == labels
        assert one.timestamp == timestamp
        assert one.value == float(text) or (math.isnan(one.value) and text == "NaN")
    again = decode_answer(body, known=found.series.labels)
    assert isinstance(again, Vector)
    assert not expected or again.series.labels is found.series.labels
    names = ("node", "metric", "nowhere")
    assert list(found.series.labels.values_of(names)) == [
        tuple(labels.get(name, "") for name in names) for labels, _ in expected
    ]


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ([{"metric": {"node": 1}, "value": [1, "2"]}], "vector"),
        ([{"metric": None, "value": [1, "2"]}], "vector"),
        ([{"metric": {}, "value": [1, 2]}], "vector"),
        ([{"metric": {}, "value": [1, "two"]}], "vector"),
        ([{"metric": {}, "value": ["1", "2"]}], "vector"),
        ([{"metric": {}, "value": [1, "2" * 65]}], "vector"),
        ([{"value": [1, "2"]}], "vector"),
        ([[]], "vector"),
        (None, "vector"),
        ([1], "scalar"),
        ([1, "2", 3], "scalar"),
    ],
)
def test_a_result_that_is_written_otherwise_is_malformed(result: Any, kind: str) -> None:
    good = {"metric": {"node": "a"}, "value": [1, "2"]}
    for series in (result, [*[good] * 50, *result] if isinstance(result, list) and kind == "vector" else result):
        with pytest.raises(MalformedResultError):
            decode_answer(written(series, kind=kind), piece_bytes=100)


@pytest.mark.parametrize("first", ['"x":{"result":[SERIES]}', '"x":{"result":[SERIES]},"y":["cut",1]'])
@pytest.mark.parametrize("result", ["[]", '["cut",SERIES]', "[SERIES]"])
def test_series_elsewhere_are_not_taken_for_the_result(first: str, result: str) -> None:
    series = ",".join(['{"metric":{"node":"a"},"value":[1,"2"]}'] * 20)
    data = '{"resultType":"vector","result":' + result + "}"
    body = ("{" + first + ',"data":' + data + "}").replace("SERIES", series).encode()
    with pytest.raises(AnswerError):
        decode_answer(body, piece_bytes=10)


@pytest.mark.parametrize("body", [b"", b"[", b"{}", b"\xff", b'{"data":{}}', b'{"data":[]}', b"[" * 100_000])
def test_what_prometheus_never_answers(body: bytes) -> None:
    with pytest.raises(NotAnAnswerError):
        decode_answer(body)


def test_a_scalar_is_one_number() -> None:
    found = decode_answer(written([12.5, "-3"], kind="scalar", warnings=["partial", "x" * 1000]))
    assert isinstance(found, Scalar)
    assert (found.value, found.timestamp) == (-3.0, 12.5)
    assert [len(text) for text in found.warnings] == [7, 300]
    odd = decode_answer(written([1, "2"], kind="scalar", warnings=[{"not": "a text"}, 3, None]))
    assert odd.warnings == ('{"not":"a text"}', "3", "null")


def test_an_error_is_reported_in_few_words() -> None:
    assert decode_failure(b'{"status":"error","errorType":"bad_data","error":"no"}') == ("no", "bad_data")
    assert decode_failure(json.dumps({"error": "x" * 10_000}).encode()) == ("x" * 300, "")
    for body in (b"", b"<html>", b'{"error":3}', b"[" * 100_000):
        assert decode_failure(body) == ("", "")


MEBIBYTE = 2**20
BEFORE = b'{"status":"success","data":{"resultType":"vector","result":['
SERIES = b'{"metric":{},"value":[1,"1"]}'
HOSTILE = {
    "empty objects": (BEFORE, b"{},", 3 * MEBIBYTE, b""),
    "empty series": (BEFORE, SERIES + b",", MEBIBYTE // 3, SERIES + b"]}}"),
    "many labels": (BEFORE + b'{"metric":{', b'"a":"",', MEBIBYTE, b'"b":""},"value":[1,"1"]}]}}'),
    "elements that cannot be told apart": (BEFORE, b'{"value":[1,"1"],"metric":{}},', MEBIBYTE // 3, b"{}]}}"),
    "matrix": (
        BEFORE.replace(b"vector", b"matrix"), b'{"metric":{},"values":[[1,"1"]]},', MEBIBYTE // 3, b"{}]}}",
    ),
    "warnings": (BEFORE + b']},"warnings":[', b'"",', 3 * MEBIBYTE, b'""]}'),
    "spaces": (BEFORE, b", ", 4 * MEBIBYTE, b""),
    "nested": (BEFORE, b"[", 8 * MEBIBYTE, b""),
}  # fmt: skip
"""How each begins, what is repeated, how often, and how it ends: whole, they take 90 MB."""


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_takes_many_times_its_size(name: str) -> None:
    begins, repeated, times, ends = HOSTILE[name]
    body = begins + repeated * times + ends
    tracemalloc.start()
    try:
        decode_answer(body)
    except AnswerError:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 4 * len(body) + 8 * MEBIBYTE


def test_between_pieces_others_have_their_turn() -> None:
    turns = 0

    def pause() -> None:
        nonlocal turns
        turns += 1

    body = written([{"metric": {"node": f"n{row}"}, "value": [1.0, "2"]} for row in range(1000)])
    decode_answer(body, pause=pause, piece_bytes=1000)
    assert turns > len(body) // 1000 // 2
