"""Objects in Kubernetes' protobuf form get a finalizer, and no other byte changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.protobuf_objects import ProtobufError, with_finalizer


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def stored(metadata: bytes, spec: bytes) -> bytes:
    kind = field(1, field(1, b"resource.k8s.io/v1") + field(2, b"ResourceClaim"))
    return b"k8s\x00" + kind + field(2, field(1, metadata) + field(2, spec)) + field(3, b"") + field(4, b"")


@given(st.binary(max_size=300), st.text(max_size=20), st.integers(0, 2**63))
def test_a_finalizer_is_added_to_the_metadata_and_all_else_stays(spec: bytes, name: str, generation: int) -> None:
    metadata = field(1, name.encode()) + varint(7 << 3) + varint(generation) + field(14, b"example.com/other")
    wanted = stored(metadata + field(14, b"example.com/mine"), spec)
    assert with_finalizer(stored(metadata, spec), "example.com/mine") == wanted


@given(st.binary(max_size=60))
def test_bytes_that_are_no_object_are_refused(content: bytes) -> None:
    for each in (content, b"k8s\x00" + content):
        try:
            found = with_finalizer(each, "example.com/mine")
        except ProtobufError:
            continue
        assert field(14, b"example.com/mine") in found


@pytest.mark.parametrize("cut", range(4, 40))
def test_an_object_that_was_cut_off_is_refused(cut: int) -> None:
    whole = stored(field(1, b"a"), b"spec")
    with pytest.raises(ProtobufError):
        with_finalizer(whole[:cut], "example.com/mine")
