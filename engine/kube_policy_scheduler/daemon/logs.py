"""How the daemon logs: text for people, or one JSON object a line for collectors.

One record is one line, whatever a pod, a policy or an API server put into it; only tracebacks have more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import Any, TextIO

import orjson

from kube_policy_scheduler.daemon.configuration.settings import LogSettings
from kube_policy_scheduler.times import rfc3339

MOST_CHARACTERS = 4096
"""Of one value; an API server's answer, say, can be longer."""
MOST_LINES = 256
"""Lines that are written at once, at the most."""
_FIRST = len(logging.makeLogRecord({}).__dict__)
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_PLAIN = r"[^\s\"=\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+"
_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"

_pattern = cache(re.compile)
"""Compiles at its first use, which a start does without; `re` itself takes twice as long for each use."""

logger = logging.getLogger(__name__)


def configure(settings: LogSettings) -> None:
    """Send all logs to standard error in the wanted form.

    No form says which thread, process, task or line of code wrote a record. To find that out takes half the time of a
    record; the manual of `logging` tells how to leave it out.
    """
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined]  # from Python 3.12 on
    logging._srcfile = None
    handler = LinesOfATurn(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for noisy in ("aiohttp.access", "urllib3", "asyncio", "watchdog"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def warn_of_ignored(keys: Iterable[str]) -> None:
    """Log the keys of a configuration that this version does not know."""
    for key in keys:
        logger.warning("this version does not know a key of the configuration, ignoring it", extra={"key": key})


class LinesOfATurn(logging.StreamHandler[TextIO]):
    """Writes the lines of one turn of the event loop at once: each write is a call of the kernel.

    A warning, and what is logged where no event loop runs, is written at once, with what was logged before it. A
    process that is killed loses the lines of its last turn.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or keep it until the turn ends; called with the lock of the handler."""
        try:
            self._lines.append(self.format(record))
            loop = asyncio._get_running_loop() if record.levelno < logging.WARNING else None
            if loop is None or len(self._lines) >= MOST_LINES:
                self.flush()
            elif len(self._lines) == 1:
                loop.call_soon(self.flush)
        except Exception:  # as in the library: a log that cannot be written stops nothing
            self.handleError(record)

    def flush(self) -> None:
        """Write what is kept."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("\n".join(lines) + "\n")
            super().flush()


class TextLines(logging.Formatter):
    """`TIME LEVEL message key=value …`"""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback below it if there is one."""
        at = rfc3339(record.created, "milliseconds")
        text = f"{at} {record.levelname:<7} {_escaped(_cut(record.getMessage()))}"
        for key, value in islice(record.__dict__.items(), _FIRST, None):  # what each record has comes first
            if key not in _STANDARD:
                text += f" {key}={_shown(value)}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for key, value in islice(record.__dict__.items(), _FIRST, None):  # what each record has comes first
            if key not in _STANDARD:  # what a caller adds cannot pass for the time or the message
                is_long = isinstance(value, str) and len(value) > MOST_CHARACTERS
                entry[key if key not in entry else f"{key}_"] = _cut(value) if is_long else value
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        try:
            line = orjson.dumps(entry, default=str).decode()
            return line if line.isascii() and "\x7f" not in line else _escaped(line)  # the rest is escaped already
        except TypeError:  # half a surrogate pair, a number beyond 64 bits
            return json.dumps(entry, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"


def _shown(value: object) -> str:
    """Return a value as a word, or in quotes with escapes, as klog does it."""
    text = _cut(str(value))
    if _pattern(_PLAIN).fullmatch(text):
        return text
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    if text.isprintable():  # true of no text with a control character
        return text
    return re.sub(_CONTROL, lambda found: json.dumps(found[0])[1:-1], text)
