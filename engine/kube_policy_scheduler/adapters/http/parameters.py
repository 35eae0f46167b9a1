"""What a request asks for, and answers of lines that have an end. What is wrong is answered with 400, in words."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from aiohttp import web

JSON_LINES = "application/jsonl"
_DEFAULT_LIMIT = 100
_MOST_ANSWER_BYTES = 16 * 2**20
"""Of lines in one answer: some 10,000 decisions."""


def texts(request: web.Request, names: Sequence[str], *, beside: Sequence[str] = ()) -> dict[str, str]:
    """Return parameters by name, "" for each that is not given.

    Args:
        request: whose.
        names: of the parameters.
        beside: names of others that the request may have.

    Raises:
        HTTPBadRequest: it has one that nobody knows.
    """
    unknown = sorted(request.query.keys() - {*names, *beside})
    if unknown:
        raise bad_request(f"unknown parameter {unknown[0][:40]}; the parameters are: {', '.join([*names, *beside])}")
    return {name: request.query.get(name, "") for name in names}


def selection(request: web.Request, names: Sequence[str], *, outcomes: Iterable[str]) -> tuple[dict[str, str], int]:
    """Return which decisions are asked for: parameters by name, also `outcome`, and how many at most.

    Raises:
        HTTPBadRequest: a parameter is unknown, or its value is not one that it can have.
    """
    wanted, known = texts(request, [*names, "outcome"], beside=["limit"]), list(outcomes)
    if wanted["outcome"] and wanted["outcome"] not in known:
        raise bad_request(f"expected outcome to be one of {', '.join(known)}, got {wanted['outcome'][:40]}")
    return wanted, limit(request)


def limit(request: web.Request) -> int:
    """Return the parameter `limit`, 100 if it is not given.

    Raises:
        HTTPBadRequest: it is not a number.
    """
    text = request.query.get("limit", str(_DEFAULT_LIMIT))
    if not text.isascii() or not text.isdecimal() or len(text) > 7:
        raise bad_request(f"expected limit to be a number such as 100, got {text[:40]}")
    return int(text)


def last_lines(newest_first: Iterable[bytes]) -> Generator[None, None, bytes]:
    """Return the newest lines, the oldest of them first; no more than fit an answer. Yields after each."""
    lines: list[bytes] = []
    room = _MOST_ANSWER_BYTES
    for line in newest_first:
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
        yield
    return b"".join(reversed(lines))


def bad_request(text: str) -> web.HTTPBadRequest:
    """Return the answer to a request that cannot be understood, to be raised."""
    return web.HTTPBadRequest(text=f"{text}\n")
