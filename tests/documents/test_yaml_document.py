"""YAML and JSON documents with positions, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.quick_values import yaml_values
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document, parse_documents, read_source
from kube_policy_scheduler.documents.yaml_nodes import MAX_PROBLEMS, Construction, Loader


def value(text: str) -> Any:
    return parse_document(Source("f.yaml", text)).value


def errors(text: str) -> str:
    with pytest.raises(DocumentError) as raised:
        parse_documents(Source("f.yaml", text))
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", {"a": 1}),
        ("a: -0", {"a": 0}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: .5", {"a": 0.5}),
        ("a: -.inf", {"a": float("-inf")}),
        ("a: 010", {"a": "010"}),
        ("a: 500m", {"a": "500m"}),
        ("a: yes", {"a": "yes"}),
        ("on: off", {"on": "off"}),
        ("a: True", {"a": True}),
        ("a: 12:30", {"a": "12:30"}),
        ("a: 2026-11-21", {"a": "2026-11-21"}),
        ("a: 2026-11-21T08:40:00Z", {"a": "2026-11-21T08:40:00Z"}),
        ("a: ~\nb:\nc: null", {"a": None, "b": None, "c": None}),
        ("a: ''", {"a": ""}),
        ("a: '1'", {"a": "1"}),
        ("8080: x\ntrue: y", {"8080": "x", "true": "y"}),
        ("a: !!str 1", {"a": "1"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ('{"a": 1, "b": [true, null, 1.5, "ü"]}', {"a": 1, "b": [True, None, 1.5, "ü"]}),
        ("{a: 1, # flow\n b: 2}", {"a": 1, "b": 2}),
        ("# comment\n---\na: 1\n...\n", {"a": 1}),
    ],
)
def test_values_are_those_that_kubernetes_would_read(text: str, expected: object) -> None:
    assert value(text) == expected


def test_several_documents_and_empty_ones_between_them() -> None:
    documents = parse_documents(Source("f.yaml", "a: 1\n---\n---\n# nothing\n---\nb: 2\n"))
    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}]
    assert str(documents[1].span(["b"])) == "f.yaml:6:4"
    assert parse_documents(Source("f.yaml", "# nothing\n")) == ()


TEXT = """\
first: 1
list:
  - name: ü
    port: "80"
  - name: b
