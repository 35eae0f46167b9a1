"""How the daemon logs: text for people, or one JSON object a line for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from engine.daemon.settings import LogSettings

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(settings: LogSettings) -> None:
    """Send all logs to standard error in the wanted form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for noisy in ("aiohttp.access", "urllib3", "asyncio", "watchdog"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class TextLines(logging.Formatter):
    """`TIME LEVEL message key=value …`"""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback below it if there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        pairs = "".join(f" {key}={_shown(value)}" for key, value in _extra(record).items())
        text = f"{at}Z {record.levelname:<7} {record.getMessage()}{pairs}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _shown(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text or not text else text
