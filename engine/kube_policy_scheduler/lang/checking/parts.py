"""What clauses are made of: conditions, keys, constants, names. Reports, and goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Span
from kube_policy_scheduler.lang import codes_meaning as meaning
from kube_policy_scheduler.lang import codes_policy as codes
from kube_policy_scheduler.lang import expressions, syntax, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.binding import constant_of
from kube_policy_scheduler.lang.checking.infer import Inference
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.checking.units import in_unit
from kube_policy_scheduler.lang.formatting.show import clause_text
from kube_policy_scheduler.lang.types import PLAIN, Depends, Kind, Unit

SETTLED = Depends.TEMPLATE | Depends.POD
"""What does not change after the pod arrived."""


@dataclass(slots=True, kw_only=True)
class PartChecks:
    """Checks the parts of clauses with one inference."""

    inference: Inference
    said: dict[str, Span] = field(default_factory=dict)
    """What can be said only once, and where it was."""
    names: dict[str, Span] = field(default_factory=dict)
    """Names given with `as`."""
    texts: Counter[str] = field(default_factory=Counter)
    """How many clauses without a name say the same."""

    @property
    def found(self) -> list[Diagnostic]:
        """Return what is wrong so far."""
        return self.inference.found

    def pod_scope(self, statement: str) -> Scope:
        """Return the scope of a statement that speaks about the pod alone."""
        return Scope(statement, nodes=False)

    def truth(self, tree: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return what a condition means."""
        return operators.truth(self.inference.top(tree, scope), self.found)

    def condition(self, tree: expressions.Expr | None, scope: Scope) -> typed.Typed | None:
        """Return what stands after `if`, where something does."""
        return None if tree is None else self.truth(tree, scope)

    def key(self, tree: expressions.Expr, statement: str) -> typed.Typed:
        """Return what stands after `by`: a text of the pod's template."""
        value = self.inference.top(tree, self.pod_scope(statement))
        if operators.bad(value):
            return value
        if value.info.type.kind is not Kind.TEXT or value.info.depends & ~Depends.TEMPLATE:
            message = f"`{statement}` groups pods by a text of their template, this is not one"
            advice = "write a label such as `pod.label.tenant`, or `pod.namespace`"
            self.found.append(meaning.KEY.at(value.span, message, help=advice))
            return operators.unknown(tree.span)
        return value

    def settled(self, value: typed.Typed, statement: str) -> typed.Typed:
        """Return a value, reporting it where it changes after the pod arrived."""
        if value.info.depends & ~SETTLED:
            message = f"`{statement}` is settled when the pod arrives, but this changes afterwards"
            advice = "use what the pod itself says: labels, namespace, priority, `pod.created`, `pod.queued`"
            self.found.append(codes.UNSTABLE.at(_unsettled(value).span, message, help=advice))
        return value

    def number(
        self, tree: expressions.Expr | None, what: str, *, low: float, unit: Unit = PLAIN, default: float = 1.0
    ) -> float:
        """Return a constant, or the default after reporting that it is none."""
        if tree is None:
            return default
        value = self.inference.top(tree, Scope(what, nodes=False))
        if operators.bad(value):
            return default
        constant = constant_of(value)
        if value.info.type.kind is not Kind.NUMBER:
            self.found.append(operators.wrong_type(value, f"a number as `{what}`"))
        elif constant is None:
            message = f"`{what}` must be a number written out"
            self.found.append(meaning.NOT_CONSTANT.at(tree.span, message, help="write the number itself here"))
        elif in_unit(value, unit, self.found):
            if constant >= low:
                return float(constant)
            advice = "negate the expression instead" if what == "weight" else "write a larger number"
            message = f"`{what}` must be {low:g} or more, this is {constant:g}"
            self.found.append(codes.NUMBER.at(tree.span, message, help=advice))
        return default

    def whole(self, tree: expressions.Expr, what: str, *, low: float) -> float:
        """Return a constant whole number."""
        value = self.number(tree, what, low=low)
        if value != int(value):
            message = f"`{what}` must be a whole number, this is {value:g}"
            self.found.append(codes.NUMBER.at(tree.span, message, help=f"write {round(value)}"))
        return value

    def once(self, what: str, span: Span) -> bool:
        """Return whether something is said for the first time, reporting it where it is not."""
        earlier = self.said.setdefault(what, span)
        if earlier is span:
            return True
        label = Label(earlier, "said here before")
        self.found.append(codes.REPEATED.at(span, f"`{what}` is said twice", help="remove one of them", labels=[label]))
        return False

    def named(self, tree: syntax.Clause) -> str:
        """Return what a clause is called: the name that it gives itself, else what it says."""
        given: str | None = getattr(tree, "name", None)
        if given is None:
            return self._told_apart(clause_text(tree))
        earlier = self.names.setdefault(given, tree.span)
        if earlier is not tree.span:
            label = Label(earlier, "used here before")
            message = f"two clauses are called `{given}`"
            self.found.append(codes.SAME_CLAUSE.at(tree.span, message, help="rename one of them", labels=[label]))
        return given

    def _told_apart(self, text: str) -> str:
        """Return a name that no clause before has: its text, from the second one on with a number."""
        self.texts[text] += 1
        return text if self.texts[text] == 1 else f"{text} #{self.texts[text]}"


def _unsettled(value: typed.Typed) -> typed.Typed:
    """Return the innermost part that changes after the pod arrived."""
    for part in typed.parts(value):
        if part.info.depends & ~SETTLED:
            return _unsettled(part)
    return value
