"""One mutant against the cases: the policies with its change, decided with until a case fails.

Runs no case itself: what does comes as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from kube_policy_scheduler.diagnostics import Source, errors
from kube_policy_scheduler.lang import checked as lang
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.load import Checked, check_sources
from kube_policy_scheduler.lint.runner import lint
from kube_policy_scheduler.policy.policy import make_policy
from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS, PolicySet
from kube_policy_scheduler.tooling.mutation.equivalence import equivalent
from kube_policy_scheduler.tooling.mutation.mutant import Mutant
from kube_policy_scheduler.tooling.mutation.statements import mutants

Notices: TypeAlias = Callable[[PolicySet], str | None]
"""From policies to the name of a case that fails under them, None where all pass."""


class Fate(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    """A case failed."""
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    """It is proved to decide as the policy does: no case could fail."""
    REFUSED = "refused"
    """It is no policy: the checker or a lint rule refuses it."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A mutant and what became of it."""

    mutant: Mutant
    fate: Fate
    by: str = ""
    """The case that failed."""


@dataclass(frozen=True, slots=True)
class Subject:
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
            every.extend(mutants(file, several=several))
        return tuple(every)

    def policies(self, mutant: Mutant) -> PolicySet | Fate:
        """Return the policies with one change, or why it needs no case: it is refused, or proved equivalent."""
        changed = mutant.applied()
        sources, library = _with(changed, self.sources), _with(changed, self.library)
        made = check_sources(sources, self.environment, library=library)
        if made.failed or errors(lint(made)):
            return Fate.REFUSED
        pairs = list(zip(self.checked.policies, made.policies, strict=True))
        if all(equivalent(policy, mutated) for policy, mutated in pairs):
            return Fate.EQUIVALENT
        policies = [make_policy(compile_policy(_named_alike(*pair), self.environment)) for pair in pairs]
        return PolicySet.of(policies, default_schedulers=self.default_schedulers)

    def try_out(self, mutant: Mutant) -> Tried:
        """Run the cases against one mutant, up to the first that fails."""
        policies = self.policies(mutant)
        if isinstance(policies, Fate):
            return Tried(mutant, policies)
        killer = self.notices(policies)
        return Tried(mutant, Fate.SURVIVED) if killer is None else Tried(mutant, Fate.KILLED, killer)


def together(mutant: Mutant, tried: Sequence[Tried]) -> Tried:
    """Return what became of a mutant that several subjects tried: one case anywhere is enough to notice it."""
    for fate in (Fate.KILLED, Fate.SURVIVED, Fate.EQUIVALENT):
        found = next((one for one in tried if one.fate is fate), None)
        if found is not None:
            return found
    return Tried(mutant, Fate.REFUSED)


def _with(changed: Source, sources: Iterable[Source]) -> list[Source]:
    return [changed if source.name == changed.name else source for source in sources]


def _named_alike(policy: CheckedPolicy, mutated: CheckedPolicy) -> CheckedPolicy:
    """Return the mutant with its clauses named as in the policy.

    A clause without a name is called by its text: a case that names it would fail for the name alone.
    """
    before = _remaining(policy.clauses, mutated.clauses)
    clauses = (replace(clause, name=named.name) for named, clause in zip(before, mutated.clauses, strict=True))
    return replace(mutated, clauses=tuple(clauses))


def _remaining(before: Sequence[lang.Clause], after: Sequence[lang.Clause]) -> Sequence[lang.Clause]:
    """Return the clauses before a change that stand for those after it: at most one was left out."""
    if len(before) == len(after):
        return before
    gone = next((at for at, clause in enumerate(after) if clause.tree != before[at].tree), len(after))
    return (*before[:gone], *before[gone + 1 :])
