"""Time as the API writes it, from a clock that is passed in."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present moment; the one clock of the embedded cluster, replaceable in tests."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Return a moment in UTC as `metav1.Time`: whole seconds."""
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def micro_timestamp(moment: datetime) -> str:
    """Return a moment in UTC as `metav1.MicroTime`."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def parse_timestamp(text: str) -> datetime:
    """Read either form.

    Raises:
        ValueError: the text is not RFC 3339.
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
