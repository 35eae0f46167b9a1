"""Objects as clients send them to objects as the schema has them: types checked, unknown fields dropped. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kube_policy_scheduler.documents import api_schema
from kube_policy_scheduler.documents.api_schema import FieldType, Type
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.quantities.quantity import QuantityError

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?\d{1,3})|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANO = 10**9


@lru_cache(maxsize=1 << 14)
def canonical(text: str) -> str:
    """Return a quantity with the largest suffix that leaves a whole number: `1000m` is `1`, `1.5Gi` is `1536Mi`.

    Raises:
        QuantityError: the text is not a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(f"not a quantity: {text!r}")
    part = match["part"] or ""
    mantissa = int((match["whole"] + part) or "0")
    sign = "-" if match["sign"] == "-" and mantissa else ""
    if match["binary"]:
        nanos = (mantissa << 10 * (_BINARY.index(match["binary"]) + 1)) * _NANO
    elif match["exponent"]:
        nanos = _scaled(mantissa, int(match["exponent"]) + 9)
    else:
        nanos = _scaled(mantissa, 3 * _DECIMAL.index(match["decimal"]))
    nanos = -(-nanos // 10 ** len(part))
    if match["exponent"]:
        return sign + _exponent_form(nanos)
    if match["binary"] and nanos >= 1024 * _NANO and nanos % _NANO == 0:
        return sign + _binary_form(nanos // _NANO)
    return sign + _decimal_form(nanos)


def _scaled(mantissa: int, power: int) -> int:
    factor: int = 10 ** abs(power)
    return mantissa * factor if power >= 0 else -(-mantissa // factor)


def _decimal_form(nanos: int) -> str:
    if nanos == 0:
        return "0"
    suffix = 0
    while nanos % 1000 == 0 and suffix < len(_DECIMAL) - 1:
        nanos //= 1000
        suffix += 1
    return f"{nanos}{_DECIMAL[suffix]}"


def _binary_form(units: int) -> str:
    suffix = -1
    while units % 1024 == 0 and suffix < len(_BINARY) - 1:
        units //= 1024
        suffix += 1
    return f"{units}{_BINARY[suffix] if suffix >= 0 else ''}"


def _exponent_form(nanos: int) -> str:
    if nanos == 0:
        return "0"
    power = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        power += 3
    return f"{nanos}e{power}" if power else str(nanos)


_QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_KEPT = frozenset({"any", "quantity", "int-or-string"})
"""Scalars that are kept even when they are zero."""
_ALWAYS_PRESENT: Mapping[str, Mapping[str, Any]] = {
    "io.k8s.api.core.v1.ContainerStateRunning": {"startedAt": None},
    "io.k8s.api.core.v1.ContainerStateTerminated": {"startedAt": None, "finishedAt": None},
    "io.k8s.api.core.v1.ContainerStatus": {"lastState": {}},
    "io.k8s.api.core.v1.Event": {
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    },
    "io.k8s.api.core.v1.NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "io.k8s.api.core.v1.PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "io.k8s.api.storage.v1.CSINodeDriver": {"topologyKeys": None},
}
"""Fields the API server writes even if they are not set."""


_INDEX = re.compile(r"\[\d+\]")


class DecodeError(ValueError):
    """A value is not of its field's type; the text is the API server's."""


@dataclass(slots=True)
class Decoder:
    """Decodes one object and remembers which of its fields no type has."""

    unknown: list[str] = field(default_factory=list)

    def decode(self, obj: Json) -> Json:
        """Return the object without unknown fields, nulls, empty lists and zeros that mean absence.

        Quantities are brought to their canonical form.

        Raises:
            DecodeError: a value is not of its field's type.
        """
        name = api_schema.type_name(obj.get("apiVersion", ""), obj.get("kind", ""))
        if name is None:
            return obj
        return self._struct(obj, name, path="")

    def _struct(self, value: Json, name: str, *, path: str) -> Json:
        try:
            return self._fields(value, name, path=path)
        except _Mismatch as mismatch:
            struct = name.rpartition(".")[2]
            raise DecodeError(f"{mismatch.opening} into Go struct field {struct}.{mismatch.rest}") from None

    def _fields(self, value: Json, name: str, *, path: str) -> Json:
        fields: Type = api_schema.load().types[name]
        done: Json = {}
        for key, item in value.items():
            known = fields.get(key)
            if known is None:
                self.unknown.append(f"{path}{key}")
            elif item is None:
                continue
            elif known.containers or not known.is_scalar:
                decoded = self._nested(item, known, path=f"{path}{key}")
                if decoded or not known.containers:
                    done[key] = decoded
            else:
                scalar = _SCALARS[known.name](item, f"{path}{key}")
                if scalar or known.required or known.name in _KEPT or known.is_pointer:
                    done[key] = scalar
        for key, absent in _ALWAYS_PRESENT.get(name, {}).items():
            done.setdefault(key, {} if absent == {} else absent)
        return done

    def _nested(self, value: Any, kind: FieldType, *, path: str) -> Any:
        if kind.containers.startswith("l"):
            if not isinstance(value, list):
                raise _mismatch(value, path, _go_type(kind))
            element = kind.element()
            return [self._nested(item, element, path=f"{path}[{at}]") for at, item in enumerate(value)]
        if kind.containers.startswith("m"):
            if not isinstance(value, dict):
                raise _mismatch(value, path, _go_type(kind))
            element = kind.element()
            return {key: self._nested(item, element, path=path) for key, item in value.items()}
        if kind.is_scalar:
            return _SCALARS[kind.name](value, path)
        if not isinstance(value, dict):
            if value is None:
                return {}
            raise _mismatch(value, path, _go_type(kind))
        return self._struct(value, kind.name, path=f"{path}.")


_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class _Mismatch(Exception):
    def __init__(self, opening: str, rest: str) -> None:
        super().__init__(opening, rest)
        self.opening = opening
        self.rest = rest


def _mismatch(value: Any, path: str, wanted: str) -> _Mismatch:
    opening = f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'null')}"
    return _Mismatch(opening, f"{_INDEX.sub('', path)} of type {wanted}")


def _go_type(kind: FieldType) -> str:
    if kind.containers.startswith("l"):
        return "[]" + _go_type(kind.element())
    if kind.containers.startswith("m"):
        return "map[string]" + _go_type(kind.element())
    if kind.is_scalar:
        return {"quantity": "resource.Quantity", "boolean": "bool"}.get(kind.name, kind.name)
    return ".".join(kind.name.rsplit(".", 2)[1:])


def _string(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise _mismatch(value, path, "string")


def _integer(value: Any, path: str, *, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _mismatch(value, path, name)
    return int(value)


def _int32(value: Any, path: str) -> int:
    return _integer(value, path, name="int32")


def _int64(value: Any, path: str) -> int:
    return _integer(value, path, name="int64")


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(value, path, "float64")
    return value


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _mismatch(value, path, "bool")
    return value


def _quantity(value: Any, path: str) -> str:
    if value is None:
        return "0"
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError
        return canonical(str(value).strip())
    except QuantityError as error:
        raise DecodeError(_QUANTITY_TEXT) from error


def _bytes(value: Any, path: str) -> str:
    text = _string(value, path)
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise DecodeError("illegal base64 data at input byte 0") from error
    return text


def _int_or_string(value: Any, path: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _mismatch(value, path, "intstr.IntOrString")
    return value


def _any(value: Any, path: str) -> Any:
    return value


_SCALARS: Mapping[str, Callable[[Any, str], Any]] = {
    "string": _string,
    "bytes": _bytes,
    "time": _string,
    "micro-time": _string,
    "int32": _int32,
    "int64": _int64,
    "number": _number,
    "boolean": _boolean,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "any": _any,
}


def missing(obj: Json) -> list[str]:
    """Return the paths of required fields that a decoded object's spec lacks."""
    name = api_schema.type_name(obj.get("apiVersion", ""), obj.get("kind", ""))
    if name is None:
        return []
    found: list[str] = []
    rest = {key: value for key, value in obj.items() if key not in ("status", "metadata")}
    _missing(rest, name, found, path="")
    return [path for path in found if path not in ("metadata", "status")]


def _missing(value: Json, name: str, found: list[str], *, path: str) -> None:
    for key, kind in api_schema.load().types[name].items():
        if key not in value:
            if kind.required:
                found.append(f"{path}{key}")
        elif not kind.is_scalar:
            _missing_nested(value[key], kind, found, path=f"{path}{key}")


def _missing_nested(value: Any, kind: FieldType, found: list[str], *, path: str) -> None:
    if kind.containers:
        items = enumerate(value) if kind.containers.startswith("l") else value.items()
        for at, item in items:
            _missing_nested(item, kind.element(), found, path=f"{path}[{at}]")
    else:
        _missing(value, kind.name, found, path=f"{path}.")
