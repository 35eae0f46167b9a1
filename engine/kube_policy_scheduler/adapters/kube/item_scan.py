"""The loop over the bytes of a list's page: items are compared with models. For numba; in plain Python it is slow.

A model is a run of steps in the table. A step is bytes of the arena that must follow, and then a hole, except after the
last one. What is in some holes is copied, each kind of value to a row of its own with line feeds between the values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

PLAIN, ESCAPED, INNER_KEY, NUMBER, END, ELEMENTS = 0, 1, 2, 3, 4, 5
"""Kinds of holes: a string without escapes; one with them; a key that begins with `k:{`; a whole number; none; all
that is between the brackets of a list, up to the first `}]`: who decodes it finds out whether that is its end."""
LONGEST_HOLE = 1024
LONGEST_ELEMENTS = 64 << 10
MOST_DIGITS = 15
BEGINNING = b'{"metadata":{"name":"'
"""Of each item as the API server writes it."""
_BLOCK = 64
_STRING_BLOCK = 32
_PRIME = 1099511628211
_OFFSET = 1469598103934665603
SIGNATURE = (
    "Tuple((int64, int64))(Array(uint8, 1, 'C', readonly=True), int64, Tuple((uint8[::1], int64[:, ::1],"
    " int64[:, ::1], int64[:, :, ::1], uint64[::1], int64[:, ::1])),"
    " Tuple((int64[::1], int64[:, ::1], uint8[:, ::1], int64[::1])))"
)


class Models(NamedTuple):
    """What items are compared with."""

    arena: Any
    """`uint8[bytes]` of all models."""
    steps: Any
    """`int64[steps, 4]`: where the bytes begin in the arena, how many they are, the kind of the hole after them, and
    the slot for what is in it, or -1."""
    ranges: Any
    """`int64[models, 2]`: where the steps of each begin and end."""
    constants: Any
    """`int64[models, slots, 2]`: where the values of slots are that are in no hole; -1 for the others."""
    hashes: Any
    """`uint64[buckets]` of the beginning of names, by open addressing; 0 is free."""
    chains: Any
    """`int64[buckets, tries]`: the models for it, -1 after the last."""


class Compared(NamedTuple):
    """The result of a comparison."""

    found: Any
    """`int64[items]`: the model of each item."""
    lists: Any
    """`int64[items, 2]`: where in the page the elements of its list begin and end, if it has one."""
    texts: Any
    """`uint8[slots, bytes]`: the values of each slot."""
    used: Any
    """`int64[slots]`: how many bytes these are."""


def hash_of(key: bytes) -> int:
    """Return the hash of the beginning of a name, as `scan` makes it."""
    value = _OFFSET
    for byte in key:
        value = ((value ^ byte) * _PRIME) % (1 << 64)
    return value | 1


def scan(body: Any, at: int, known: Any, result: Any) -> tuple[int, int]:
    """Compare items with models, up to the first one that is like none, or the end of the list.

    Args:
        body: `uint8[bytes]`, the page.
        at: where the first item begins.
        known: `Models`, as a plain tuple.
        result: `Compared`, as a plain tuple; it is written.

    Returns:
        How many items were like a model, and where the next one begins.
    """
    arena, steps, models, constants, hashes, chains = known
    found, lists, texts, used = result
    count, size, slots = 0, len(body), len(used)
    starts, ends = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    room = texts.shape[1] - LONGEST_ELEMENTS - 1
    while count < len(found):
        for slot in range(slots):
            if used[slot] > room:
                return count, at
        # the beginning of the name, up to its last hyphen
        first = at + 21
        if first + LONGEST_HOLE > size:
            return count, at
        last, end = first, first
        while body[end] != 34 and end < first + 256:
            if body[end] == 45:
                last = end
            end += 1
        key = np.uint64(_OFFSET)
        for i in range(first, last):
            key = (key ^ np.uint64(body[i])) * np.uint64(_PRIME)
        key |= np.uint64(1)
        mask = len(hashes) - 1
        bucket = np.int64(key >> np.uint64(40)) & mask
        while hashes[bucket] != 0 and hashes[bucket] != key:
            bucket = (bucket + 1) & mask
        if hashes[bucket] == 0:
            return count, at
        model, end = -1, at
        for number in range(chains.shape[1]):
            model = chains[bucket, number]
            if model < 0:
                break
            end = at
            for step in range(models[model, 0], models[model, 1]):
                length, literal = steps[step, 1], steps[step, 0]
                if end + length >= size:
                    end = -1
                    break
                differs = np.uint8(0)
                theirs, ours = body[end : end + length], arena[literal : literal + length]
                for i in range(length):  # to the end of it, and in bytes only: such a loop uses whole vectors
                    differs = np.uint8(differs | np.uint8(theirs[i] ^ ours[i]))
                if differs != 0:
                    end = -1
                    break
                end += length
                hole, slot = steps[step, 2], steps[step, 3]
                if hole == END:
                    break
                begin, limit = end, min(end + LONGEST_HOLE, size)
                if hole == NUMBER:
                    while end < limit and 48 <= body[end] <= 57:
                        end += 1
                    digits = end - begin
                    if digits == 0 or digits > MOST_DIGITS or (digits > 1 and body[begin] == 48):
                        end = -1
                        break
                    if end >= limit or not (body[end] == 44 or body[end] == 93 or body[end] == 125):
                        end = -1
                        break
                elif hole == ELEMENTS:
                    theirs = body[begin : min(begin + LONGEST_ELEMENTS, size)]
                    length, i = -1, 1
                    if theirs[0] == 93:
                        length, i = 0, len(theirs)
                    elif theirs[0] < 32:
                        i = len(theirs)
                    while i < len(theirs):
                        # most blocks have neither the end nor a byte that JSON does not allow
                        now, before = theirs[i : i + _BLOCK], theirs[i - 1 : i - 1 + _BLOCK]
                        is_here = np.uint8(0)
                        for j in range(len(now)):
                            is_end = np.uint8(now[j] == 93) & np.uint8(before[j] == 125)
                            is_here = np.uint8(is_here | is_end | np.uint8(now[j] < 32))
                        if is_here != 0:
                            while theirs[i] >= 32 and not (theirs[i] == 93 and theirs[i - 1] == 125):
                                i += 1
                            length = i if theirs[i] == 93 else -1
                            break
                        i += _BLOCK
                    if length < 0:
                        end = -1
                        break
                    end += length
                    lists[count, 0], lists[count, 1] = begin, end
                else:
                    if hole == INNER_KEY:
                        if end + 3 >= limit or body[end] != 107 or body[end + 1] != 58 or body[end + 2] != 123:
                            end = -1
                            break
                        end += 3
                    if end + _STRING_BLOCK <= limit:
                        # most end in the first block, and most bytes before the end need no look of their own
                        theirs, plain = body[end : end + _STRING_BLOCK], np.uint8(_STRING_BLOCK)
                        for j in range(_STRING_BLOCK):
                            byte = theirs[j]
                            is_plain = (byte >= 32) & (byte <= 126) & (byte != 34) & (byte != 92)
                            plain = min(plain, np.uint8(_STRING_BLOCK) if is_plain else np.uint8(j))
                        end += np.int64(plain)
                    while end < limit and body[end] != 34:
                        byte = body[end]
                        if byte < 32 or byte > 126:
                            break
                        if byte == 92:
                            if hole == PLAIN or end + 1 >= limit:
                                break
                            byte = body[end + 1]
                            # " \ / b f n r t
                            if not (
                                byte == 34
                                or byte == 92
                                or byte == 47
                                or byte == 98
                                or byte == 102
                                or byte == 110
                                or byte == 114
                                or byte == 116
                            ):
                                break
                            end += 1
                        end += 1
                    if end >= limit or body[end] != 34:
                        end = -1
                        break
                if slot >= 0:
                    starts[slot], ends[slot] = begin, end
            if end >= 0:
                break
        if model < 0 or end < 0:
            return count, at
        if body[end] != 44 and body[end] != 93:
            return count, at
        for slot in range(slots):
            position = used[slot]
            constant = constants[model, slot, 0]
            if constant >= 0:
                length = constants[model, slot, 1] - constant
                texts[slot, position : position + length] = arena[constant : constant + length]
            else:
                length = ends[slot] - starts[slot]
                texts[slot, position : position + length] = body[starts[slot] : ends[slot]]
            texts[slot, position + length] = 10
            used[slot] = position + length + 1
        found[count] = model
        count += 1
        at = end + 1
        if body[end] == 93:
            return count, end
    return count, at
