"""Laying the answers of a metrics server over the nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signal_join import Join, NodeIndex, SignalColumns, SignalState, join
from kube_policy_scheduler.cluster.signals import Query, Reading, Series, Signals


@dataclass
class Nodes:
    names: list[str]
    hostnames: list[str | None] = field(default_factory=list)
    addresses: list[tuple[str, ...]] = field(default_factory=list)
    identity_version: int = 1

    def __post_init__(self) -> None:
        self.hostnames = self.hostnames or [None] * len(self.names)
        self.addresses = self.addresses or [()] * len(self.names)

    def changes_since(self, version: int) -> None:
        """What changed is not known one by one."""


NODES = Nodes(
    names=["node-a", "node-b", "node-c"],
    hostnames=["host-a", None, "host-c.example"],
    addresses=[("10.0.0.1", "fd00::1", "shared"), ("10.0.0.2", "shared"), ("10.0.0.3",)],
)


def reading(*series: tuple[dict[str, str], float], scalar: float | None = None, **given: Any) -> Reading:
    return Reading(
        promql="m",
        series=tuple(Series(labels=labels, value=value, timestamp=1000.0) for labels, value in series),
        evaluated_at=given.pop("evaluated_at", 1000.0),
        fetched_at=given.pop("fetched_at", 1000.0),
        scalar=scalar,
    )


def joined(*series: tuple[dict[str, str], float], by: str | None = None, nodes: Nodes = NODES) -> Join:
    return join(reading(*series), by=by, index=NodeIndex.of(nodes))


def values(result: Join) -> list[float | None]:
    return [None if math.isnan(value) else value for value in result.values.tolist()]


@pytest.mark.parametrize(
    ("labels", "row"),
    [
        ({"node": "node-b"}, 1),
        ({"kubernetes_node": "node-b"}, 1),
        ({"nodename": "node-b"}, 1),
        ({"node_name": "node-b"}, 1),
        ({"kubernetes_io_hostname": "host-c.example"}, 2),
        ({"hostname": "host-a"}, 0),
        ({"host": "node-c"}, 2),
        ({"instance": "node-c"}, 2),
        ({"instance": "node-c:9100"}, 2),
        ({"instance": "10.0.0.2:9100"}, 1),
        ({"instance": "10.0.0.2"}, 1),
        ({"instance": "[fd00::1]:9100"}, 0),
        ({"instance": "[fd00:0:0::1]:9100"}, 0),
        ({"instance": "fd00::1"}, 0),
        ({"node": "node-a", "instance": "10.0.0.3:8080"}, 0),
        ({"exported_node": "node-a", "node": "node-c"}, 0),
        ({"nodename": "other-name", "instance": "10.0.0.3:9100"}, 2),
        ({"hostname": "shared", "instance": "10.0.0.3:9100"}, 2),
    ],
    ids=lambda value: ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_a_series_finds_its_node(labels: dict[str, str], row: int) -> None:
    result = joined((labels, 7.0))
    assert [index for index, value in enumerate(values(result)) if value == 7.0] == [row]
    assert result.matched == 1
    assert result.problems() == []


def test_a_series_about_a_node_that_is_gone_is_not_given_to_the_exporters_node() -> None:
    result = joined(({"node": "gone", "instance": "10.0.0.3:8080"}, 7.0))
    assert values(result) == [None, None, None]
    assert result.problems() == ['{instance="10.0.0.3:8080", node="gone"}: no node of that name, hostname or address']


def test_the_named_label_is_the_only_one_looked_at() -> None:
    series = {"node": "node-a", "machine": "10.0.0.2:1"}
    assert values(joined((series, 7.0), by="machine")) == [None, 7.0, None]
    assert values(joined(({"node": "node-a"}, 7.0), by="machine")) == [None, None, None]


def test_an_address_of_two_nodes_identifies_neither_and_is_reported() -> None:
    result = joined(({"instance": "shared:9100"}, 7.0))
    assert values(result) == [None, None, None]
    assert result.problems() == ['{instance="shared:9100"}: the label value belongs to several nodes']


def test_a_nodes_own_name_wins_over_another_nodes_hostname_label() -> None:
    nodes = Nodes(names=["a", "b"], hostnames=["b", "b"])
    assert values(joined(({"node": "b"}, 7.0), nodes=nodes)) == [None, 7.0]


def test_two_series_that_disagree_about_a_node_make_it_missing() -> None:
    result = joined(
        ({"node": "node-a", "cpu": "0"}, 1.0),
        ({"node": "node-a", "cpu": "1"}, 2.0),
        ({"node": "node-b"}, 3.0),
    )
    assert values(result) == [None, 3.0, None]
    assert result.conflicting == ("node-a",)
    assert result.problems() == [
        "node-a: several series with different values; aggregate in the query, for example max by (node) (…)"
    ]


def test_two_series_that_agree_are_one_value() -> None:
    assert values(joined(({"node": "node-a", "job": "x"}, 1.0), ({"node": "node-a", "job": "y"}, 1.0)))[0] == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_finite_number_is_missing(value: float) -> None:
    result = joined(({"node": "node-a"}, value), ({"node": "node-b"}, 3.0))
    assert values(result) == [None, 3.0, None]
    assert result.problems() == ["node-a: the value is not a finite number"]


def test_a_scalar_is_one_value_for_all_nodes() -> None:
    result = join(reading(scalar=4.0), by=None, index=NodeIndex.of(NODES))
    assert values(result) == [4.0, 4.0, 4.0]


def test_a_scalar_that_is_not_a_number_is_missing_everywhere() -> None:
    result = join(reading(scalar=math.nan), by=None, index=NodeIndex.of(NODES))
    assert values(result) == [None, None, None]


def test_one_series_without_labels_is_not_spread_over_all_nodes() -> None:
    result = joined(({}, 4.0))
    assert values(result) == [None, None, None]
    assert result.problems() == ["the answer has no labels: write scalar(…) for one value for all nodes"]


def test_without_nodes_there_are_no_values() -> None:
    assert joined(({"node": "node-a"}, 1.0), nodes=Nodes(names=[])).values.shape == (0,)


def column(query: Query, at: float, *, signals: Signals, columns: SignalColumns | None = None) -> list[float | None]:
    found = (columns or SignalColumns()).column(query, signals=signals, nodes=NODES, now=at).values
    return [None if math.isnan(value) else value for value in found.tolist()]


def test_a_reading_older_than_the_query_allows_is_missing() -> None:
    signals = Signals.of([reading(({"node": "node-a"}, 1.0))])
    query = Query("m", stale_after_seconds=60.0)
    assert column(query, 1060.0, signals=signals) == [1.0, None, None]
    assert column(query, 1060.1, signals=signals) == [None, None, None]
    assert column(Query("m", stale_after_seconds=90.0), 1060.1, signals=signals) == [1.0, None, None]
    assert SignalColumns().column(query, signals=signals, nodes=NODES, now=1061.0).state is SignalState.STALE
    assert signals.usable(query, now=1060.0)
    assert not signals.usable(query, now=1060.1)


def test_a_query_never_answered_is_missing() -> None:
    found = SignalColumns().column(Query("m"), signals=Signals.EMPTY, nodes=NODES, now=0.0)
    assert found.state is SignalState.ABSENT
    assert found.missing == 3


def test_a_sample_that_was_old_when_fetched_is_missing_alone() -> None:
    old, young = ({"node": "node-a"}, 1.0), ({"node": "node-b"}, 2.0)
    given = Reading(
        promql="m",
        series=(Series(old[0], old[1], timestamp=450.0), Series(young[0], young[1], timestamp=499.0)),
        # the server's clock is 500 s behind ours: ages must not notice
        evaluated_at=500.0,
        fetched_at=1000.0,
    )
    query = Query("m", stale_after_seconds=60.0)
    signals = Signals.of([given])
    assert column(query, 1010.0, signals=signals) == [1.0, 2.0, None]
    assert column(query, 1011.0, signals=signals) == [None, 2.0, None]
    assert SignalColumns().column(query, signals=signals, nodes=NODES, now=1011.0).missing == 2


@given(
    ages=st.lists(st.sampled_from([0.0, 1.0, 10.0, 25.0, 30.0, 40.0]), min_size=3, max_size=3),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["read again", "label", "node", "nothing"]),
            st.sampled_from([-20.0, 0.0, 0.5, 1.0, 5.0, 20.0, 29.999999, 31.0]),
        ),
        max_size=12,
    ),
)
def test_a_remembered_column_is_what_is_made_anew(ages: list[float], steps: list[tuple[str, float]]) -> None:
    nodes, columns, query = (
        Nodes(names=["node-a", "node-b", "node-c"]),
        SignalColumns(),
        Query("m", stale_after_seconds=30.0),
    )
    now, label = 1000.0, None
    given_now = aged(ages, at=now)
    for change, seconds in steps:
        now += seconds
        if change == "read again":
            given_now = aged(ages[::-1], at=now)
        elif change == "label":
            label = "host" if label is None else None
        elif change == "node":
            nodes.names.reverse()
            nodes.identity_version += 1
        signals = Signals.of([given_now], node_label=label)
        kept = columns.column(query, signals=signals, nodes=nodes, now=now)
        plain = SignalColumns().column(query, signals=signals, nodes=nodes, now=now)
        assert kept.state is plain.state
        assert kept.missing == plain.missing
        np.testing.assert_array_equal(kept.values, plain.values)


def aged(ages: list[float], *, at: float) -> Reading:
    series = [
        Series(labels={"node": f"node-{letter}", "host": f"node-{letter}"}, value=age, timestamp=at - age)
        for letter, age in zip("abc", ages, strict=True)
    ]
    return Reading(promql="m", series=tuple(series), evaluated_at=at, fetched_at=at)


def test_a_clock_set_back_makes_nothing_stale_or_negative() -> None:
    given = reading(({"node": "node-a"}, 1.0), fetched_at=1000.0)
    assert given.age_seconds(10.0) == 0.0
    assert column(Query("m"), 10.0, signals=Signals.of([given])) == [1.0, None, None]


def test_a_join_is_made_once_per_reading_and_node_table_version() -> None:
    columns = SignalColumns()
    nodes = Nodes(names=["node-a"])
    first = reading(({"node": "node-a"}, 1.0), ({"node": "node-b"}, 2.0))
    query = Query("m")

    def look(given: Reading) -> Join:
        return columns.joined(query, reading=given, nodes=nodes)

    before = look(first)
    assert look(first) is before
    nodes.names.append("node-b")
    nodes.hostnames.append(None)
    nodes.addresses.append(())
    nodes.identity_version += 1
    after = look(first)
    assert after.values.tolist() == [1.0, 2.0]
    assert look(reading(({"node": "node-a"}, 5.0))).values.tolist()[0] == 5.0


def test_a_new_reading_is_laid_over_the_nodes_by_its_own_labels() -> None:
    columns = SignalColumns()
    nodes = Nodes(names=["node-a", "node-b"])

    def values(*series: tuple[dict[str, str], float]) -> list[float]:
        return columns.joined(Query("m"), reading=reading(*series), nodes=nodes).values.tolist()

    assert values(({"node": "node-a"}, 1.0), ({"node": "node-b"}, 2.0)) == [1.0, 2.0]
    assert values(({"node": "node-a"}, 3.0), ({"node": "node-b"}, 4.0)) == [3.0, 4.0]
    assert values(({"node": "node-b"}, 5.0), ({"node": "node-a"}, 6.0)) == [6.0, 5.0]


def test_the_daemons_node_label_holds_for_queries_that_name_none() -> None:
    given = reading(({"node": "node-a", "host": "node-b"}, 1.0))
    signals = Signals.of([given], node_label="host")
    nodes = Nodes(names=["node-a", "node-b"])

    def values(query: Query) -> list[float]:
        column = SignalColumns().column(query, signals=signals, nodes=nodes, now=given.fetched_at)
        return np.nan_to_num(column.values, nan=-1.0).tolist()

    assert values(Query("m")) == [-1.0, 1.0]
    assert values(Query("m", by="node")) == [1.0, -1.0]


def test_columns_are_read_only() -> None:
    found = SignalColumns().column(
        Query("m"), signals=Signals.of([reading(({"node": "node-a"}, 1.0))]), nodes=NODES, now=1000.0
    )
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 2.0


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from(["node", "instance", "host", "exported_node", "hostname"]),
                st.sampled_from(
                    ["node-a", "node-b", "10.0.0.1:9100", "shared", "gone", "", "[fd00::1]:1", "::", "[", ":"]
                ),
                max_size=3,
            ),
            st.floats(),
        ),
        max_size=8,
    ),
    st.randoms(),
)
def test_the_order_of_series_does_not_matter_and_no_series_is_lost(
    series: list[tuple[dict[str, str], float]], random: Any
) -> None:
    shuffled = list(series)
    random.shuffle(shuffled)
    one, other = joined(*series), joined(*shuffled)
    assert np.array_equal(one.values, other.values, equal_nan=True)
    assert one.conflicting == other.conflicting
    assert set(one.conflicting) | set(one.not_finite) <= set(one.missing_names())
    if series:
        assert one.matched or one.unmatched or one.ambiguous or one.conflicting or one.not_finite
