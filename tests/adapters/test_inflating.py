"""What is compressed comes out as it was, with and without zlib-ng; anything else is an error."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.compute.inflating import Inflater, InvalidGzip, library

CONTENT = st.binary(max_size=200) | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 5_000))


@pytest.fixture(params=["zlib-ng", "zlib"])
def inflating(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "zlib_ng", None)
    else:
        pytest.importorskip("zlib_ng")
    library.cache_clear()
    assert (library() is zlib) is (request.param == "zlib")
    yield
    library.cache_clear()


@pytest.mark.usefixtures("inflating")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENT, size=st.integers(1, 300))
def test_what_was_compressed_comes_out_whole_however_it_is_cut(content: bytes, size: int) -> None:
    sent, inflater, pieces = gzip.compress(content), Inflater(), b""
    for at in range(0, len(sent), size):
        assert not inflater.is_whole
        pieces += inflater.inflate(sent[at : at + size], most_bytes=1 << 20)
    assert (pieces, inflater.is_whole) == (content, True)


@pytest.mark.usefixtures("inflating")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENT, most=st.integers(1, 110_000), said=st.none() | st.binary(min_size=4, max_size=4))
def test_a_file_in_one_piece_holds_what_its_pieces_hold(content: bytes, most: int, said: bytes | None) -> None:
    sent = gzip.compress(content)
    if said is not None:  # another size than it has: an error, or as it is without its end
        sent = sent[:-4] + said
    whole, pieces, outcomes = Inflater(), Inflater(), []
    for inflate in (whole.inflate_whole, pieces.inflate):
        try:
            outcomes.append(inflate(sent, most_bytes=most))
        except InvalidGzip:
            outcomes.append(b"an error")

    assert outcomes[0] == outcomes[1]
    assert whole.is_whole == pieces.is_whole


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize(
    "sent",
    [gzip.compress(b"hello")[:-1], gzip.compress(b"hello") + b"!", 2 * gzip.compress(b"hello")],
    ids=["cut off", "more after it", "two of them"],
)
def test_only_one_file_is_whole(sent: bytes) -> None:
    inflater = Inflater()
    assert inflater.inflate(sent, most_bytes=100) == b"hello"
    assert not inflater.is_whole


@pytest.mark.usefixtures("inflating")
def test_no_more_is_inflated_than_is_asked_for() -> None:
    assert Inflater().inflate(gzip.compress(bytes(10_000_000)), most_bytes=1_000) == bytes(1_000)


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize("sent", [b"hello", zlib.compress(b"hello"), b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 20])
def test_what_is_no_gzip_is_an_error(sent: bytes) -> None:
    with pytest.raises(InvalidGzip, match="decompressing data"):
        Inflater().inflate(sent, most_bytes=100)
