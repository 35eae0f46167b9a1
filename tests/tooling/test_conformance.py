"""Conformance cases: what is compared, what partial wants mean, and what happens to lines that are not cases."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.adapters.files.conformance_files import CaseFileError, read_lines
from kube_policy_scheduler.tooling.conformance import CaseError, check, decide, parse_case, report
from kube_policy_scheduler.tooling.differences import differences

NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}}
SMALL = {"metadata": {"name": "b"}, "status": {"allocatable": {"cpu": "1", "memory": "4Gi", "pods": "10"}}}
POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]},
}


def line(want: dict[str, Any], **case: Any) -> dict[str, Any]:
    return {"family": "f", "want": want, "case": {"id": "one", "nodes": [NODE, SMALL], "pods": [], "pod": POD} | case}


def whole() -> dict[str, Any]:
    return decide(parse_case(line({}), 1))


def test_a_verdict_agrees_with_itself() -> None:
    assert check(parse_case(line(whole()), 1)).differences == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("filters/b/code", "Unschedulable"),
        ("filters/b/reasons", ["Insufficient memory"]),
        ("filters/b/plugin", "NodePorts"),
        ("scores/a/NodeResourcesFit", 1),
        ("scores/a/total", 1),
        ("scores/a/Unheard", 0),
        ("hosts", ["b"]),
        ("prefilter/nodeNames", ["a"]),
        ("preemption", {"nominatedNode": "a"}),
        ("message", "0/2 nodes are available"),
    ],
)
def test_every_field_is_compared(path: str, value: Any) -> None:
    want = whole()
    *way, last = path.split("/")
    place = want
    for step in way:
        place = place[step]
    place[last] = value

    assert path in {difference.path for difference in check(parse_case(line(want), 1)).differences}


def test_what_a_whole_want_does_not_name_is_a_difference() -> None:
    want = whole()
    del want["scores"]["a"]["ImageLocality"]
    del want["filters"]["b"]

    assert {d.path for d in check(parse_case(line(want), 1)).differences} == {"scores/a/ImageLocality", "filters/b"}


def test_a_partial_want_compares_only_what_it_names() -> None:
    want = {"plugin": "NodeResourcesFit", "filters": {"b": {"code": "UnschedulableAndUnresolvable"}}}

    assert check(parse_case(line(want), 1)).differences == ()


def test_a_case_about_one_plugin_asks_it_alone_where_another_refuses_first() -> None:
    cordoned = copy.deepcopy(SMALL) | {"spec": {"unschedulable": True}}
    want = {"filters": {"b": {"code": "UnschedulableAndUnresolvable", "plugin": "NodeResourcesFit"}}}

    assert check(parse_case(line(want, nodes=[NODE, cordoned]), 1)).differences
    assert not check(parse_case(line(want | {"plugin": "NodeResourcesFit"}, nodes=[NODE, cordoned]), 1)).differences


def test_null_for_a_score_means_that_the_plugin_skipped() -> None:
    want: dict[str, Any] = {"plugin": "NodeAffinity", "scores": {"a": {"NodeAffinity": None}}}
    assert not check(parse_case(line(want), 1)).differences

    want["scores"]["a"] = {"TaintToleration": None}
    assert check(parse_case(line(want | {"plugin": "TaintToleration"}), 1)).differences


@pytest.mark.parametrize("form", [None, {"a": None}, {"a": {"NodeAffinity": None}}])
def test_a_missing_score_may_be_written_in_several_ways(form: Any) -> None:
    want = {"plugin": "NodeAffinity", "scores": form}
    assert not check(parse_case(line(want), 1)).differences

    preferring = copy.deepcopy(POD)
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
    preferring["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert check(parse_case(line(want, pod=preferring), 1)).differences


def test_a_plugin_that_skips_says_so_where_it_is_asked_alone() -> None:
    want = {"plugin": "NodePorts", "prefilter": {"code": "Skip"}}
    assert not check(parse_case(line(want), 1)).differences

    assert check(parse_case(line(want | {"plugin": "NodeResourcesFit"}), 1)).differences


@pytest.mark.parametrize("prefix", ["", "preemption: ", "no new claims to deallocate, preemption: "])
def test_preemptions_own_words_may_be_wanted(prefix: str) -> None:
    own = "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    big = copy.deepcopy(POD)
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9"
    want = {"plugin": "DefaultPreemption", "preemption": {"message": prefix + own, "candidates": {}}}
    assert not check(parse_case(line(want, pod=big), 1)).differences

    want["preemption"] = {"message": prefix + "otherwise", "candidates": {"a": {}}}
    paths = {d.path for d in check(parse_case(line(want, pod=big), 1)).differences}
    assert "preemption/message" in paths


def test_candidates_are_complete_where_they_are_wanted() -> None:
    got = {"preemption": {"candidates": {"a": {"victims": []}, "b": {"victims": []}}}}
    want = {"plugin": "DefaultPreemption", "preemption": {"candidates": {"a": {"victims": []}}}}

    assert [d.path for d in differences(want, got)] == ["preemption/candidates/b"]


def test_any_of_several_nominated_nodes_may_be_wanted() -> None:
    got = {"preemption": {"nominatedNode": "b", "victims": []}}
    want = {"plugin": "DefaultPreemption", "preemption": {"nominatedNodeIn": ["a", "b"]}}
    assert differences(want, got) == []

    want["preemption"] = {"nominatedNodeIn": ["a", "c"]}
    assert [d.path for d in differences(want, got)] == ["preemption/nominatedNode"]


def test_the_order_of_victims_and_ties_means_nothing() -> None:
    got = {"preemption": {"victims": ["x/a", "x/b"], "ties": ["n", "m"]}}

    assert differences({"preemption": {"victims": ["x/b", "x/a"], "ties": ["m", "n"]}}, got) == []
    assert differences({"preemption": {"victims": ["x/b", "x/b"]}}, got)


def test_null_lists_and_objects_without_optional_fields_are_taken() -> None:
    bare = {"metadata": {"name": "b", "labels": None}, "spec": None, "status": {"allocatable": None}}
    case = line(whole(), nodes=[NODE, bare], services=None, pods=None, csiNodes=None)

    assert decide(parse_case(case, 1))["filters"]["b"]["code"] == "UnschedulableAndUnresolvable"


@pytest.mark.parametrize("broken", [{}, {"case": {}}, {"case": {}, "want": {}}, {"case": {"pod": []}, "want": {}}])
def test_other_lines_are_refused_by_number(broken: dict[str, Any]) -> None:
    with pytest.raises(CaseError, match="line 7"):
        parse_case(broken, 7)


def test_an_object_of_another_shape_is_named() -> None:
    with pytest.raises(CaseError, match=r"nodes: .*metadata"):
        check(parse_case(line({}, nodes=[{"metadata": 5}]), 1))


def test_a_report_counts_by_family_and_keeps_the_first_few() -> None:
    bad = line({"message": "never said"})
    families = report((check(parse_case(bad, 1)) for _ in range(5)), keep=2)

    assert (families["f"].cases, families["f"].agreements, len(families["f"].first_differences)) == (5, 0, 2)


def test_lines_are_read_plain_and_gzipped(tmp_path: Path) -> None:
    text = json.dumps(line({})) + "\n\n" + json.dumps(line({})) + "\n"
    plain, packed = tmp_path / "cases.jsonl", tmp_path / "cases.jsonl.gz"
    plain.write_text(text, encoding="utf-8")
    packed.write_bytes(gzip.compress(text.encode()))

    assert list(read_lines(plain)) == list(read_lines(packed))
    assert [number for number, _ in read_lines(plain)] == [1, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}\n{", "not JSON"),
        (b"[1]\n", "expected a JSON object, got list"),
        (gzip.compress(b"{}\n", mtime=0)[:-9], "compressed file ended"),  # the same on every worker of xdist
    ],
)
def test_invalid_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(content)
    with pytest.raises(CaseFileError, match=f"cases.jsonl.*{message}"):
        list(read_lines(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="does not exist"):
        list(read_lines(tmp_path / "none.jsonl"))


BINDING = {
    "spec": {
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"},
        "replicas": 2,
    }
}
MEMBER = {
    "metadata": {"name": "a"},
    "status": {"apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}]},
}
PLACED = {"reason": "Success", "clusters": [{"name": "a", "replicas": 2}]}


def fleet_line(want: dict[str, Any], **case: Any) -> dict[str, Any]:
    return {"name": "duplicated-001", "binding": BINDING, "clusters": [MEMBER], "want": want} | case


@pytest.mark.parametrize(
    ("want", "paths"),
    [
        (PLACED, []),
        (PLACED | {"messages": ["other", "Binding has been scheduled successfully."]}, []),
        (PLACED | {"messages": ["other"]}, ["message"]),
        (PLACED | {"reason": "NoClusterFit"}, ["reason"]),
        (PLACED | {"clusters": []}, ["clusters/a"]),
        (PLACED | {"clusters": [{"name": "b", "replicas": 2}]}, ["clusters/a", "clusters/b"]),
        (PLACED | {"affinity": "own"}, ["affinity"]),
    ],
)
def test_every_field_of_a_binding_is_compared(want: dict[str, Any], paths: list[str]) -> None:
    case = parse_case(fleet_line(want), 1)
    result = check(case)
    assert (result.id, result.family, result.recorded) == ("duplicated-001", "duplicated", "Karmada")
    assert [difference.path for difference in result.differences] == paths


@pytest.mark.parametrize(
    "broken",
    [
        {"clusters": [5]},
        {"binding": {"spec": {"replicas": "two"}}},
        {"binding": {"spec": {"placement": {"spreadConstraints": 1}}}},
    ],
)
def test_a_binding_that_is_none_is_an_error(broken: dict[str, Any]) -> None:
    with pytest.raises(CaseError, match=r"^(clusters|binding): "):
        check(parse_case(fleet_line(PLACED, **broken), 1))
