"""Counters, domain totals and carried terms under any order of events, against a recount from scratch."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import affinity as affinity_module
from kube_policy_scheduler.cluster import counter_kinds as counter_module
from kube_policy_scheduler.cluster import domains, objects, pod_counters
from kube_policy_scheduler.cluster.affinity import (
    IncomingTerms,
    PodTerm,
    WeightedTerms,
    affinity_terms,
    pod_affinity,
)
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter_kinds import DistinctCounter, ExtremesCounter, RowAmountCounter
from kube_policy_scheduler.cluster.domains import DomainTotals, topology
from kube_policy_scheduler.cluster.exact_sums import ExactSums
from kube_policy_scheduler.cluster.pod_sets import NamespaceLabels, PlainSet, Weighing
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.selectors import label_selector
from kube_policy_scheduler.cluster.steps import now

NAMES = ["a", "b", "c", "d", "e"]
NAMESPACES = ["red", "blue"]
ZONE = "zone"
TEAMS: list[dict[str, str] | None] = [{"team": "x"}, {"team": "y"}, {}, None]


def selector(content: dict[str, Any] | None) -> Any:
    return label_selector(msgspec.convert(content, objects.LabelSelector) if content is not None else None)


SETS = [
    PodTerm(frozenset({"red"}), selector({"matchLabels": {"app": "web"}})),
    PodTerm(frozenset({"red", "blue"}), selector({})),
    PodTerm(frozenset(), selector({"matchLabels": {"app": "web"}}), selector({"matchLabels": {"team": "x"}})),
    PodTerm(
        frozenset(),
        selector({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        selector({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]}),
    ),
    PodTerm(frozenset({"red"}), None),
    IncomingTerms(
        (
            PodTerm(frozenset(), selector({}), selector({"matchLabels": {"team": "x"}})),
            PodTerm(frozenset({"red"}), selector({"matchLabels": {"app": "web"}})),
        )
    ),
    WeightedTerms(
        (
            (PodTerm(frozenset({"red"}), selector({"matchLabels": {"app": "web"}})), 5),
            (PodTerm(frozenset({"red"}), selector({"matchExpressions": [{"key": "app", "operator": "Exists"}]})), -5),
            (PodTerm(frozenset({"blue"}), selector({"matchLabels": {"app": "db"}})), 7),
        )
    ),
    WeightedTerms(
        (
            (PodTerm(frozenset({"red", "blue"}), selector({})), 1),
            (PodTerm(frozenset(), selector({}), selector({"matchLabels": {"team": "x"}})), 2),
        )
    ),
]

AFFINITIES: list[dict[str, Any] | None] = [
    None,
    {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE},
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE},
            ]
        }
    },
    {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {"app": "db"}},
                        "namespaceSelector": {"matchLabels": {"team": "y"}},
                        "topologyKey": "host",
                    },
                }
            ]
        }
    },
]

nodes = st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from(["z1", "z2", None]))
gone = st.tuples(st.just("no node"), st.sampled_from(NAMES))
pods = st.tuples(
    st.just("place"),
    st.integers(0, 9),
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {
            "namespace": st.sampled_from(NAMESPACES),
            "app": st.sampled_from(["web", "db", None]),
            "affinity": st.sampled_from(AFFINITIES),
            "terminating": st.booleans(),
        }
    ),
)
displaced = st.tuples(st.just("displace"), st.integers(0, 9))
namespaces = st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.sampled_from(TEAMS))
asked = st.tuples(st.just("ask"), st.sampled_from(SETS), st.booleans())
other_rules = st.just(("other rules",))
stepped = st.tuples(st.just("step"), st.sampled_from(SETS), st.integers(1, 3))
events = st.lists(
    st.one_of(nodes, gone, pods, pods, pods, displaced, namespaces, asked, stepped, other_rules),
    min_size=8,
    max_size=40,
)


def small_cluster() -> Cluster:
    cluster = Cluster()
    for position, name in enumerate(NAMES):
        apply(cluster, ("node", name, f"z{position % 3}"))
    return cluster


PROBE = {"namespace": "red", "app": "web", "affinity": None, "terminating": False}


def make_pod(cluster: Cluster, number: int, what: dict[str, Any]) -> PodInfo:
    return cluster.templates.pod(
        msgspec.convert(
            {
                "metadata": {
                    "name": f"p{number}",
                    "uid": f"p{number}",
                    "namespace": what["namespace"],
                    "labels": {"app": what["app"]} if what["app"] else {},
                    "deletionTimestamp": "2026-01-01T00:00:00Z" if what["terminating"] else None,
                },
                "spec": {"affinity": what["affinity"]},
            },
            objects.Pod,
        )
    )


def apply(cluster: Cluster, event: tuple[Any, ...]) -> None:
    match event:
        case ("node", name, zone):
            labels = {"host": name} | ({ZONE: zone} if zone else {})
            cluster.set_node(objects.Node(metadata=objects.ObjectMeta(name=name, labels=labels)))
        case ("no node", name):
            cluster.remove_node(name)
        case ("place", number, name, what):
            cluster.place(make_pod(cluster, number, what), name)
        case ("displace", number):
            cluster.displace(f"p{number}")
        case ("namespace", name, labels):
            namespace = objects.Namespace(metadata=objects.ObjectMeta(name=name, labels=labels))
            if labels is None:
                cluster.remove_object(namespace)
            else:
                cluster.set_object(namespace)
        case ("ask", pods, terminating):
            cluster.counters.counter(pods, terminating=terminating)
        case ("step", pods, times):
            probe = make_pod(cluster, 99, PROBE)
            for _ in range(times):
                cluster.counters.make_ready(probe.template, [pods])
        case ("other rules",):
            cluster.forget_rules(has_queues=False)


def limit_bytes(patch: pytest.MonkeyPatch, most: int) -> None:
    patch.setattr(pod_counters, "MIN_COUNTER_BYTES", most)
    patch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 0)


def placed(cluster: Cluster) -> Iterator[tuple[PodInfo, int]]:
    for name, there in cluster.on_node.items():
        if name in cluster.nodes:
            for pod in there.values():
                yield pod, cluster.nodes.rows[name]


def recount(cluster: Cluster, test: Any) -> list[int]:
    tally: Tally[int] = Tally()
    for pod, row in placed(cluster):
        tally[row] += test(pod)
    return [tally[row] for row in range(cluster.nodes.size)]


class Watcher:
    """Keeps domain totals over all events, as plugins do, and makes new ones when it must."""

    def __init__(self, cluster: Cluster, pods: Any, *, terminating: bool) -> None:
        self.cluster, self.pods, self.terminating = cluster, pods, terminating
        self.version = -1
        self.totals: DomainTotals | None = None

    def check(self) -> None:
        nodes = self.cluster.nodes
        if self.pods.is_large:  # plugins let it catch up
            self.cluster.counters.counter(self.pods, terminating=self.terminating)
        if self.totals is None or self.version != nodes.version or not self.totals.sync():
            counter = self.cluster.counters.counter(self.pods, terminating=self.terminating)
            self.version, self.totals = nodes.version, DomainTotals(topology(nodes, ZONE), [(counter, 3)])
            assert self.totals.sync()
        zones: Tally[str] = Tally()
        match_count = 0
        for pod, row in placed(self.cluster):
            zone = nodes.infos[row].labels.get(ZONE)
            if zone and (self.terminating or not pod.terminating):
                weight = self.pods.weight(pod.template, self.cluster.counters.namespaces)
                zones[zone] += weight or 0
                match_count += weight is not None
        found = self.totals
        for info in nodes.infos:
            if (zone := info.labels.get(ZONE)) is not None:
                assert found.totals[found.topology.index[info.row]] == 3 * zones[zone]
        assert found.match_count == match_count
        assert found.totals[found.topology.nothing] == 0


@given(
    events=events,
    limit=st.sampled_from([2, 4, 4096]),
    journal=st.sampled_from([2, 512]),
    few=st.sampled_from([0, 16]),
    most=st.sampled_from([0, 2048, 2**30]),
    many=st.sampled_from([1, 2, 256]),
    at_once=st.sampled_from([1, 256]),
    watched=st.sets(st.tuples(st.sampled_from(SETS), st.booleans()), max_size=4),
)
def test_counts_equal_a_recount_after_any_events(
    events: list[tuple[Any, ...]],
    limit: int,
    journal: int,
    few: int,
    most: int,
    many: int,
    at_once: int,
    watched: set[tuple[Any, bool]],
) -> None:
    """Also where sets and lists of terms are large: what they select is found in steps, between which events come."""
    with pytest.MonkeyPatch.context() as patch:
        limit_bytes(patch, most)
        cluster = small_cluster()
        watchers = [Watcher(cluster, pods, terminating=t) for pods, t in watched]
        probe = make_pod(cluster, 99, PROBE)
        other = make_pod(cluster, 98, {"namespace": "blue", "app": "db", "affinity": None, "terminating": False})
        patch.setattr(pod_counters, "_MAX_TERMS", limit)
        patch.setattr(pod_counters, "_FEW_ROWS", few)
        patch.setattr(counter_module, "_JOURNAL_LIMIT", journal)
        patch.setattr(pod_counters, "_LOOK_ANEW", journal)
        patch.setattr(domains, "_REPLAY_LIMIT", journal)
        patch.setattr(affinity_module, "MANY", many)
        patch.setattr(pod_counters, "_COMPARED_AT_ONCE", at_once)
        for event in events:
            apply(cluster, event)
            cluster.counters.make_room()
            assert cluster.counters.bytes <= most
            for watcher in watchers:
                watcher.check()
            known = cluster.counters.namespaces
            for pods, terminating in watched:
                assert cluster.counters.counter(pods, terminating=terminating).per_node().tolist() == recount(
                    cluster,
                    lambda pod, pods=pods, terminating=terminating, known=known: (
                        (pods.weight(pod.template, known) or 0) * (terminating or not pod.terminating)
                    ),
                )
            for pod in (probe, other):
                expected: dict[bytes, dict[tuple[str, str], int]] = {}
                for existing, _ in placed(cluster):
                    weights = weights_of(existing.template, pod.template, known)
                    if weights:
                        expected[key_of(existing.template)] = weights
                towards = cluster.counters.carried_towards(pod.template).by
                assert {carriers.affinity.key: weights for carriers, weights in towards.items()} == expected
                for carriers in towards:
                    assert carriers.per_node().tolist() == recount(
                        cluster,
                        lambda existing, key=carriers.affinity.key: key_of(existing.template) == key,
                    )


def by_app(template: PodTemplate) -> str | None:
    return template.labels.get("app")


@given(events=events, asked_from=st.integers(0, 20))
def test_groups_know_how_many_pods_they_have_and_of_which_templates(
    events: list[tuple[Any, ...]], asked_from: int
) -> None:
    """Without terminating pods and those on unknown nodes, whenever the first question came."""
    cluster = small_cluster()
    for number, event in enumerate(events):
        apply(cluster, event)
        if number < asked_from:
            continue
        for app in ("web", "db"):
            there = [pod for pod, _ in placed(cluster) if by_app(pod.template) == app and not pod.terminating]
            assert cluster.counters.group_size(by_app, app) == len(there)
            assert set(cluster.counters.group_templates(by_app, app)) == {pod.template for pod in there}


def key_of(template: PodTemplate) -> bytes | None:
    found = pod_affinity(template)
    return found.key if found is not None else None


def weights_of(existing: PodTemplate, towards: PodTemplate, known: NamespaceLabels) -> dict[tuple[str, str], int]:
    """Return the weights of the carried terms that select pods of a template, by kind and topology key."""
    weights: Tally[tuple[str, str]] = Tally()
    terms = affinity_terms(existing)
    for kind, some in (
        ("required", terms.required),
        ("required_anti", terms.required_anti),
        ("preferred", terms.preferred),
    ):
        for term in some:
            if term.pods.matches(towards, known):
                weights[kind, term.topology_key] += term.weight if kind == "preferred" else 1
    return dict(weights)


@given(events=events, tried=events)
def test_a_rehearsal_leaves_no_trace(events: list[tuple[Any, ...]], tried: list[tuple[Any, ...]]) -> None:
    cluster = small_cluster()
    for event in events:
        apply(cluster, event)
    before = {pod.uid: (pod, cluster.node_of(pod.uid)) for pod in cluster.pods.values()}
    counts = [cluster.counters.counter(pods, terminating=False).per_node().copy() for pods in SETS]
    with cluster.dry_run():
        for event in tried:
            if event[0] in ("place", "displace"):
                apply(cluster, event)
        with cluster.dry_run():
            for uid in list(cluster.pods):
                cluster.displace(uid)
        assert cluster.dry_run_changes is not None
    assert cluster.dry_run_changes == ()
    assert {pod.uid: (pod, cluster.node_of(pod.uid)) for pod in cluster.pods.values()} == before
    for pods, count in zip(SETS, counts, strict=True):
        assert np.array_equal(cluster.counters.counter(pods, terminating=False).per_node(), count)


def test_equal_terms_of_one_pod_add_up() -> None:
    cluster = small_cluster()
    pod = make_pod(cluster, 1, {"namespace": "red", "app": "web", "affinity": AFFINITIES[1], "terminating": False})
    known = pod_affinity(pod.template)
    assert known is not None
    assert [(term.kind, term.term.weight) for term in now(known.carried())] == [("required_anti", 2)]


def test_terms_that_come_and_go_many_times_are_still_found() -> None:
    cluster = small_cluster()
    probe = make_pod(cluster, 99, {"namespace": "red", "app": "web", "affinity": None, "terminating": False})
    for number in range(500):
        affinity = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": f"key-{number}"}
                ]
            }
        }
        what = {"namespace": "red", "app": "db", "affinity": affinity, "terminating": False}
        cluster.place(make_pod(cluster, 1, what), "a")
        towards = cluster.counters.carried_towards(probe.template).by
        assert [*towards.values()] == [{("required_anti", f"key-{number}"): 1}]


def test_a_counter_asked_for_after_many_others_came_and_went_keeps_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counters, "_MAX_TERMS", 8)
    cluster = small_cluster()
    what = {"namespace": "red", "app": "web", "affinity": None, "terminating": False}
    for number in range(200):
        pods = PodTerm(
            frozenset({"red"}), selector({"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]})
        )
        counter = cluster.counters.counter(pods, terminating=True)
        before = int(counter.per_node().sum())
        cluster.place(make_pod(cluster, number, what), "a")
        assert (before, int(counter.per_node().sum())) == (number, number + 1)


def test_what_rules_counted_is_forgotten_with_them() -> None:
    """It stays while the next rules hold, which may count the same, and while it is asked for or prepared."""
    cluster = small_cluster()
    old, used, prepared = (cluster.counters.counter(pods, terminating=True) for pods in SETS[:3])

    cluster.forget_rules(has_queues=False)
    cluster.counters.counter(SETS[1], terminating=True)
    for _ in cluster.counters.counter_in_steps(SETS[2], terminating=True):
        pass
    assert old.live
    cluster.forget_rules(has_queues=False)

    assert [counter.live for counter in (old, used, prepared)] == [False, True, True]
    cluster.place(make_pod(cluster, 1, {"namespace": "red", "app": "web", "affinity": None, "terminating": False}), "a")
    assert cluster.counters.counter(SETS[0], terminating=True).per_node().tolist() == [1, 0, 0, 0, 0]


# --- amounts ---------------------------------------------------------------------------------------------

AMOUNTS = {"web": 0.1, "db": 2.0**53, "job": -1 / 3}
"""Sums of these depend on the order of floats; other pods have none."""


@dataclass(frozen=True)
class Amounts(PlainSet):
    """Pods with what they have by their label `app`."""

    weighing: Weighing  # type: ignore[misc]  # one class here, where the engine has one for each

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        amount = AMOUNTS.get(template.labels.get("app", ""))
        if amount is None or self.weighing is not Weighing.DISTINCT:
            return amount
        return list(AMOUNTS.values()).index(amount)


def exact(amounts: list[float]) -> float:
    return float(sum(map(Fraction, amounts)))


def check_amounts(cluster: Cluster, *, terminating: bool) -> None:
    def counter(weighing: Weighing) -> Any:
        return cluster.counters.counter(Amounts(weighing), terminating=terminating)

    sums, extremes, different = (counter(each) for each in (Weighing.ROW_AMOUNT, Weighing.EXTREMES, Weighing.DISTINCT))
    assert isinstance(sums, RowAmountCounter)
    assert isinstance(extremes, ExtremesCounter)
    assert isinstance(different, DistinctCounter)
    nodes, by_row, by_zone = cluster.nodes, dict[int, list[float]](), dict[str | None, list[float]]()
    for pod, row in placed(cluster):
        amount = AMOUNTS.get(pod.template.labels.get("app", ""))
        if amount is not None and (terminating or not pod.terminating):
            by_row.setdefault(row, []).append(amount)
            by_zone.setdefault(nodes.infos[row].labels.get(ZONE), []).append(amount)
    rows = [by_row.get(row, []) for row in range(nodes.size)]
    assert sums.on_rows(slice(None)).tolist() == [exact(each) for each in rows]
    assert sums.on_rows(np.arange(nodes.size)).tolist() == [exact(each) for each in rows]
    assert sums.worth() == exact([amount for each in rows for amount in each])
    for function, least in ((min, True), (max, False)):
        expected = [function(each, default=np.nan) for each in rows]
        assert np.array_equal(extremes.extremes(least=least), expected, equal_nan=True)
    zones = topology(nodes, ZONE)
    of_zones = sums.by_place(ZONE, zones.index, zones.slots)
    kinds = different.by_place(ZONE, zones.index, zones.slots)
    pods = sums.pods_by_place(ZONE, zones.index, zones.slots)
    for info in nodes.infos:
        place, there = zones.index[info.row], by_zone.get(info.labels.get(ZONE), [])
        assert (of_zones[place], kinds[place], pods[place]) == (exact(there), len(set(there)), len(there))


sized = pods.map(lambda event: (*event[:3], event[3] | {"app": ["web", "db", "job", None][event[1] % 4]}))
changes = st.lists(st.one_of(nodes, gone, sized, sized, sized, displaced), min_size=8, max_size=40)


@given(
    events=changes,
    asked_at=st.integers(0, 40),
    journal=st.sampled_from([2, 512]),
    few=st.sampled_from([0, 16]),
    most=st.sampled_from([0, 6000, 2**30]),
)
def test_sums_extremes_and_different_values_equal_a_recount_after_any_events(
    events: list[tuple[Any, ...]], asked_at: int, journal: int, few: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_counters, "_FEW_ROWS", few)
        patch.setattr(counter_module, "_JOURNAL_LIMIT", journal)
        limit_bytes(patch, most)
        cluster = small_cluster()
        for number, event in enumerate(events):
            apply(cluster, event)
            cluster.counters.make_room()
            assert cluster.counters.bytes <= most
            # some are asked first when pods are there, and not after each event
            if number >= asked_at or number % 5 == 0:
                check_amounts(cluster, terminating=bool(number % 2))
    for terminating in (False, True):
        check_amounts(cluster, terminating=terminating)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            FLOATS | st.sampled_from([0.1, 0.5, 2.0**40, 1e18]),
            st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**20)), max_size=4),
        ),
        max_size=8,
    )
)
def test_what_is_added_to_several_sums_is_as_if_added_one_by_one(
    given: list[tuple[bool, float, list[tuple[int, int]]]],
) -> None:
    together, alone = ExactSums(4), ExactSums(4)
    for is_read, amount, where in given:
        slots, times = (np.array([pair[part] for pair in where], np.int64) for part in (0, 1))
        together.add_many(slots, amount, times)
        for slot, number in where:
            alone.add(slot, amount, number)
        if is_read:
            assert together.values(slice(4)).tolist() == alone.values(slice(4)).tolist()
    assert together.values(slice(4)).tolist() == alone.values(slice(4)).tolist()
    assert [together.value(slot) for slot in range(4)] == together.values(slice(4)).tolist()


@given(st.lists(st.tuples(st.integers(0, 3), FLOATS), max_size=12))
def test_sums_are_exact_and_nothing_is_left_of_what_was_taken_away(given: list[tuple[int, float]]) -> None:
    sums = ExactSums(4)
    for slot, amount in given:
        sums.add(slot, amount)
    by_slot = [sum(Fraction(amount) for at, amount in given if at == slot) for slot in range(4)]
    expected = [float(max(Fraction(-1e308), min(Fraction(1e308), each))) for each in by_slot]
    assert sums.values(slice(4)).tolist() == expected
    for first, (slot, amount) in enumerate(given):  # a column is kept by now
        sums.add(slot, amount, -1)
        assert sums.values(np.array([slot, 0])).tolist() == [sums.value(slot), sums.value(0)], first
        sums.add(slot, amount)
    for slot, amount in given:
        sums.add(slot, amount, -1)
    assert sums.values(slice(4)).tolist() == [0.0] * 4
    assert [sums.units(slot)[0] for slot in range(4)] == [0] * 4


SOME_SUMS = st.lists(st.tuples(st.integers(0, 3), FLOATS | st.sampled_from([0.1, 0.5, -3.0, 2.0**40])), max_size=12)


@given(given=SOME_SUMS, others=SOME_SUMS, places=st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_sums_that_are_added_by_place_are_as_if_added_one_by_one(
    given: list[tuple[int, float]], others: list[tuple[int, float]], places: list[int]
) -> None:
    added, of_rows, expected = ExactSums(4), ExactSums(4), ExactSums(4)
    for slot, amount in given:
        added.add(slot, amount)
        expected.add(slot, amount)
    for slot, amount in others:
        of_rows.add(slot, amount)
        expected.add(places[slot], amount)
    added.add_by_place(of_rows, np.array(places, np.intp))
    assert added.values(slice(4)).tolist() == expected.values(slice(4)).tolist()
    for slot, amount in others:
        added.add(places[slot], amount, -1)
    for slot, amount in given:
        added.add(slot, amount, -1)
    assert added.values(slice(4)).tolist() == [0.0] * 4


def test_an_amount_that_needs_a_finer_unit_leaves_the_other_sums_as_they_are() -> None:
    size = 10_000
    sums = ExactSums(size)
    sums.add_many(np.arange(size), 0.5, np.arange(size) + 1)
    sums.settle()
    tracemalloc.start()
    try:
        sums.add(3, 0.1)
        assert tracemalloc.get_traced_memory()[1] < size  # bytes at the peak: nothing is written for each slot
    finally:
        tracemalloc.stop()
    assert sums.values(slice(4)).tolist() == [0.5, 1.0, 1.5, 2.1]


def test_the_first_look_at_sums_by_domain_calls_nothing_for_each_node() -> None:
    size = 1_000
    cluster = Cluster()
    for number in range(size):
        apply(cluster, ("node", f"n{number}", f"z{number % 3}"))
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    for number in range(size):
        what = {"namespace": "red", "app": "web", "affinity": None, "terminating": False}
        cluster.place(make_pod(cluster, number, what), f"n{number}")
    counter = cluster.counters.counter(Amounts(Weighing.ROW_AMOUNT), terminating=False)
    zones = topology(cluster.nodes, ZONE)
    counter.on_rows(slice(None))
    sys.setprofile(count)
    try:
        counter.by_place(ZONE, zones.index, zones.slots)
    finally:
        sys.setprofile(None)
    assert calls < size


PREPARED = [Amounts(each) for each in (Weighing.ROW_AMOUNT, Weighing.EXTREMES, Weighing.DISTINCT)]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.one_of(nodes, gone, pods, pods, pods, displaced, namespaces), max_size=6), max_size=12),
    st.data(),
)
def test_counters_that_are_made_in_steps_count_as_those_made_at_once(
    meanwhile: list[list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    cluster = small_cluster()
    first, *later = meanwhile or [[]]
    for event in first:
        apply(cluster, event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_counters, "_COUNTED_AT_ONCE", 1)
        patch.setattr(pod_counters, "_FEW_ROWS", data.draw(st.sampled_from([0, 16])))
        making = [cluster.counters.counter_in_steps(each, terminating=False) for each in PREPARED]
        for events in later:
            for each in making:
                next(each, None)
            for event in events:
                apply(cluster, event)
            if data.draw(st.integers(0, 9)) == 0:
                check_amounts(cluster, terminating=False)
        for each in making:
            if data.draw(st.integers(0, 9)) == 0:
                each.close()
            list(each)
        check_amounts(cluster, terminating=False)
        for events in reversed(meanwhile):
            for event in events:
                apply(cluster, event)
        check_amounts(cluster, terminating=False)


def test_a_counter_that_was_made_in_steps_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = small_cluster()
    for number in range(6):
        what = {"namespace": "red", "app": "web" if number % 2 else "db", "affinity": None, "terminating": False}
        apply(cluster, ("place", number, NAMES[number % 3], what))
    monkeypatch.setattr(pod_counters, "_COUNTED_AT_ONCE", 1)
    steps = list(cluster.counters.counter_in_steps(PREPARED[0], terminating=False))
    monkeypatch.setattr(pod_counters.PodCounters, "_count", lambda *_: pytest.fail("counted again"))

    assert len(steps) > 2
    cluster.counters.counter(PREPARED[0], terminating=False)
    assert list(cluster.counters.counter_in_steps(PREPARED[0], terminating=False)) == []


def test_pods_of_many_namespaces_whose_terms_say_the_namespaces_share_one_count() -> None:
    """Not one for each namespace: a pod that they select would ask all of them."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    of = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term | {"namespaceSelector": {}}]}}
    at_home = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    unwanted = {"weight": 1, "podAffinityTerm": term}
    with_one_at_home = of | {
        "podAntiAffinity": of["podAntiAffinity"] | {"preferredDuringSchedulingIgnoredDuringExecution": [unwanted]}
    }

    def keys(affinity: dict[str, Any]) -> int:
        made = msgspec.convert(affinity, objects.Affinity)
        return len({affinity_module.TemplateAffinity(f"ns{number}", made).key for number in range(3)})

    assert (keys(of), keys(at_home), keys(with_one_at_home)) == (1, 3, 3)
