"""The forms of causes that `k8s.io/apimachinery/pkg/util/validation/field` writes, and checks of plain values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from kube_policy_scheduler.embedded.errors import Cause

_NAME_FORM = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_FORM = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_FORM = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(_NAME_FORM)
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORM)
_LABEL = re.compile(_LABEL_FORM)
_VALUE_FORM = f"({_NAME_FORM})?"
_ALPHANUMERIC = "'-', '_' or '.', and must start and end with an alphanumeric character"
NAME_TEXT = (
    f"name part must consist of alphanumeric characters, {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or "
    f"'123-abc', regex used for validation is '{_NAME_FORM}')"
)
VALUE_TEXT = (
    f"a valid label must be an empty string or consist of alphanumeric characters, {_ALPHANUMERIC} (e.g. 'MyValue',  "
    f"or 'my_value',  or '12345', regex used for validation is '{_VALUE_FORM}')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORM}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_FORM}')"
)


def quoted(value: Any) -> str:
    """Return a value as messages show it."""
    return orjson.dumps(value).decode()


def required(field: str, text: str = "") -> Cause:
    """The field must be given."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {text}" if text else ""))


def invalid(field: str, value: Any, text: str) -> Cause:
    """The field's value breaks a rule."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {text}")


def forbidden(field: str, text: str) -> Cause:
    """The field may not be given, or not be changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {text}")


def duplicate(field: str, value: Any) -> Cause:
    """The value is there already."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def absent(field: str, value: Any) -> Cause:
    """The value refers to nothing."""
    return Cause(field, "FieldValueNotFound", f"Not found: {quoted(value)}")


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """The value is not one of the supported values."""
    listed = ", ".join(f'"{item}"' for item in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}")


def one_of(field: str, value: Any, supported: Iterable[str]) -> list[Cause]:
    """Check a value against a closed set; absent is allowed."""
    return [] if value is None or value in supported else [unsupported(field, value, supported)]


def dns_label(field: str, name: str) -> list[Cause]:
    """Check a name of at most 63 lower case characters without dots."""
    if len(name) > 63:
        return [invalid(field, name, "must be no more than 63 bytes")]
    return [] if _LABEL.fullmatch(name) else [invalid(field, name, LABEL_TEXT)]


def dns_subdomain(field: str, name: str) -> list[Cause]:
    """Check a name of at most 253 lower case characters."""
    if len(name) > 253:
        return [invalid(field, name, "must be no more than 253 bytes")]
    return [] if _SUBDOMAIN.fullmatch(name) else [invalid(field, name, SUBDOMAIN_TEXT)]


def qualified_name(field: str, name: str) -> list[Cause]:
    """Check the key of a label: a name, behind a DNS prefix or not."""
    prefix, slash, last = name.rpartition("/")
    found = []
    if slash and not prefix:
        found.append(invalid(field, name, "prefix part must be non-empty"))
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        found.append(invalid(field, name, f"prefix part {SUBDOMAIN_TEXT}"))
    if not last:
        found += [invalid(field, name, "name part must be non-empty"), invalid(field, name, NAME_TEXT)]
    elif len(last) > 63:
        found.append(invalid(field, name, "name part must be no more than 63 bytes"))
    elif not _NAME.fullmatch(last):
        found.append(invalid(field, name, NAME_TEXT))
    return found


def label_value(field: str, value: str) -> list[Cause]:
    """Check the value of a label."""
    if len(value) > 63:
        return [invalid(field, value, "must be no more than 63 bytes")]
    return [] if not value or _NAME.fullmatch(value) else [invalid(field, value, VALUE_TEXT)]


def labels(field: str, pairs: Mapping[str, str]) -> list[Cause]:
    """Check labels, or a selector of the same form."""
    found = []
    for key, value in pairs.items():
        found += qualified_name(field, key) + label_value(field, value)
    return found
