"""Which changes of the node table make signals be laid over the nodes again."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects, signal_join, signals
from kube_policy_scheduler.cluster.node_identities import NodeIdentities
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.signal_join import Join, NodeIndex, SignalColumns, join
from kube_policy_scheduler.cluster.signals import LabelSets, Query, Reading, Series, Signals


def node(name: str, *, address: str = "10.0.0.1", **labels: str) -> objects.Node:
    given: dict[str, Any] = {
        "metadata": {"name": name, "labels": {key.replace("__", "/"): text for key, text in labels.items()}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
    return msgspec.convert(given, objects.Node)


def test_only_names_hostnames_and_addresses_change_the_version() -> None:
    table = NodeTable()
    identities = NodeIdentities(table)
    table.set(node("a"))
    first = identities.identity_version
    table.set(node("a", zone="z1"))
    assert table.version > 1, "the label did change the table"
    assert identities.identity_version == first
    table.set(node("a", address="10.0.0.9", zone="z1"))
    second = identities.identity_version
    assert second != first
    table.set(node("b", address="10.0.0.2"))
    table.set(node("c", address="10.0.0.3", **{"kubernetes.io__hostname": "host-c"}))
    third = identities.identity_version
    assert third != second
    table.remove("a")
    assert identities.identity_version != third
    assert identities.names == [info.name for info in table.infos]


def test_the_index_is_by_the_tables_rows() -> None:
    table = NodeTable()
    table.set(node("a"))
    table.set(node("b", address="10.0.0.2", **{"kubernetes.io__hostname": "host-b"}))
    rows = NodeIndex.of(NodeIdentities(table)).rows
    assert rows == {"a": 0, "b": 1, "10.0.0.1": 0, "10.0.0.2": 1, "host-b": 1}


# --- joins follow the nodes ------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d", "10.0.0.1", "host"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "fd00::1", "FD00:0::1", "b"]
TEXTS = [*NAMES, *ADDRESSES, "10.0.0.2:9100", "[fd00::1]:9100", "gone", ""]
nodes_set = st.tuples(
    st.just("set"), st.sampled_from(NAMES), st.sampled_from(ADDRESSES), st.sampled_from([None, "host", "a", "10.0.0.2"])
)
nodes_gone = st.tuples(st.just("remove"), st.sampled_from(NAMES))
series = st.tuples(
    st.dictionaries(st.sampled_from(["node", "instance", "host", "hostname"]), st.sampled_from(TEXTS), max_size=2),
    st.sampled_from([1.0, 2.0, math.nan, math.inf]),
    st.sampled_from([0.0, 50.0]),
)
readings = st.tuples(st.just("read"), st.sampled_from(["m", "n"]), st.lists(series, max_size=8), st.booleans())
edits = st.tuples(st.just("edit"), st.sampled_from(["m", "n"]), st.integers(0, 8), series | st.none())


def told(found: Join) -> tuple[Any, ...]:
    """What a join says, in a form that equals itself."""
    return (
        found.names,
        [repr(value) for value in found.values.tolist()],
        found.sample_ages.tolist(),
        found.oldest_sample_age,
        found.matched,
        sorted(map(str, found.unmatched)),
        sorted(map(str, found.ambiguous)),
        found.conflicting,
        found.not_finite,
    )


@given(events=st.lists(st.one_of(nodes_set, nodes_set, nodes_gone, readings, edits), min_size=4, max_size=30))
def test_joins_that_follow_the_nodes_are_the_same_as_new_ones(events: list[tuple[Any, ...]]) -> None:
    table, columns, known = NodeTable(), SignalColumns(), dict[str, Reading]()
    identities, before, position = NodeIdentities(table), dict[tuple[str, str | None], Join](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal_join, "_REBUILD_SHARE", 0)
        for event in events:
            match event:
                case ("set", name, address, host):
                    labels = {"kubernetes.io__hostname": host} if host else {}
                    table.set(node(name, address=address, **labels))
                case ("remove", name) if name in table:
                    table.remove(name)
                case ("read", name, found, same_labels):
                    rows = [Series(labels, value, 1000.0 - age) for labels, value, age in found]
                    if same_labels and name in known:
                        rows = [Series(each.labels, each.value + 1.0, each.timestamp) for each in known[name].series]
                    known[name] = Reading(name, tuple(rows), 1000.0, 1000.0)
                case ("edit", name, at, more) if name in known:
                    # the same answer but for a series that came, or some that went
                    rows = list(known[name].series)
                    rows[at : at + 1 + at % 2 if more is None else at] = (
                        [] if more is None else [Series(more[0], more[1], 1000.0 - more[2])]
                    )
                    known[name] = Reading(name, tuple(rows), 1000.0, 1000.0)
            index = NodeIndex.of(identities)
            own = set(table.static_changes.since(position) or ())
            position = table.static_changes.end
            for name, reading in known.items():
                for by in (None, "node"):
                    followed = columns.joined(Query(name, by=by), reading=reading, nodes=identities)
                    assert told(followed) == told(join(reading, by=by, index=index))
                    older = before.get((name, by))
                    if older is not None and older.others is followed.others:
                        rows = [row for row in range(min(len(older.values), table.size)) if row not in own]
                        assert np.array_equal(older.values[rows], followed.values[rows], equal_nan=True)
                    before[name, by] = followed


def places_in(newer: LabelSets, older: LabelSets) -> list[int]:
    """Where the labels of one answer are in an older one."""
    steps = newer.finding_places_in(older)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[int] = end.value.tolist()
            return found


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=30),
    st.lists(st.sampled_from("abcdefghij"), max_size=30),
    st.sampled_from([1, 2, 64]),
)
def test_what_two_answers_have_in_common_is_found_where_it_is(old: list[str], new: list[str], near: int) -> None:
    older, newer = (LabelSets.of({"node": name, "more": name * 9} for name in names) for names in (old, new))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "_NEAR", near)
        places = places_in(newer, older)
    assert [old[place] if place >= 0 else name for name, place in zip(new, places, strict=True)] == new
    found = [place for place in places if place >= 0]
    assert found == sorted(set(found))


@pytest.mark.parametrize("come", [0, 1, 7, 99, 100])
def test_a_series_that_comes_or_goes_does_not_hide_the_others(come: int) -> None:
    names = [f"node-{number}" for number in range(100)]
    more = [*names[:come], "other", *names[come:]]
    one, other = (LabelSets.of({"node": name} for name in each) for each in (names, more))

    assert places_in(other, one) == [names.index(name) if name in names else -1 for name in more]
    assert places_in(one, other) == [more.index(name) for name in names]


def test_a_node_or_a_series_that_comes_costs_no_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    table, columns, looked = NodeTable(), SignalColumns(), list[Any]()
    identities, plain = NodeIdentities(table), signal_join._row_of

    def noted(texts: Any, *, index: NodeIndex) -> int:
        looked.append(texts)
        return plain(texts, index=index)

    def answer(count: int) -> Reading:
        return Reading(
            "m", tuple(Series({"node": f"n{row}"}, float(row), 1000.0) for row in range(count)), 1000.0, 1000.0
        )

    monkeypatch.setattr(signal_join, "_row_of", noted)
    for number in range(200):
        table.set(node(f"n{number}", address=f"10.0.1.{number}"))
    first = answer(201)
    assert columns.joined(Query("m"), reading=first, nodes=identities).matched == 200
    assert len(looked) == 201

    table.set(node("n200", address="10.0.2.1"))
    assert columns.joined(Query("m"), reading=first, nodes=identities).matched == 201
    table.remove("n7")
    assert columns.joined(Query("m"), reading=first, nodes=identities).matched == 200
    columns.joined(Query("m"), reading=answer(202), nodes=identities)
    assert len(looked) - 201 == 1 + 2 + 1, "the series of the node that came, of the two rows that changed, the new one"


# --- joins in steps --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(nodes_set, max_size=12),
    st.lists(series, max_size=8),
    st.lists(series, max_size=8),
    st.lists(nodes_set | nodes_gone | st.just(("decide",)), max_size=24),
    st.sampled_from([1, 2, 3]),
)
def test_what_is_joined_in_steps_is_as_if_joined_at_once_whatever_happens_between(
    first: list[Any], old: list[Any], new: list[Any], meanwhile: list[Any], step: int
) -> None:
    table, columns = NodeTable(), SignalColumns()
    identities, query = NodeIdentities(table), Query("m")
    older, newer = (
        Reading("m", tuple(Series(labels, value, 1000.0 - age) for labels, value, age in each), 1000.0, 1000.0)
        for each in (old, new)
    )

    def happens(one: Any) -> None:
        match one:
            case ("set", name, address, host):
                table.set(node(name, address=address, **({"kubernetes.io__hostname": host} if host else {})))
            case ("remove", name) if name in table:
                table.remove(name)
            case ("decide",):
                found = columns.joined(query, reading=older, nodes=identities)
                assert told(found) == told(join(older, by=None, index=NodeIndex.of(identities)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal_join, "STEP", step)
        for one in first:
            happens(one)
        left = list(meanwhile)
        for reading in (older, newer):
            for _ in columns.joining(query, signals=Signals.of([reading]), nodes=identities):
                if left:
                    happens(left.pop(0))
        assert list(columns.joining(query, signals=Signals.of([newer]), nodes=identities)) == []
        index = NodeIndex.of(identities)
        for reading in (newer, older):
            assert told(columns.joined(query, reading=reading, nodes=identities)) == told(
                join(reading, by=None, index=index)
            )


def test_no_step_looks_at_more_nodes_or_series_than_a_step_may(monkeypatch: pytest.MonkeyPatch) -> None:
    table, columns, looked = NodeTable(), SignalColumns(), list[int]()
    identities = NodeIdentities(table)
    plain_row, plain_aliases = signal_join._row_of, signal_join._aliases

    def row_of(texts: Any, *, index: NodeIndex) -> int:
        looked[-1] += 1
        return plain_row(texts, index=index)

    def aliases(hostname: str | None, addresses: Any) -> tuple[str, ...]:
        looked[-1] += 1
        return plain_aliases(hostname, addresses)

    count = 5 * signal_join.STEP
    for number in range(count):
        table.set(node(f"n{number}", address=f"10.0.{number // 250}.{number % 250}"))
    answer = Reading("m", [Series({"node": f"n{row}"}, 1.0, 1000.0) for row in range(count)], 1000.0, 1000.0)
    monkeypatch.setattr(signal_join, "_row_of", row_of)
    monkeypatch.setattr(signal_join, "_aliases", aliases)
    looked.append(0)
    for _ in columns.joining(Query("m"), signals=Signals.of([answer]), nodes=identities):
        looked.append(0)

    assert sum(looked) == 2 * count
    assert max(looked) <= signal_join.STEP
    looked.append(0)
    assert columns.joined(Query("m"), reading=answer, nodes=identities).matched == count
    assert looked[-1] == 0, "a decision finds all of it done"