empty:
flow: {x: [1, 2]}
"""


@pytest.mark.parametrize(
    ("path", "key", "place", "text"),
    [
        (["first"], False, "1:8", "1"),
        (["first"], True, "1:1", "first"),
        (["list", 0, "port"], False, "4:11", '"80"'),
        (["list", 1], False, "5:5", "name: b"),
        (["empty"], False, "6:1", "empty"),
        (["flow", "x", 1], False, "7:15", "2"),
        (["list", 7, "deeper"], False, "3:3", "- name: ü"),
        ([], False, "1:1", "first: 1"),
    ],
)
def test_every_part_knows_its_place(path: list[str | int], key: bool, place: str, text: str) -> None:
    span = parse_document(Source("f.yaml", TEXT)).span(path, key=key)
    assert str(span) == f"f.yaml:{place}"
    assert span.text == text


@pytest.mark.parametrize("before", ["a: ", "name: ü\nclef: \U0001d11e\n- "])
def test_a_character_that_yaml_forbids_is_pointed_at_behind_letters_of_several_bytes(before: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_documents(Source("f.yaml", f"{before}\x18b\n"))
    (diagnostic,) = refused.value.diagnostics
    assert (diagnostic.span.start, diagnostic.span.text) == (len(before), "\x18")


def test_json_knows_places_too() -> None:
    document = parse_document(Source("f.json", '{\n\t"a": {\n\t\t"b": 1}}'))
    assert str(document.span(["a", "b"])) == "f.json:3:8"


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2",
        "a:\n\tb: 1",
        "a: b: c",
        "a: 'x",
        "- a\nb: 1",
        "a: \x01",
        "a: *absent",
        "a: !python/object:os.system x",
        "a: !!int x",
        "? [1]\n: x",
        "a: 1\nb: 2\na: 3\nb: 4",
        '{"a": 1, "a": 2}',
        "a: &x [*x]",
        '{"a": NaN,, }',
    ],
)
def test_unreadable_documents_are_reported_with_the_position(text: str, snapshot: SnapshotAssertion) -> None:
    assert errors(text) == snapshot


def test_aliases_that_multiply_are_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases expand this file too much" in errors("\n".join(lines))


def chain(levels: int, *, of: int) -> str:
    """Return mappings of which each merges the one before it, several times over."""
    lines = ["l0: &l0 {a: 1, b: [2]}"]
    lines += [f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * of)}], c{n}: {n}}}" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_chain_of_merges_is_as_quick_as_it_is_long() -> None:
    """Each level merges the one before it twice: by the old way 200 levels took 2^200 steps."""
    (document,) = parse_documents(Source("f.yaml", chain(200, of=2)))
    last = document.value["l199"]
    assert (last["a"], last["b"], last["c1"], last["c199"]) == (1, [2], 1, 199)
    assert document.span(["l199", "b", 0]).text == "2"
    assert document.span(["l199", "c198"]).text == "198"


WIDE = "b: &b {" + ", ".join(f"k{n}: 1" for n in range(2000)) + "}\n"


@pytest.mark.parametrize(
    "text",
    [chain(1000, of=1), WIDE + "\n".join(f"m{n}: {{<<: *b}}" for n in range(60))],
    ids=["a long chain", "many of a wide one"],
)
def test_merges_that_multiply_are_refused_quickly(text: str) -> None:
    assert "`<<` expands this file too much" in errors(text)


def test_of_very_many_problems_the_first_are_reported() -> None:
    many = Source("f.yaml", "\n".join(["a: 1"] * (MAX_PROBLEMS + 500)))
    with pytest.raises(DocumentError) as caught:
        parse_documents(many)
    assert len(caught.value.diagnostics) == MAX_PROBLEMS


@pytest.mark.parametrize(
    "text", ["[" * 5000, "[" * 5000 + "]" * 5000, "[" * 200_000, "a: &x " + "{a: " * 300 + "1" + "}" * 300]
)
def test_deep_nesting_is_an_error_and_not_a_crash(text: str) -> None:
    assert "error[D0001]" in errors(text)


def test_one_document_means_one() -> None:
    for text, message in (("", "the file is empty"), ("a: 1\n---\nb: 1", "this is the second of 2")):
        with pytest.raises(DocumentError, match=message):
            parse_document(Source("f.yaml", text))


def test_files_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as absent:
        read_source(tmp_path / "absent.yaml")
    (first,) = absent.value.diagnostics
    assert str(first) == f"{tmp_path}/absent.yaml:1:1: error[D0003]: {tmp_path}/absent.yaml does not exist"
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: ü".encode("latin-1"))
    with pytest.raises(DocumentError) as latin:
        read_source(tmp_path / "latin.yaml")
    (first,) = latin.value.diagnostics
    assert str(first) == f"{tmp_path}/latin.yaml:2:4: error[D0003]: byte 0xfc is not UTF-8"
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert parse_document(read_source(tmp_path / "bom.yaml")).value == {"a": 1}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=3))
def test_documents_of_other_writers_are_read_as_intended(given: dict[str, Any]) -> None:
    assert value(json.dumps(given)) == given
    # every text quoted: PyYAML takes `0E0` for a text that needs no quotes, which YAML 1.2 and Kubernetes do not
    plain = yaml.safe_dump(given, default_style='"')
    assert value(plain) == given


@given(st.text(alphabet=st.sampled_from("ab:-?[]{},&*!|>'\"%@`#\n\t ~<\\0"), max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        documents = parse_documents(Source("f.yaml", text))
    except DocumentError:
        return
    for document in documents:
        for path in ([], ["a"], [0]):
            span = document.span(path)
            assert 0 <= span.start <= span.end <= len(text)


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(["", "~", "yes", "0x1F", "0o17", "1e3", "<<", "- a", "a: b", "12:30", "2026-11-21", "é", "a\nb\n"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
)
_KEYS = st.text("ab<:1", max_size=3)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner), max_leaves=12
)


@given(_VALUES, st.booleans())
def test_what_is_read_quickly_is_what_is_read_closely(written: object, flow: bool) -> None:
    text = yaml.dump([written], Dumper=yaml.SafeDumper, default_flow_style=flow, allow_unicode=True)
    quick, root = yaml_values(text), yaml.compose(text, Loader)
    assert root is not None
    assert quick is None or quick == [(0, Construction(Source("f.yaml", text), []).value(root))]
    if isinstance(written, dict | list | int) and "<<" not in text and "&" not in text:
        assert quick is not None


@pytest.mark.parametrize(
    "text", ["a: &x 1\nb: *x", "a: !!str 1", "<<: {a: 1}", "a: 1\na: 2", "[a", "? [a]\n: 1", "\x00"]
)
def test_what_is_not_plain_is_left_to_the_strict_reader(text: str) -> None:
    assert yaml_values(text) is None


def test_a_place_in_the_second_document_of_a_file_is_found() -> None:
    first, second = parse_documents(Source("f.yaml", "a: 1\n---\n---\nb:\n  c: 2\n"))
    assert (first.index, second.index) == (0, 2)
    assert second.source.position(second.span(("b", "c")).start) == (5, 6)
