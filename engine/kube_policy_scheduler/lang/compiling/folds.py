"""`count(p in node.pods where …)` and its like: sets of pods with what they capture from the decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.environment import Members
from kube_policy_scheduler.lang.types import Info, Shape

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate

_EVERYONE = "every pod"


def fold(compiler: Compiler, value: typed.Fold) -> Evaluate:
    """Return the callable of an aggregate: what it goes over is a set that the environment keeps an index of."""
    pods, topology, function = compiler.pods, value.topology, value.function
    where = value.where
    if function in ("any", "all") and value.value is not None:
        test = value.value
        if function == "all":
            # what is not surely true is an exception
            test = typed.Not(test.info, test.span, test)
            if test.info.maybe:
                info = Info(test.info.type, test.info.shape, False, test.info.depends)
                true = typed.Constant(Info(test.info.type), test.span, True)
                test = typed.Otherwise(info, test.span, test, true)
        if where is None:
            where = test
        else:
            info = Info(test.info.type, Shape.ITEM, where.info.maybe or test.info.maybe)
            where = typed.Logic(info, value.span, "and", (where, test))
    members = _members(compiler, where)
    if function == "count":
        return lambda frame: pods.count(frame, members(frame), topology=topology)
    if function == "any":
        return lambda frame: pods.count(frame, members(frame), topology=topology) > 0
    if function == "all":
        return lambda frame: pods.count(frame, members(frame), topology=topology) == 0
    values = _members(compiler, value.value)
    return lambda frame: pods.fold(frame, members(frame), values(frame), function=function, topology=topology)


def _members(compiler: Compiler, value: typed.Typed | None) -> Callable[[Any], Members]:
    if value is None:
        everyone = Members(_EVERYONE, (), lambda item: True)
        return lambda frame: everyone
    evaluate, captured = compiler.item(value)
    if not captured:
        constant = Members(value, (), evaluate)
        return lambda frame: constant
    return lambda frame: Members(value, tuple(_comparable(capture(frame)) for capture in captured), evaluate)


def _comparable(value: Any) -> Any:
    """Return a captured value as one that equals itself: all missing numbers are one object."""
    return math.nan if isinstance(value, float) and value != value else value
