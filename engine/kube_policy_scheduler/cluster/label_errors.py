"""Why a label selector is not valid, in the API machinery's own words. Knows `labels.NewRequirement` only."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kube_policy_scheduler.cluster.label_syntax import is_label_value, is_qualified_name

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_KEY_FORM = f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
_VALUE_FORM = (
    f"a valid label must be an empty string or {_CHARACTERS}"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_NAME})?')"
)
_MAX_LENGTH = 63


def requirement_error(key: str, operator: str, values: Sequence[str]) -> str | None:
    """Return why the requirement of a label selector is not valid, or None where it is.

    `operator` is one of In, NotIn, Exists and DoesNotExist.
    """
    errors = []
    if not is_qualified_name(key):
        errors.append(f"key: Invalid value: {_quoted(key)}: name part {_KEY_FORM}")
    if operator in ("In", "NotIn") and not values:
        errors.append("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        given = json.dumps(list(values), separators=(",", ":"))
        errors.append(f"values: Invalid value: {given}: values set must be empty for exists and does not exist")
    errors += [
        f"values[{index}][{key}]: Invalid value: {_quoted(value)}: {_value_problem(value)}"
        for index, value in enumerate(values)
        if not is_label_value(value)
    ]
    return aggregate(errors)


def aggregate(errors: Sequence[str]) -> str | None:
    """Return several errors as one text (`utilerrors.Aggregate`), or None where there is none."""
    unique = list(dict.fromkeys(errors))
    if len(unique) > 1:
        return f"[{', '.join(unique)}]"
    return unique[0] if unique else None


def _value_problem(value: str) -> str:
    if len(value) <= _MAX_LENGTH:
        return _VALUE_FORM
    too_long = f"must be no more than {_MAX_LENGTH} bytes"
    return too_long if is_label_value(value[:1] + value[-1:]) else f"{too_long}; {_VALUE_FORM}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
