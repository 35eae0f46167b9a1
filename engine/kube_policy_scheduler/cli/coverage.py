"""Coverage for `policyctl test`: counts beside the run, shows, writes, and compares with a threshold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli.terminal import terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.suites import LoadedSuite
    from kube_policy_scheduler.lang.checked import CheckedPolicy
    from kube_policy_scheduler.tooling.coverage.measure import FileCoverage
    from kube_policy_scheduler.tooling.tester.playing import Observe


class Coverage:
    """What the cases of all test files decide with."""

    def __init__(self) -> None:
        from kube_policy_scheduler.builtins.environment import environment
        from kube_policy_scheduler.tooling.coverage.probe import Probe

        self._probe = Probe(environment().pods)
        self._sets: list[tuple[CheckedPolicy, ...]] = []

    def watch(self, loaded: LoadedSuite) -> Observe:
        """Return what the run of a test file has to call."""
        from kube_policy_scheduler.tooling.coverage.watching import watched_by

        self._sets.append(tuple(policy.compiled.checked for policy in loaded.policy_set.policies))
        return watched_by(self._probe, loaded.policy_set)

    def measured(self) -> tuple[FileCoverage, ...]:
        """Return what was covered."""
        from kube_policy_scheduler.tooling.coverage.measure import measured

        return measured(self._sets, self._probe)

    def lines(self) -> Iterator[str]:
        """Yield what is not covered, for people."""
        from kube_policy_scheduler.tooling.coverage.report import lines

        yield from lines(self.measured(), to=terminal())

    def data(self) -> dict[str, Any]:
        """Return the coverage as plain values."""
        from kube_policy_scheduler.tooling.coverage.report import data

        return data(self.measured())

    def percent(self) -> float:
        """Return clauses and branches that were covered together, 0 to 100."""
        from kube_policy_scheduler.tooling.coverage.measure import percent

        return percent(self.measured())

    def write(self, path: Path) -> None:
        """Write Cobertura XML.

        Raises:
            click.ClickException: the file cannot be written.
        """
        from importlib.metadata import version

        from kube_policy_scheduler.tooling.coverage.cobertura import cobertura

        text = cobertura(
            self.measured(), timestamp_millis=int(time.time() * 1000), version=version("kube-policy-scheduler")
        )
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
