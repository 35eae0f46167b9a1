"""The functions and operators that device selectors may call, with their costs and with cel-go's errors.

CEL's standard functions, its extensions for strings, lists, sets and optional values, and Kubernetes' own for lists,
regular expressions, quantities and semantic versions: what the environment of Kubernetes 1.36 has, without the
libraries for URLs, addresses, named formats and authorization, which no attribute of a device uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import isfinite, isnan, trunc
from typing import Any, TypeVar

from kube_policy_scheduler.cel.values import (
    ABSENT,
    COST_EXCEEDED,
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NO_OVERLOAD,
    NONE,
    CelError,
    CostLimitExceeded,
    Duration,
    Function,
    Map,
    Optional,
    Semver,
    Timestamp,
    TypeValue,
    Uint,
    equal,
    no_overload,
    order,
    size_of,
    type_name,
)
from kube_policy_scheduler.patterns import Pattern, PatternError, compiled
from kube_policy_scheduler.quantities.exact_quantity import (
    DECIMAL_EXPONENT,
    Quantity,
    QuantityError,
    counted,
    parse,
)
from kube_policy_scheduler.remembered import LONGEST, remembered

__all__ = [
    "BY_RESULT",
    "COSTS",
    "FUNCTIONS",
    "STANDARD",
    "TYPES",
    "NoOverload",
    "equal",
    "equality_cost",
    "traversal",
    "type_name",
]

FUNCTIONS: dict[str, Function] = {}
"""What each function or operator does, by its name in checked expressions; arguments are values, never errors."""
COSTS: dict[str, Callable[[Sequence[Any]], int]] = {}
"""What a call costs, by its arguments; 1 by default."""
TYPES: dict[str, TypeValue] = {
    name: TypeValue(name)
    for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type")
}

F = TypeVar("F", bound=Function)

_MOST_BYTES = 1 << 20
"""Characters of a text, or members of a list, that a function makes: what is longer counts as beyond the limit, because
to put lists together costs nothing, and to replace parts of a text as much as to read it."""


def function(*names: str, cost: Callable[[Sequence[Any]], int] | None = None) -> Callable[[F], F]:
    """Register a function under its names."""

    def register(does: F) -> F:
        for name in names:
            FUNCTIONS[name] = does
            if cost is not None:
                COSTS[name] = cost
        return does

    return register


def traversal(size: int) -> int:
    """Return the cost of reading this number of characters: a tenth of a unit a character."""
    return -(-size // 10)


def _read_first(values: Sequence[Any]) -> int:
    return traversal(size_of(values[0]))


def _read_first_twice(values: Sequence[Any]) -> int:
    return traversal(2 * size_of(values[0]))


def _of_list(values: Sequence[Any]) -> int:
    return size_of(values[0])


def _of_regex(values: Sequence[Any]) -> int:
    return traversal(size_of(values[0]) + 1) * -(-size_of(values[1]) // 4)


def BY_RESULT(values: Sequence[Any]) -> int:  # noqa: N802 - a marker among the costs
    """Mark a function whose cost is the length of its result."""
    return size_of(values[0])


def equality_cost(operator: str, left: Any, right: Any) -> int:
    """Return the cost of `==` or `!=`."""
    if operator == "_==_" and type(left) in (Quantity, Semver):
        return 1
    return traversal(min(size_of(left), size_of(right)))


def _equality(values: Sequence[Any]) -> int:
    return equality_cost("_==_", values[0], values[1])


def _comparison(values: Sequence[Any]) -> int:
    return traversal(min(size_of(values[0]), size_of(values[1]))) if type(values[0]) in (str, bytes) else 1


def _concatenation(values: Sequence[Any]) -> int:
    return traversal(size_of(values[0]) + size_of(values[1])) if type(values[0]) in (str, bytes) else 1


class NoOverload(CelError):
    """An argument has a type that the function does not take."""


def _expect(value: Any, *kinds: type) -> None:
    if type(value) not in kinds:
        raise NoOverload(NO_OVERLOAD)


STANDARD = frozenset(
    [
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "!_",
        "-_",
        "_==_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "_in_",
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
    ]
)
"""Functions whose errors about types do not name the function; the errors of all others do."""


# --- operators --------------------------------------------------------------------------------------------


def _int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise CelError("integer overflow")
    return value


def _uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def _span(nanos: int) -> Duration:
    if not MIN_INT <= nanos <= MAX_INT:
        raise CelError("integer overflow")
    return Duration(nanos)


_MIN_MOMENT, _MAX_MOMENT = -62_135_596_800, 253_402_300_799


def _moment(nanos: int) -> Timestamp:
    if not _MIN_MOMENT * 10**9 <= nanos < (_MAX_MOMENT + 1) * 10**9:
        raise CelError("timestamp overflow")
    return Timestamp(nanos)


@function("_==_", cost=_equality)
def _equals(left: Any, right: Any) -> bool:
    return equal(left, right)


@function("_<_", cost=_comparison)
def _less(left: Any, right: Any) -> bool:
    return order(left, right) < 0


@function("_<=_", cost=_comparison)
def _less_equal(left: Any, right: Any) -> bool:
    return order(left, right) <= 0


@function("_>_", cost=_comparison)
def _greater(left: Any, right: Any) -> bool:
    return order(left, right) > 0


@function("_>=_", cost=_comparison)
def _greater_equal(left: Any, right: Any) -> bool:
    return order(left, right) >= 0


@function("@in", "_in_", cost=lambda values: size_of(values[1]) if type(values[1]) is tuple else 1)
def _in(item: Any, among: Any) -> bool:
    if type(among) is tuple:
        return any(_equal_or_not(item, other) for other in among)
    _expect(among, Map)
    return item in among


def _equal_or_not(left: Any, right: Any) -> bool:
    try:
        return equal(left, right)
    except CelError:
        return False


_MOST_INCLUDED = 48
"""Values of a list in which `includes` looks (`ResourceSliceMaxAttributeValuesPerDevice`)."""


@function("includes")
def _includes(among: Any, item: Any) -> bool:
    if type(among) is not tuple:
        return _equal_or_not(among, item)
    if any(_equal_or_not(value, item) for value in among[:_MOST_INCLUDED]):
        return True
    if len(among) > _MOST_INCLUDED:
        raise CelError(f"'includes' function cannot be applied to lists longer than {_MOST_INCLUDED} values")
    return False


@function("!_")
def _not(value: Any) -> bool:
    _expect(value, bool)
    return not value


@function("-_")
def _negate(value: Any) -> Any:
    match value:
        case bool() | Uint():
            raise no_overload()
        case int():
            return _int(-value)
        case float():
            return -value
        case Duration(nanos):
            return _span(-nanos)
    raise no_overload()


@function("_+_", cost=_concatenation)
def _add(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left + right)
        if kind is Uint:
            return _uint(int(left) + int(right))
        if kind is str or kind is bytes or kind is tuple:
            if len(left) + len(right) > _MOST_BYTES:
                raise CostLimitExceeded(COST_EXCEEDED)
            return left + right
        if kind is float:
            return left + right
        if kind is Duration:
            return _span(left.nanos + right.nanos)
    if {kind, type(right)} == {Duration, Timestamp}:
        return _moment(left.nanos + right.nanos)
    raise no_overload()


@function("_-_")
def _subtract(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _int(left - right)
        if kind is Uint:
            return _uint(int(left) - int(right))
        if kind is float:
            return left - right
        if kind is Duration or kind is Timestamp:
            return _span(left.nanos - right.nanos)
    if kind is Timestamp and type(right) is Duration:
        return _moment(left.nanos - right.nanos)
    raise no_overload()


@function("_*_")
def _multiply(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint, float):
        raise no_overload()
    if kind is float:
        return left * right
    product = int(left) * int(right)
    return _int(product) if kind is int else _uint(product)


@function("_/_")
def _divide(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint, float):
        raise no_overload()
    if kind is float:
        if right == 0:
            return float("nan") if left == 0 or isnan(left) else float("inf") * (1 if left > 0 else -1)
        return left / right
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return _int(quotient if (left < 0) == (right < 0) else -quotient) if kind is int else Uint(quotient)


@function("_%_")
def _modulus(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint):
        raise no_overload()
    if right == 0:
        raise CelError("modulus by zero")
    if kind is int and left == MIN_INT and right == -1:
        raise CelError("integer overflow")
    rest = abs(int(left)) % abs(int(right))
    return (-rest if left < 0 else rest) if kind is int else Uint(rest)


# --- conversions ------------------------------------------------------------------------------------------


def _cannot(value: Any, to: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{to}'")


_GO_INT = re.compile(r"[+-]?\d+", re.ASCII)
_GO_FLOAT = re.compile(
    r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)


@function("int")
def _to_int(value: Any) -> int:
    match value:
        case bool():
            raise NoOverload(NO_OVERLOAD)
        case Uint() | int():
            return _int(int(value))
        case float():
            if not isfinite(value) or not MIN_INT < value < MAX_INT:
                raise CelError("integer overflow")
            return trunc(value)
        case str():
            if _GO_INT.fullmatch(value) and len(value) < 40 and MIN_INT <= int(value) <= MAX_INT:
                return int(value)
            raise _cannot(value, "int")
        case Timestamp(nanos):
            return nanos // 10**9
        case Duration(nanos):
            return nanos
    raise NoOverload(NO_OVERLOAD)


@function("uint")
def _to_uint(value: Any) -> Uint:
    match value:
        case bool():
            raise NoOverload(NO_OVERLOAD)
        case int():
            return _uint(int(value))
        case float():
            if not isfinite(value) or not 0 <= value < MAX_UINT:
                raise CelError("unsigned integer overflow")
            return Uint(trunc(value))
        case str():
            if value.isascii() and value.isdigit() and len(value) < 40 and int(value) <= MAX_UINT:
                return Uint(int(value))
            raise _cannot(value, "uint")
    raise NoOverload(NO_OVERLOAD)


@function("double")
def _to_double(value: Any) -> float:
    match value:
        case bool():
            raise NoOverload(NO_OVERLOAD)
        case int() | float():
            return float(value)
        case str():
            if _GO_FLOAT.fullmatch(value) and len(value) < 400:
                return float(value)
            raise _cannot(value, "double")
    raise NoOverload(NO_OVERLOAD)


def _number_text(value: float) -> str:
    """Return a float as Go's %g prints it."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value.is_integer() and abs(value) < 1e21:
        return "-0" if str(value).startswith("-0.") and value == 0 else str(int(value))
    text = repr(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].zfill(2)}"
    if 0 < abs(value) < 1e-4:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"
    return text


