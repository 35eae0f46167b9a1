"""Which mutants say the same as the policy: those for which the lint's proofs show it.

Of a condition that can't be missing, the change is without effect where neither can hold without the other. Nothing
is guessed: a mutant that is not proved to be the same has to be noticed by a case.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_policy_scheduler.lang import checked, syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, ClauseKind
from kube_policy_scheduler.lint.facts import NO_FACTS, Facts, assume, never

_HEADS = ("name", "scheduler", "priority", "without", "kubernetes_scores")


def equivalent(policy: CheckedPolicy, mutated: CheckedPolicy) -> bool:
    """Return whether it is proved that two policies decide alike."""
    if any(getattr(policy, head) != getattr(mutated, head) for head in _HEADS):
        return False
    if len(policy.clauses) != len(mutated.clauses) or _definitions(policy) != _definitions(mutated):
        return False
    if not _alike(policy.governs, mutated.governs, NO_FACTS):
        return False
    return all(_same_clause(one, other) for one, other in zip(policy.clauses, mutated.clauses, strict=True))


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
