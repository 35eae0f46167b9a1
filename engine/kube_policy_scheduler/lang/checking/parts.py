"""What statements are made of: conditions, numbers, keys, topologies, shares; and what is said only once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Span
from kube_policy_scheduler.lang import codes, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.inference import Inference, Scope, constant_of
from kube_policy_scheduler.lang.checking.missing import misplaced_default, missing_part, remedy, why
from kube_policy_scheduler.lang.checking.units import in_unit
from kube_policy_scheduler.lang.reading.literals import label_problem
from kube_policy_scheduler.lang.types import PLAIN, Depends, Kind, Unit

SETTLED = Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.QUEUE
"""The fields that do not change after the pod arrived."""


class Parts(msgspec.Struct, kw_only=True):
    """Checks what statements are made of, with one inference."""

    inference: Inference
    said: dict[str, Span] = msgspec.field(default_factory=dict)
    """What is allowed only once, and where it was."""

    @property
    def found(self) -> list[Diagnostic]:
        """Return the errors so far."""
        return self.inference.found

    def pod_scope(self, statement: str) -> Scope:
        """Return the scope of a statement about the pod alone."""
        return Scope(statement, nodes=False)

    def truth(self, tree: expressions.Expr, scope: Scope) -> typed.Typed:
        """Return what a condition means."""
        return operators.truth(self.inference.infer_root(tree, scope), self.found)

    def condition(self, tree: expressions.Expr | None, scope: Scope) -> typed.Typed | None:
        """Return the condition after `if`, if there is one."""
        return None if tree is None else self.truth(tree, scope)

    def key(self, tree: expressions.Expr, statement: str) -> typed.Typed:
        """Return the key after `by`: a text of the pod's template."""
        value = self.inference.infer_root(tree, msgspec.structs.replace(self.pod_scope(statement), part="key"))
        if operators.has_unknown(value):
            return value
        if value.info.type.kind is not Kind.TEXT or value.info.depends & ~Depends.TEMPLATE:
            subject = self.inference.subject
            message = f"`{statement}` groups {subject.name} by a text of their template, and this is not one"
            advice = f"write a label such as `{subject.decided}.label.tenant`, or `{subject.decided}.namespace`"
            self.found.append(codes.KEY.at(value.span, message, help=advice))
            return operators.unknown(tree.span)
        return value

    def settled(self, value: typed.Typed, statement: str) -> typed.Typed:
        """Return a value, and report it if it changes after the pod arrived."""
        if value.info.depends & ~SETTLED:
            message = f"`{statement}` is determined when the pod arrives, but this value changes later"
            advice = "use a field of the pod: labels, namespace, priority, `pod.created`, `pod.queued`"
            self.found.append(codes.UNSTABLE.at(unsettled(value).span, message, help=advice))
        return value

    def require_value(self, value: typed.Typed, what: str, *, when: typed.Typed | None = None) -> None:
        """Report a value that may be missing if that decides about nodes or, if it is a metric, about the pod.

        What is missing of the pod itself counts as false: a label that is not a number stays so, a metric returns.
        """
        cause = missing_part(value, when=when)
        if cause is None or (what != ClauseKind.FILTER.value and not cause.info.depends & Depends.SIGNAL):
            return
        shown = " ".join(cause.span.text.split())
        message = f"`{shown}` can be missing, and then this {what} has no result"
        advice = f"add a default value: `{misplaced_default(value) or remedy(cause)}`"
        self.found.append(codes.MISSING.at(cause.span, message, help=advice, notes=why(cause)))

    def topology(self, tree: syntax.Topology | None) -> str | None:
        """Return the label key of a topology, None for the row itself; report what cannot be one."""
        if tree is None:
            return None
        topologies = self.inference.environment.topologies
        if tree.key in topologies:
            return topologies[tree.key]
        key = self._named_label(tree) or tree.key
        problem = label_problem(key, of="key")
        if problem:
            self.found.append(codes.BAD_ARGUMENT.at(tree.span, f"`{key}` cannot be a label key", help=problem))
        return key

    def _named_label(self, tree: syntax.Topology) -> str | None:
        """Return the label key for which the name of a `let` stands; None: the word is a label key itself."""
        definition = self.inference.definitions.get(tree.key)
        if definition is None or not isinstance(definition.tree, syntax.Let):
            return None
        was_used = definition.used
        value = constant_of(self.inference.value_of(definition, tree.span))
        definition.used = was_used or isinstance(value, str)
        return value if isinstance(value, str) else None

    def shares(self, targets: Sequence[syntax.Target]) -> dict[str, float]:
        """Return the share of each domain that has a target, reporting those that cannot be."""
        found: dict[str, float] = {}
        for target in targets:
            share, span = target.share, target.span
            if share.suffix not in ("", "%") or not 0 <= share.value <= 1:
                message = f"a target is a share from 0% to 100%, this is {share.text}"
                whole = not share.suffix and 1 < share.value <= 100
                advice = f"write `{share.text}%`" if whole else "write a share such as `70%`"
                self.found.append(codes.OUT_OF_RANGE.at(share.span, message, help=advice))
            elif target.value in found:
                message = f"`{target.value}` has two targets"
                self.found.append(codes.REPEATED.at(span, message, help="keep one of them"))
            found.setdefault(target.value, share.value)
        total = sum(found.values())
        if total > 1 + 1e-9 and all(0 <= share <= 1 for share in found.values()):
            message = f"the targets are {100 * total:g}% together, more than 100%"
            advice = "write smaller shares; the other domains share what is left"
            self.found.append(codes.OUT_OF_RANGE.at(targets[-1].span, message, help=advice))
        return found

    def number(
        self, tree: expressions.Expr | None, what: str, *, low: float, unit: Unit = PLAIN, default: float = 1.0
    ) -> float:
        """Return a constant, or the default after reporting that it is not constant."""
        if tree is None:
            return default
        value = self.inference.infer_root(tree, Scope(what, nodes=False))
        if operators.has_unknown(value):
            return default
        constant = constant_of(value)
        if value.info.type.kind is not Kind.NUMBER:
            self.found.append(operators.wrong_type(value, f"a number as `{what}`"))
        elif constant is None:
            message = f"`{what}` must be a constant number"
            self.found.append(codes.NOT_CONSTANT.at(tree.span, message, help="write a constant number"))
        elif in_unit(value, unit, self.found):
            if constant >= low:
                return float(constant)
            advice = "negate the expression instead" if what == "weight" else "write a larger number"
            message = f"`{what}` must be {low:g} or more, this is {constant:g}"
            self.found.append(codes.OUT_OF_RANGE.at(tree.span, message, help=advice))
        return default

    def in_range(self, value: typed.Typed, what: str, *, low: float, whole: bool = False) -> None:
        """Report a number that is never large enough, or is not a whole number where one is required."""
        number, span = constant_of(value), value.span
        if value.info.high < low:
            shown = "always less" if number is None else span.text if value.info.type.unit.bytes else f"{number:g}"
            message = f"`{what}` must be {low:g} or more, this is {shown}"
            self.found.append(codes.OUT_OF_RANGE.at(span, message, help="write a larger number"))
        elif whole and number is not None and number != int(number):
            message = f"`{what}` must be a whole number, this is {number:g}"
            self.found.append(codes.OUT_OF_RANGE.at(span, message, help=f"write {math.ceil(number)}"))

    def whole(self, tree: expressions.Expr, what: str, *, low: float) -> float:
        """Return a constant whole number."""
        value = self.number(tree, what, low=low)
        if value != int(value):
            message = f"`{what}` must be a whole number, this is {value:g}"
            self.found.append(codes.OUT_OF_RANGE.at(tree.span, message, help=f"write {round(value)}"))
        return value

    def report_repeated(self, what: str, span: Span) -> bool:
        """Report a repetition; return whether it is one."""
        earlier = self.said.get(what)
        if earlier is None:
            return False
        label = Label(earlier, "this one has no `if`")
        message, advice = f"this `{what}` is never used", f"put it before the `{what}` without `if`"
        self.found.append(codes.REPEATED.at(span, message, help=advice, labels=[label]))
        return True

    def once(self, what: str, span: Span) -> bool:
        """Return whether this is the first occurrence, and report it if it is not."""
        earlier = self.said.setdefault(what, span)
        if earlier is span:
            return True
        label = Label(earlier, "first used here")
        self.found.append(codes.REPEATED.at(span, f"`{what}` is used twice", help="remove one of them", labels=[label]))
        return False


def unsettled(value: typed.Typed, settled: Depends = SETTLED) -> typed.Typed:
    """Return the innermost part with a dependency that is not allowed."""
    for part in typed.parts(value):
        if part.info.depends & ~settled:
            return unsettled(part, settled)
    return value
