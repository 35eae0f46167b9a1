"""What the playground answers about a workload and the clusters of a fleet, held against `test` and `why`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.playground.fleet_edits import EditError, edited, edited_workload
from kube_policy_scheduler.playground.opening import FLEET_POLICY_NAME, examples, start, start_fleet
from kube_policy_scheduler.playground.session import (
    FLEET_FILE,
    MOST_FLEET_TEXT,
    Files,
    PodChoice,
    RequestError,
    Session,
    WorkloadChoice,
)
from kube_policy_scheduler.playground.sharing import FORMAT, Share, link_of, read_link, read_share, shared_text
from kube_policy_scheduler.tooling.tester.run import State

POD = PodChoice(key="shop/web-next")
FILES = next(files for files in examples().values() if FLEET_POLICY_NAME in files)
CLUSTERS = """\
clusters:
- {name: a, region: eu, provider: own, cpu: 6, price: 3}
- {name: b, region: eu, provider: aws, cpu: 12, price: 5}
- {name: c, region: us, provider: gcp, cpu: 18, price: 4}
"""
SHIPPED = sorted((Path(__file__).parents[2] / "policies/fleet").glob("*.test.yaml"))


def session(files: Files = FILES) -> Session:
    return Session(files, start().cluster)


def asked(text: str, files: Files = FILES, file: str = "", *, against: Files | None = None) -> dict[str, Any]:
    return session(files).evaluate(files, POD, workload=WorkloadChoice(text, file), against=against)


def fleet(text: str, files: Files = FILES) -> dict[str, Any]:
    answer = asked(text, files)
    assert answer["subject"] == "fleet"
    assert [found for found in answer["diagnostics"] if found["severity"] == "error"] == []
    found: dict[str, Any] = answer["fleet"]
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name.partition(".")[0])
def test_each_shipped_test_of_a_fleet_holds_in_the_playground(path: Path) -> None:
    """The clusters and workloads of the tests, asked about through the page, get what the tests expect."""
    run = load_suite(path)
    files = {source.name: source.text for source in run.sources}
    document: Any = parse_document(Source(path.name, path.read_text())).value
    compared = 0
    for case in document["cases"]:
        expected = case.get("expect", {}).get("clusters")
        if expected is None or "each" in case or case.get("passes"):
            continue
        over = case.get("clusters", {})
        clusters = [form | over.get(form["name"], {}) for form in document["clusters"]]
        metrics = document.get("metrics", {}) | case.get("metrics", {})
        others = [*document.get("workloads", []), *case.get("workloads", [])]
        text = Source(
            FLEET_FILE, _json(clusters=clusters, workload=case["workload"], metrics=metrics, workloads=others)
        )
        found = fleet(text.text, files)
        assert found["clusters"] == expected, (case["name"], found["text"])
        compared += 1
    assert compared or path.name in ("important-first.test.yaml", "back-slowly.test.yaml")


def _json(**parts: Any) -> str:
    return json.dumps(parts)


def test_the_example_says_of_each_cluster_what_why_says() -> None:
    found = fleet(start_fleet())
    assert found["clusters"] == {"berlin": 10, "iowa": 2}
    rows = {row["cluster"]: row for row in found["rows"]}
    assert list(rows) == ["berlin", "dublin", "frankfurt", "iowa", "oregon"], "in the order of the text"
    assert (rows["berlin"]["has"], rows["berlin"]["gets"], rows["berlin"]["room"]) == (4, 10, 6)
    assert rows["berlin"]["roomBy"] == "summary"
    assert rows["oregon"]["rejectedBy"] == "cluster.ready"
    assert not rows["oregon"]["ready"]
    assert rows["oregon"]["score"] is None
    assert rows["berlin"]["free"] == {"cpu": "6 of 8", "memory": "24Gi of 32Gi"}
    assert rows["berlin"]["facts"]["labels"] == "tier=prod"
    for row in found["rows"]:
        assert row["why"] in found["text"]
    notes = {each["line"]: each["note"] for each in found["clauses"] if each["line"]}
    assert notes == {4: "rejects 1", 5: "rejects 1"}


def test_a_filter_of_karmada_is_named_without_a_line() -> None:
    text = CLUSTERS.replace("price: 3}", "price: 3, taints: ['x=:NoSchedule']}") + "workload: {replicas: 2}\n"
    own = [each for each in fleet(text)["clauses"] if not each["line"]]
    assert [(each["text"], each["rejects"]) for each in own] == [("TaintToleration", 1)]


def test_what_is_compared_with_is_decided_for_the_same_fleet() -> None:
    other = {FLEET_POLICY_NAME: "for workloads where true\ndivide evenly\n"}
    answer = asked(CLUSTERS + "workload: {replicas: 6, cpu: 1}\n", against=other)
    assert answer["fleet"]["clusters"] == {"a": 6}
    assert answer["against"]["clusters"] == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("score 1", "pod"),
        ("for workloads where true\nscore 1", "fleet"),
        ("for workloads where true\nscore node.free.cpu", None),
        ("for worklo", None),
    ],
)
def test_policies_say_whether_a_pod_or_a_workload_is_decided(text: str, subject: str | None) -> None:
    answer = asked(start_fleet(), {"a.policy": text})
    assert answer["subject"] == subject
    assert answer["fleet"] is not None if subject == "fleet" else answer.get("fleet") is None


def test_of_policies_of_both_kinds_the_shown_file_counts() -> None:
    files = {"pods.policy": "score 1", **FILES}
    assert asked(start_fleet(), files, "pods.policy")["subject"] == "pod"
    assert asked(start_fleet(), files, FLEET_POLICY_NAME)["subject"] == "fleet"
    assert session(files).evaluate(files, POD)["subject"] == "pod", "a page that knows no fleet asks about pods"


def test_a_workload_that_no_policy_governs_goes_where_its_placement_says() -> None:
    found = fleet(CLUSTERS + "workload: {kind: Job, replicas: 6, cpu: 1}\n")
    assert found["policy"] is None
    assert sum(found["clusters"].values()) == 6


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("", "the file is empty", ""),
        ("clusters: [", "", ""),
        (CLUSTERS, "workload", ""),
        ("workload: {}", "clusters", ""),
        (CLUSTERS + "workload: {replicas: many}", "a whole number", "many"),
        (CLUSTERS + "workload: {has: {d: 1}}", "unknown cluster `d`", "d"),
        (CLUSTERS + "workload: {cpu: lots}", "lots", "lots"),
        (CLUSTERS + "- {name: a}\nworkload: {}", "two clusters have the name `a`", "a"),
        (CLUSTERS + "- {name: d, colour: red}\nworkload: {}", "colour", "colour"),
        (CLUSTERS + "workload: {}\ncases: []", "cases", "cases"),
        (CLUSTERS + "workload: {replicas: 2147483648}", "a whole number from 0 to 2147483647", "2147483648"),
        (CLUSTERS + "workload: {has: {a: 99999999999999999999}}", "a whole number from 0", "99999999999999999999"),
        (CLUSTERS + "workload: {replicas: '${count}'}", "`${count}` stands for a column", "'${count}'"),
    ],
)
def test_a_fleet_that_cannot_be_read_is_an_error_at_its_place(text: str, message: str, at: str) -> None:
    answer = asked(text)
    assert (answer["subject"], answer["fleet"]) == ("fleet", None)
    found = [each for each in answer["diagnostics"] if each["file"] == FLEET_FILE]
    assert found
    assert message in " ".join(each["message"] for each in found)
    if at:
        assert text[found[0]["start"] : found[0]["end"]] == at


def test_a_fleet_that_is_too_long_is_refused() -> None:
    with pytest.raises(RequestError, match="the fleet has"):
        asked(CLUSTERS + "workload: {}\n" + "#" * MOST_FLEET_TEXT)


def test_metrics_are_those_of_the_text_and_a_missing_one_is_said() -> None:
    files = {"a.policy": 'for workloads where true\nmetric load = promql("load") by cluster\nscore -(load ?? 50)\n'}
    text = CLUSTERS + "workload: {replicas: 1}\n"
    known = asked(text + "metrics: {load: {a: 10, b: 5, c: 90}}\n", files)
    scores = {row["cluster"]: row["score"] for row in known["fleet"]["rows"]}
    assert (scores, known["problems"]) == ({"a": -10, "b": -5, "c": -90}, [])
    missing = asked(text, files)
    assert {row["score"] for row in missing["fleet"]["rows"]} == {-50}
    assert missing["problems"] == ["load: it has no series"]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("for workloads where true\nfilter cluster.label.", {"disk", "tier"}),
        ("for workloads where workload.label.", {"team"}),
        ('for workloads where true\nfilter cluster.label.tier == "', {"prod", "test"}),
    ],
)
def test_labels_of_the_fleet_are_completed(text: str, labels: set[str]) -> None:
    written = "clusters:\n- {name: a, labels: {tier: prod, disk: ssd}}\n- {name: b, labels: {tier: test}}\n"
    files = {"a.policy": text}
    found = session(files).complete(files, "a.policy", len(text), fleet=written + "workload: {labels: {team: x}}\n")
    assert {each["label"] for each in found} == labels
    unfinished = session(files).complete(files, "a.policy", len(text), fleet="clusters: [")
    assert not labels & {each["label"] for each in unfinished}, "no YAML yet"


# --- edits of the table --------------------------------------------------------------------------------------

BLOCK = """\
# kept
clusters:
- name: a   # the first
  region: eu
  labels:
    tier: prod
