"""Runs tests against mutants: which notice the fault, which mutants are equivalent, and what each case notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.diagnostics import Source, errors
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.lang import checked, syntax, typed
from kube_policy_scheduler.lang import checked as lang
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.load import Checked, check_sources
from kube_policy_scheduler.lint.facts import NO_FACTS, Facts, assume, never
from kube_policy_scheduler.lint.runner import lint
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.policy import make_policy
from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS, PolicySet, set_of
from kube_policy_scheduler.tooling.mutation.mutants import Mutant, mutants
from kube_policy_scheduler.tooling.tester.outcome import CompiledPolicies
from kube_policy_scheduler.tooling.tester.run import State, SuiteRun
from kube_policy_scheduler.tooling.tester.suite_file import Case

_HEADS = ("name", "scheduler", "priority", "without", "kubernetes_scores")


def equivalent(policy: CheckedPolicy, mutated: CheckedPolicy) -> bool:
    """Return whether it is proved that two policies decide alike."""
    if any(getattr(policy, head) != getattr(mutated, head) for head in _HEADS):
        return False
    if _statements(policy) != _statements(mutated):
        return False
    if len(policy.clauses) != len(mutated.clauses) or _definitions(policy) != _definitions(mutated):
        return False
    if not _alike(policy.governs, mutated.governs, NO_FACTS):
        return False
    return all(_same_clause(one, other) for one, other in zip(policy.clauses, mutated.clauses, strict=True))


def _statements(policy: CheckedPolicy) -> Sequence[syntax.Statement]:
    """Return the statements that decide and are no clauses."""
    backfill = [policy.backfill.tree] if policy.backfill is not None else []
    of_workloads = (syntax.Choose, syntax.Divide, syntax.Keep)
    other = [each for each in policy.statements if isinstance(each, of_workloads)]
    return [*(queue.tree for queue in policy.queues), *(reclaim.tree for reclaim in policy.reclaims), *backfill, *other]


def _definitions(policy: CheckedPolicy) -> Sequence[syntax.Statement]:
    return [s for s in policy.statements if isinstance(s, syntax.Let | syntax.Def | syntax.Metric)]


def _same_clause(one: checked.Clause, other: checked.Clause) -> bool:
    if one.tree == other.tree:
        return True
    if not isinstance(one, checked.Test) or not isinstance(other, checked.Test) or one.kind is not other.kind:
        return False
    if not _alike(one.condition, other.condition, NO_FACTS):
        return False
    if one.kind is ClauseKind.SCORE:
        return (
            isinstance(one.tree, syntax.Score)
            and isinstance(other.tree, syntax.Score)
            and ((one.tree.value, one.weight) == (other.tree.value, other.weight))
        )
    given = NO_FACTS if one.condition is None else assume(one.condition, True) or NO_FACTS
    return _alike(one.value, other.value, given)


def _alike(one: typed.Typed | None, other: typed.Typed | None, given: Facts) -> bool:
    """Return whether neither of two conditions can hold without the other."""
    if one is None or other is None:
        return one is other
    if one.info.maybe or other.info.maybe:
        return False
    if _absorbed(one, other, given):
        return True
    return never(one, _not(other), given=given) and never(other, _not(one), given=given)


def _absorbed(one: typed.Typed, other: typed.Typed, given: Facts) -> bool:
    """Return whether the other is the one without an operand that follows from the rest."""
    if not isinstance(one, typed.Logic):
        return False
    alike = isinstance(other, typed.Logic) and other.operator == one.operator and len(one.operands) > 2
    rest = other.operands if alike and isinstance(other, typed.Logic) else (other,)
    for at, operand in enumerate(one.operands):
        others = (*one.operands[:at], *one.operands[at + 1 :])
        if [each.span.text for each in others] == [each.span.text for each in rest]:
            if one.operator == "and":
                return never(*others, _not(operand), given=given)
            return never(*map(_not, others), operand, given=given)
    return False


def _not(value: typed.Typed) -> typed.Typed:
    return typed.Not(value.info, value.span, value)


Notices: TypeAlias = Callable[[PolicySet], str | None]
"""From policies to the name of a case that fails under them, None where all pass."""


class MutantStatus(Enum):
    """What happened to a mutant."""

    KILLED = "killed"
    """A case failed."""
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    """It is proved to decide as the policy does: no case could fail."""
    REFUSED = "refused"
    """It is no policy: the checker or a lint rule refuses it."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """A mutant and what happened to it."""

    mutant: Mutant
    status: MutantStatus
    by: str = ""
    """The case that failed."""


@dataclass(frozen=True, slots=True)
class MutationTarget:
    """The policies of one or more test files that decide together, and how to run their cases."""

    sources: tuple[Source, ...]
    library: tuple[Source, ...]
    """Sources that `use` may take in."""
    environment: Environment
    checked: Checked
    notices: Notices
    default_schedulers: frozenset[str] = DEFAULT_SCHEDULERS

    def mutants(self) -> tuple[Mutant, ...]:
        """Return the mutants of all files that the policies are made of, in the order of their names."""
        files: dict[str, dict[int, syntax.Statement]] = {}
        sources: dict[str, Source] = {}
        for policy in self.checked.policies:
            for statement in policy.statements:
                source = statement.span.source
                sources[source.name] = source
                files.setdefault(source.name, {})[statement.span.start] = statement
        several = len(self.checked.policies) > 1
        every: list[Mutant] = []
        for name in sorted(files):
            file = syntax.File(sources[name], tuple(files[name][start] for start in sorted(files[name])))
            every.extend(mutants(file, self.environment.builtins, several=several))
        return tuple(every)

    def policies(self, mutant: Mutant) -> PolicySet | MutantStatus:
        """Return the policies with one change, or why it needs no case: it is refused, or proved equivalent."""
        changed = mutant.applied()
        sources, library = _with(changed, self.sources), _with(changed, self.library)
        made = check_sources(sources, self.environment, library=library)
        if made.failed or errors(lint(made)):
            return MutantStatus.REFUSED
        pairs = list(zip(self.checked.policies, made.policies, strict=True))
        if all(equivalent(policy, mutated) for policy, mutated in pairs):
            return MutantStatus.EQUIVALENT
        compiled = [compile_policy(_named_alike(*pair), self.environment) for pair in pairs]
        policies = [make_policy(each) for each in compiled if each.workloads is None]
        found = set_of(made.policies, policies, default_schedulers=self.default_schedulers)
        return found.with_fleet(FleetPolicies.of(each for each in compiled if each.workloads is not None))

    def try_out(self, mutant: Mutant) -> MutantResult:
        """Run the cases against one mutant, up to the first that fails."""
        policies = self.policies(mutant)
        if isinstance(policies, MutantStatus):
            return MutantResult(mutant, policies)
        killer = self.notices(policies)
        return (
            MutantResult(mutant, MutantStatus.SURVIVED)
            if killer is None
            else MutantResult(mutant, MutantStatus.KILLED, killer)
        )


def together(mutant: Mutant, tried: Sequence[MutantResult]) -> MutantResult:
    """Return what happened to a mutant that several subjects tried: one case anywhere is enough to notice it."""
    for status in (MutantStatus.KILLED, MutantStatus.SURVIVED, MutantStatus.EQUIVALENT):
        found = next((one for one in tried if one.status is status), None)
        if found is not None:
            return found
    return MutantResult(mutant, MutantStatus.REFUSED)


def _with(changed: Source, sources: Iterable[Source]) -> list[Source]:
    return [changed if source.name == changed.name else source for source in sources]


def _named_alike(policy: CheckedPolicy, mutated: CheckedPolicy) -> CheckedPolicy:
    """Return the mutant with its clauses named as in the policy.

    A clause without a name is called by its text: a case that names it would fail for the name alone.
    """
    before = _remaining(policy.clauses, mutated.clauses)
    clauses = (
        msgspec.structs.replace(clause, name=named.name) for named, clause in zip(before, mutated.clauses, strict=True)
    )
    return msgspec.structs.replace(mutated, clauses=tuple(clauses))


def _remaining(before: Sequence[lang.Clause], after: Sequence[lang.Clause]) -> Sequence[lang.Clause]:
    """Return the clauses before a change that stand for those after it: at most one was left out."""
    if len(before) == len(after):
        return before
    gone = next((at for at, clause in enumerate(after) if clause.tree != before[at].tree), len(after))
    return (*before[:gone], *before[gone + 1 :])


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
