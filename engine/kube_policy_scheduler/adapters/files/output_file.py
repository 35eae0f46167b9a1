"""Files that a command writes: whole or not at all, compressed where their name says so."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


class OutputError(Exception):
    """A file cannot be written; the text names it."""


def write_file(path: Path, content: Iterable[str] | Iterable[bytes]) -> None:
    """Write texts or bytes, one after the other.

    A file of that name is replaced once the new one is complete, and keeps its mode. A link is followed. What is no
    file, such as `/dev/stdout`, is written to as it is.

    Raises:
        OutputError: the folder is not there, is full, or may not be written to.
    """
    partial: Path | None = None
    try:
        # not by the path that a link leads to: that of /dev/stdout is the name of a pipe, which cannot be opened
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as raw:
                _write(raw, content, packed=False)
            return
        target = path.resolve()
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        with partial.open("wb") as raw:  # not a temporary file: those are for their owner alone
            if target.exists():
                partial.chmod(target.stat().st_mode & 0o7777)
            _write(raw, content, packed=path.suffix == ".gz")
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _write(raw: BinaryIO, content: Iterable[str] | Iterable[bytes], *, packed: bool) -> None:
    pieces = (piece.encode() if isinstance(piece, str) else piece for piece in content)
    if not packed:
        raw.writelines(pieces)
        return
    # no time and no name inside: the same content gives the same bytes
    with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as file:
        for piece in pieces:
            file.write(piece)
