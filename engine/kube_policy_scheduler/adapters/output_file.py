"""Files that a command writes: whole or not at all, compressed where their name says so."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path


class OutputError(Exception):
    """A file cannot be written; the text names it."""


def write_file(path: Path, text: Iterable[str]) -> None:
    """Write a text; a file of that name is replaced once the new one is complete.

    Raises:
        OutputError: the folder is not there, is full, or may not be written to.
    """
    partial: Path | None = None
    try:
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as raw:  # not a temporary file: those are for their owner alone
            if path.suffix == ".gz":
                # no time and no name inside: the same content gives the same bytes
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
                    for piece in text:
                        packed.write(piece.encode())
            else:
                for piece in text:
                    raw.write(piece.encode())
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
