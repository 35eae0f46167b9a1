"""The canonical text: one for all layouts of a policy, with the same meaning and all its comments."""

# ruff: noqa: E501  (policies as long as people write them)

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.formatting import format as formatter
from kube_policy_scheduler.lang.formatting.format import WIDTH, Formatted, Unfaithful, Unreadable, format_source
from kube_policy_scheduler.lang.reading.parse import parse
from tests.lang.strategies import laid_out, mutated, plain, programs, soups, statements


def formatted(text: str) -> str:
    result = format_source(Source("test.policy", text))
    assert isinstance(result, Formatted), result
    return result.text


# --- laws -----------------------------------------------------------------------------------------------------


def comments(text: str) -> Counter[str]:
    file, _ = parse(Source("test.policy", text))
    return Counter(comment.text[1:].strip() for comment in file.comments)


def assert_tidy(after: str) -> None:
    assert "\n\n\n" not in after
    assert not after.startswith("\n")
    assert not after.endswith("\n\n")
    assert after == "" or after.endswith("\n")
    # what ends a line inside a comment for other programs does not end it here
    lines = after.split("\n")
    assert [line for line in lines if line != line.rstrip(" ")] == []


@given(programs())
def test_a_policy_keeps_its_tree_and_its_comments_and_is_tidy_and_formatted_once(text: str) -> None:
    before, problems = parse(Source("test.policy", text))
    assert not problems, [str(problem) for problem in problems]

    after = formatted(text)

    assert parse(Source("test.policy", after)) == (before, ())
    assert comments(after) == comments(text)
    assert_tidy(after)
    assert formatted(after) == after


@given(statements().flatmap(lambda tokens: st.tuples(st.just(plain(tokens)), laid_out(tokens, comments=False))))
def test_every_layout_of_a_statement_has_one_canonical_text(texts: tuple[str, str]) -> None:
    tidy, untidy = texts
    assert formatted(tidy) == formatted(untidy)


@given(st.one_of(soups(), mutated(), st.text()))
def test_a_text_that_is_not_a_policy_is_refused(text: str) -> None:
    assert isinstance(format_source(Source("test.policy", text)), Formatted | Unreadable)


# --- what it looks like -----------------------------------------------------------------------------------------

