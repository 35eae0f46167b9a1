"""The parts of a policy's filter that are joined by `and`: each can be asked for itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cluster.nodes import BoolArray
from engine.framework.frame import Frame
from engine.lang import typed
from engine.lang.checked import ClauseKind, Test
from engine.lang.columns import TRUE, full
from engine.lang.compiled import CompiledClause, CompiledPolicy, CompiledTest, Part
from engine.lang.types import Kind


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One operand of a filter's `and`."""

    text: str
    """As written, on one line."""
    tree: typed.Typed
    part: Part

    def holds(self, frame: Frame) -> BoolArray:
        """Return `bool[rows]`: where it is true; where a value is missing, it does not hold."""
        answer: Any = self.part.evaluate(frame)
        held: BoolArray = full(answer == TRUE if self.part.info.maybe else answer, frame.size)
        return held.astype(np.bool_)


def conjuncts(policy: CompiledPolicy, clause: CompiledClause) -> tuple[Conjunct, ...]:
    """Return the operands of a filter's `and`, in order; none where the clause is no such filter."""
    tree = tree_of(policy, clause)
    if not isinstance(clause, CompiledTest) or clause.kind is not ClauseKind.FILTER or not isinstance(tree, Test):
        return ()
    if not isinstance(tree.value, typed.Logic) or tree.value.operator != "and":
        return ()
    # `label disk=ssd` is a test, and the label's value: of what stands in one place, the test is meant
    parts = {part.span: part for part in clause.parts if part.info.type.kind is Kind.TRUTH}
    return tuple(
        Conjunct(" ".join(operand.span.text.split()), operand, parts[operand.span])
        for operand in tree.value.operands
        if operand.span in parts
    )


def tree_of(policy: CompiledPolicy, clause: CompiledClause) -> Any:
    """Return the checked clause that a compiled one was made of; None where it is of another policy."""
    pairs = zip(policy.clauses, policy.checked.clauses, strict=True)
    return next((tree for made, tree in pairs if made is clause), None)