@function("string", cost=lambda values: traversal(len(values[0])) if type(values[0]) is bytes else 1)
def _to_string(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _number_text(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
        case Timestamp():
            return _time_text(value)
        case Duration():
            return _seconds_text(value)
    raise NoOverload(NO_OVERLOAD)


@function("bytes", cost=_read_first)
def _to_bytes(value: Any) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
    raise NoOverload(NO_OVERLOAD)


_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


@function("bool")
def _to_bool(value: Any) -> bool:
    match value:
        case bool():
            return value
        case str():
            if value in _TRUE or value in _FALSE:
                return value in _TRUE
            raise _cannot(value, "bool")
    raise NoOverload(NO_OVERLOAD)


@function("dyn")
def _dyn(value: Any) -> Any:
    return value


@function("type")
def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_SPAN_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


@function("duration")
def _to_duration(value: Any) -> Duration:
    match value:
        case Duration():
            return value
        case str():
            body = value.lstrip("+-") if value[:1] in ("+", "-") else value
            if body == "0":
                return Duration(0)
            at, nanos = 0, 0
            while at < len(body) <= 100 and (part := _SPAN_PART.match(body, at)):
                whole, _, rest = part[1].partition(".")
                scale = _UNITS[part[2]]
                nanos += int(whole or 0) * scale + (int(rest) * scale // 10 ** len(rest) if rest else 0)
                at = part.end()
            if not body or at < len(body) or nanos > MAX_INT:
                raise _cannot(value, "google.protobuf.Duration")
            return Duration(-nanos if value.startswith("-") else nanos)
    raise NoOverload(NO_OVERLOAD)


_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)


@function("timestamp")
def _to_timestamp(value: Any) -> Timestamp:
    match value:
        case Timestamp():
            return value
        case bool():
            raise NoOverload(NO_OVERLOAD)
        case int():
            return _moment(int(value) * 10**9)
        case str():
            match = _RFC3339.fullmatch(value)
            try:
                if match is None:
                    raise ValueError
                moment = datetime(*(int(part) for part in match.groups()[:6]), tzinfo=UTC)  # type: ignore[misc, arg-type]
            except ValueError:
                raise _cannot(value, "google.protobuf.Timestamp") from None
            seconds = (moment - _EPOCH) // timedelta(seconds=1)
            if match[8]:
                seconds -= (int(match[9]) * 3600 + int(match[10]) * 60) * (1 if match[8] == "+" else -1)
            return _moment(seconds * 10**9 + int((match[7] or "0")[:9].ljust(9, "0")))
    raise NoOverload(NO_OVERLOAD)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _fraction(nanos: int) -> str:
    return f".{nanos:09d}".rstrip("0") if nanos else ""


def _time_text(value: Timestamp) -> str:
    seconds, nanos = divmod(value.nanos, 10**9)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment.strftime('%Y').zfill(4)}{moment.strftime('-%m-%dT%H:%M:%S')}{_fraction(nanos)}Z"


def _seconds_text(value: Duration) -> str:
    seconds, nanos = divmod(abs(value.nanos), 10**9)
    return f"{'-' if value.nanos < 0 else ''}{seconds}{_fraction(nanos)}s"


_PARTS_OF_TIME: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_PARTS_OF_SPAN = {"getHours": 3600 * 10**9, "getMinutes": 60 * 10**9, "getSeconds": 10**9, "getMilliseconds": 10**6}
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def _part_of_time(name: str) -> Function:
    def read(value: Any, zone: Any = "UTC") -> int:
        if type(value) is Duration and name in _PARTS_OF_SPAN and zone == "UTC":
            return int(value.nanos / _PARTS_OF_SPAN[name])
        _expect(value, Timestamp)
        _expect(zone, str)
        seconds, nanos = divmod(value.nanos, 10**9)
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
        offset = _OFFSET.fullmatch(zone)
        try:
            if offset:
                span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
                moment += -span if offset[1] == "-" else span
            elif zone not in ("UTC", ""):
                from zoneinfo import ZoneInfo  # reads how Python was built, 15 ms

                moment = moment.astimezone(ZoneInfo(zone))
        except (KeyError, ValueError, OSError, OverflowError):
            raise CelError(f"unknown time zone {zone}") from None
        return _PARTS_OF_TIME[name](moment)

    return read


for _name in _PARTS_OF_TIME:
    function(_name)(_part_of_time(_name))


# --- texts ------------------------------------------------------------------------------------------------


@function("size")
def _size(value: Any) -> int:
    _expect(value, str, bytes, tuple, Map)
    return len(value)


@function("contains", cost=lambda values: traversal(size_of(values[0])) * traversal(size_of(values[1])))
def _contains(text: Any, part: Any) -> bool:
    _expect(text, str)
    _expect(part, str)
    return part in text


@function("startsWith", cost=_read_first)
def _starts_with(text: Any, part: Any) -> bool:
    _expect(text, str)
    _expect(part, str)
    return bool(text.startswith(part))


@function("endsWith", cost=_read_first)
def _ends_with(text: Any, part: Any) -> bool:
    _expect(text, str)
    _expect(part, str)
    return bool(text.endswith(part))


def _compiled(pattern: Any) -> Pattern:
    _expect(pattern, str)
    try:
        return compiled(pattern)
    except PatternError as error:
        raise CelError(f"error parsing regexp: {error}") from None


@function("matches", cost=_of_regex)
def _matches(text: Any, pattern: Any) -> bool:
    _expect(text, str)
    return _compiled(pattern).search(text) is not None


@function("find", cost=_of_regex)
def _find(text: Any, pattern: Any) -> str:
    _expect(text, str)
    found = _compiled(pattern).search(text)
    return found[0] if found else ""


@function("findAll", cost=_of_regex)
def _find_all(text: Any, pattern: Any, most: Any = -1) -> tuple[str, ...]:
    _expect(text, str)
    _expect(most, int)
    found = tuple(match[0] for match in _compiled(pattern).finditer(text))
    return found if most < 0 else found[:most]


@function("charAt")
def _char_at(text: Any, at: Any) -> str:
    _expect(text, str)
    _expect(at, int)
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return str(text[at : at + 1])


@function("indexOf", cost=_of_list)
def _index_of(among: Any, part: Any, start: Any = None) -> int:
    if type(among) is tuple and start is None:
        return next((place for place, item in enumerate(among) if _equal_or_not(item, part)), -1)
    _expect(among, str)
    _expect(part, str)
    if start is None:
        return int(among.find(part))
    _expect(start, int)
    if not part:
        return int(start)
    if not 0 <= start < len(among):
        raise CelError(f"index out of range: {start}")
    return int(among.find(part, start))


@function("lastIndexOf", cost=_of_list)
def _last_index_of(among: Any, part: Any, start: Any = None) -> int:
    if type(among) is tuple and start is None:
        return next((place for place in range(len(among) - 1, -1, -1) if _equal_or_not(among[place], part)), -1)
    _expect(among, str)
    _expect(part, str)
    if start is None:
        return int(among.rfind(part))
    _expect(start, int)
    if not part:
        return int(start)
    if not 0 <= start < len(among):
        raise CelError(f"index out of range: {start}")
    return int(among.rfind(part, 0, start + len(part)))


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in _LOWER}


