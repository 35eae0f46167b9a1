"""What a set of policies costs grows with its size and no faster, up to limits that hold for the whole set.

Each thing that an author can write more of is made four times as large. Loading it then takes about four times as
long; ten times as long would be the beginning of a square. CPU time, and the best of some runs: other work on the
machine counts little.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Diagnostic, Source
from kube_policy_scheduler.lang import load as load_module
from kube_policy_scheduler.lang.checking import inference
from kube_policy_scheduler.lang.load import MAX_ERRORS, MAX_USE_LEVELS, WHOLE, check_sources
from kube_policy_scheduler.lang.owner import SetLimits
from kube_policy_scheduler.policy.policy_set import load

Files = Mapping[str, str]

TOO_MUCH = 10.0
"""Times as long for four times as much."""
LEAST_SECONDS = 0.02
"""Less is not measured."""


def one(text: str) -> Files:
    return {"a.policy": text}


def lines(line: str, count: int) -> Files:
    """Return a policy of many lines, in which `{0}` is the number."""
    return one("\n".join(line.format(number) for number in range(count)))


def policies(text: str, count: int) -> Files:
    """Return many policies, in which `{0}` is the number."""
    return {f"p{number}.policy": text.format(number) for number in range(count)}


def fan_out(count: int) -> Files:
    used = lines("filter node.free.cpu > {0}", 100)["a.policy"]
    return {"used.policy": used, **policies('for pods where pod.namespace == "{0}"\nuse "used.policy"\n', count)}


def chain(count: int) -> Files:
    files = policies('use "p{0}x.policy"\nfilter node.ready\n', count)
    return {name: text.replace(f"p{at}x", f"p{at + 1}") for at, (name, text) in enumerate(files.items())}


def calls_of_calls(count: int) -> Files:
    functions = [
        "def f0(x) = x + x",
        *(f"def f{number + 1}(x) = f{number}(x) + f{number}(x)" for number in range(6)),
    ]
    return one("\n".join([*functions, *(f"score f6({number})" for number in range(count))]))


def codes_of_an_ignore(count: int) -> Files:
    codes = ", ".join(["P0302"] * count)
    return one(f"# policy: ignore {codes} because of x\nfilter node.requested.cpu >= 0\n" * 9)


def unknown_names(count: int) -> Files:
    names = [f"let name-of-something-{number} = {number}".replace("-", "_") for number in range(count)]
    return one("\n".join([*names, *(f"score name_of_somethink_{number}x" for number in range(40))]))


GROWS: Mapping[str, tuple[Callable[[int], Files], int]] = {
    "policies": (
        lambda n: policies('for pods where pod.namespace == "{0}"\nfilter fits(cpu)\nscore node.free.cpu\n', n), 60,
    ),
    "policies that are alike": (lambda n: policies("priority {0}\nfilter node.ready\n", n), 80),
    "policies that overlap": (lambda n: policies("for pods where pod.request.cpu > {0}\nfilter node.ready\n", n), 40),
    "policies of one name": (lambda n: policies("policy x\nfilter node.ready\n", n), 50),
    "canaries": (
        lambda n: {"p.policy": "filter node.ready\n", **policies("canary of p for 10%\nfilter fits()\n# {0}", n)}, 60,
    ),
    "canaries of nobody": (lambda n: policies("policy a{0}\ncanary of ab{0} for 10%\nfilter fits()\n", n), 45),
    "empty files": (lambda n: policies("# {0}\n", n), 200),
    "fan-out": (fan_out, 3),
    "chain": (chain, 100),
    "statements": (lambda n: lines("score {0} * scale(node.free.cpu, 0, {0} + 1)", n), 60),
    "conditions": (lambda n: lines('score {0} if node.label.a == "x" and pod.label.b{0} != "y"', n), 60),
    "quotas": (lambda n: lines("limit sum(request.cpu) by pod.label.t{0} to {0}\nrequire pod.label.q{0}", n), 60),
    "filters of many parts": (
        lambda n: lines("filter " + " and ".join(f'node.label.a{at} != "x{{0}}"' for at in range(60)), n), 10,
    ),
    "one condition": (
        lambda n: one("for pods where " + " and ".join(f'pod.label.a{at} != "x"' for at in range(n))), 120,
    ),
    "alternatives": (
        lambda n: one("for pods where " + " or ".join(f'pod.label.a{at} == "x"' for at in range(n))), 120,
    ),
    "names": (lambda n: lines("let a{0} = node.free.cpu + node.free.mem / 1Gi", n), 60),
    "unknown names": (unknown_names, 40),
    "letters of a name": (lambda n: one(f"let {'a' * n}b = 1\nscore {'a' * n}c\n"), 3000),
    "calls of calls": (calls_of_calls, 8),
    "errors": (lambda n: lines("score nodd.x{0}", n), 100),
    "files with errors": (lambda n: policies("score nodd.x{0}\n" * 3, n), 40),
    "texts of a list": (lambda n: one("filter node.label.a in [" + ", ".join(f'"{at}"' for at in range(n)) + "]"), 400),
    "patterns": (lambda n: lines('filter node.label.a matches "(a|b{0}){{1,50}}c"', n), 60),
    "queries": (lambda n: lines('score promql("x{0}' + " + y" * 90 + '") ?? 1', n), 30),
    "broken queries": (lambda n: lines('score promql("x{0}' + " + y" * 90 + ' +") ?? 1', n), 30),
    "quotas of one key": (lambda n: lines("limit count by pod.namespace to {0}", n), 60),
    "comments": (lambda n: one("#\n" * n + "filter node.ready"), 8000),
    "a long comment": (lambda n: one("# " + "x" * n + "\nfilter node.ready"), 60_000),
    "empty lines": (lambda n: one(("score node.free.cpu\n" + "\n" * n) * 20), 1000),
    "ignores": (
        lambda n: lines("# policy: ignore P0302 because of x\nfilter node.requested.cpu >= 0", n), 60,
    ),
    "codes of an ignore": (codes_of_an_ignore, 700),
}  # fmt: skip
"""Each with a size at which it can be measured; four times that is within the limits, or just beyond."""


def loaded(files: Files) -> tuple[Diagnostic, ...]:
    return load([Source(name, text) for name, text in files.items()]).diagnostics


def seconds(files: Files) -> float:
    gc.collect()
    began = time.process_time()
    loaded(files)
    return time.process_time() - began


@pytest.mark.long
@pytest.mark.parametrize("thing", GROWS)
def test_four_times_as_much_takes_no_longer_than_it_should(thing: str) -> None:
    make, size = GROWS[thing]
    loaded(make(1))  # the grammar, the modules
    small, large = seconds(make(size)), seconds(make(4 * size))
    for _ in range(2):
        small = min(small, seconds(make(size)))
        if large >= TOO_MUCH * max(small, LEAST_SECONDS):  # other work on the machine, or a square
            large = min(large, seconds(make(4 * size)))
    print(f"{1000 * small:.0f} ms, {1000 * large:.0f} ms")
    assert large < TOO_MUCH * max(small, LEAST_SECONDS)


def said(files: Files) -> list[str]:
    found = check_sources([Source(name, text) for name, text in files.items()], environment()).diagnostics
    return [f"{d.code} {d.message}" for d in found]


def test_used_statements_count_for_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "WHOLE", SetLimits(statements=1_000))
    assert said(fan_out(9)) == []
    (found,) = said(fan_out(10))
    assert found == "P0002 with this policy, all policies together have more than 1,000 statements"


def test_files_take_each_other_in_to_a_depth() -> None:
    assert said({**chain(MAX_USE_LEVELS), f"p{MAX_USE_LEVELS}.policy": "let x = 1"}) == [
        "P0002 more than 30 levels of files include each other"
    ]
    assert said({**chain(MAX_USE_LEVELS - 1), f"p{MAX_USE_LEVELS - 1}.policy": "let x = 1"}) == []


def test_finding_the_policy_of_a_pod_has_a_bound_for_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "WHOLE", SetLimits(governs_cost=30))
    text = 'for pods where pod.label.a == "{0}" or pod.label.b == "{0}"\n'  # 7 operations
    assert said(policies(text, 4)) == []
    (found,) = said(policies(text, 5))
    assert found == "P0115 with this, finding the policy of a pod needs more than 30 operations"


FUNCTIONS = "def f0(x) = x + x\n" + "\n".join(f"def f{at + 1}(x) = f{at}(x) + f{at}(x)" for at in range(6))


def test_checking_has_a_bound_for_the_whole_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "WHOLE", SetLimits(steps=2_000))
    dear = f'for pods where pod.namespace == "{{0}}"\n{FUNCTIONS}\nscore f6(1)\n'
    assert said(policies(dear, 2)) == []
    assert said(policies(dear, 9)) == [
        "P0115 with this policy, all policies together need more than 2,000 steps to check"
    ]


def test_a_policy_that_is_too_dear_is_not_looked_at_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "MAX_POLICY_STEPS", 2_000)
    scores = "\n".join(f"score f6({at})" for at in range(50))
    assert said(one(f"{FUNCTIONS}\n{scores}")) == ["P0115 with this, the policy needs more than 2,000 steps to check"]


def test_queries_have_a_bound_for_the_whole_set() -> None:
    half = WHOLE.inputs // 2
    files = {name: lines(f'score promql("{name}{{0}}") ?? 1', half)["a.policy"] for name in ("a", "b")}
    files = {f"{name}.policy": f'for pods where pod.namespace == "{name}"\n{text}' for name, text in files.items()}
    assert said(files) == []
    (found,) = said({**files, "c.policy": 'for pods where pod.namespace == "c"\nscore promql("c") ?? 1'})
    assert found == "P0115 with this policy, all policies together use more than 500 metric queries"


@pytest.mark.parametrize("query", ["x" + " + y" * 101, "(" * 101 + "x" + ")" * 101, "x" + " or y" * 101])
def test_a_query_that_nests_deep_never_reaches_its_parser(query: str) -> None:
    files = one(f'score promql("{query}") ?? 1')
    assert said(files) == ["P0110 the query has more than 100 operators and brackets"]
    assert {d.code for d in loaded(files)} == {"P0110"}


def test_brackets_in_texts_of_a_query_do_not_count() -> None:
    assert said(one("score promql(\"x{a='" + "(" * 150 + "'}\") ?? 1")) == []


MANY = f"P0010 more than {MAX_ERRORS} errors up to this file: the other files are skipped"


@pytest.mark.parametrize(
    ("files", "last"),
    [
        (lines("score nodd.x{0}", 60), "P0010 more than 50 errors: the rest of the policy is skipped"),
        (policies("score nodd.x{0}\n", 300), MANY),
        (policies("scoer {0}\n" * 3, 300), MANY),
    ],
    ids=["in one policy", "in many policies", "that cannot be read"],
)
def test_very_many_errors_are_not_all_looked_for(files: Files, last: str) -> None:
    found = said(files)
    assert last in found
    assert len(found) < MAX_ERRORS + 60
