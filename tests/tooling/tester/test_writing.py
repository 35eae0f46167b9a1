"""Test files that programs write: read back they are the same, and they look as if people had written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.tooling.tester.suite_file import WIDTH, read_suite, suite_text

FILES = sorted((Path(__file__).parent / "suites").glob("*.test.yaml"))


def read(text: str) -> Any:
    return parse_document(Source("t.yaml", text)).value


def survives(written: str) -> None:
    """Assert that a test file that people wrote is the same after it is read, written, and read."""
    value = read(written)
    text = suite_text(value)
    assert read(text) == value
    assert suite_text(read(text)) == text
    assert read_suite(parse_document(Source("t.yaml", text))).cases


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_people_wrote_survives(file: Path) -> None:
    survives(file.read_text())


def test_it_looks_as_people_write() -> None:
    text = suite_text(
        {
            "cases": [
                {
                    "expect": {"node": "b1", "scores": {"a1": 1.5, "b1": ">= 90"}},
                    "pod": {"cpu": "500m", "labels": {"app": "web", "on": "1"}},
                    "name": "web-0: captured",
                }
            ],
            "nodes": [
                {"name": "a1", "cpu": 4, "labels": {f"example.com/label-{n}": f"value {n}" for n in range(4)}},
                {"name": "b1", "ready": False, "created": "2026-11-21T10:00:00Z"},
            ],
            "policy": "spread.policy",
            "metrics": {'rate(x{a="b"}[5m])': {"a1": 1, "b1": 2}},
        },
        schema="policy-test.schema.json",
        comment="captured",
    )
    assert (
        text
        == """\
# yaml-language-server: $schema=policy-test.schema.json
# captured
policy: spread.policy

nodes:
- name: a1
  cpu: 4
  labels:
    example.com/label-0: value 0
    example.com/label-1: value 1
    example.com/label-2: value 2
    example.com/label-3: value 3
- {name: b1, ready: false, created: 2026-11-21T10:00:00Z}

metrics:
  'rate(x{a="b"}[5m])': {a1: 1, b1: 2}

cases:
- name: 'web-0: captured'
  pod: {cpu: 500m, labels: {app: web, 'on': '1'}}
  expect: {node: b1, scores: {a1: 1.5, b1: '>= 90'}}
"""
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["policy", "nodes", "metrics", "cases", "x"])


@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_any_values_survive(form: dict[str, Any]) -> None:
    text = suite_text(form)
    assert read(text) == form


def test_lines_are_short_where_they_can_be() -> None:
    text = suite_text({"cases": [{"name": "x", "pods": [{"node": f"n{n}", "cpu": 1} for n in range(60)]}]})
    assert max(len(line) for line in text.splitlines()) <= WIDTH
