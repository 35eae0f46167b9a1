"""What is merely needless is a warning with a fix: the scheduler runs the policy as it is."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.lint.fixing import fixed
from kube_policy_scheduler.policy.policy_set import load
from tests.lang.texts import said

NEEDLESS = {
    "filter fits(cpu) if pod.request.cpu ?? 0 > 1": "filter fits(cpu) if pod.request.cpu > 1",
    'filter pod.request["nvidia.com/gpu"] ?? 0 <= node.free["nvidia.com/gpu"] ?? 0':
        'filter pod.request["nvidia.com/gpu"] <= node.free["nvidia.com/gpu"] ?? 0',
    'filter node.name ?? "x" != "a"': 'filter node.name != "a"',
    "score (node.free.cpu ?? 0) * 2": "score (node.free.cpu) * 2",
    'score node.free.cpu ?? "nothing"': "score node.free.cpu",
    "filter node.ready ?? false": "filter node.ready",
    "spread by pod.label.app max skew 1 weight 50": "spread by pod.label.app max skew 1",
    "spread by pod.label.app max skew 1 weight 50 as x": "spread by pod.label.app max skew 1 as x",
    "spread by pod.label.app\n    max skew 1\n    weight 2\n    as x":
        "spread by pod.label.app\n    max skew 1\n    as x",
    'spread by pod.label.app else "why"': "spread by pod.label.app",
    'spread by if pod label a then "x" else "y" else "why" weight 3':
        'spread by if pod label a then "x" else "y" weight 3',
}  # fmt: skip


@pytest.mark.parametrize("text", NEEDLESS)
def test_what_is_needless_is_a_warning_that_fix_removes(text: str) -> None:
    found = said(text, select={"P0118", "P0313"})
    assert [each.severity for each in found] == [Severity.WARNING]

    after = fixed([Source("test.policy", text)], lambda sources: said(sources[0].text, select={"P0118", "P0313"}))
    assert [source.text for source in after.sources] == [NEEDLESS[text]]


@pytest.mark.parametrize("text", NEEDLESS)
def test_the_scheduler_takes_a_policy_that_says_needless_things(text: str) -> None:
    needless, plain = load([Source("a.policy", text)]), load([Source("a.policy", NEEDLESS[text])])
    assert needless.policy_set is not None
    assert plain.policy_set is not None


def test_a_default_in_the_wrong_place_is_not_removed() -> None:
    text = 'score promql("x") - 5 ?? 0'
    (found,) = said(text, select={"P0118"})
    assert found.fix is None
    assert found.help == '`??` binds tighter than `-`: write `(promql("x") - 5) ?? 0`'


def test_a_needless_default_can_be_ignored_with_a_reason() -> None:
    text = "# policy: ignore P0118 because generated\nscore node.free.cpu ?? 0"
    assert said(text) == []
