"""Lint as people use it: suppressions, fixes, what is left out."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.lint import rules as rules_package
from kube_policy_scheduler.lint.runner import lint, rules
from tests.lang.texts import ENVIRONMENT, codes

RULES = Path(rules_package.__file__ or "").parent
ALWAYS = "filter node.requested.cpu >= 0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ALWAYS, ["P0302"]),
        (f"# policy: ignore P0302 because it documents\n{ALWAYS}", []),
        (f"{ALWAYS}  # policy: ignore P0302 because it documents", []),
        (f"# POLICY: IGNORE p0302 BECAUSE it documents\n{ALWAYS}", []),
        (f"# policy: ignore P0303, P0302 because it documents\n{ALWAYS}", ["P0503"]),
        (f"# policy: ignore P0303 because it documents\n{ALWAYS}", ["P0503", "P0302"]),
        (f"# policy: ignore P0302 because it documents\nfilter node.ready\n{ALWAYS}", ["P0503", "P0302"]),
        (f"# policy: ignore P0302\n{ALWAYS}", ["P0502"]),
        (f"# policy: ignore P9999 because it documents\n{ALWAYS}", ["P0501", "P0302"]),
        (f"# policy: whatever\n{ALWAYS}", ["P0501", "P0302"]),
        (f"# our policy: never\n{ALWAYS}", ["P0302"]),
    ],
)
def test_a_warning_is_taken_back_for_one_statement_with_a_reason(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_where_there_are_errors_only_what_is_written_is_looked_at() -> None:
    text = f'{ALWAYS}\nfilter node.redy\nscore promql("sum by (node") ?? 0'
    broken = check_sources([Source("a.policy", text)], ENVIRONMENT)

    assert [diagnostic.code for diagnostic in lint(broken)] == ["P0361"]


def test_selected_rules_run_alone() -> None:
    both = f"let x = 1\n{ALWAYS}"

    assert codes(both, select={"P0308"}) == ["P0308"]


def test_every_rule_that_is_written_is_run() -> None:
    marked = re.compile(r'^@(?:set_)?rule\("(P\d+)"', re.MULTILINE)
    written = [code for file in RULES.glob("*.py") for code in marked.findall(file.read_text(encoding="utf-8"))]

    assert len(written) > 20
    assert [rule.code.id for rule in rules()] == sorted(written)


def test_the_names_of_rules_read_after_allow() -> None:
    assert not [rule.code.name for rule in rules() if rule.code.name.startswith(("no-", "disallow-"))]


CLEAN = [
    'filter node.ready and fits(cpu, mem)\nscore 2 * (100 - promql("cpu_usage") ?? 50)\nscore -1 if label node=hello\n'
    "spread by pod.label.tenant",
    "filter node.free.cpu > 2\nfilter node.free.mem > 2Gi",
    "filter label a=b if pod label x\nfilter label a=c if not pod label x",
    'filter node.zone != "a"\nfilter node.zone != "b"',
    "score node.free.cpu if label a=b\nscore node.free.cpu if label a=c",
]


@pytest.mark.parametrize("text", CLEAN)
def test_good_policies_are_left_alone(text: str) -> None:
    assert codes(text) == []


SHARED = """\
filter label disk=ssd if pod.label.tier == "db"
score node.free.cpu if pod.label.tier == "web"
require pod label tier else "no tier"
filter node.free.mem > 2Gi
"""


def said(given: dict[str, str], *, library: dict[str, str] | None = None) -> list[tuple[str, str, int]]:
    """Return of each finding the file, the code and the line."""
    sources = [Source(name, text) for name, text in given.items()]
    beside = [Source(name, text) for name, text in (library or {}).items()]
    found = lint(check_sources(sources, ENVIRONMENT, library=beside))
    return [(d.span.source.name, d.code, d.span.source.position(d.span.start)[0]) for d in found]


def user(tier: str, *more: str) -> str:
    return "\n".join((f'for pods where pod.label.tier == "{tier}"', 'use "shared.policy"', *more)) + "\n"


def test_a_shared_file_is_reported_only_for_what_holds_for_all_its_users() -> None:
    web, database = user("web", "filter node.free.mem > 4Gi"), user("db")
    anyone = 'for pods where pod.namespace == "any"\npriority 5\nuse "shared.policy"\n'

    both = said({"shared.policy": SHARED, "web.policy": web, "db.policy": database})
    assert both == [("shared.policy", "P0302", 3)], "the label is there for all of their pods"
    assert said({"shared.policy": SHARED, "web.policy": web, "db.policy": database, "any.policy": anyone}) == []
    assert said({"shared.policy": SHARED, "web.policy": web}) == [
        ("shared.policy", "P0305", 1),
        ("shared.policy", "P0302", 3),
        ("shared.policy", "P0303", 4),
    ]


def test_a_file_that_was_not_asked_about_may_have_other_users() -> None:
    assert said({"web.policy": user("web", ALWAYS)}, library={"shared.policy": SHARED}) == [("web.policy", "P0302", 3)]


def test_an_error_in_a_shared_file_says_for_which_policy_it_is_one() -> None:
    shared = Source("shared.policy", 'require pod.label.tier == "db"\n')
    web = Source("web.policy", user("web", "priority 5"))
    anyone = Source("any.policy", 'for pods where pod.namespace == "any"\nuse "shared.policy"\n')

    (found,) = lint(check_sources([shared, web, anyone], ENVIRONMENT))

    assert (found.code, found.span.source.name) == ("P0301", "shared.policy")
    assert found.notes == ("this is so in policy `web`, which includes the file with `use`",)


DIFFERENT = [
    """
    def pods_of(app) = count(p in node.pods where p.label.app == app)
    filter pods_of("web") > 2
    filter pods_of("db") < 1
    """,
    """
    def room(storage) = volume_room(storage) ?? 0Gi
    filter room("fast") > 10Gi
    filter room("slow") < 1Gi
    """,
    """
    def free(word) = if length(word) > 2 then 1 else node.free.cpu
    filter free("abc") > 0.5
    filter free("a") < 0.5
    """,
    """
    def is_old(name) = name matches "old.*"
    filter is_old(node.name)
    filter not is_old(node.zone)
    """,
    "filter any(p in node.pods where p.priority > 10) if pod.priority < 5",
    """
    metric load = promql("load") default 5
    filter predicted(load, 5) < 40
    filter predicted(load, 5, lag=2min) > 50
    """,
]
"""Policies in which the same text means different things."""


@pytest.mark.parametrize("text", DIFFERENT)
def test_the_same_text_with_other_arguments_is_something_else(text: str) -> None:
    assert codes(dedent(text), select={"P0301", "P0302", "P0303", "P0304", "P0305"}) == []


def test_the_same_call_with_the_same_arguments_is_the_same() -> None:
    text = """
    def pods_of(app) = count(p in node.pods where p.label.app == app)
    filter pods_of("web") > 2
    filter pods_of("web") > 1
    """

    assert codes(dedent(text), select={"P0303", "P0304"}) == ["P0303"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hold if pod.waiting >= 0s", ["P0301"]),
        ("hold if pod.waiting >= 0s if pod.label.a == \"b\"", []),
        ("hold if pod.waiting < 0s", ["P0305"]),
        ("preempt if pod.priority > 5 evict where victim.priority > 9 and victim.priority < 3", ["P0305"]),
        ("preempt if pod.priority > 5 evict where victim.priority < 3", []),
        ('limit count() to 3 of pods where pod.label.a == "b" and pod.label.a == "c"', ["P0305"]),
        ('for pods where pod.namespace == "a"\nlimit count() to 3 of pods where pod.namespace == "b"', []),
        ('gang by pod.label.a size 3 if pod.label.a == "b" and pod.label.a == "c"', ["P0305"]),
        ('order by pod.priority desc if pod.label.a == "b" and pod.label.a == "c"', ["P0305"]),
        ('filter version(node.kernel) ?? version("0") > version("5")\n'
         'filter version(node.kernel) ?? version("0") > version("4")', ["P0303"]),
        ("filter count(n in zone.nodes where n.ready) > 3\nfilter count(n in zone.nodes where n.ready) > 2", ["P0303"]),
        ('filter any(i == "a" for i in node.images) and not any(i == "a" for i in node.images)', ["P0301"]),
        ("filter count(n in zone.nodes where n.ready) >= 0", ["P0302"]),
    ],
)  # fmt: skip
def test_what_is_never_always_or_implied_is_found_in_every_statement(text: str, expected: list[str]) -> None:
    assert codes(text, select={"P0301", "P0302", "P0303", "P0304", "P0305"}) == expected


@pytest.mark.parametrize(
    ("quiet", "loud", "is_drowned"),
    [
        ("score 1 if label a=b", "score scale(node.free.cpu, 0, 64) weight 9.99", False),
        ("score 1 if label a=b", "score scale(node.free.cpu, 0, 64) weight 10", True),
        ("score -1 if label a=b", "score scale(node.free.cpu, 0, 64) weight 10", True),
        ("score 1 if label a=b", "score -999 if label c=d", False),
        ("score 1 if label a=b", "score -1000 if label c=d", True),
        ("score 1 if label a=b", "spread by pod.label.app over zone weight 9.99", False),
        ("score 1 if label a=b", "spread by pod.label.app over zone weight 10", True),
        ("spread by pod.label.app over zone", "score 99999 if label a=b", False),
        ("spread by pod.label.app over zone", "score 100000 if label a=b", True),
        ("score 1 if label a=b", "score node.free.mem weight 1000000", False),
    ],
)
def test_a_score_is_drowned_by_one_of_a_thousand_times_its_range(quiet: str, loud: str, is_drowned: bool) -> None:
    found = codes(f"{quiet}\n{loud}")
    assert ("P0324" in found) is is_drowned, found
    assert ("P0324" in codes(f"{loud}\n{quiet}")) is is_drowned
