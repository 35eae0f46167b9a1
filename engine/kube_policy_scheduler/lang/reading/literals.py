"""What numbers, strings and label names written in a policy mean."""

from __future__ import annotations

import re

from kube_policy_scheduler.times import UNIT_SECONDS

SUFFIXES: dict[str, float] = {
    "": 1,
    "m": 1e-3,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
    **UNIT_SECONDS,
    "%": 0.01,
    "core": 1, "cores": 1,
}  # fmt: skip
"""What a suffix multiplies by: quantities as in Kubernetes, durations in seconds, shares of 1."""

DURATIONS = frozenset(UNIT_SECONDS)
BYTES = frozenset({"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
CORES = frozenset({"core", "cores"})
"""Of cpu: `1core` is an amount, where a bare `1` is whatever it meets."""
DECIMALS = frozenset({"k", "M", "G", "T", "P", "E"})

OBJECT_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""A name that a statement takes without quotes, as the grammar's terminal: of policies, schedulers, clauses."""
_NUMBER = r"(?s)((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(.*)"
_MEANT = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "mins": "min", "minute": "min", "minutes": "min",
    "hr": "h", "hour": "h", "hours": "h", "day": "d", "days": "d", "week": "w", "weeks": "w",
    "K": "k", "KB": "k", "kB": "k", "kb": "k", "MB": "M", "mb": "M", "Mb": "M", "GB": "G", "gb": "G", "Gb": "G",
    "TB": "T", "tb": "T", "Tb": "T", "ki": "Ki", "KiB": "Ki", "kib": "Ki", "mi": "Mi", "MiB": "Mi", "mib": "Mi",
    "gi": "Gi", "GiB": "Gi", "gib": "Gi", "Gib": "Gi", "Mib": "Mi", "g": "Gi", "t": "Ti", "ti": "Ti",
    "TiB": "Ti", "tib": "Ti", "pi": "Pi", "PiB": "Pi", "PB": "P", "B": "", "bytes": "",
    "cpu": "core", "cpus": "cores", "vcpu": "core", "vcpus": "cores", "u": "", "n": "",
}  # fmt: skip


def number(text: str) -> tuple[float, str, str]:
    """Return value, suffix and, if it is invalid, what to write instead (else "")."""
    match = re.fullmatch(_NUMBER, text)
    if match is None:
        return 0.0, "", "write for example 500m, 2, 4Gi, 30s or 80%"
    digits, suffix = match.groups()
    if len(digits) > 40:
        return 0.0, "", "the number has too many digits"
    value = float(digits)
    factor = SUFFIXES.get(suffix)
    if factor is None:
        meant = _MEANT.get(suffix)
        if meant is not None:
            return value, "", f"write `{digits}{meant}`"
        return value, "", "units are m k M G T P E, Ki Mi Gi Ti Pi Ei, core, ms s min h d w, and %"
    if value * factor > 1e30:
        return 0.0, "", "numbers go up to 1e30"
    # dividing keeps 80% and 500m exact where multiplying would not
    return (value / round(1 / factor) if factor < 1 else value * factor), suffix, ""


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


def string(literal: str) -> tuple[str, int | None]:
    """Return the value of a literal with its quotes, and the offset of the first invalid escape."""
    if "\\" not in literal:
        return literal[1:-1], None
    out: list[str] = []
    at, end = 1, len(literal) - 1
    while at < end:
        char = literal[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        escape = literal[at + 1]
        if escape == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", literal[at + 2 : at + 6]):
            code = int(literal[at + 2 : at + 6], 16)
            if 0xD800 <= code < 0xE000:
                return "".join(out), at  # half of a surrogate pair is not a character
            out.append(chr(code))
            at += 6
        elif escape in _ESCAPES:
            out.append(_ESCAPES[escape])
            at += 2
        else:
            return "".join(out), at
    return "".join(out), None


def offsets(literal: str) -> list[int]:
    """Return where in a literal each character of its value is, and its closing quote."""
    found, at = [], 1
    while at < len(literal) - 1:
        found.append(at)
        at += 1 if literal[at] != "\\" else 6 if literal[at + 1] == "u" else 2
    return [*found, len(literal) - 1]


def quoted(text: str) -> str:
    """Return a text as a literal."""
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    # an escape has four digits: a character beyond U+FFFF is written as itself
    return '"' + "".join(c if c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}" for c in out) + '"'


_LABEL_NAME = r"(?a)[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS = r"(?a)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def label_problem(text: str, *, of: str) -> str:
    """Return what is wrong with the key or value of a label, as help; "" if it is valid."""
    if of == "value":
        if not text or re.fullmatch(_LABEL_NAME, text):
            return ""
        return "a value has up to 63 letters, digits, `-`, `_` and `.`, and starts and ends with a letter or digit"
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not re.fullmatch(_DNS, prefix)):
        return f"before the `/`, write a DNS name in lower case; `{prefix}` is not one"
    if not re.fullmatch(_LABEL_NAME, name):
        return "a key has up to 63 letters, digits, `-`, `_` and `.`, and starts and ends with a letter or digit"
    return ""
