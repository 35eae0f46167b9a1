"""Quantities in canonical form, as the API server writes back whatever spelling it was given. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from kube_policy_scheduler.cluster.quantity import QuantityError

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
        QuantityError: the text is no quantity.
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
