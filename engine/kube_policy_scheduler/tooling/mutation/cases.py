"""The cases of a test file as what has to notice mutants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.mutation.trial import Notices
from kube_policy_scheduler.tooling.tester.policies import CompiledPolicies
from kube_policy_scheduler.tooling.tester.results import State
from kube_policy_scheduler.tooling.tester.run import SuiteRun
from kube_policy_scheduler.tooling.tester.suite import Case


class _MutatedPolicies(CompiledPolicies):
    """Mutated policies, beside what the run knows of the true ones: the test's metrics are those of the latter."""

    def __init__(self, policy_set: PolicySet, true: CompiledPolicies) -> None:
        super().__init__(policy_set)
        self.warnings = true.warnings
        self._queries = tuple(dict.fromkeys((*true.queries, *policy_set.queries)))

    @property
    def queries(self) -> Iterable[Query]:
        """Return every metric that the policies read, or would read without the change."""
        return self._queries


def noticing(run: SuiteRun, true: CompiledPolicies, cases: Sequence[Case]) -> Notices:
    """Return what runs cases under mutated policies until one fails.

    The case that failed last is asked first: neighbouring mutants are mostly noticed by the same case.

    Args:
        run: the suite, on its clusters.
        true: its policies without a change.
        cases: those that pass under them.
    """
    order = list(cases)

    def notices(policy_set: PolicySet) -> str | None:
        mutated = run.under(_MutatedPolicies(policy_set, true))
        for at, case in enumerate(order):
            try:
                failed = mutated.run(case).state in (State.FAILED, State.ERROR)
            except DocumentError:
                failed = True  # such as: no policy governs the pod any more
            if failed:
                order.insert(0, order.pop(at))
                return case.name
        return None

    return notices
