"""Kubernetes quantities as values that can be added and printed: `resource.Quantity` of apimachinery.

Columns use whole numbers (`quantity`). Here a quantity also keeps how it was written, because
allocations of devices and selectors in CEL depend on it: whether it fits into an int64 ("isInteger"), which format a
sum has, and how it prints.
"""

from __future__ import annotations

import re
from math import ldexp

import msgspec

from kube_policy_scheduler.quantities.quantity import MAX_INT64, NANO, QuantityError
from kube_policy_scheduler.quantities.quantity import Quantity as QuantityText
from kube_policy_scheduler.remembered import remembered

DECIMAL_SI = "DecimalSI"
BINARY_SI = "BinarySI"
DECIMAL_EXPONENT = "DecimalExponent"

_MAX_LENGTH = 256
_MAX_EXPONENT = 400
"""Larger exponents are cut: they exceed every amount, and the work stays bounded."""
_INT64_DIGITS = 18
"""A decimal number of at most this many digits is kept as an int64."""
_FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SUFFIX_WRONG = "unable to parse quantity's suffix"
_PARTS = r"(?a)(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?(?P<suffix>[eEinumkKMGTP]*[+-]?\d*)"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()} | {0: ""}


class Quantity(msgspec.Struct, frozen=True):
    """An amount `value * 10**scale`; equality of two of these is that of their form, use `compare` for the amount."""

    value: int
    scale: int
    """At least `-NANO`."""
    format: str
    text: str = ""
    """As written, if that is the canonical form."""
    big: bool = False
    """Whether it is kept as a decimal of any size, not as a scaled int64."""

    @property
    def nanos(self) -> int:
        """Return the amount in billionths, exactly."""
        shifted: int = self.value * 10 ** (self.scale + NANO)
        return shifted

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1 for less, equal or greater."""
        left, right = self.nanos, other.nanos
        return (left > right) - (left < right)

    def add(self, other: Quantity) -> Quantity:
        """Return the sum; a zero takes the other's format."""
        form = other.format if self.value == 0 else self.format
        if not self.big and not other.big:
            if other.value == 0:
                return Quantity(self.value, self.scale, form)
            if self.value == 0:
                return Quantity(other.value, other.scale, form)
            scale = min(self.scale, other.scale)
            left, right = self.value * 10 ** (self.scale - scale), other.value * 10 ** (other.scale - scale)
            if all(-MAX_INT64 - 1 <= number <= MAX_INT64 for number in (left, right, left + right)):
                return Quantity(left + right, scale, form)
        scale = min(self.scale, other.scale)
        total = self.value * 10 ** (self.scale - scale) + other.value * 10 ** (other.scale - scale)
        return Quantity(total, scale, form, big=True)

    def sub(self, other: Quantity) -> Quantity:
        """Return the difference."""
        return self.add(Quantity(-other.value, other.scale, other.format, big=other.big))

    @property
    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.value > 0) - (self.value < 0)

    def as_int64(self) -> int | None:
        """Return it as an int64, None if it is not kept as one (`AsInt64`)."""
        if self.big or self.scale < 0:
            return None
        whole: int = self.value * 10**self.scale
        return whole if -MAX_INT64 - 1 <= whole <= MAX_INT64 else None

    @property
    def is_whole(self) -> bool:
        """Return whether it is a number of whole units."""
        whole: int = 10**NANO
        return self.nanos % whole == 0

    def rounded_up(self, digits: int = 0) -> int:
        """Return it in whole units (`Value`), or in those of so many decimal digits (3: `MilliValue`), rounded up."""
        unit: int = 10 ** (NANO - digits)
        return -(-self.nanos // unit)

    def approximate(self) -> float:
        """Return it as a float (`AsApproximateFloat64`)."""
        try:
            return float(self.value) * 10.0 ** float(self.scale) if self.scale else float(self.value)
        except OverflowError:
            return ldexp(1.0, 1023) * 2.0 * self.sign

    def __str__(self) -> str:
        """Return the canonical form."""
        if self.text:
            return self.text
        if self.value == 0:
            return "0"
        if self.format == BINARY_SI and not -1024 * 10**NANO < self.nanos < 1024 * 10**NANO:
            whole, rest = divmod(self.nanos, 10**NANO)
            if rest == 0:
                exponent = 0
                while whole % 1024 == 0:
                    whole, exponent = whole // 1024, exponent + 10
                return f"{whole}{_BINARY_SUFFIX.get(exponent, '')}"
        mantissa, exponent = self.value, self.scale
        while mantissa % 10 == 0:
            mantissa, exponent = mantissa // 10, exponent + 1
        mantissa, exponent = mantissa * 10 ** (exponent % 3), exponent - exponent % 3
        if self.format == DECIMAL_EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX.get(exponent, '')}"


def counted(value: int, digits: int, form: str) -> Quantity:
    """Return a number of units of this many decimal digits (0: `resource.NewQuantity`, 3: `NewMilliQuantity`)."""
    return Quantity(value, -digits, form)


@remembered(most=1 << 14)
def parse(text: QuantityText) -> Quantity:
    """Return the value of a quantity (`ParseQuantity`).

    Raises:
        QuantityError: it is not a quantity; with apimachinery's words.
    """
    written = text if isinstance(text, str) else repr(text)
    if written == "0":
        return Quantity(0, 0, DECIMAL_SI, written)
    match = re.fullmatch(_PARTS, written) if 0 < len(written) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(_FORMAT_WRONG)
    suffix = match["suffix"]
    exponent, form = _interpret(suffix)
    number = match["whole"].lstrip("0")
    part = match["part"] or ""
    number = number or "0"
    sign = -1 if match["sign"] == "-" else 1
    if form != BINARY_SI:
        scale = exponent - len(part)
        if len(number) + len(part) <= _INT64_DIGITS and scale >= -NANO:
            digits = number + part
            canonical = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
            return Quantity(sign * int(digits), scale, form, written if canonical else "")
    elif not part and 15 - len(number) - int(exponent * 3 / 10) - 1 >= 0:
        value = int(number)
        shifted = value << exponent
        if shifted <= MAX_INT64:
            return Quantity(sign * shifted, 0, form, written if value & 7 else "")
    return _big(int(number + part), len(part), exponent, form=form, sign=sign)


def _interpret(suffix: str) -> tuple[int, str]:
    """Return a suffix's exponent and its format."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], DECIMAL_SI
    if suffix in _BINARY:
        return _BINARY[suffix], BINARY_SI
    if len(suffix) > 1 and suffix[0] in "eE":
        try:
            return max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(suffix[1:]))), DECIMAL_EXPONENT
        except ValueError:
            pass
    raise QuantityError(_SUFFIX_WRONG)


def _big(digits: int, places: int, exponent: int, *, form: str, sign: int) -> Quantity:
    """Return a quantity that no scaled int64 holds: rounded up to billionths, binary ones capped."""
    if form == BINARY_SI:
        digits, scale = digits << exponent, -places
    else:
        scale = exponent - places
    if scale < -NANO:
        digits, scale = -(-digits // 10 ** (-NANO - scale)), -NANO
    if form == BINARY_SI:
        nanos = digits * 10 ** (scale + NANO)
        if nanos > MAX_INT64 * 10**NANO:
            digits, scale = MAX_INT64, 0
        elif 0 < nanos < 10**NANO:
            form = DECIMAL_SI
    return Quantity(sign * digits, scale, form, big=True)


__all__ = [
    "BINARY_SI",
    "DECIMAL_EXPONENT",
    "DECIMAL_SI",
    "Quantity",
    "QuantityError",
    "counted",
    "parse",
]