- {name: b, price: 5, zones: [x, y]}
- region: us
  name: c
- name: d
  labels:
    tier: prod
    disk: ssd
workload: {}
"""


def edit(text: str, cluster: str, key: str, value: str) -> str:
    return edited(Source(FLEET_FILE, text), cluster, key, value)


@pytest.mark.parametrize(
    ("cluster", "key", "value", "before", "after"),
    [
        ("a", "region", "us east", "  region: eu\n", "  region: us east\n"),
        ("a", "region", "", "  region: eu\n", ""),
        ("a", "cpu", "500m", "  region: eu\n", "  cpu: 500m\n  region: eu\n"),
        ("a", "provider", "12", "  region: eu\n", "  provider: '12'\n  region: eu\n"),
        ("b", "price", "0.5", "price: 5", "price: 0.5"),
        ("b", "price", "", ", price: 5", ""),
        ("b", "ready", "false", "{name: b", "{name: b, ready: false"),
        ("b", "labels", "tier=prod, disk=ssd", "{name: b", "{name: b, labels: {tier: prod, disk: ssd}"),
        ("a", "labels", "tier=test", "\n    tier: prod\n", "\n    {tier: test}\n"),
        ("a", "labels", "", "  labels:\n    tier: prod\n", ""),
        ("c", "region", "", "- region: us\n  name: c", "- name: c"),
        ("c", "zone", "us-1", "  name: c\n", "  name: c\n  zone: us-1\n"),
        ("c", "zone", "", "", ""),
    ],
)
def test_an_edit_changes_one_value_and_nothing_else(
    cluster: str, key: str, value: str, before: str, after: str
) -> None:
    assert edit(BLOCK, cluster, key, value) == BLOCK.replace(before, after, 1)


@pytest.mark.parametrize(
    ("cluster", "key", "value", "message"),
    [
        ("z", "region", "eu", "there is no cluster `z`"),
        ("d", "labels", "tier=test", "edit the text"),
        ("d", "labels", "", "edit the text"),
        ("b", "labels", "tier", "expected labels such as"),
        ("b", "ready", "maybe", "true or false"),
        ("b", "name", "d", "cannot be edited in the table"),
        ("b", "region", "a\x07b", "cannot be printed"),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused_with_the_reason(
    cluster: str, key: str, value: str, message: str
) -> None:
    with pytest.raises(EditError, match=message):
        edit(BLOCK, cluster, key, value)
    with pytest.raises(RequestError, match=message):
        session().edit_fleet(BLOCK, cluster, key, value)


OF_WORKLOAD = """\
workload:
  name: web  # kept
  replicas: 3
  labels: {tier: prod}
