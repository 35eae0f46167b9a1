"""Whatever is given as a policy: an answer within the time that reading a policy takes, in words for people."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings

from engine.diagnostics import Source, render
from engine.lang.load import check_sources
from engine.lang.parse import parse
from tests.lang.strategies import texts
from tests.lang.texts import environment

MEGABYTE = 1024 * 1024
NOISE = random.Random(7)

LARGE = {
    "zeros": "\x00" * MEGABYTE,
    "one line": "filter " + "x" * MEGABYTE,
    "a long number": "score " + "9" * MEGABYTE,
    "bytes": "".join(chr(NOISE.randrange(256)) for _ in range(MEGABYTE)),
    "signs": "".join(NOISE.choice("()[]\"'#\\\n \t+-*/=.,?<>!a0") for _ in range(MEGABYTE)),
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
        "test.policy:1:9: error[P0013]: `\u043e` (CYRILLIC SMALL LETTER O) looks like `o`, but is another character",
        "write `o`",
    ),
    "fullwidth digit": (
        "let a = \uff11",
        "test.policy:1:9: error[P0013]: `\uff11` (FULLWIDTH DIGIT ONE) looks like `1`, but is another character",
        "write `1`",
    ),
    "no-break space": (
        "let a =\u00a01",
        "test.policy:1:8: error[P0013]: a no-break space (U+00A0) is no space here",
        "write a plain space",
    ),
    "ideographic space": (
        "let a =\u30001",
        "test.policy:1:8: error[P0013]: an ideographic space (U+3000) is no space here",
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
        'texts stand in straight double quotes, "…"',
    ),
    "line separator": (
        "let a = 1\u2028let b = 2",
        "test.policy:1:10: error[P0013]: a line separator (U+2028) is no space here",
        "write a plain space",
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


@settings(max_examples=200)
@given(texts())
def test_any_text_gets_diagnostics_that_can_be_shown_and_no_exception(text: str) -> None:
    found = check_sources([Source("test.policy", text)], environment()).diagnostics
    for diagnostic in found:
        assert render(diagnostic).startswith(f"{diagnostic.span}: {diagnostic.severity.value}[{diagnostic.code}]: ")
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
