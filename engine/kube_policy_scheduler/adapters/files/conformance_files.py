"""Files of conformance cases: JSON Lines, plain or gzip, from a path or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kube_policy_scheduler.documents.bounded_files import (
    Readable,
    UnreadableFileError,
    encoding_problem,
    lines_of,
    opened,
    problem_of,
)

_STANDARD_INPUT = "-"


class CaseFileError(Exception):
    """A file cannot be read as JSON Lines."""


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line numbers, from 1, and the objects on them; empty lines are passed over.

    Raises:
        CaseFileError: the file cannot be read, or a line is not a JSON object.
    """
    decoder = msgspec.json.Decoder()
    number = 0
    try:
        with _opened(path) as raw:
            for number, line in enumerate(lines_of(raw), 1):
                if not line.strip():
                    continue
                item = decoder.decode(line)
                if not isinstance(item, dict):
                    raise CaseFileError(f"{path}:{number}: expected a JSON object, got {type(item).__name__}")
                yield number, item
    except UnreadableFileError as error:
        raise CaseFileError(problem_of(path, error) + (f", after line {number}" if number else "")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseFileError(f"{path}:{number}: {encoding_problem(line) or f'not JSON: {error}'}") from error


def _opened(path: Path) -> AbstractContextManager[Readable]:
    return nullcontext(sys.stdin.buffer) if str(path) == _STANDARD_INPUT else opened(path)
