"""Regular expressions of others: RE2, in policies, tests and the matchers of queries alike."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.patterns import PatternError, compiled, label_pattern, of_glob, was_meant_as_glob

ENDLESS_WITH_BACKTRACKING = ("(a+)+$", "(a|aa)+$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$")


@pytest.mark.parametrize("text", ENDLESS_WITH_BACKTRACKING)
def test_no_pattern_searches_for_ever(text: str) -> None:
    assert compiled(text).search("a" * 10_000 + "!") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a", "missing \\)"),
        ("a(?=b)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("x{1001}", "invalid repetition size"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("\ud800", "half a character"),
    ],
)
def test_what_re2_does_not_have_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compiled(text)


def test_a_pattern_may_take_only_so_much() -> None:
    assert compiled("(a{1,100}){1,10}").fullmatch("a" * 1000)
    with pytest.raises(PatternError, match="pattern too large"):
        compiled("(a{1,100}){1,10}", memory_bytes=1 << 14)


@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("[[:alpha:]]+", "node", True),
        (r"\pL+", "é", True),
        ("(?i)NODE", "node", True),
        ("node", "node-1", False),  # the whole value
        ("node|x", "node-1", False),
        ("a|", "", True),
        ("node$", "node\n", False),  # Python's `$` would
        ("a.b", "a\nb", True),  # since Prometheus 3.0
        (r"\d", "٣", False),  # an Arabic digit
    ],
)
def test_a_label_matches_as_in_prometheus(text: str, value: str, matches: bool) -> None:
    assert (label_pattern(text).fullmatch(value) is not None) == matches


@pytest.mark.parametrize("text", ["web-*", "*-web", "gpu*", "a*b", "*", "team/*"])
def test_a_glob_is_known_from_what_it_repeats(text: str) -> None:
    assert was_meant_as_glob(text)


@pytest.mark.parametrize("text", ["web-.*", "https?", "[a-z]*", "web", "a|b*", "(web)*", ".*b*"])
def test_what_people_mean_as_a_regular_expression_is_no_glob(text: str) -> None:
    assert not was_meant_as_glob(text)


@pytest.mark.parametrize(
    ("glob", "text", "matches"),
    [("web-*", "web-1", True), ("web-*", "web", False), ("v1.?", "v1.2", True), ("v1.?", "v1x2", False)],
)
def test_a_glob_as_a_regular_expression_matches_what_the_glob_does(glob: str, text: str, matches: bool) -> None:
    assert bool(compiled(of_glob(glob)).fullmatch(text)) is matches
