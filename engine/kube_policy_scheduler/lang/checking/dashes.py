"""Dashes where a minus was not meant: keys of labels, and texts without quotes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kube_policy_scheduler.diagnostics import Edit, Fix
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions
from kube_policy_scheduler.lang.checking.scope import Scope

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Inference

_DASHED = re.compile(r"[A-Za-z]\w*(-\w+)+")


def dash(inference: Inference, expr: expressions.Binary, scope: Scope) -> bool:
    """Report `node.label.disk-type`, which is a subtraction by the grammar and a key by intention."""
    left, right = expr.left, expr.right
    if expr.operator == "-" and _bare_text(inference, expr, scope):
        return True
    if expr.operator != "-" or not isinstance(left, expressions.Member) or not isinstance(right, expressions.Name):
        return False
    touching = left.span.end == expr.operator_span.start and expr.operator_span.end == right.span.start
    if not touching or right.name in inference.definitions or right.name in scope.parameters:
        return False
    name = f"{left.name}-{right.name}"
    written = f'{left.base.span.text}["{name}"]'
    message = f"`-` is a minus here, not a part of the name `{name}`"
    fix = Fix(f"write {written}", (Edit(expr.span, written),))
    inference.found.append(codes.DASH.at(expr.operator_span, message, help=f"write `{written}`", fix=fix))
    return True


def _bare_text(inference: Inference, expr: expressions.Binary, scope: Scope) -> bool:
    """Report `eu-central-1a`, a text without quotes."""
    text, first = expr.span.text, expr.left
    while isinstance(first, expressions.Binary):
        first = first.left
    if not isinstance(first, expressions.Name) or not _DASHED.fullmatch(text):
        return False
    if first.name in inference.definitions or first.name in scope.parameters:
        return False
    written = f'"{text}"'
    fix = Fix(f"write {written}", (Edit(expr.span, written),))
    message = f"`{text}` is a text without quotes"
    inference.found.append(codes.UNKNOWN_NAME.at(expr.span, message, help=f"write `{written}`", fix=fix))
    return True
