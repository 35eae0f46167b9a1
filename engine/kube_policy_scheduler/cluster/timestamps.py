"""API timestamps (RFC 3339) to unix seconds and back."""

from __future__ import annotations

from datetime import UTC, datetime


def unix_seconds(text: str | None) -> float | None:
    """Return unix seconds of an API timestamp, or None where there is none or it does not parse."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def rfc3339(seconds: float) -> str:
    """Return the API's spelling of a time, in whole seconds UTC (`metav1.Time`)."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
