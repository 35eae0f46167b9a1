"""A set that is loaded after another one: nothing is done twice, and the result is the same."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.daemon.policies.live import LivePolicies, PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import Accepted, Refused
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.statements import STATEMENTS, WORKLOADS
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import Loaded, load

SHOP = 'for pods where pod.namespace == "shop"\n'
VERSIONS: Mapping[str, Sequence[str]] = {
    "shop.policy": (
        f"{SHOP}filter node.ready\n",
        f"{SHOP}filter node.ready and fits()\n",
        f'{SHOP}use "rules/common.policy"\nscore node.free.cpu\n',
        f'{SHOP}score 100 - promql("cpu_usage")\n',
        f"{SHOP}filter node.free.cpu > 4Gi\n",
        f"{SHOP}\nfilter node.ready\n",
        "for pods where\n",
    ),
    "rules/common.policy": (
        "filter node.ready\n",
        "let big = 8\nfilter node.free.cpu > 2\n",
        "let big = 4Gi + 1\n",
        "priority 3\nfilter node.ready\n",
        "# policy: ignore P0302 because it is so\nfilter node.requested.cpu >= 0\n",
    ),
    "next.policy": (
        "canary of shop for 10%\nfilter node.ready\n",
        "canary of shop for 20%\nfilter node.ready and fits()\n",
        "canary of nobody for 20%\nfilter node.ready\n",
    ),
    "all.policy": (
        "filter node.ready\n",
        "priority 10\nfilter node.ready\n",
        'for pods where pod.namespace in ["shop", "web"]\nfilter node.ready\n',
        "policy shop\nfilter node.ready\n",
    ),
}
"""Good ones, those with warnings, those with errors, and those that bear on others."""


def sources(texts: Mapping[str, str]) -> list[Source]:
    return [Source(name, text) for name, text in texts.items()]


def said(loaded: Loaded) -> tuple[object, ...]:
    """Return everything that a set of policies says."""
    found = loaded.policy_set.policies if loaded.policy_set is not None else ()
    policies = [
        (p.name, p.scheduler, p.priority, p.canary is None, [(c.text, str(c.span)) for c in p.clauses]) for p in found
    ]
    return policies, [render(diagnostic) for diagnostic in loaded.diagnostics]


def policy(loaded: Loaded, name: str) -> Policy:
    assert loaded.policy_set is not None, [render(diagnostic) for diagnostic in loaded.diagnostics]
    found = loaded.policy_set.named(name)
    assert found is not None
    return found


some_files = st.fixed_dictionaries({}, optional={name: st.sampled_from(texts) for name, texts in VERSIONS.items()})


@given(st.lists(some_files, max_size=6))
def test_a_set_has_the_same_result_after_any_earlier_set(generations: list[dict[str, str]]) -> None:
    memo = Memo()
    for texts in generations:
        memo = Memo(memo.known)
        assert said(load(sources(texts), memo=memo)) == said(load(sources(texts)))


def test_what_is_as_it_was_stays_the_same_object_with_all_that_the_cluster_knows_of_it() -> None:
    texts = {"a.policy": f"{SHOP}spread by pod.label.app\n", "b.policy": 'use "c.policy"\n', "c.policy": "let x = 1\n"}
    first = Memo()
    before = load(sources(texts), memo=first)
    after = load(sources(texts | {"a.policy": f"{SHOP}pack by pod.label.app\n"}), memo=Memo(first.known))
    assert policy(after, "a").profile is not policy(before, "a").profile
    assert policy(after, "b").profile is policy(before, "b").profile
    used = load(sources(texts | {"c.policy": "let x = 2\n"}), memo=Memo(first.known))
    assert policy(used, "b").profile is not policy(before, "b").profile


def test_a_canary_follows_the_current_stable_policy() -> None:
    texts = {"shop.policy": f"{SHOP}filter node.ready\n", "next.policy": VERSIONS["next.policy"][1]}
    first = Memo()
    before = load(sources(texts), memo=first)
    second = Memo(first.known)
    after = load(sources(texts | {"shop.policy": f"{SHOP}priority 7\nfilter node.ready\n"}), memo=second)
    again = load(sources(texts | {"shop.policy": f"{SHOP}priority 7\nfilter node.ready\n"}), memo=Memo(second.known))
    assert (policy(before, "next").priority, policy(after, "next").priority) == (0, 7)
    assert policy(again, "next").profile is policy(after, "next").profile


def test_another_environment_is_another_question() -> None:
    texts = {"a.policy": "filter node.ready\n"}
    memo = Memo()
    load(sources(texts), memo=memo)
    loaded = load(sources(texts), type(environment())({}, {}, environment().pods), memo=Memo(memo.known))
    assert loaded.policy_set is None


def test_only_results_of_the_last_time_are_kept() -> None:
    asked: list[int] = []

    def double(number: int) -> int:
        asked.append(number)
        return 2 * number

    first = Memo()
    assert [first(double, 1), first(double, 1), first(double, 2)] == [2, 2, 4]
    second = Memo(first.known)
    assert second(double, 1) == 2
    third = Memo(second.known)
    assert [third(double, 1), third(double, 2)] == [2, 4]
    assert asked == [1, 2, 2]


def test_a_set_has_no_cycles_so_it_goes_without_the_garbage_collector() -> None:
    written = (
        form.example
        for statement in STATEMENTS
        if statement.keyword not in ("use", "canary")
        for form in statement.forms
        if form.subject != WORKLOADS
    )
    once = (
        "preempt never",
        "devices by fragmentation",
        "domains by tightest",
        "order by queue.share",
    )  # their other forms are there
    text = "\n".join(dict.fromkeys(line for line in written if not line.startswith(once)))
    loaded = load([Source("a.policy", text)])
    assert loaded.policy_set is not None, [render(diagnostic) for diagnostic in loaded.diagnostics]
    gc.collect()
    gc.disable()
    gc.freeze()  # what other tests left, and may end only now, does not count
    try:
        del loaded
        assert load([Source("a.policy", f"# again\n{text}")]).policy_set is not None
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.long
def test_a_bad_edit_that_is_reverted_costs_nothing() -> None:
    worker = WorkerProcess(MODULE)
    checker = PolicyChecker(worker)
    compiler = PolicyCompiler(frozenset({"policy-scheduler"}), checker=checker)

    def compiled(text: str) -> LivePolicies | None:
        made = compiler(PolicySources.of({"a.policy": text, "b.policy": f"{SHOP}filter node.ready\n"}))
        return made.policies if isinstance(made, Accepted) else None

    good, bad, again = (compiled(text) for text in ("priority 2\n", "priority two\n", "priority 2\n"))
    assert good is not None
    assert bad is None
    assert again is not None
    assert [p.profile for p in again.policy_set.policies] == [p.profile for p in good.policy_set.policies]
    assert isinstance(compiler(PolicySources.of({"a.policy": "filter\n"})), Refused)
    worker.kill()
