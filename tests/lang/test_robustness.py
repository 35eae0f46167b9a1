"""Whatever is given as a policy: an answer within the time that reading a policy takes, in words for people."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given

from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.lang.reading.parse import MAX_STATEMENTS, parse
from tests.lang.strategies import texts
from tests.lang.texts import environment, said

MEGABYTE = 1024 * 1024
NOISE = random.Random(7)

LARGE = {
    "zeros": "\x00" * MEGABYTE,
    "one line": "filter " + "x" * MEGABYTE,
    "a long number": "score " + "9" * MEGABYTE,
    "bytes": NOISE.randbytes(MEGABYTE).decode("latin-1"),
    "signs": "".join(NOISE.choices("()[]\"'#\\\n \t+-*/=.,?<>!a0", k=MEGABYTE)),
    "open brackets": "(" * MEGABYTE,
    "open strings": '"' * MEGABYTE,
    "empty lines": "\n" * MEGABYTE,
    "spaces": " " * MEGABYTE,
    "lines that go on": "+\n" * (MEGABYTE // 2),
    "backslashes": '"' + "\\" * MEGABYTE,
    "comments": "#\n" * (MEGABYTE // 2),
    "statements": "filter node.ready\n" * (MEGABYTE // 18),
}
ALLOWED = 250 * 1024
"""A little less than the characters that a file may have."""


@pytest.mark.parametrize("size", [MEGABYTE, ALLOWED], ids=["a megabyte", "as much as is read"])
@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_large_texts_do_not_take_long(text: str, size: int) -> None:
    parse(Source("warm.policy", "score 1"))
    source = Source("large.policy", text[:size])
    began = time.process_time()
    _, found = parse(source)
    shown = [render(diagnostic) for diagnostic in found]
    # a megabyte is refused in milliseconds, the largest file that is read takes a second; this only finds a blow-up
    assert time.process_time() - began < 15
    assert len(shown) < 60
    assert size < MEGABYTE or shown[0].startswith("large.policy:1:1: error[P0002]: the file has ")


DEEP = {
    "brackets": ("(" * 39 + "1" + ")" * 39, "(" * 41 + "1" + ")" * 41),
    "calls": ("abs(" * 39 + "1" + ")" * 39, "abs(" * 5000 + "1" + ")" * 5000),
    "lists": ("[" * 39 + "]" * 39, "[" * 41 + "]" * 41),
    "minus": ("-" * 90 + "1", "-" * 5000 + "1"),
    "not": ("not " * 90 + "x", "not " * 3000 + "x"),
    "sums": ("1" + " + 1" * 90, "1" + " + 1" * 3000),
    "fields": ("a" + ".b" * 90, "a" + ".b" * 5000),
    "indexes": ("a" + "[0]" * 90, "a" + "[0]" * 5000),
    "defaults": ("1" + " ?? 1" * 90, "1" + " ?? 1" * 3000),
    "conditions": ("if a then b else " * 90 + "c", "if a then b else " * 900 + "c"),
}


@pytest.mark.parametrize(("deep", "deeper"), DEEP.values(), ids=DEEP)
def test_what_is_nested_has_a_limit_with_its_own_message(deep: str, deeper: str) -> None:
    _, found = parse(Source("deep.policy", f"let x = {deep}"))
    assert found == ()
    _, found = parse(Source("deep.policy", f"let x = {deeper}"))
    assert [diagnostic.code for diagnostic in found][:1] == ["P0002"]
    assert "`let`" in found[0].help


def test_a_long_chain_of_and_is_not_deep() -> None:
    _, found = parse(Source("wide.policy", "filter " + " and ".join(f"x{i}" for i in range(1000))))
    assert found == ()


ODD = {
    "zero byte": ("filter node\x00.ready", "test.policy:1:12: error[P0012]: hidden character U+0000", "remove it"),
    "direction mark": ("# \u202e x", "test.policy:1:3: error[P0012]: hidden character U+202E", "remove it"),
    "zero width": ("filter no\u200bde.ready", "test.policy:1:10: error[P0012]: hidden character U+200B", "remove it"),
    "mark of the encoding inside": (
        "let a\ufeff = 1",
        "test.policy:1:6: error[P0012]: hidden character U+FEFF",
        "remove it",
    ),
    "cyrillic letter": (
        "filter n\u043ede.ready",
        "test.policy:1:9: error[P0013]: `\u043e` (CYRILLIC SMALL LETTER O) looks like `o`, but is a different one",
        "write `o`",
    ),
    "fullwidth digit": (
        "let a = \uff11",
        "test.policy:1:9: error[P0013]: `\uff11` (FULLWIDTH DIGIT ONE) looks like `1`, but is a different one",
        "write `1`",
    ),
    "no-break space": (
        "let a =\u00a01",
        "test.policy:1:8: error[P0013]: a no-break space (U+00A0) is not a space",
        "write a plain space",
    ),
    "ideographic space": (
        "let a =\u30001",
        "test.policy:1:8: error[P0013]: an ideographic space (U+3000) is not a space",
        "write a plain space",
    ),
    "minus sign": (
        "score 1 \u2212 2",
        "test.policy:1:9: error[P0013]: `\u2212` (MINUS SIGN) has no meaning here",
        "write `-`",
    ),
    "typographic quote": (
        "use \u201ca.policy\u201d",
        "test.policy:1:5: error[P0013]: this is a typographic quote",
        'write texts in straight double quotes, "…"',
    ),
    "line separator": (
        "let a = 1\u2028let b = 2",
        "test.policy:1:10: error[P0013]: a line separator (U+2028) does not end a line here",
        "start a new line",
    ),
}


@pytest.mark.parametrize(("text", "message", "advice"), ODD.values(), ids=ODD)
def test_characters_that_look_like_others_are_named(text: str, message: str, advice: str) -> None:
    _, found = parse(Source("test.policy", text))
    assert (str(found[0]), found[0].help) == (message, advice)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_ends_of_lines_and_the_mark_of_the_encoding_make_no_difference(end: str, mark: str) -> None:
    lines = ["filter node.ready and  # why", "\tfits(cpu)", "", 'require pod.label.a else "b"', "# end"]
    file, found = parse(Source("test.policy", mark + end.join(lines)))
    plain, _ = parse(Source("test.policy", "\n".join(lines)))
    assert found == ()
    assert file == plain
    assert [comment.text for comment in file.comments] == ["# why", "# end"]
    spans = [statement.span.text[:7] for statement in file.statements]
    assert spans == ["filter ", "require"]


@given(texts())
def test_any_text_gets_diagnostics_that_can_be_shown_and_no_exception(text: str) -> None:
    found = check_sources([Source("test.policy", text)], environment()).diagnostics
    for diagnostic in found:
        assert render(diagnostic).startswith(f"{diagnostic.span}: {diagnostic.severity.value}[{diagnostic.code}]: ")
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)


def test_used_files_count_for_the_limit_of_statements() -> None:
    half = "\n".join(f"filter node.free.cpu > {at}" for at in range(MAX_STATEMENTS // 2))
    uses = "".join(f'use "{name}.policy"\n' for name in "abc")
    sources = [Source("main.policy", uses), *(Source(f"{name}.policy", half) for name in "abc")]
    (found,) = check_sources(sources, environment()).diagnostics
    assert str(found) == (
        "main.policy:1:1: error[P0002]: with its included files, the policy has more than 1,000 statements"
    )
    assert not check_sources(sources[1:], environment()).diagnostics


MANY = {
    "the same filter": lambda at: "filter node.ready",
    "filters of one field": lambda at: f"filter node.free.cpu > {at}",
    "filters that look alike": lambda at: f"filter node.free.cpu > {at} or node.label.a != node.label.b",
    "ignores": lambda at: "# policy: ignore P0302 because x\nfilter node.requested.cpu >= 0",
    "scores": lambda at: f"score node.free.cpu * {at}",
}


@pytest.mark.long
@pytest.mark.parametrize("line", MANY.values(), ids=MANY)
def test_as_many_statements_as_a_file_may_have_are_linted_soon_and_one_more_is_refused(
    line: Callable[[int], str],
) -> None:
    text = "\n".join(line(at) for at in range(MAX_STATEMENTS))
    began = time.process_time()
    found = said(text)

    # a second or two on a quiet machine; this only finds a blow-up
    assert time.process_time() - began < 25
    assert "P0002" not in {d.code for d in found}
    more = said(f"{text}\nfilter node.ready\n{line(1)}")
    assert [d.message for d in more if d.code == "P0002"] == [
        "more than 1,000 statements: the rest of the file is skipped"
    ]


@pytest.mark.parametrize(
    "query", ["sum(" * 3000 + "x" + ")" * 3000, "x" + "+x" * 4000, "(" * 6000], ids=["deep", "long", "open"]
)
def test_a_query_too_long_for_the_parser_of_promql_never_reaches_it(query: str) -> None:
    """That parser ends the process on some of these."""
    found = said(f'score promql("{query}") ?? 0')

    assert ("P0110", "the query has more than 2,000 characters") in {(d.code, d.message) for d in found}
    assert not {d.code for d in found} & {"P0361", "P0362", "P0363"}
