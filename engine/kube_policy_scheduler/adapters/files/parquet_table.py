"""A table as Apache Parquet, with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

ROWS_AT_ONCE = 65_536
"""Of a row group: so many are in memory."""


class ParquetUnavailable(Exception):
    """pyarrow is not installed; the text says what to do."""


class ParquetTable:
    """Writes a table to a file, row group by row group. Close it: a file without its end cannot be read."""

    def __init__(self, file: IO[bytes], *, texts: Sequence[str]) -> None:
        """Write nothing yet.

        Args:
            file: open for writing.
            texts: names of the columns with texts; all others are `double`.

        Raises:
            ParquetUnavailable: pyarrow is not installed.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            from kube_policy_scheduler.installation import command_for

            raise ParquetUnavailable(f"Parquet needs pyarrow: run {command_for('parquet')}") from error
        self._arrow, self._parquet = pyarrow, parquet
        self._file, self._texts = file, frozenset(texts)
        self._writer: Any = None
        self._schema: Any = None
        self._rows: list[Sequence[Any]] = []

    def begin(self, columns: Sequence[str]) -> None:
        """Take the names of the columns; no two are the same."""
        text, number = self._arrow.string(), self._arrow.float64()
        self._schema = self._arrow.schema([(name, text if name in self._texts else number) for name in columns])
        self._writer = self._parquet.ParquetWriter(self._file, self._schema, compression="zstd")

    def add(self, row: Sequence[Any]) -> None:
        """Take a row; None is null."""
        self._rows.append(row)
        if len(self._rows) == ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file; the file stays open."""
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = [
            self._arrow.array([row[at] for row in self._rows], type=column.type)
            for at, column in enumerate(self._schema)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))
        self._rows.clear()
