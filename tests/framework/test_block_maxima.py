"""Block maxima: the highest total, its rows, and the choice among them are those of a look at all rows."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, NodeTable
from kube_policy_scheduler.framework.choice import Choice, TieBreak
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Kernels
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima, DomainBlocks, DomainMaxima


@given(
    size=st.integers(1, 700),
    changes=st.lists(
        st.tuples(st.integers(-3, 300), st.dictionaries(st.integers(0, 5_000), st.integers(-1, 3), max_size=9)),
        max_size=8,
    ),
    compiled=st.booleans(),
)
def test_after_any_changes_the_highest_and_its_rows_are_those_of_the_totals(
    size: int, changes: list[tuple[int, dict[int, int]]], compiled: bool
) -> None:
    totals = np.arange(size) % 3.0
    maxima = BlockMaxima(totals, Accelerator(compile_kernels().kernels) if compiled else None)
    for more, written in changes:
        before, size = size, max(1, size + more)
        values = {row % size: -np.inf if total < 0 else float(total) for row, total in written.items()}
        values |= dict.fromkeys(range(before, size), 1.0)
        totals = np.concatenate((totals[:size], np.zeros(max(0, size - before))))
        rows = np.array(list(values), np.int64)
        totals[rows] = list(values.values())
        if len(values) == 1 and size == before:
            maxima.write_one(int(rows[0]), float(totals[rows[0]]))
        else:
            maxima.write(rows, totals[rows], size=size)

        highest = maxima.highest
        tied = maxima.best()
        expected = np.flatnonzero(totals == totals.max())
        assert highest == totals.max()
        assert np.array_equal(maxima.totals(np.arange(size)), totals)
        if highest > -np.inf:
            assert (tied.rows().tolist(), len(tied)) == (expected.tolist(), len(expected))


_WRITES = st.lists(st.tuples(st.integers(0, 39), st.integers(-1, 3)), max_size=20)


@given(size=st.integers(1, 40), before=_WRITES, to_copy=_WRITES, to_first=_WRITES)
def test_a_copy_and_what_it_was_made_of_change_apart(
    size: int, before: list[tuple[int, int]], to_copy: list[tuple[int, int]], to_first: list[tuple[int, int]]
) -> None:
    totals = np.arange(size) % 3.0
    first = BlockMaxima(totals.copy(), rows=4)

    def write(maxima: BlockMaxima, expected: NDArray[np.float64], writes: list[tuple[int, int]]) -> None:
        for row, total in writes:
            expected[row % size] = -np.inf if total < 0 else float(total)
            maxima.write_one(row % size, expected[row % size])

    write(first, totals, before)
    other, others = first.copy(), totals.copy()
    write(other, others, to_copy)
    write(first, totals, to_first)
    for maxima, expected in ((first, totals), (other, others)):
        assert np.array_equal(maxima.totals(ALL_ROWS), expected)
        assert maxima.highest == expected.max()
        if expected.max() > -np.inf:
            assert maxima.best().rows().tolist() == np.flatnonzero(expected == expected.max()).tolist()
            assert len(maxima.best()) == np.count_nonzero(expected == expected.max())


@settings(max_examples=60)
@given(
    size=st.integers(1, 300),
    writes=st.lists(
        st.dictionaries(st.integers(0, 299), st.sampled_from([-np.inf, -0.0, 0.0, 1.0, 2.0, np.nan]), max_size=40),
        max_size=6,
    ),
    one_by_one=st.booleans(),
)
def test_compiled_writes_leave_the_same_as_array_passes(
    size: int, writes: list[dict[int, float]], one_by_one: bool
) -> None:
    compiled, plain = (
        BlockMaxima(np.arange(size) % 3.0, accelerator)
        for accelerator in (Accelerator(compile_kernels().kernels), Accelerator())
    )
    for written in writes:
        values = {row % size: total for row, total in written.items()}
        if not values:
            continue
        rows, totals = np.array(list(values), np.int64), np.array(list(values.values()))
        for maxima in (compiled, plain):
            maxima.write(rows, totals, size=size)
            if one_by_one:
                maxima.write_one(0, 2.0)

        np.testing.assert_array_equal(compiled.of_blocks(), plain.of_blocks())
        np.testing.assert_array_equal(compiled.totals(np.arange(size)), plain.totals(np.arange(size)))
        if compiled.highest == compiled.highest:
            assert (compiled.best().rows().tolist(), len(compiled.best())) == (
                plain.best().rows().tolist(),
                len(plain.best()),
            )


NUMBERS = st.sampled_from([-np.inf, 0.0, 0.1, 0.30000000000000004, 0.3, 7.0])
"""Two of them are equal once 100 is added."""


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), NUMBERS), min_size=1, max_size=300),
    scores=st.lists(st.sampled_from([0.0, 100.0, 33.3]), min_size=3, max_size=3),
    written=st.lists(st.dictionaries(st.integers(0, 5_000), NUMBERS, max_size=9), max_size=4),
    block=st.sampled_from([1, 4, 128]),
    compiled=st.booleans(),
)
def test_scores_by_domain_are_added_as_to_each_row(
    rows: list[tuple[int, float]],
    scores: list[float],
    written: list[dict[int, float]],
    block: int,
    compiled: bool,
) -> None:
    index = np.array([domain for domain, _ in rows], np.intp)  # 3: no domain
    totals, of_domains = np.array([total for _, total in rows]), np.array([*scores, 0.0, 0.0])
    domains = Topology("zone", object(), 3, index, np.where(index == 3, 4, index), None)
    maxima = DomainMaxima(
        totals, DomainBlocks(domains, block=block), Accelerator(compile_kernels().kernels) if compiled else None
    )
    for changes in [{}, *written]:
        values = {row % len(rows): total for row, total in changes.items()}
        changed = np.array(list(values), np.int64)
        totals[changed] = list(values.values())
        if len(values) == 1:
            maxima.write_one(int(changed[0]), float(totals[changed[0]]))
        else:
            maxima.write(changed, totals[changed], size=len(rows))

        sums = totals + of_domains[index]
        expected, tied = np.flatnonzero(sums == sums.max()), maxima.best(of_domains)
        assert set(np.flatnonzero(maxima.feasible())) == set(index[totals > -np.inf])
        assert tied.total == sums.max()
        if tied.total > -np.inf:
            assert (sorted(tied.rows().tolist()), len(tied)) == (expected.tolist(), len(expected))
            assert tied.among(np.arange(len(rows))).tolist() == expected.tolist()


@given(
    size=st.integers(40, 90),
    changes=st.lists(
        st.tuples(st.integers(-3, 3), st.dictionaries(st.integers(0, 92), st.integers(0, 2), max_size=1)),
        max_size=12,
    ),
    skipped=st.sets(st.integers(0, 11)),
    block=st.sampled_from([1, 4, 16]),
)
def test_blocks_by_domain_follow_nodes_that_come_go_and_move(
    size: int, changes: list[tuple[int, dict[int, int]]], skipped: set[int], block: int
) -> None:
    def topology(index: NDArray[np.intp]) -> Topology:
        return Topology("zone", object(), 2, index, np.where(index == 2, 3, index), None)

    index = np.arange(size) % 3  # 2: no domain
    blocks = DomainBlocks(topology(index), block=block)
    maxima = DomainMaxima(10.0 * index + np.arange(size) % 2, blocks)
    written = set[int]()
    for number, (more, moved) in enumerate(changes):
        before, size = len(index), max(20, len(index) + more)
        index = np.concatenate((index[:size], np.full(max(0, size - before), 1)))
        for row, domain in moved.items():
            index[row % size] = domain
        followed = blocks.followed(topology(index))
        blocks = followed if followed is not None else DomainBlocks(topology(index), block=block)
        assert blocks.row[blocks.place].tolist() == list(range(size))
        assert blocks.domain[blocks.place // block].tolist() == index.tolist()
        assert np.count_nonzero(blocks.row >= 0) == size
        written |= {*range(min(before, size), size), *(row % size for row in moved)}
        if number in skipped:
            continue
        totals = 10.0 * index + np.arange(size) % 2
        rows = maxima.follow(blocks)
        if rows is None:
            maxima = DomainMaxima(totals, blocks)
        else:
            changed = np.array([row for row in {*written, *rows} if row < size], np.int64)
            maxima.write(changed, totals[changed], size=size)
        written.clear()
        fresh = DomainMaxima(totals, DomainBlocks(topology(index), block=block))
        for scores in (np.array([0.0, 9.0, 1.0, 0.0]), np.array([30.0, 0.0, 0.0, 0.0])):
            assert maxima.best(scores).total == fresh.best(scores).total
            assert sorted(maxima.best(scores).rows()) == sorted(fresh.best(scores).rows())
        assert maxima.feasible().tolist() == fresh.feasible().tolist()


def table(names: list[str]) -> NodeTable:
    nodes = NodeTable()
    for name in names:
        nodes.set(msgspec.convert({"metadata": {"name": name}}, objects.Node))
    return nodes


@pytest.mark.parametrize("share", [1.0, 0.5, 0.02, 0.002])
@pytest.mark.parametrize("size", [1, 127, 129, 2_000, 9_000])
def test_the_choice_among_many_is_that_among_all_rows_that_tie(size: int, share: float) -> None:
    nodes, rng = table([f"node-{number}" for number in range(size)]), Random(f"{size} {share}")
    totals = np.array([float(rng.random() < share) for _ in range(size)])
    tied = BlockMaxima(totals).best()
    for number in range(50):
        choice = TieBreak(nodes, uid=f"pod-{number}", seed=7)
        assert choice.first_of_many(tied) == choice.first(np.flatnonzero(totals == totals.max()))


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """Return the compiled loops, where numba is installed."""
    compiled = compile_kernels().kernels
    if compiled is None:
        pytest.skip("numba is not installed")
    return compiled


@given(
    size=st.integers(1, 6_000),
    share=st.sampled_from([1.0, 0.5, 0.02, 0.002, 0.0]),
    gone=st.lists(st.integers(0, 100), max_size=3),
    changed=st.dictionaries(st.integers(0, 9_000), st.sampled_from([-np.inf, 0.0, 1.0, 2.0]), max_size=5),
    seed=st.integers(0, 9),
)
def test_compiled_loops_choose_the_same(
    size: int, share: float, gone: list[int], changed: dict[int, float], seed: int, kernels: Kernels
) -> None:
    nodes, rng = table([f"node-{number}" for number in range(size)]), Random(f"{size} {share} {seed}")
    for number in set(gone):
        nodes.remove(f"node-{number}") if number < size - 1 else None
    totals = np.array([float(rng.random() < share) for _ in range(nodes.size)])
    maxima = BlockMaxima(totals)
    for row, total in changed.items():
        maxima.write_one(row % nodes.size, total)
    tied, chosen = maxima.best(), 0
    if tied.total == -np.inf:
        assert TieBreak(nodes, uid="pod", seed=seed).choose(maxima, kernels) is None
        assert TieBreak(nodes, uid="pod", seed=seed).first_of_all(maxima.totals(ALL_ROWS), kernels) is None
        return
    for number in range(20):
        choice = TieBreak(nodes, uid=f"pod-{number}", seed=seed)
        found = choice.choose(maxima, kernels)
        chosen += found is not None
        expected = Choice(choice.first_of_many(tied), tied.total, len(tied))
        assert found in (None, expected)
        assert choice.first_of_all(maxima.totals(ALL_ROWS), kernels) == expected
    assert chosen == 20 or (chosen and len(tied.blocks) > 32) or len(tied) < nodes.size // 64


def test_the_choice_among_many_follows_from_the_names_and_not_from_their_order() -> None:
    names = [f"node-{number}" for number in range(1_000)]
    others = [*names, "gone-1", "gone-2"]
    Random(3).shuffle(others)
    first, second = table(names), table(others)
    second.remove("gone-1")
    second.remove("gone-2")

    for number in range(100):
        chosen = [
            nodes.names[TieBreak(nodes, uid=f"pod-{number}", seed=0).first_of_many(BlockMaxima(np.ones(1_000)).best())]
            for nodes in (first, second)
        ]
        assert chosen[0] == chosen[1]


def test_among_many_equal_nodes_none_is_chosen_much_more_often() -> None:
    nodes, counts = table([f"node-{number}" for number in range(600)]), np.zeros(600)
    tied = BlockMaxima(np.ones(600)).best()
    for number in range(12_000):
        counts[TieBreak(nodes, uid=f"pod-{number}", seed=0).first_of_many(tied)] += 1

    assert counts.min() > 2
    assert counts.max() < 70
