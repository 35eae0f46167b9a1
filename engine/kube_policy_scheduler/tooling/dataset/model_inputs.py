"""The inputs of a trained model, as policies name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.policy_reads import expressions_of
from kube_policy_scheduler.wording import listed, one_line

FIRST_COLUMNS = ("time", "pod", "node")
LAST_COLUMNS = ("wait_seconds", "runtime_seconds")
"""Of a dataset, before and after the inputs."""
_LONGEST_NAME = 120
"""Characters of an input as a column's name."""


class ModelError(ValueError):
    """The policies do not name one model with one list of inputs; the text says what to do."""


class ModelInputs(msgspec.Struct, frozen=True):
    """What a model takes."""

    model: str
    """The file that the policies name."""
    policy: Policy
    """The one whose call gives the inputs."""
    values: tuple[typed.Typed, ...]
    """In the order in which the model takes them."""
    names: tuple[str, ...]
    """Of each, as it is written; no two are the same, and none is that of another column of a dataset."""
    callers: frozenset[str]
    """The names of all policies that call the model."""


def inputs_of(policies: Sequence[Policy], *, model: str | None) -> ModelInputs:
    """Return the inputs of a model.

    Args:
        policies: those that may call it.
        model: its file; None: the only one that they name.

    Raises:
        ModelError: they call no model, several, or one with different inputs; or a dataset cannot have an input.
    """
    calls: dict[str, list[tuple[Policy, typed.Apply]]] = {}
    for policy in policies:
        for call in _calls(policy):
            calls.setdefault(_name(call), []).append((policy, call))
    known = listed(sorted(calls))
    if not calls:
        raise ModelError("the policies call no model: a policy with `score model(…)` names the inputs of a dataset")
    if model is None and len(calls) > 1:
        raise ModelError(f"the policies call several models: choose one of {known} with --model")
    if model is not None and model not in calls:
        raise ModelError(f"the policies call no model {model}; they call {known}")
    found = calls[model or next(iter(calls))]
    policy, call = found[0]
    wanted = [typed.key(value) for value in call.arguments]
    for _, other in found:
        if [typed.key(value) for value in other.arguments] != wanted:
            raise ModelError(
                f"{model or next(iter(calls))} has other inputs at {call.span} than at {other.span}: give both the same"
            )
    for value in call.arguments:
        _check(value)
    if not call.arguments:
        raise ModelError(f"{call.span}: the model has no inputs")
    callers = frozenset(each.name for each, _ in found)
    return ModelInputs(model or next(iter(calls)), policy, call.arguments, _names(call.arguments), callers)


def models_of(policy: Policy) -> list[tuple[str, typed.Apply]]:
    """Return the models that a policy calls, each with its first call."""
    found: dict[str, typed.Apply] = {}
    for call in _calls(policy):
        found.setdefault(_name(call), call)
    return list(found.items())


def _calls(policy: Policy) -> Iterator[typed.Apply]:
    for root in expressions_of(policy):
        for part in typed.below(root):
            if isinstance(part, typed.Apply) and part.builtin.words.trained:
                yield part


def _name(call: typed.Apply) -> str:
    return ", ".join(str(value) for _, value in call.constants)


def _check(value: typed.Typed) -> None:
    """Check that an input has a value for a node alone.

    Raises:
        ModelError: it has none.
    """
    shown = one_line(" ".join(value.span.text.split()), _LONGEST_NAME)
    if value.info.shape is Shape.ITEM or typed.free(value):
        raise ModelError(f"{value.span}: the input `{shown}` is inside an aggregate; call the model outside of it")
    if value.info.depends & Depends.FEASIBLE:
        raise ModelError(
            f"{value.span}: the input `{shown}` compares all nodes that pass the filters, and a dataset looks at the"
            " chosen one alone; give the model the value that is compared"
        )


def _names(values: Sequence[typed.Typed]) -> tuple[str, ...]:
    taken = {*FIRST_COLUMNS, *LAST_COLUMNS}
    found: dict[str, None] = {}
    for value in values:
        text = one_line(" ".join(value.span.text.split()), _LONGEST_NAME)
        name, number = text, 1
        while name in found or name in taken:
            number += 1
            name = f"{text} ({number})"
        found[name] = None
    return tuple(found)
