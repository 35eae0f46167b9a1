"""Why a value can be missing, and what to write then."""

from __future__ import annotations

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.types import Depends, Info, Kind, Shape


def cause_of(value: typed.Typed) -> typed.Typed:
    """Return the innermost part that makes a value maybe missing."""
    for part in typed.parts(value):
        if part.info.maybe and part.info.type.kind in (Kind.NUMBER, Kind.TRUTH):
            if isinstance(value, typed.Otherwise) and part is value.left:
                continue
            if isinstance(value, typed.Reference):
                return value
            return cause_of(part)
    return value


def why(cause: typed.Typed) -> tuple[str, ...]:
    """Return why such a value can be missing, as notes."""
    match cause:
        case typed.Reference(value=value):
            return why(cause_of(value))
        case typed.Arithmetic(operator="/" | "%"):
            return ("a division by zero is missing, not zero",)
        case typed.Apply(builtin=builtin) if builtin.depends & Depends.SIGNAL:
            return ("a metric is missing on nodes without a fresh sample, and on all while Prometheus is down",)
        case typed.Read(info=Info(shape=Shape.NODE), key=str(key)):
            return (f"nodes that do not offer {key} have no amount of it",)
        case _:
            return ()


def remedy(cause: typed.Typed) -> str:
    """Return the value with a place for what then holds: `promql("…") ?? …`."""
    shown = " ".join(cause.span.text.split())
    bare = isinstance(cause, typed.Read | typed.Apply | typed.Reference)
    return f"{shown if bare else f'({shown})'} ?? {'…' if cause.info.type.kind is Kind.NUMBER else 'true'}"