@function("lowerAscii", cost=_read_first)
def _lower(text: Any) -> str:
    _expect(text, str)
    return str(text.translate(_LOWER))


@function("upperAscii", cost=_read_first)
def _upper(text: Any) -> str:
    _expect(text, str)
    return str(text.translate(_UPPER))


@function("trim", cost=_read_first)
def _trim(text: Any) -> str:
    _expect(text, str)
    return str(text.strip())


@function("replace", cost=_read_first_twice)
def _replace(text: Any, old: Any, new: Any, most: Any = -1) -> str:
    for value in (text, old, new):
        _expect(value, str)
    _expect(most, int)
    if len(text) + (text.count(old) if old else len(text) + 1) * len(new) > _MOST_BYTES:
        raise CostLimitExceeded(COST_EXCEEDED)
    return str(text.replace(old, new, max(-1, most)))


@function("split", cost=_read_first_twice)
def _split(text: Any, by: Any, most: Any = -1) -> tuple[str, ...]:
    _expect(text, str)
    _expect(by, str)
    _expect(most, int)
    if most == 0:
        return ()
    if not by:
        limit = len(text) if most < 0 else most
        return (*text[: limit - 1], text[limit - 1 :]) if text else ()
    return tuple(text.split(by, -1 if most < 0 else most - 1))


