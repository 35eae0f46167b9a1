"""Tables as Parquet: read back as they were written, with few rows in memory, and an error that names the extra."""

from __future__ import annotations

import sys
from io import BytesIO

import pytest
from pyarrow import parquet

from kube_policy_scheduler.adapters.files.parquet_table import ROWS_AT_ONCE, ParquetTable, ParquetUnavailable


def test_rows_come_back_as_they_were() -> None:
    file = BytesIO()
    table = ParquetTable(file, texts=["pod"])
    table.begin(["pod", "load now", "later"])
    table.add(["shop/a", 0.1, 2])
    table.add(['"quoted",\n=1+1', -1e300, None])
    table.close()
    found = parquet.read_table(BytesIO(file.getvalue()))
    assert found.schema.names == ["pod", "load now", "later"]
    assert [str(kind) for kind in found.schema.types] == ["string", "double", "double"]
    assert found.to_pylist() == [
        {"pod": "shop/a", "load now": 0.1, "later": 2.0},
        {"pod": '"quoted",\n=1+1', "load now": -1e300, "later": None},
    ]


def test_a_table_without_rows_has_its_columns() -> None:
    file = BytesIO()
    table = ParquetTable(file, texts=["pod"])
    table.begin(["pod", "x"])
    table.close()
    found = parquet.read_table(BytesIO(file.getvalue()))
    assert (found.schema.names, found.num_rows) == (["pod", "x"], 0)


def test_rows_are_written_group_by_group() -> None:
    file = BytesIO()
    table = ParquetTable(file, texts=[])
    table.begin(["x"])
    for number in range(ROWS_AT_ONCE):
        table.add([number])
    written = file.tell()
    table.add([-1.0])
    table.close()
    about = parquet.read_metadata(BytesIO(file.getvalue()))
    assert written > 1000, "a whole group does not wait for the end"
    assert [about.row_group(at).num_rows for at in range(about.num_row_groups)] == [ROWS_AT_ONCE, 1]


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetUnavailable, match=r"Parquet needs pyarrow: run .*kube-policy-scheduler\[parquet\]"):
        ParquetTable(BytesIO(), texts=[])
