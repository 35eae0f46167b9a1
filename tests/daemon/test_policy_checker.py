"""Candidate sets are checked in another process; the result decides like one that was compiled here."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.daemon.policies.checker_process import prepare
from kube_policy_scheduler.daemon.policies.live import PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker, dump_tree, load_tree
from kube_policy_scheduler.daemon.policies.reload import Accepted, Refused
from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.statements import FORMS
from kube_policy_scheduler.lang.walk import walk
from tests.lang.strategies import programs

NAMES = frozenset({"policy-scheduler"})
SHOP = 'for pods where pod.namespace == "shop"\n'
Make = Callable[..., PolicyCompiler]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[WorkerProcess] = []

    def compiler(**limits: Any) -> PolicyCompiler:
        made.append(WorkerProcess(MODULE, **limits))
        return PolicyCompiler(NAMES, checker=PolicyChecker(made[-1]))

    yield compiler
    for each in made:
        each.kill()


def of(**texts: str) -> PolicySources:
    return PolicySources.of({f"{name}.policy": text for name, text in texts.items()})


@pytest.mark.long
def test_a_good_set_is_made_with_its_warnings(make: Make) -> None:
    compiler = make()
    made = compiler(of(a="filter node.ready\nscore 10\n", b=f'{SHOP}use "c.policy"\n', c="filter fits(cpu)\n"))
    assert isinstance(made, Accepted)
    assert [policy.name for policy in made.policies.policy_set.policies] == ["a", "b"]
    assert [clause.name for clause in made.policies.policy_set.policies[1].clauses] == ["fits(cpu)"]
    warned = [warning.partition("\n")[0] for warning in made.warnings]
    assert warned[0] == "a.policy:2:7: warning[P0321]: `10` is the same for every node"
    assert warned[1].startswith("b.policy:1:1: warning[P0342]: policies `b` and `a`")


@pytest.mark.long
def test_a_copy_of_this_process_checks_as_one_of_its_own_does(make: Make) -> None:
    worker = WorkerProcess(MODULE)
    checker = PolicyChecker(worker)
    checker.start(prepare)
    sources = of(a="filter node.ready\nscore 10\n", b="filter nod.ready\n")
    try:
        refused = PolicyCompiler(NAMES, checker=checker)(sources)
        assert isinstance(refused, Refused)
        assert refused == make()(sources)
    finally:
        worker.kill()


@pytest.mark.long
def test_what_is_as_it_was_stays_the_same_object(make: Make) -> None:
    compiler = make()
    sets = [compiler(of(a="filter node.ready\n", b=f"{SHOP}priority {number}\n")) for number in range(1, 4)]
    found = [made.policies.policy_set for made in sets if isinstance(made, Accepted)]
    assert len({id(each.named("a")) for each in found}) == 1
    assert len({id(each.named("b")) for each in found}) == 3


@pytest.mark.long
def test_a_bad_set_is_refused_errors_first_and_not_remembered(make: Make) -> None:
    compiler = make()
    good = of(a="filter node.ready\n")
    assert isinstance(compiler(good), Accepted)
    bad = compiler(of(a="score 10\nscore 10\n", b="filter node.redy\n"))
    assert isinstance(bad, Refused)
    assert bad.problems[0].startswith("b.policy:1:13: error[P0102]: unknown field `redy`")
    lint = compiler(of(a='filter node.zone == "a"\nfilter node.zone == "b"\n'))
    assert isinstance(lint, Refused), "what only lint knows is refused, too"
    assert lint.problems[0].startswith("a.policy:2:8: error[P0304]")
    assert isinstance(compiler(good), Accepted)


@pytest.mark.long
def test_of_many_problems_the_first_are_reported(make: Make) -> None:
    refused = make()(PolicySources.of({f"{number}.policy": "scoer 1\n" * 3 for number in range(60)}))
    assert isinstance(refused, Refused)
    assert len(refused.problems) == 101
    assert refused.problems[-1] == "and 80 more: `policyctl lint` shows all"


LARGE = "\n".join(f"filter node.free.cpu > {number}" for number in range(990))


@pytest.mark.long
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"cpu_seconds": 1}, "it takes more than 1 s of CPU time"),
        ({"memory_bytes": 8 << 20}, "it needs more than 8 MiB of memory"),
    ],
)
def test_a_set_that_takes_too_much_is_refused_and_the_next_is_taken(
    make: Make, limits: dict[str, int], said: str
) -> None:
    compiler = make(**limits)
    files = {f"p{number}.policy": f'for pods where pod.namespace == "{number}"\n{LARGE}' for number in range(9)}
    refused = compiler(PolicySources.of(files))
    assert isinstance(refused, Refused)
    assert refused.problems == (f"checking these policies takes too much: {said}; split or remove large policies",)
    assert isinstance(compiler(of(a="filter node.ready\n")), Accepted)


# --- syntax trees ----------------------------------------------------------------------------------------


def same(text: str) -> None:
    source = Source("a.policy", text)
    tree, _ = parse(source)
    other = Source("a.policy", text)
    found = load_tree(dump_tree(tree), other)
    assert found == tree
    for mine, theirs in zip(found.statements, tree.statements, strict=True):
        for one, two in zip(walk(mine), walk(theirs), strict=True):
            assert type(one) is type(two)
            if isinstance(span := getattr(one, "span", None), Span):
                assert span.source is other
                assert (span.start, span.end) == (two.span.start, two.span.end)  # type: ignore[attr-defined]


def test_a_tree_comes_back_as_it_was() -> None:
    same("\n".join(form.example for form in FORMS))
    same("# only a comment")
    same("")


@given(programs())
def test_any_tree_comes_back_as_it_was(text: str) -> None:
    same(text)


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo no",)


@pytest.mark.parametrize(
    "thing", [_Attack(), os.system, PolicyChecker, [load_tree]], ids=["a call", "a function", "a class", "our own"]
)
def test_nothing_else_is_made_of_what_comes_back(thing: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="no part of a syntax tree"):
        load_tree(pickle.dumps(thing), Source("a.policy", ""))
