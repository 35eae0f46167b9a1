"""JSON that is nested deeper than decoders go. Anyone who creates a pod can have the API server send some: its
`managedFields` may have 10,000 levels, and Kubernetes' own clients read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import msgspec

MAX_DEPTH = 200
"""Kubernetes objects nest about 20 deep, in lists and watch events a little more."""

T = TypeVar("T")

_TOKEN = rb'(?s)"(?:[^"\\]++|\\.)*+"|[{\[]|[}\]]'


def bounded(decode: Callable[[bytes], T]) -> Callable[[bytes | msgspec.Raw], T]:
    """Return a decoder that passes over what is nested too deep, instead of raising RecursionError."""

    @wraps(decode)
    def decoded(body: bytes | msgspec.Raw) -> T:
        try:
            return decode(body)
        except RecursionError:
            return decode(flattened(bytes(body)))

    return decoded


def decoder_of(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """Return a bounded decoder of one kind of struct.

    With the first body, msgspec reads the annotations of all structs within. That takes 0.2 to 4 ms, and a start has no
    time for it.
    """
    return bounded(lambda body: msgspec.json.decode(body, type=kind))


def flattened(body: bytes) -> bytes:
    """Return JSON with `null` for everything that is nested deeper than MAX_DEPTH; in time linear in its length."""
    pieces: list[bytes] = []
    depth = kept = 0
    for token in re.finditer(_TOKEN, body):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == MAX_DEPTH + 1:
                    pieces += (body[kept : token.start()], b"null")
            case b"}" | b"]":
                if depth == MAX_DEPTH + 1:
                    kept = token.end()
                depth -= 1
            case _:
                pass
    if depth > MAX_DEPTH:
        return b"".join(pieces)  # it ends within: no JSON, as the decoder will say
    return b"".join([*pieces, body[kept:]])
