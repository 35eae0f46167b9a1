"""The published schema and the loader agree, and nothing that the schema lets through breaks the run."""

from __future__ import annotations

import contextlib
import copy
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.tooling.tester.expectations import INEXACT, OF_CASE, OF_DECISION, OF_QUEUE
from kube_policy_scheduler.tooling.tester.run import SuiteRun
from kube_policy_scheduler.tooling.tester.suite_file import Fixtures, read_suite, schema_text
from tests.tooling.tester.command_line import Folder
from tests.tooling.tester.plain_policies import SCHEDULER, PlainPolicies

FILES = sorted(Path(__file__).parent.rglob("*.test.yaml"))
SCHEMA = json.loads(schema_text())
VALIDATOR = Draft202012Validator(SCHEMA)
FORM = "D00"
"""Codes of what is wrong with the form of a file; `T…` is what it names."""

SMALL: dict[str, Any] = {
    "policy": "x.policy",
    "now": "2026-11-21T10:00:00Z",
    "nodes": [{"name": "a1", "cpu": 4, "zone": "a", "labels": {"disk": "ssd"}}, {"name": "b1", "ready": False}],
    "pods": [{"node": "a1", "cpu": "500m", "count": 2}],
    "metrics": {
        "interval": "30s",
        "series": {'cpu_usage{node="a1"}': "1+2x3 _ stale", 'cpu_usage{node="b1"}': {"value": 1, "age": "5s"}},
        "outages": [{"from": "1m", "to": "2m", "as": "nan"}],
    },
    "templates": {"small": {"cpu": 1}},
    "cases": [
        {"name": "one", "at": "90s", "pod": "small", "tie": "ok", "expect": {"node": "a1", "scores": {"a1": "> 1"}}},
        {
            "name": "${x}",
            "each": [{"x": 1}],
            "pod": {"cpu": "${x}"},
            "expect": {"filtered": {"b1": {"message": "/x/"}}},
        },
        {
            "name": "many",
            "sequence": [{"pod": "small", "count": 2, "every": "1s", "expect": {"schedulable": True}}],
            "expect": {"placed": {"a1": 2}, "max_skew": {"by": "zone", "at_most": 1}},
        },
        {
            "name": "turns",
            "queue": [{"pod": "small", "queued": "1s"}, {"pod": {"name": "x"}}],
            "expect": {"turns": ["small", "x"]},
        },
    ],
    "forall": [{"name": "all", "pods": "templates", "where": "schedulable", "expect": {"not_on": {"zone": "b"}}}],
    "invalid": [{"text": "filter x", "code": "P0101", "at": "1:8"}],
}


def loaded(document: Any) -> set[str]:
    """Return the codes of what the loader says about a document."""
    try:
        read_suite(parse_document(Source("t.yaml", json.dumps(document))))
    except DocumentError as error:
        return {diagnostic.code for diagnostic in error.diagnostics}
    return set()


def test_it_is_a_schema_of_the_version_that_it_says() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)


def test_whatever_the_schema_lets_stand_under_expect_is_compared() -> None:
    keys = SCHEMA["$defs"]["expect"]["properties"]
    assert sorted([*OF_DECISION, *OF_CASE, *OF_QUEUE, "exact"]) == sorted(keys)
    assert [key for key in sorted(INEXACT) if key not in keys["exact"]["description"]] == []


def test_the_command_prints_it(folder: Folder) -> None:
    assert folder.test("--schema").out == schema_text()


@pytest.mark.parametrize(
    "path", [(), *(("$defs", each) for each in ("case", "expect", "metrics", "step", "waiting"))], ids=str
)
def test_editors_have_something_to_say_about_every_key(path: tuple[str, ...]) -> None:
    part = SCHEMA
    for step in path:
        part = part[step]

    def described(value: dict[str, Any]) -> bool:
        while "description" not in value and "$ref" in value:
            target: Any = SCHEMA
            for step in value["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            value = target
        return "description" in value

    assert [key for key, value in part["properties"].items() if not described(value)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_accepts_what_runs(file: Path) -> None:
    VALIDATOR.validate(parse_document(Source(str(file), file.read_text())).value)


def test_the_example_of_this_test_is_whole() -> None:
    VALIDATOR.validate(SMALL)
    assert loaded(SMALL) == set()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a document."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield (*path, step)
        yield from places(inner, (*path, step))


PLACES = list(places(SMALL))
VALUES = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "a1",
    "5m",
    "x y",
    "${x}",
    "/(/",
    "12 ± 1",
    [],
    ["a1"],
    {},
    {"a1": 1},
    {"node": "a1"},
]
KEYS = ["name", "expect", "pod", "each", "skip", "todo", "exact", "sequence", "node", "zone", "cpu", "count", "x"]


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """Return the document with a few parts replaced, removed or added; copies, or a later change makes a circle."""
    document = copy.deepcopy(SMALL)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(PLACES))
        parent: Any = document
        try:
            for step in path:
                parent = parent[step]
            match draw(st.sampled_from(["replace", "remove", "add"])):
                case "replace":
                    parent[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
                case "remove":
                    del parent[last]
                case _:
                    parent[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return document


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_schema_and_loader_agree_and_what_is_accepted_can_be_run(document: Any) -> None:
    codes = loaded(document)
    written_out = "each" in json.dumps(document)
    if VALIDATOR.is_valid(document):
        # a row may hold what does not fit where it is put: only the loader sees that
        assert written_out or not any(code.startswith(FORM) for code in codes)
    else:
        assert any(code.startswith(FORM) for code in codes)
    if not codes:
        suite = read_suite(parse_document(Source("t.yaml", json.dumps(document))))
        with contextlib.suppress(DocumentError):
            nothing = Fixtures(pods=defaultdict(tuple), policies=defaultdict(lambda: Source("x.policy", "")))
            SuiteRun(suite, PlainPolicies(), nothing, scheduler=SCHEDULER, shuffle=True).result()


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"nodes": [{"name": "a1", "cpu": "4cores"}]}, "cpu is counted in cores"),
        ({"nodes": [{"name": "a1", "mem": "16GB"}]}, "write the unit without B"),
        ({"cases": [{"name": "x", "pod": {}, "expect": "a1"}]}, "for a node, write {node: NAME}"),
        ({"cases": [{"name": "x", "pod": {}, "expect": "pending"}]}, "write the reason: {unschedulable:"),
        ({"cases": [{"name": "x", "pod": {}, "expect": {"node": "a1", "tie": "ok"}}]}, "write it beside `expect`"),
    ],
)
def test_what_people_write_otherwise_is_answered_with_what_they_mean(changed: dict[str, Any], advice: str) -> None:
    with pytest.raises(DocumentError) as raised:
        read_suite(parse_document(Source("x.test.yaml", json.dumps(SMALL | changed))))
    assert advice in raised.value.diagnostics[0].help