clusters: [{name: a}]
"""


@pytest.mark.parametrize(
    ("key", "value", "before", "after"),
    [
        ("replicas", "12", "replicas: 3", "replicas: 12"),
        ("name", "shop", "name: web", "name: shop"),
        ("name", "", "  name: web  # kept\n", ""),
        ("kind", "StatefulSet", "# kept\n", "# kept\n  kind: StatefulSet\n"),
        ("namespace", "on", "# kept\n", "# kept\n  namespace: 'on'\n"),
        ("cpu", "500m", "# kept\n", "# kept\n  cpu: 500m\n"),
        ("mem", "2Gi", "# kept\n", "# kept\n  mem: 2Gi\n"),
        ("labels", "tier=test, app=x", "{tier: prod}", "{tier: test, app: x}"),
        ("labels", "", "  labels: {tier: prod}\n", ""),
    ],
)
def test_a_field_changes_one_value_of_the_workload_and_nothing_else(
    key: str, value: str, before: str, after: str
) -> None:
    assert edited_workload(Source(FLEET_FILE, OF_WORKLOAD), key, value) == OF_WORKLOAD.replace(before, after, 1)
    assert session().edit_fleet(OF_WORKLOAD, None, key, value) == OF_WORKLOAD.replace(before, after, 1)


def test_a_workload_without_a_name_gets_values_too() -> None:
    text = "workload:\n  replicas: 3\nclusters: []\n"
    assert edited_workload(Source(FLEET_FILE, text), "cpu", "1") == text.replace("3\n", "3\n  cpu: 1\n")


@pytest.mark.parametrize(
    ("text", "key", "value", "message"),
    [
        (BLOCK, "cpu", "1", "there is no workload"),
        ("clusters: []", "cpu", "1", "there is no workload"),
        (OF_WORKLOAD, "has", "a=1", "cannot be edited in a field"),
        (OF_WORKLOAD, "ready", "true", "cannot be edited in a field"),
        ("workload: {cpu: 1}", "cpu", "", "a field cannot change"),
        ("workload: {labels: {a: b}, cpu: 1}", "labels", "tier", "expected labels such as"),
    ],
)
def test_a_field_that_cannot_be_changed_is_refused_with_the_reason(
    text: str, key: str, value: str, message: str
) -> None:
    with pytest.raises(EditError, match=message):
        edited_workload(Source(FLEET_FILE, text), key, value)


def test_a_text_that_is_no_yaml_is_not_edited() -> None:
    with pytest.raises(DocumentError):
        edit("clusters: [", "a", "region", "eu")


@settings(max_examples=60)
@given(st.sampled_from(["berlin", "oregon"]), st.sampled_from(["region", "zone", "provider", "price"]), st.text())
def test_whatever_is_written_in_a_cell_is_read_back(cluster: str, key: str, value: str) -> None:
    """An edit gives the value or a refusal, and changes no other value."""
    before: Any = parse_document(Source(FLEET_FILE, start_fleet())).value
    try:
        now: Any = parse_document(Source(FLEET_FILE, edit(start_fleet(), cluster, key, value))).value
    except EditError:
        return
    for was, form in zip(before["clusters"], now["clusters"], strict=True):
        if form["name"] == cluster:
            got = form.pop(key, "")
            assert str(got) == value.strip() or (key == "price" and float(got) == float(value))
            was.pop(key, None)
    assert before == now


# --- what is kept and shared ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", ["{replicas: 12, cpu: 1, has: {a: 4}}", "{replicas: 500, cpu: 1}"])
def test_a_saved_test_repeats_the_decision(tmp_path: Path, workload: str) -> None:
    text = CLUSTERS + f"workload: {workload}\n"
    made = session().test_of_workload(FILES, WorkloadChoice(text))
    (tmp_path / FLEET_POLICY_NAME).write_text(FILES[FLEET_POLICY_NAME])
    written, others = made.texts([FLEET_POLICY_NAME], beside="")
    (tmp_path / "a.test.yaml").write_text(written)
    results = list(load_suite(tmp_path / "a.test.yaml").run().results())
    assert [each.state for each in results] == [State.PASSED], written
    assert others == ""


@pytest.mark.parametrize(
    ("files", "workload", "message"),
    [
        ({"a.policy": "for workloads where"}, "{}", "the policies have errors"),
        (FILES, "{kind: Job}", "a policy that governs the workload"),
        (
            {"a.policy": 'for workloads where true\nmetric load = promql("load") by cluster\nscore load ?? 1\n'},
            "{}",
            "needs the values of load",
        ),
    ],
)
def test_what_cannot_be_a_test_says_why(files: Files, workload: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        session(files).test_of_workload(files, WorkloadChoice(CLUSTERS + f"workload: {workload}\n"))


def test_a_fleet_is_shared_by_file_and_by_link() -> None:
    share = Share(FORMAT, FILES, PodChoice(yaml=""), fleet=start_fleet())
    assert read_share(shared_text(share)) == share
    link = link_of(share, "http://127.0.0.1:1")
    assert link is not None
    assert read_link(link) == share
    with pytest.raises(RequestError, match="the fleet in it has more than"):
        read_share(shared_text(Share(FORMAT, FILES, PodChoice(yaml=""), fleet="#" * (MOST_FLEET_TEXT + 1))))
