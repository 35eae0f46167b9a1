"""Queues of other schedulers as policies: what is said, that it compiles, and that nothing is dropped silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.importing.foreign_queues import ImportedQueues, has_queues, import_queues

Json = dict[str, Any]
FILES = sorted((Path(__file__).parent / "queues").glob("*.yaml"))


def imported(*objects: Any) -> ImportedQueues:
    return import_queues(parse_documents(Source("queues.yaml", yaml.safe_dump_all(objects, sort_keys=False))))


TRUE_OF_THE_QUEUES = {
    "P0378": "a queue guarantees one resource and not another one that its pods request",
    "P0380": "a weight, or a share, stands alone",
}
"""Warnings about what the queues say where they come from: to say less of it would be another policy."""


def compiled(text: str) -> Any:
    """Return the policies; they have no errors, no warnings that come from the import, and are formatted."""
    loaded = load([Source("queues.policy", text)])
    assert [str(found) for found in loaded.diagnostics if found.code not in TRUE_OF_THE_QUEUES] == []
    assert loaded.policy_set is not None
    assert format_source(Source("queues.policy", text)) == Formatted(text)
    return loaded.policy_set


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_queues_become_a_policy_and_what_is_lost_is_told(file: Path, snapshot: SnapshotAssertion) -> None:
    documents = parse_documents(Source(file.name, file.read_text(encoding="utf-8")))
    assert has_queues(documents)
    made = import_queues(documents)
    compiled(made.text)

    assert made.text == snapshot
    for note in made.notes:
        assert f"# - {note}\n" in made.text


def kai(name: Any, parent: Any = None, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"parentQueue": parent, **spec} if parent is not None else spec,
    }


def volcano(name: Any, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def kueue(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def quota(**quantities: Any) -> Json:
    """A ClusterQueue's resourceGroup of one resource."""
    resource = {"name": "cpu", **quantities}
    return {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}


UNUSABLE: dict[str, tuple[list[Any], str]] = {
    "a circle": ([kai("a", "b"), kai("b", "a")], "queues are below each other in a circle: a → b → a"),
    "its own parent": ([volcano("a", parent="a")], "queues are below each other in a circle: a → a"),
    "cohorts in a circle": (
        [kueue("Cohort", "a", parentName="b"), kueue("Cohort", "b", parentName="a")],
        "queues are below each other in a circle: a → b → a",
    ),
    "too deep": ([kai(f"q{n}", f"q{n + 1}") for n in range(9)] + [kai("q9")], "queue `q0` is below 8 others"),
    "too many": ([volcano(f"q{n}") for n in range(1001)], "there are more than 1,000 queues"),
    "an unknown parent": ([kai("a", "gone")], "its parent `gone` is not in the input"),
    "a quantity": ([volcano("a", deserved={"cpu": "lots"})], "`lots` is not a quantity"),
    "a negative quantity": ([volcano("a", deserved={"cpu": "-1"})], "`-1` is below 0"),
    "a quantity that is a list": ([volcano("a", deserved={"cpu": [1]})], "expected a quantity for cpu"),
    "a resource": ([volcano("a", deserved={"a b": 1})], "`a b` is not the name of a resource"),
    "a weight": ([volcano("a", weight="heavy")], "`heavy` is not a number from 0"),
    "an endless weight": ([volcano("a", weight=float("inf"))], "`inf` is not a number from 0"),
    "a name": ([kai("a\nscore 1")], "no queue can be called `a score 1`"),
    "no name": ([kai(None)], "no queue can be called `None`"),
    "a text for a mapping": ([volcano("a", deserved="all")], "expected a mapping"),
    "a mapping for a list": ([kueue("ClusterQueue", "a", resourceGroups={})], "expected a list"),
    "a text in a list": ([kueue("ClusterQueue", "a", resourceGroups=["cpu"])], "expected a mapping"),
    "two of one name": ([kai("a"), kai("a")], "there are two queues called `a`"),
    "two schedulers": ([kai("a"), volcano("b")], "queues of several schedulers (KAI's Queues, Volcano's Queues)"),
    "no queue": ([kueue("ResourceFlavor", "a")], "there is no queue in the input"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_used_is_an_error_at_its_place(name: str) -> None:
    objects, message = UNUSABLE[name]
    with pytest.raises(DocumentError) as caught:
        imported(*objects)
    (found,) = caught.value.diagnostics

    assert message in found.message
    assert len(found.message) < 400


ANY: Json = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}


def test_nothing_is_reclaimed_where_kueue_does_not() -> None:
    made = imported(*(kueue("ClusterQueue", name, cohort="c", resourceGroups=[quota(nominalQuota=4)]) for name in "ab"))
    loaded = load([Source("queues.policy", made.text)])

    assert "reclaim" not in made.text
    assert [found.code for found in loaded.diagnostics] == ["P0373"]  # the linter tells what that means


def test_what_nobody_may_borrow_is_kept() -> None:
    made = compiled(
        imported(
            kueue("ClusterQueue", "a", cohort="c", resourceGroups=[quota(nominalQuota=4, lendingLimit=1)], **ANY),
            kueue("ClusterQueue", "b", cohort="c", resourceGroups=[quota(nominalQuota=2, borrowingLimit=3)]),
        ).text
    )
    specs = {spec.name: spec for spec in made.queues.tree.queues}

    assert {name: (spec.minimum[0], spec.maximum[0], spec.kept[0]) for name, spec in specs.items()} == {
        "c": (6000, 6000, 0),
        "a": (4000, NO_LIMIT, 3000),
        "b": (2000, 5000, 0),
    }


FIELD = st.text("abcXYZ-._/ \n\"'#é", min_size=1, max_size=8)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | FIELD | st.sampled_from(["4Gi", "100m", "1e3"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELD, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([volcano, kai]),
    st.dictionaries(
        st.sampled_from(["weight", "deserved", "capability", "guarantee", "resources", "priority", "parent"]) | FIELD,
        VALUE | st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "resource", "a/b"]), VALUE),
        max_size=5,
    ),
)
def test_whatever_a_file_holds_it_is_converted_told_or_an_error(make: Any, spec: Json) -> None:
    thing = make("a")
    thing["spec"] = spec
    try:
        made = imported(thing)
    except DocumentError:
        return
    compiled(made.text)
    for key, value in spec.items():
        read = ("weight", "deserved", "capability", "guarantee", "resources", "parent")
        if key not in read and value not in (None, {}, [], "") and make is volcano:
            assert any("is not converted" in note for note in made.notes), key
