"""Node selectors and taints: columns equal the results node by node."""

from __future__ import annotations

from weakref import ref

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_selectors import NodeSelector, node_selector
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.taints import TaintKey, taint_sets, tolerates, untolerated_hard, untolerated_soft
from kube_policy_scheduler.framework.plugins.spread_constraints import SpreadConstraint, state_of

KEYS = st.sampled_from(["disk", "cores", "zone", "not a key"])
VALUES = st.sampled_from(["ssd", "16", "-3", "+5", "007", "9223372036854775808", "", "not a value"])
LABELS = st.dictionaries(st.sampled_from(["disk", "cores", "zone"]), VALUES, max_size=3)
REQUIREMENTS = st.builds(
    objects.Requirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Bogus"]),
    values=st.lists(VALUES, max_size=3),
)
FIELDS = st.builds(
    objects.Requirement,
    key=st.sampled_from(["metadata.name", "other"]),
    operator=st.sampled_from(["In", "NotIn", "Exists"]),
    values=st.lists(st.sampled_from(["n0", "n1", "n9", ""]), max_size=2),
)
TERMS = st.builds(
    objects.NodeSelectorTerm,
    match_expressions=st.lists(REQUIREMENTS, max_size=2),
    match_fields=st.lists(FIELDS, max_size=1),
)


def cluster_of(labels: list[dict[str, str]]) -> Cluster:
    cluster = Cluster()
    for number, own in enumerate(labels):
        cluster.set_node(objects.Node(metadata=objects.ObjectMeta(name=f"n{number}", labels=own)))
    return cluster


@given(st.lists(LABELS, min_size=1, max_size=6), st.lists(TERMS, max_size=3))
def test_the_column_says_what_each_node_says(
    labels: list[dict[str, str]], terms: list[objects.NodeSelectorTerm]
) -> None:
    nodes = cluster_of(labels).nodes
    selector = node_selector(objects.NodeSelector(node_selector_terms=terms))
    each = [selector.matches(own, f"n{number}") for number, own in enumerate(labels)]

    assert selector.mask(nodes).tolist() == each
    rows = np.arange(len(labels))[::-2]
    assert selector.mask(nodes, rows).tolist() == [each[row] for row in rows]


@given(st.lists(REQUIREMENTS, min_size=1, max_size=3), LABELS)
def test_one_requirement_that_does_not_parse_spoils_its_term_alone(
    requirements: list[objects.Requirement], labels: dict[str, str]
) -> None:
    bad = objects.Requirement(key="disk", operator="Bogus")
    spoilt = objects.NodeSelectorTerm(match_expressions=[*requirements, bad])
    good = objects.NodeSelectorTerm(match_expressions=[objects.Requirement(key="zone", operator="DoesNotExist")])
    selector = node_selector(objects.NodeSelector(node_selector_terms=[spoilt, good]))

    assert selector.matches(labels, "n") == ("zone" not in labels)


def test_no_terms_match_nothing() -> None:
    assert NodeSelector(()).mask(cluster_of([{}, {}]).nodes).tolist() == [False, False]


TAINTS = st.builds(
    objects.Taint,
    key=st.sampled_from(["a", "b"]),
    value=st.sampled_from(["", "x"]),
    effect=st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
)
TOLERATIONS = st.builds(
    objects.Toleration,
    key=st.sampled_from(["", "a", "b"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Gt"]),
    value=st.sampled_from(["", "x"]),
    effect=st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"]),
)


@given(st.lists(st.lists(TAINTS, max_size=3), min_size=1, max_size=5), st.lists(TOLERATIONS, max_size=3))
def test_taints_are_counted_per_set_as_per_node(
    taints: list[list[objects.Taint]], tolerations: list[objects.Toleration]
) -> None:
    cluster = Cluster()
    for number, own in enumerate(taints):
        meta = objects.ObjectMeta(name=f"n{number}")
        cluster.set_node(objects.Node(metadata=meta, spec=objects.NodeSpec(taints=own)))
    pod = objects.Pod(metadata=objects.ObjectMeta(name="p"), spec=objects.PodSpec(tolerations=tolerations))
    template = cluster.templates.pod(pod).template
    sets = taint_sets(cluster.nodes)
    counts = untolerated_hard(template, cluster.nodes)[sets.codes]

    for number, own in enumerate(taints):
        keys = [TaintKey(t.key, t.value, t.effect) for t in own]
        hard = [key for key in keys if key.effect != "PreferNoSchedule"]
        assert counts[number] == sum(not any(tolerates(t, key) for t in tolerations) for key in hard)


def test_an_updated_taint_is_seen_at_once() -> None:
    cluster = Cluster()
    node = {"metadata": {"name": "n"}, "spec": {"taints": []}}
    template = cluster.templates.pod(objects.Pod(metadata=objects.ObjectMeta(name="p"))).template
    cluster.set_node(msgspec.convert(node, objects.Node))
    assert untolerated_hard(template, cluster.nodes)[taint_sets(cluster.nodes).codes].tolist() == [0]

    node["spec"] = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    cluster.set_node(msgspec.convert(node, objects.Node))
    assert untolerated_hard(template, cluster.nodes)[taint_sets(cluster.nodes).codes].tolist() == [1]


def test_templates_keep_no_column_of_taints_that_changed() -> None:
    """Each has 8 bytes for each node: very many templates, each asked about once, would keep very many of them."""
    cluster = Cluster()
    spread = SpreadConstraint("zone", 1, None, honor_taints=True)
    asked: list[tuple[PodTemplate, list[object], ref[object]]] = []
    for number in range(4):
        node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": f"k{number}", "effect": "NoSchedule"}]}}
        cluster.set_node(msgspec.convert(node, objects.Node))
        meta = objects.ObjectMeta(name="p", labels={"app": str(number)})
        template = cluster.templates.pod(objects.Pod(metadata=meta)).template
        untolerated_hard(template, cluster.nodes)
        untolerated_soft(template, cluster.nodes)
        column = ref(taint_sets(cluster.nodes).codes)
        asked.append((template, state_of([spread], template, cluster.nodes), column))

    assert [column() is not None for *_, column in asked] == [False, False, False, True]
    template, state, _ = asked[-1]
    assert state_of([spread], template, cluster.nodes) == state != asked[0][1]
