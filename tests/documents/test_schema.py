"""A schema's verdict, said to people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.shape import (
    WRITTEN,
    Duration,
    Section,
    build,
    schema_of,
    seconds,
)
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.times import parse_duration

CASE = {
    "type": "object",
    "required": ["name", "expect"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "expect": {
            "oneOf": [
                {
                    "type": "object",
                    "required": ["node"],
                    "properties": {"node": {"type": "string"}},
                    "additionalProperties": False,
                },
                {"enum": ["unschedulable", "held"]},
            ]
        },
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "exclusiveMinimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
        "time": {"type": "string", "pattern": "^\\d\\d:\\d\\d$", EXPECTED: "a time such as 08:40"},
        "kind": {"const": "Case"},
        "flag": {"type": "boolean"},
    },
    "dependentRequired": {"count": ["ratio"]},
}


@pytest.mark.parametrize(
    "text",
    [
        "nmae: x\nexpect: held",
        "name: ''\nexpect: heldd",
        "name: 1\nexpect: {nod: a}",
        "name: true\nexpect: [1]",
        "name: x\nexpect: held\ncount: 0",
        "name: x\nexpect: held\ncount: 10\nratio: 0",
        "name: x\nexpect: held\ncount: 1.5\nratio: much",
        "name: x\nexpect: held\ntags: []",
        "name: x\nexpect: held\ntags: [a, b, a, 1]",
        "name: x\nexpect: held\ntime: noon\nkind: Test\nflag: yes",
        "- a",
        "name: x\nexpect: {node: 7}",
        "name:\nexpect: held\nzzz: 1",
        '{"name": 5,\n "expect": "held"}',
    ],
)
def test_each_problem_names_the_thing_what_was_expected_and_what_came(text: str, snapshot: SnapshotAssertion) -> None:
    found = DocumentSchema(CASE).check(parse_document(Source("case.yaml", text)))
    assert "\n".join(render(diagnostic) for diagnostic in found) == snapshot


def test_a_key_that_belongs_below_another_one_is_led_there() -> None:
    metrics = {"type": "object", "properties": {"absent": {"type": "array"}}}
    refers = {
        "$defs": {"metrics": metrics},
        "properties": {**CASE["properties"], "metrics": {"$ref": "#/$defs/metrics"}},
    }
    found = DocumentSchema(CASE | refers).check(parse_document(Source("t.yaml", "name: x\nnode: a\nabsent: []\n")))

    assert [each.help for each in found if each.code == "D0011"] == [
        "write it below `expect`",
        "write it below `metrics`",
    ]


def test_a_key_that_belongs_to_an_enclosing_mapping_is_led_there() -> None:
    suite = {
        "$defs": {"case": CASE},
        "type": "object",
        "additionalProperties": False,
        "properties": {"seed": {"type": "integer"}, "cases": {"type": "array", "items": {"$ref": "#/$defs/case"}}},
    }
    text = "cases:\n- {name: x, expect: {node: a, count: 2, seed: 1, zzz: 1}}\n"
    found = DocumentSchema(suite).check(parse_document(Source("t.yaml", text)))

    assert [each.help for each in found if each.code == "D0011"][:2] == [
        "write it beside `expect`",
        "write it beside `cases`",
    ]


def test_a_good_document_has_no_problems() -> None:
    text = "name: x\nexpect: {node: a}\ncount: 3\nratio: 0.5\ntags: [a]\ntime: '08:40'\nkind: Case\nflag: true"
    assert DocumentSchema(CASE).check(parse_document(Source("case.yaml", text))) == ()


def test_a_part_of_a_document_can_be_checked_alone() -> None:
    document = parse_document(Source("f.yaml", "cases:\n- name: x\n  expect: held\n- name: x\n"))
    (found,) = DocumentSchema(CASE).check(document, at=["cases", 1])
    assert str(found) == "f.yaml:4:3: error[D0012]: key `expect` is missing in cases[1]"


class Inner(Section, frozen=True):
    address: str
    ca_file: Path | None = None


class Outer(Section, frozen=True):
    names: tuple[str, ...] = ("x",)
    every: Duration = seconds(5)
    share: float = 0.5
    mode: Literal["fast", "safe"] = "safe"
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    inner: Inner | None = None
    other: Inner = msgspec.field(default_factory=lambda: Inner("none"))


def built(value: dict[str, Any]) -> Outer:
    return build(Outer, value, folder=Path("/etc/app"))


def test_a_struct_is_its_own_schema() -> None:
    assert schema_of(Outer)["properties"]["mode"] == {"enum": ["fast", "safe", None]}
    assert schema_of(Outer)["properties"]["inner"]["required"] == ["address"]
    assert schema_of(Outer)["properties"]["inner"]["properties"].keys() == {"address", "caFile"}
    assert schema_of(Outer)["required"] == []


def test_a_value_becomes_the_struct_with_its_defaults() -> None:
    assert built({}) == Outer()
    assert built({"mode": None, "other": None}) == Outer()
    given = {"names": ["a", "b"], "every": "1min30s", "share": 1, "inner": {"address": "h", "caFile": "ca.pem"}}
    assert built(given) == Outer(
        names=("a", "b"), every=90.0, share=1.0, inner=Inner("h", ca_file=Path("/etc/app/ca.pem"))
    )
    assert repr(built({"count": 2.0})) == repr(Outer(count=2)), "a whole number, however it is written"
    assert built({"inner": {"address": "h", "caFile": "/abs"}}).inner == Inner("h", ca_file=Path("/abs"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("500ms", 0.5), ("15s", 15), ("2min", 120), ("1h30min", 5400), ("1.5d", 129600)]
)
def test_durations_are_written_as_in_policies(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert DocumentSchema(WRITTEN[Duration]).check(parse_document(Source("f", f"'{text}'"))) == ()


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("5m", "write min for minutes: m means milli"),
        ("'15'", "add a unit: 15s"),
        ("15", "add a unit: 15s"),
        ("s", ""),
    ],
)
def test_what_is_not_a_duration_is_refused_with_advice(text: str, advice: str) -> None:
    (found,) = DocumentSchema(WRITTEN[Duration]).check(parse_document(Source("f", text)))
    got = text.strip("'")
    assert found.message == f"expected a duration such as 500ms, 15s, 2min or 1h30min, got {got}"
    assert found.help == advice


@given(st.from_regex(r"[a-z]+(_[a-z]+){0,3}", fullmatch=True))
def test_keys_are_camel_case(name: str) -> None:
    key = camel_case(name)
    assert "_" not in key
    assert key.lower() == name.replace("_", "")
