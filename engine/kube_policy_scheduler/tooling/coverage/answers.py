"""What the expressions of a policy answer, once more and beside the decision: every site where it takes part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE, to_kleene
from kube_policy_scheduler.lang.compiling.compiled import Victim
from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate
from kube_policy_scheduler.lang.environment import Item, Pods
from kube_policy_scheduler.lang.types import TRUTH, Info, Kind
from kube_policy_scheduler.tooling.coverage.sites import (
    Outcome,
    Site,
    condition_site,
    equality_of,
    fallback_site,
    is_condition,
)

Active: TypeAlias = NDArray[np.bool_]
"""`bool[rows]`: where a part takes part in the decision; one element for what is about the pod alone."""

_KLEENE = {Outcome.FALSE: FALSE, Outcome.MISSING: MISSING, Outcome.TRUE: TRUE}


class Answers:
    """Evaluates the expressions of one policy and keeps which outcomes were met."""

    def __init__(self, pods: Pods) -> None:
        self._compiler = Compiler(pods)
        self._sites: dict[int, Site | None] = {}
        self._items: dict[int, tuple[Evaluate, list[Evaluate]]] = {}
        self._equalities: dict[int, typed.Compare | None] = {}
        self._absent: dict[int, typed.Missing] = {}
        self.seen: set[tuple[Any, Outcome]] = set()
        """By `Site.key`, since it was cleared last."""

    # --- expressions over the frame ----------------------------------------------------------------------

    def visit(self, value: typed.Typed, frame: Frame, active: Active) -> None:
        """Count what a value and all below it answer where it takes part."""
        if not active.any():
            return
        site = self._site(value)
        if site is not None:
            self.see_all(site, self.truth(value, frame), active)
            equality = self._equality(value)
            if equality is not None and (active & (self.truth(equality, frame) == TRUE)).any():
                self.see(site, Outcome.EQUAL)
        match value:
            case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
                self.visit(condition, frame, active)
                which = self.truth(condition, frame)
                self.visit(then, frame, active & (which == TRUE))
                self.visit(otherwise, frame, active & (which == FALSE))
            case typed.Otherwise(left=left, right=right):
                fallback = fallback_site(value)
                if fallback is not None:
                    self.present(fallback, left, frame, active)
                self.visit(left, frame, active)
                if left.info.maybe:
                    self.visit(right, frame, active & self._missing(left, frame))
            case typed.Aggregate(where=where, value=of_each):
                items: Sequence[Any] = [Item(template) for template in templates(frame)]
                if where is not None:
                    items = self.over(where, frame, items)
                if of_each is not None:
                    self.over(of_each, frame, items)
            case _:
                for part in typed.parts(value):
                    self.visit(part, frame, active)

    def _equality(self, value: typed.Typed) -> typed.Compare | None:
        if id(value) not in self._equalities:
            self._equalities[id(value)] = equality_of(value)
        return self._equalities[id(value)]

    def truth(self, value: typed.Typed, frame: Frame) -> NDArray[np.uint8]:
        """Return a condition as three-valued column, of the frame's rows or of one element."""
        answer = self._compiler.compile(value)(frame)
        column: NDArray[np.uint8] = np.atleast_1d(answer if value.info.maybe else to_kleene(answer))
        return column

    def _missing(self, value: typed.Typed, frame: Frame) -> Active:
        """Return where a value is missing."""
        if value.info.type.kind is Kind.TRUTH:
            return np.equal(self.truth(value, frame), MISSING)
        found: Active = np.atleast_1d(self._compiler.compile(self._asked(value))(frame))
        return found

    def _asked(self, value: typed.Typed) -> typed.Missing:
        """Return the question whether a value is missing, always the same one for the same value."""
        known = self._absent.get(id(value))
        if known is None:
            info = Info(TRUTH, value.info.shape, False, value.info.depends)
            known = self._absent[id(value)] = typed.Missing(info, value.span, False, value)
        return known

    def present(self, site: Site, value: typed.Typed, frame: Frame, active: Active) -> None:
        """Count whether a value is there."""
        missing = self._missing(value, frame)
        self.see_all(site, np.where(missing, MISSING, TRUE).astype(np.uint8), active)

    # --- expressions over existing pods ------------------------------------------------------------------

    def over(self, value: typed.Typed, frame: Frame, items: Sequence[Any]) -> list[Any]:
        """Count what a value and all below it answer for existing pods; return those for which it is true."""
        if not items:
            return []
        site = self._site(value)
        chosen: list[Any] = []
        if value.info.type.kind is Kind.TRUTH:
            chosen = self._holding(value, frame, items)
        if site is not None:
            absent = self._holding(self._asked(value), frame, items) if value.info.maybe else []
            for outcome, many in ((Outcome.TRUE, len(chosen)), (Outcome.MISSING, len(absent))):
                if many:
                    self.see(site, outcome)
            if len(chosen) + len(absent) < len(items):
                self.see(site, Outcome.FALSE)
        match value:
            case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
                holds = self.over(condition, frame, items)
                others = set(map(id, holds))
                self.over(then, frame, holds)
                self.over(otherwise, frame, [item for item in items if id(item) not in others])
            case typed.Otherwise(left=left, right=right):
                missing = self._holding(self._asked(left), frame, items) if left.info.maybe else []
                fallback = fallback_site(value)
                if fallback is not None:
                    for outcome, many in ((Outcome.MISSING, len(missing)), (Outcome.TRUE, len(items) - len(missing))):
                        if many:
                            self.see(fallback, outcome)
                self.over(left, frame, items)
                self.over(right, frame, missing)
            case _:
                for part in typed.parts(value):
                    self.over(part, frame, items)
        return chosen

    def _holding(self, value: typed.Typed, frame: Frame, items: Sequence[Any]) -> list[Any]:
        """Return the existing pods for which a truth is surely true."""
        made = self._items.get(id(value))
        if made is None:
            made = self._items[id(value)] = self._compiler.item(value)
        holds, captured = made
        values = tuple(capture(frame) for capture in captured)
        return [item for item in items if holds(_capturing(item, values, frame))]

    # --- counting ----------------------------------------------------------------------------------------

    def _site(self, value: typed.Typed) -> Site | None:
        if id(value) not in self._sites:
            self._sites[id(value)] = condition_site(value) if is_condition(value) else None
        return self._sites[id(value)]

    def see_all(self, site: Site, answers: NDArray[np.uint8], active: Active) -> None:
        """Count three-valued answers where they take part."""
        for outcome, code in _KLEENE.items():
            if (active & (answers == code)).any():
                self.see(site, outcome)

    def see(self, site: Site, outcome: Outcome) -> None:
        """Count one outcome."""
        self.seen.add((site.key, outcome))


def templates(frame: Frame) -> list[Any]:
    """Return the templates of the pods that are on nodes."""
    return [template for template, _ in frame.cluster.counters.placements(terminating=False)]


def _capturing(item: Any, values: tuple[Any, ...], frame: Frame) -> Any:
    """Return an existing pod as fields read it, with what the expression captures from the decision."""
    if isinstance(item, Victim):
        return Victim(item.pod, values, frame)
    return Item(item.template, values)