@function("substring", cost=_read_first)
def _substring(text: Any, start: Any, end: Any = None) -> str:
    _expect(text, str)
    _expect(start, int)
    if end is None:
        if not 0 <= start <= len(text):
            raise CelError(f"index out of range: {start}")
        return str(text[start:])
    _expect(end, int)
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for place in (start, end):
        if not 0 <= place <= len(text):
            raise CelError(f"index out of range: {place}")
    return str(text[start:end])


@function("join", cost=BY_RESULT)
def _join(texts: Any, by: Any = "") -> str:
    _expect(texts, tuple)
    _expect(by, str)
    for item in texts:
        if type(item) is not str:
            raise CelError(f"join: invalid input: {item}")
    if sum(map(len, texts)) + len(by) * len(texts) > _MOST_BYTES:
        raise CostLimitExceeded(COST_EXCEEDED)
    return str(by.join(texts))


_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


@function("strings.quote", cost=_read_first)
def _quote(text: Any) -> str:
    _expect(text, str)
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


_DIRECTIVE = re.compile(r"%(?:%|(?:\.(\d{1,3}))?([a-zA-Z])?)")


@function("format", cost=_read_first)
def _format(template: Any, values: Any) -> str:
    _expect(template, str)
    _expect(values, tuple)
    left = list(values)

    def one(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        verb = match[2] or ""
        if verb not in "sdfebxXo" or not verb:
            raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        if not left:
            raise CelError(f"index {len(values)} out of range")
        return _formatted(verb, left.pop(0), int(match[1]) if match[1] else 6)

    done = _DIRECTIVE.sub(one, template)
    if len(done) > _MOST_BYTES:
        raise CostLimitExceeded(COST_EXCEEDED)
    return done


def _formatted(verb: str, value: Any, precision: int) -> str:
    kind = type(value)
    if verb == "s":
        return _shown(value)
    if verb == "d" and kind in (int, Uint, float):
        return _number_text(value) if kind is float else str(int(value))
    if verb in "fe" and kind in (int, Uint, float):
        return f"{float(value):.{precision}{verb}}" if isfinite(value) else _shown(value)
    if verb in "boxX" and kind in (int, Uint):
        return f"{int(value):{verb}}"
    if verb == "b" and kind is bool:
        return str(int(value))
    if verb in "xX" and kind in (str, bytes):
        digits = (value.encode() if kind is str else value).hex()
        return str(digits.upper() if verb == "X" else digits)
    raise CelError(f"error during formatting: {type_name(value)} is not usable with %{verb}")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case tuple():
            return "[" + ", ".join(map(_shown, value)) + "]"
        case Map():
            return "{" + ", ".join(sorted(f"{_shown(key)}: {_shown(value.find(key))}" for key in value)) + "}"
        case TypeValue(name):
            return name
        case bytes():
            return value.decode(errors="replace")
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _to_string(value)


# --- lists and sets ---------------------------------------------------------------------------------------


@function("isSorted", cost=_of_list)
def _is_sorted(items: Any) -> bool:
    _expect(items, tuple)
    return all(order(left, right) <= 0 for left, right in pairwise(items))


@function("sum", cost=_of_list)
def _sum(items: Any) -> Any:
    _expect(items, tuple)
    total: Any = 0 if not items else items[0]
    for item in items[1:]:
        total = _add(total, item)
    return total


@function("min", cost=_of_list)
def _least(items: Any) -> Any:
    return _extreme("min", items, 1)


@function("max", cost=_of_list)
def _greatest(items: Any) -> Any:
    return _extreme("max", items, -1)


def _extreme(name: str, items: Any, worse: int) -> Any:
    _expect(items, tuple)
    if not items:
        raise CelError(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if order(best, item) == worse:
            best = item
    return best


@function("slice", cost=_of_list)
def _slice(items: Any, start: Any, end: Any) -> Any:
    _expect(items, tuple)
    _expect(start, int)
    _expect(end, int)
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


@function("flatten", cost=_of_list)
def _flatten(items: Any, depth: Any = 1) -> Any:
    _expect(items, tuple)
    _expect(depth, int)
    if depth < 0:
        raise CelError("level must be non-negative")
    done: list[Any] = []
    for item in items:
        if type(item) is tuple:
            done.extend(_flatten(item, depth - 1) if depth > 1 else item)
        else:
            done.append(item)
    return tuple(done)


@function("reverse", cost=_of_list)
def _reverse(items: Any) -> Any:
    _expect(items, tuple, str)
    return items[::-1]


@function("lists.range", cost=lambda values: max(0, values[0]) if type(values[0]) is int else 1)
def _range(count: Any) -> Any:
    _expect(count, int)
    return tuple(range(min(count, _MOST_BYTES)))


@function("distinct", cost=lambda values: size_of(values[0]) ** 2)
def _distinct(items: Any) -> Any:
    _expect(items, tuple)
    done: list[Any] = []
    for item in items:
        if not any(_equal_or_not(item, other) for other in done):
            done.append(item)
    return tuple(done)


@function("sort", cost=lambda values: size_of(values[0]) ** 2)
def _sort(items: Any) -> Any:
    return _sorted_by(items, items)


@function("@sortByAssociatedKeys", cost=lambda values: size_of(values[0]) ** 2)
def _sorted_by(items: Any, keys: Any) -> Any:
    _expect(items, tuple)
    _expect(keys, tuple)
    done: list[tuple[Any, Any]] = []
    for key, item in zip(keys, items, strict=True):
        if type(key) is not type(keys[0]):
            raise CelError("list elements must have the same type")
        place = len(done)
        while place and order(done[place - 1][0], key) > 0:
            place -= 1
        done.insert(place, (key, item))
    return tuple(item for _, item in done)


@function("first")
def _first(items: Any) -> Any:
    _expect(items, tuple)
    return Optional(items[0]) if items else NONE


@function("last")
def _last(items: Any) -> Any:
    _expect(items, tuple)
    return Optional(items[-1]) if items else NONE


def _both(values: Sequence[Any]) -> int:
    return size_of(values[0]) * size_of(values[1])


@function("sets.contains", cost=_both)
def _set_contains(items: Any, others: Any) -> bool:
    _expect(items, tuple)
    _expect(others, tuple)
    return all(any(_equal_or_not(item, other) for item in items) for other in others)


@function("sets.equivalent", cost=_both)
def _set_equivalent(items: Any, others: Any) -> bool:
    return _set_contains(items, others) and _set_contains(others, items)


@function("sets.intersects", cost=_both)
def _set_intersects(items: Any, others: Any) -> bool:
    _expect(items, tuple)
    _expect(others, tuple)
    return any(_equal_or_not(item, other) for item in items for other in others)


@function("cel.@mapInsert")
def _map_insert(entries: Any, key: Any, value: Any = ABSENT) -> Map:
    _expect(entries, Map)
    if value is ABSENT:
        _expect(key, Map)
        for one in key:
            entries = _map_insert(entries, one, key.find(one))
        return entries  # type: ignore[no-any-return]
    if key in entries:
        raise CelError(f"insert failed: key {key} already exists")
    done: Map = entries.with_entry(key, value)
    return done


# --- optional values --------------------------------------------------------------------------------------


@function("optional.of")
def _optional_of(value: Any) -> Any:
    return Optional(value)


@function("optional.none")
def _optional_none() -> Any:
    return NONE


@function("optional.ofNonZeroValue")
def _optional_of_value(value: Any) -> Any:
    zero = value is None or (
        value.nanos == 0 if type(value) is Duration else not value if type(value) in _ZEROABLE else False
    )
    return NONE if zero else Optional(value)


_ZEROABLE = (bool, int, Uint, float, str, bytes, tuple, Map)


@function("hasValue")
def _has_value(value: Any) -> bool:
    if value is NONE:
        return False
    _expect(value, Optional)
    return True


@function("value")
def _value(value: Any) -> Any:
    if value is NONE:
        raise CelError("optional.none() dereference")
    _expect(value, Optional)
    return value.value


@function("optional.unwrap", "unwrapOpt")
def _unwrap(items: Any) -> Any:
    _expect(items, tuple)
    return tuple(item.value for item in items if type(item) is Optional)


# --- Kubernetes' own types --------------------------------------------------------------------------------


@function("quantity", cost=_read_first)
def _quantity(text: Any) -> Quantity:
    _expect(text, str)
    try:
        return parse(text)
    except QuantityError as error:
        raise CelError(str(error)) from None


@function("isQuantity", cost=_read_first)
def _is_quantity(text: Any) -> bool:
    _expect(text, str)
    try:
        parse(text)
    except QuantityError:
        return False
    return True


@function("sign")
def _sign(value: Any) -> int:
    _expect(value, Quantity)
    return int(value.sign)


@function("isInteger")
def _is_integer(value: Any) -> bool:
    _expect(value, Quantity)
    return value.as_int64() is not None


@function("asInteger")
def _as_integer(value: Any) -> int:
    _expect(value, Quantity)
    whole = value.as_int64()
    if whole is None:
        raise CelError("cannot convert value to integer")
    return int(whole)


@function("asApproximateFloat")
def _as_float(value: Any) -> float:
    _expect(value, Quantity)
    return float(value.approximate())


def _pair(left: Any, right: Any) -> int:
    _expect(left, Quantity, Semver)
    _expect(right, type(left))
    return int(left.compare(right))


@function("isGreaterThan")
def _is_greater(left: Any, right: Any) -> bool:
    return _pair(left, right) > 0


@function("isLessThan")
def _is_less(left: Any, right: Any) -> bool:
    return _pair(left, right) < 0


@function("compareTo")
def _compare_to(left: Any, right: Any) -> int:
    return _pair(left, right)


def _addend(value: Any) -> Quantity:
    if type(value) is int:
        return counted(value, 0, DECIMAL_EXPONENT)
    _expect(value, Quantity)
    return value  # type: ignore[no-any-return]


@function("add")
def _plus(left: Any, right: Any) -> Quantity:
    _expect(left, Quantity)
    total: Quantity = left.add(_addend(right))
    return total


@function("sub")
def _minus(left: Any, right: Any) -> Quantity:
    _expect(left, Quantity)
    rest: Quantity = left.sub(_addend(right))
    return rest


_ALPHANUMERIC = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_MOST_UINT_DIGITS = 20


def _version_number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        if text:
            raise CelError(f'Invalid character(s) found in {what} number "{text}"')
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 1 and text[0] == "0":
        raise CelError(f'{what.capitalize()} number must not contain leading zeroes "{text}"')
    if len(text) > _MOST_UINT_DIGITS or int(text) > MAX_UINT:
        raise CelError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def parse_semver(text: str) -> Semver:
    """Return a semantic version.

    Raises:
        CelError: it is not one; with the words of the library that Kubernetes uses.
    """
    return _known_semver(text) if len(text) <= LONGEST else _read_semver(text)  # an expression may make 1 MB of it


def _read_semver(text: str) -> Semver:
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) < 3:
        raise CelError("No Major.Minor.Patch elements found")
    major, minor = _version_number(parts[0], "major"), _version_number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch_text, dash, pre = rest.partition("-")
    patch = _version_number(patch_text, "patch")
    labels: list[int | str] = []
    for label in pre.split(".") if dash else ():
        if not label:
            raise CelError("Prerelease is empty")
        if label.isascii() and label.isdigit():
            if len(label) > 1 and label[0] == "0":
                raise CelError(f'Numeric PreRelease version must not contain leading zeroes "{label}"')
            labels.append(_version_number(label, "prerelease"))
        elif _ALPHANUMERIC.fullmatch(label):
            labels.append(label)
        else:
            raise CelError(f'Invalid character(s) found in prerelease "{label}"')
    for label in build.split(".") if plus else ():
        if not label:
            raise CelError("Build meta data is empty")
        if not _ALPHANUMERIC.fullmatch(label):
            raise CelError(f'Invalid character(s) found in build meta data "{label}"')
    return Semver(major, minor, patch, tuple(labels))


_known_semver = remembered(most=1 << 12)(_read_semver)


def _tolerant(text: str) -> Semver:
    parts = text.removeprefix("v").split(".", 2)
    for place, part in enumerate(parts):
        if len(part) > 1:
            part = part.lstrip("0")
            parts[place] = part if part[:1].isdigit() else f"0{part}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return parse_semver(".".join([*parts, "0", "0"][:3]))


@function("semver", cost=_read_first)
def _semver(text: Any, tolerant: Any = False) -> Semver:
    _expect(text, str)
    _expect(tolerant, bool)
    return _tolerant(text) if tolerant else parse_semver(text)


@function("isSemver", cost=_read_first)
def _is_semver(text: Any, tolerant: Any = False) -> bool:
    try:
        _semver(text, tolerant)
    except CelError:
        _expect(text, str)
        return False
    return True


@function("major")
def _major(version: Any) -> int:
    _expect(version, Semver)
    return _int(version.major)


@function("minor")
def _minor(version: Any) -> int:
    _expect(version, Semver)
    return _int(version.minor)


@function("patch")
def _patch(version: Any) -> int:
    _expect(version, Semver)
    return _int(version.patch)
