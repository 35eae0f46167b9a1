"""Rows by hashes of names: the same whether they come one by one or in thousands."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.hashed_rows import HashedRows


def groups(rows: HashedRows) -> list[list[int]]:
    return [sorted(rows.rows(group).tolist()) for group in range(len(rows.group_hashes))]


@pytest.mark.parametrize(("first", "more"), [(0, 10), (0, 3000), (5, 2999), (200, 1001), (1500, 1500)])
def test_rows_are_grouped_alike_however_many_come_at_once(first: int, more: int) -> None:
    at_once, one_by_one = HashedRows(), HashedRows()
    for count in (first, more):
        for _ in range(count):
            number = len(one_by_one.hashes)
            at_once.extend([f"node-{number}"])
            one_by_one.extend([f"node-{number}"])
            assert len(one_by_one.groups) == number + 1
        assert groups(at_once) == groups(one_by_one)
    at_once.remove(3)
    one_by_one.remove(3)

    assert at_once.hashes.tolist() == one_by_one.hashes.tolist()
    assert at_once.groups.tolist() == one_by_one.groups.tolist()
    assert groups(at_once) == groups(one_by_one)
