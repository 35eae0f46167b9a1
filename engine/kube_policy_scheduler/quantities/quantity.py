"""Kubernetes quantities ("500m", "1.5Gi", "12e-1") to integers, exactly.

The grammar is that of `k8s.io/apimachinery/pkg/api/resource`: a signed decimal number and one of
`n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`, or a decimal exponent. All rounding is away from zero, as there.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from kube_policy_scheduler.remembered import remembered

Quantity: TypeAlias = str | int | float
"""As people write it and as the API server sends it."""

MAX_INT64 = 2**63 - 1
NANO = 9
"""The finest unit that a quantity keeps is `10**-NANO`."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?\d+)|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)
_MAX_EXPONENT = 400
"""Exponents beyond this are all above every int64 or below every unit; it bounds the work."""
_MAX_LENGTH = 256
"""Characters of a quantity: far more than any real one, few enough to keep parsing cheap."""
_MAX_NANOS = MAX_INT64 * 10**NANO


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


@remembered(most=1 << 16)
def nanos(text: Quantity) -> int:
    """Return the quantity in billionths: exactly what Kubernetes keeps of it, capped to int64 whole units.

    Sums are made of these, and only the sum is rounded to a coarser unit (`rounded`).

    Raises:
        QuantityError: `text` is not a quantity.
    """
    match = _QUANTITY.fullmatch(text if isinstance(text, str) else repr(text)) if text != "" else None
    if match is None or len(match[0]) > _MAX_LENGTH or not (match["whole"] or match["part"]):
        raise QuantityError(f"not a quantity: {text!r}; write for example 500m, 2, 1.5Gi or 1e3")
    part = match["part"] or ""
    mantissa = int(match["whole"] + part)
    if mantissa == 0:
        return 0
    if match["binary"]:
        shift, exponent = _BINARY[match["binary"]], 0
    elif match["exponent"]:
        shift, exponent = 0, int(match["exponent"])
    else:
        shift, exponent = 0, _DECIMAL[match["decimal"] or ""]
    power = max(-_MAX_EXPONENT - _MAX_LENGTH, min(_MAX_EXPONENT, exponent + NANO)) - len(part)
    magnitude: int = mantissa << shift
    if power >= 0:
        magnitude *= 10**power
    else:
        magnitude = -(-magnitude // 10**-power)
    magnitude = min(magnitude, _MAX_NANOS)
    return -magnitude if match["sign"] == "-" else magnitude


def rounded(value: int, scale: int) -> int:
    """Return a number of billionths in units of `10**-scale` (at most `NANO`), away from zero, capped to int64."""
    unit: int = 10 ** (NANO - scale)
    magnitude = min(-(-abs(value) // unit), MAX_INT64)
    return -magnitude if value < 0 else magnitude


def scaled(text: Quantity, scale: int) -> int:
    """Return the quantity in units of `10**-scale`, rounded away from zero and capped to int64.

    Raises:
        QuantityError: `text` is not a quantity.
    """
    return rounded(nanos(text), scale)


def units(text: Quantity) -> int:
    """Return the quantity in whole units (memory: bytes; devices: pieces)."""
    return scaled(text, 0)


def column_scale(resource: str) -> int:
    """Return the scale that columns use for `resource`: thousandths for cpu, whole units for all others."""
    return 3 if resource == "cpu" else 0


@remembered(most=1 << 12)
def amount(resource: str, text: Quantity) -> int:
    """Return the quantity in the unit that columns use for `resource`: millicores for cpu, else whole units."""
    return scaled(text, column_scale(resource))
