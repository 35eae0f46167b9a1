"""Functions of installed packages: off unless named, and their mistakes are errors with their name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kube_policy_scheduler.builtins.environment import environment, install_extensions
from kube_policy_scheduler.builtins.extensions import (
    MOST_SLOW,
    OFF_SECONDS,
    ExtensionError,
    ExtensionFault,
    calls_without_value,
    guarded,
)
from kube_policy_scheduler.cli.main import policyctl
from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.lang.signature import Builtin, MaybeNumber, Number, Text, Truth, Unavailable, builtin
from kube_policy_scheduler.policy.policy_set import load
from tests.cli.transcript import command

FOLDER = Path(__file__).parents[1] / "fakes" / "extension"


@pytest.fixture
def _package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package, and this process as it was afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    install_extensions((), stopwatch=lambda: 0.0)


def install(*names: str) -> None:
    install_extensions(names, stopwatch=lambda: 0.0)


def errors(text: str) -> list[str]:
    found = load([Source("a.policy", text)]).diagnostics
    return [each.message for each in found if each.severity is Severity.ERROR]


@pytest.mark.usefixtures("_package")
class TestInstalling:
    """What a configuration names, and nothing else."""

    def test_a_package_is_off_unless_it_is_named(self) -> None:
        assert errors("score comfort(node.used_fraction.cpu, 0.6)\n")
        install("example")
        assert errors("score comfort(node.used_fraction.cpu, 0.6)\nfilter licensed(node.name)\n") == []
        install()
        assert "comfort" not in environment().builtins

    def test_types_and_constants_are_checked_as_for_our_own(self) -> None:
        install("example")
        assert errors('score comfort("a", 1)\n')
        assert errors('score site("west")\n') == ["there is no site west"]
        assert errors('score site("north")\n') == []

    @pytest.mark.parametrize(
        ("name", "said"),
        [("absent", "installed: example, missing"), ("missing", "cannot import example_builtins_gone")],
    )
    def test_a_package_that_cannot_be_used_is_an_error(self, name: str, said: str) -> None:
        with pytest.raises(ExtensionError, match=said):
            install(name)

    def test_policyctl_knows_those_of_the_configuration(self, tmp_path: Path) -> None:
        config = tmp_path / "config.yaml"
        config.write_text("policies:\n  extensions: [example]\n")
        policy = tmp_path / "a.policy"
        policy.write_text("score comfort(node.used_fraction.cpu, 0.6)\n")
        shown = CliRunner().invoke(policyctl, ["functions", "comfort", "--config", str(config)])
        assert "comfort(used: number, best: number) -> number" in shown.output
        assert "the further it is away" in shown.output
        found = CliRunner().invoke(policyctl, ["lint", str(policy), "--config", str(config)])
        assert found.exit_code == 0, found.output
        config.write_text("policies:\n  extensions: [absent]\n")
        found = CliRunner().invoke(policyctl, ["lint", str(policy), "--config", str(config)])
        assert "extension absent: no installed package" in found.output


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def number(result: Any, *, maybe: bool = False) -> Builtin:
    """A guarded function of one number that returns this."""

    def f(x: Number) -> Number:
        """Return something."""
        return result

    def f_(x: Number) -> MaybeNumber:
        """Return something, or nothing."""
        return result

    return guarded(builtin()(f_ if maybe else f), extension="e", stopwatch=Clock())


NAN, INF = float("nan"), float("inf")
THREE = np.ones(3)


class TestGuard:
    """What a function of a package may return."""

    @pytest.mark.parametrize("result", [1, 1.5, np.float32(2), np.arange(3), np.ones(3, np.float32), np.ones(3)])
    def test_numbers_come_as_floats(self, result: Any) -> None:
        made = number(result).kernel(THREE)
        assert isinstance(made, float) or made.dtype == np.float64

    @pytest.mark.parametrize(
        "result", [None, "1", True, np.ones(2), np.ones((3, 1)), [1, 2, 3], np.array(["a"] * 3), INF, np.full(3, INF)]
    )
    def test_anything_else_is_a_fault(self, result: Any) -> None:
        with pytest.raises(ExtensionFault, match="function `f` of extension e"):
            number(result).kernel(THREE)

    def test_a_value_may_be_missing_where_that_is_declared_or_the_argument_was(self) -> None:
        some = np.array([1.0, NAN, 1.0])
        assert np.isnan(number(some, maybe=True).kernel(THREE)).tolist() == [False, True, False]
        assert np.isnan(number(some).kernel(some)).tolist() == [False, True, False]
        with pytest.raises(ExtensionFault, match="1 infinite or missing value"):
            number(some).kernel(THREE)

    def test_truth_is_bool(self) -> None:
        @builtin()
        def holds(x: Number) -> Truth:
            """Return what it was given as truth."""
            return x > 0 if isinstance(x, np.ndarray) else 1

        guard = guarded(holds, extension="e", stopwatch=Clock())
        assert guard.kernel(THREE).tolist() == [True] * 3
        with pytest.raises(ExtensionFault, match="expected true or false, got int"):
            guard.kernel(1.0)

    def test_an_exception_names_the_function(self) -> None:
        @builtin()
        def fails(name: Text) -> Text:
            """Fail."""
            raise KeyError(name)

        with pytest.raises(ExtensionFault, match="function `fails` of extension e failed: KeyError: 'a'"):
            guarded(fails, extension="e", stopwatch=Clock()).kernel("a")

    def test_a_slow_function_is_switched_off_for_a_time(self) -> None:
        calls: list[int] = []

        @builtin()
        def slow(x: Number) -> Number:
            """Take long."""
            calls.append(1)
            return x

        clock = Clock()
        guard = guarded(slow, extension="e", stopwatch=clock)
        clock.step = 0.1
        for _ in range(MOST_SLOW):
            guard.kernel(1.0)
        with pytest.raises(ExtensionFault, match="is off for 60 s"):
            guard.kernel(1.0)
        assert len(calls) == MOST_SLOW
        clock.now += OFF_SECONDS
        clock.step = 0.0
        assert guard.kernel(1.0) == 1.0
        assert guard.kernel(1.0) == 1.0

    def test_while_a_function_that_may_have_no_value_is_off_its_value_is_missing(self) -> None:
        @builtin()
        def slow(x: Number) -> MaybeNumber:
            """Take long."""
            return x

        clock = Clock()
        guard = guarded(slow, extension="e", stopwatch=clock)
        clock.step = 0.1
        found = [guard.kernel(1.0) for _ in range(MOST_SLOW + 2)]
        assert found[:MOST_SLOW] == [1.0] * MOST_SLOW
        assert np.isnan(found[MOST_SLOW:]).all()
        assert calls_without_value([guard]) == {("slow", "failed"): 0, ("slow", "unavailable"): 2}

    def test_without_a_stopwatch_nothing_is_switched_off(self) -> None:
        @builtin()
        def quick(x: Number) -> Number:
            """Return it."""
            return x

        guard = guarded(quick, extension="e", stopwatch=None)
        assert [guard.kernel(1.0) for _ in range(2 * MOST_SLOW)] == [1.0] * 2 * MOST_SLOW

    def test_a_function_that_reads_the_frame_knows_how_many_rows_there_are(self) -> None:
        frame = SimpleNamespace(size=2)

        @builtin()
        def rows(frame: Any) -> Number:
            """Return one value for each row."""
            return np.arange(frame.size)

        assert guarded(rows, extension="e", stopwatch=Clock()).kernel(frame).tolist() == [0.0, 1.0]


def test_a_value_that_is_not_there_for_now_is_missing_and_counted() -> None:
    @builtin()
    def waiting(x: Number) -> MaybeNumber:
        """Have no value yet."""
        raise Unavailable("nothing has come")

    @builtin()
    def promising(x: Number) -> Number:
        """Have no value although it says that it always has."""
        raise Unavailable("nothing has come")

    functions = [guarded(each, extension="example", stopwatch=lambda: 0.0) for each in (waiting, promising)]
    assert np.isnan(functions[0].kernel(np.zeros(3)))
    with pytest.raises(ExtensionFault, match="expected a value, as its signature says"):
        functions[1].kernel(np.zeros(3))
    counts = {("waiting", "failed"): 0, ("promising", "failed"): 1}
    counts |= {("waiting", "unavailable"): 1, ("promising", "unavailable"): 0}
    assert calls_without_value(functions) == counts


@pytest.mark.usefixtures("_package")
def test_a_function_that_fails_is_an_error_of_the_command_not_a_bug_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\npolicies: {extensions: [example]}\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        'apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: "4"}}\n'
    )
    where = f"--cluster {tmp_path}/cluster.yaml --config {tmp_path}/config.yaml"
    printed, code = command(f"policyctl eval 'broken(node.free.cpu / 1core)' {where}", tmp_path)
    assert code == 2
    assert printed.splitlines() == [
        "policyctl: `broken` failed in 1 call",
        "Error: function `broken` of extension example failed: ZeroDivisionError: no such price",
    ]
