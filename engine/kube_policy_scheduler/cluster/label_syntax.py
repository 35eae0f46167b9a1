"""What the API server accepts as a label key, a value or a requirement, and its message otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from kube_policy_scheduler.remembered import remembered

_NAME_FORM = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME = f"(?a){_NAME_FORM}"
_SUBDOMAIN = r"(?a)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_MAX_NAME = 63
_MAX_SUBDOMAIN = 253


def is_qualified_name(text: str) -> bool:
    """Return whether the text is `name` or `dns.subdomain/name`, as label keys and resource names are."""
    return len(text) <= _MAX_SUBDOMAIN + 1 + _MAX_NAME and _is_qualified_name(text)


@remembered(most=4096)
def _is_qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _MAX_SUBDOMAIN or re.fullmatch(_SUBDOMAIN, prefix) is None):
        return False
    return len(name) <= _MAX_NAME and re.fullmatch(_NAME, name) is not None


def is_label_value(text: str) -> bool:
    """Return whether the text may be a label's value; the empty one may."""
    return not text or (len(text) <= _MAX_NAME and _is_name(text))


@remembered(most=4096)
def _is_name(text: str) -> bool:
    return re.fullmatch(_NAME, text) is not None


_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_KEY_FORM = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_FORM}')"
)
_VALUE_FORM = (
    f"a valid label must be an empty string or {_CHARACTERS}"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_NAME_FORM})?')"
)


def requirement_error(key: str, operator: str, values: Sequence[str]) -> str | None:
    """Return why the requirement of a label selector is not valid, or None if it is.

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
    """Return several errors as one text (`utilerrors.Aggregate`), or None if there is none."""
    unique = list(dict.fromkeys(errors))
    if len(unique) > 1:
        return f"[{', '.join(unique)}]"
    return unique[0] if unique else None


def _value_problem(value: str) -> str:
    if len(value) <= _MAX_NAME:
        return _VALUE_FORM
    too_long = f"must be no more than {_MAX_NAME} bytes"
    return too_long if is_label_value(value[:1] + value[-1:]) else f"{too_long}; {_VALUE_FORM}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