CASES = {
    "spaces": ("filter   node.ready  and fits( cpu,mem )", "filter node.ready and fits(cpu, mem)"),
    "quantities stay as written": (
        "let a = [500m, 0.5, 4Gi, 1500M, 1e3, 30s, 5min, 80%]",
        "let a = [500m, 0.5, 4Gi, 1500M, 1e3, 30s, 5min, 80%]",
    ),
    "escapes that are not needed": (r'let a = "\u0061\n\"é"', r'let a = "a\n\"é"'),
    "quotes around values of labels": (
        'filter label "disk" == "ssd" or label a not in ("b", c)',
        "filter label disk=ssd or label a notin (b, c)",
    ),
    "brackets that change nothing": (
        "filter ((a > 1)) and (b and (label c)) or (not (d))",
        "filter a > 1 and b and label c or not d",
    ),
    "brackets around the same operation": ("score ((1 + 2) + 3) * 1 / 2", "score (1 + 2 + 3) * 1 / 2"),
    "brackets that make clear what is mixed": (
        "filter ((a and b)) or c or (d ?? 1) < (2 * 3) + (4 - 1)",
        "filter (a and b) or c or (d ?? 1) < (2 * 3) + (4 - 1)",
    ),
    "brackets behind not": ("filter not (a == b) and not ((c))", "filter not (a == b) and not c"),
    "brackets in a condition": ("score if (a) then (1 + 2) else (3)", "score if a then 1 + 2 else 3"),
    "long, with brackets that were kept": (
        f"score ({'a' * 40} * {'b' * 40}) + ({'c' * 20} ?? 1)",
        f"score ({'a' * 40} * {'b' * 40})\n    + ({'c' * 20} ?? 1)",
    ),
    "a keyword written like a function": ("let x = size\npriority(x)", "let x = size\npriority x"),
    "a list that begins in the next line": ("use kubernetes without\n  NodePorts", "use kubernetes without NodePorts"),
    "brackets that do": ("score (1 + 2) * 3", "score (1 + 2) * 3"),
    "brackets around a number that has a field": ("let a = (1).b", "let a = (1).b"),
    "a comma too many": ("filter fits(cpu, mem,)", "filter fits(cpu, mem)"),
    "parts have one order": (
        'filter fits(cpu) else "no" if pod.priority > 1 as room',
        'filter fits(cpu) as room if pod.priority > 1 else "no"',
    ),
    "lines that need not be two": ("filter node.ready\n  and fits(cpu)", "filter node.ready and fits(cpu)"),
    "other ends of lines": ("let a = 1\r\nlet b = 2\rlet c = 3", "let a = 1\nlet b = 2\nlet c = 3"),
    "a mark of the encoding": ("\ufefflet a = 1", "let a = 1"),
    "tabs": ("let\ta\t=\t1\t# x", "let a = 1  # x"),
    "nothing": ("\n \n\t\n", None),
    "empty lines": ("\n\nlet a = 1\n\n\n\nlet b = 2\nlet c = 3\n\n", "let a = 1\n\nlet b = 2\nlet c = 3"),
    "a file of comments": ("\n#a\n\n\n# b\n#\n#!c\n###", "# a\n\n# b\n#\n#!c\n###"),
    "comments between statements": (
        "let a = 1 #x\n#y\n\n#z\nlet b = 2\n   # end",
        "let a = 1  # x\n# y\n\n# z\nlet b = 2\n# end",
    ),
    "a long chain": (
        "filter " + " and ".join(f"pod.label.part{i} == node.label.part{i}" for i in range(3)),
        "filter pod.label.part0 == node.label.part0\n    and pod.label.part1 == node.label.part1\n"
        "    and pod.label.part2 == node.label.part2",
    ),
    "a long call": (
        f"score clamp({' + '.join(['load'] * 14)}, 0, {'1' * 30})",
        f"score clamp(\n    {' + '.join(['load'] * 14)},\n    0,\n    {'1' * 30}\n)",
    ),
    "long, alone between brackets": (
        f"score normalize({' + '.join(f'load_{i:03}' for i in range(12))})",
        "score normalize(\n    load_000\n" + "\n".join(f"    + load_{i:03}" for i in range(1, 12)) + "\n)",
    ),
    "long parts": (
        f'filter fits(cpu, mem) as room if pod.label.tier == "batch" else "{"no room " * 8}"',
        f'filter fits(cpu, mem)\n    as room\n    if pod.label.tier == "batch"\n    else "{"no room " * 8}"',
    ),
    "a comment behind an operator": (
        "filter node.ready and # why\n fits(cpu)",
        "filter node.ready  # why\n    and fits(cpu)",
    ),
    "a comment before an operator": (
        "filter node.ready\n # why\n and fits(cpu)",
        "filter node.ready\n    # why\n    and fits(cpu)",
    ),
    "comments in a call": (
        "filter fits(cpu, # one\n # two\n mem # three\n)",
        "filter fits(\n    cpu,  # one\n    # two\n    mem  # three\n)",
    ),
    "a comment in brackets that go away": ("filter (\n # why\n node.ready)", "# why\nfilter node.ready"),
    "comments in a selector": (
        "filter label a in (b, # one\n c)",
        "filter label a in (\n    b,  # one\n    c\n)",
    ),
    "a comment behind a part": (
        'filter a if b # one\n else "no" # two',
        'filter a\n    if b  # one\n    else "no"  # two',
    ),
    "a comment that ends its line after another statement": (
        "let a = 1\nlet b = [1, # one\n2]",
        "let a = 1\nlet b = [\n    1,  # one\n    2\n]",
    ),
    "a comment below": ("score 1\n# a\n\n# b", "score 1\n# a\n\n# b"),
    "a name that begins statements": (
        f"let {'a' * 70} = [{'b' * 30}, policy, c]",
        f"let {'a' * 70} = [\n    {'b' * 30}, policy,\n    c\n]",
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_canonical_text(before: str, after: str | None) -> None:
    assert formatted(before) == ("" if after is None else f"{after}\n")


LONG = """\
policy   batch        # the night shift
scheduler batch-scheduler
for pods where pod.namespace=="batch" and pod.label.tier in ["bronze","silver"] and not (pod.annotation.paused == "true")
priority 10



use "common.policy"
use kubernetes without NodePorts,  # hosts have none
   ImageLocality
metric load=promql("avg by (node) (rate(node_cpu_seconds_total{mode!='idle'}[5m]))") default 50 every 30s stale after 2min by instance
let busy = (load > 80) or # hot
   node.used_fraction.mem > 90%
def share(a,b) = a/b
require pod.label.tenant else "pod missing tenant label"
hold if not between("22:00","06:00","Asia/Shanghai") and pod.priority < 100 else "waits for the night"

# --- where it may run ----------------------------------------------------------------------------------
filter node.ready and fits(cpu,mem) and (label disk=ssd or label topology.kubernetes.io/zone in (eu-central-1a, eu-central-1b, eu-central-1c)) and not busy as capacity else "no room"
filter any(p in node.pods
  # the same tenant only
  where p.label.tenant == pod.label.tenant and p.label.tier != "gold" and p.request.cpu < 500m) if pod.label.alone == "true"
score 0.6*least_allocated(cpu,mem)+0.4*(100-predicted(load,pod.request.cpu))-(if node.label.spot=="true" then 50 else 0) as cool weight 3
score if pod.label.size == "large" and node.free.cpu > 16 and node.free.mem > 64Gi then 100 else if pod.label.size == "small" then 50 else 0
spread by pod.label.tenant over topology.kubernetes.io/zone max skew 1 min domains 3 if pod.label.tenant != "shared" else "zones are uneven"
limit sum(request.cpu) by pod.label.tenant to 100
gang by pod.label.job size 4 within 5min
order by pod.priority desc,pod.queued asc
preempt if pod.priority>1000 evict where victim.label.tier=="batch" # never the others
# end
"""


def test_a_long_policy(snapshot: SnapshotAssertion) -> None:
    text = formatted(LONG)
    assert max(len(line) for line in text.splitlines() if "#" not in line) <= WIDTH
    assert text == snapshot


# --- what it refuses ----------------------------------------------------------------------------------------------


def test_a_policy_with_errors_is_not_formatted() -> None:
    result = format_source(Source("test.policy", "filter  node.ready\nfliter x\n"))
    assert isinstance(result, Unreadable)
    assert [str(problem) for problem in result.diagnostics] == [
        "test.policy:2:1: error[P0006]: no statement starts with `fliter`"
    ]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda shown: shown.replace("1", "2"), "is not what test.policy:1:1 says"),
        (lambda shown: shown + ")", "is not what test.policy:1:1 says"),
    ],
    ids=["another meaning", "not readable"],
)
def test_a_mistake_of_the_printer_is_noticed(wrong, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    show = formatter.formatted_statement
    monkeypatch.setattr(formatter, "formatted_statement", lambda statement: wrong(show(statement)))
    result = format_source(Source("test.policy", "let a = 1"))
    assert isinstance(result, Unfaithful)
    assert reason in result.reason


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("let a = 2", "a statement would change"),
        ("let a = (", "the result cannot be parsed: test.policy:1:9: error[P0004]: this `(` is never closed"),
        ("let a = 1  # other", "a comment would change"),
        ("let  a = 1", "formatting the result again would change it"),
    ],
)
def test_a_mistake_of_the_writer_is_noticed(wrong: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = iter([wrong])
    real = formatter.written
    monkeypatch.setattr(
        formatter,
        "written",
        lambda group, *, comments, width: next(written, real(group, comments=comments, width=width)),
    )
    result = format_source(Source("test.policy", "let a = 1"))
    assert result == Unfaithful(reason)


def test_lines_and_indents_do_not_bring_a_statement_over_the_limit() -> None:
    numbers = ["1"] * 5000
    assert formatted(f"let a = [{', '.join(numbers)}]").count("\n") == len(numbers) + 2


def test_a_character_beyond_the_basic_plane_is_kept_as_it_is() -> None:
    text = 'use "\U00082ff5.policy"\n'

    assert format_source(Source("a.policy", text)) == Formatted(text)
