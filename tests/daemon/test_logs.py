"""Log output: one line per record, as text and as JSON."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.daemon.logs import MOST_CHARACTERS, MOST_LINES, JsonLines, LinesOfATurn, TextLines

NASTY = 'web\n2027-01-15T08:00:00.000Z INFO    Successfully bound pod to node pod=a/b node="n1"\x1b[2J'


def record(message: str, *arguments: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "kube_policy_scheduler.daemon.scheduling.schedule_one",
        logging.INFO,
        "scheduler.py",
        1,
        message,
        arguments,
        None,
    )
    made.created = 1_800_000_000.25
    for key, value in extra.items():
        setattr(made, key, value)
    return made


def test_a_line_for_people_reads_like_klogs() -> None:
    line = TextLines().format(
        record("Unable to schedule pod", pod="shop/web-1", why="0/3 nodes are available", tries=2)
    )

    assert line == (
        '2027-01-15T08:00:00.250Z INFO    Unable to schedule pod pod=shop/web-1 why="0/3 nodes are available" tries=2'
    )


def test_a_line_for_collectors_is_one_object() -> None:
    line = JsonLines().format(record("Successfully bound pod to node", pod="shop/web-1", node="n1"))

    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.250000+00:00",
        "level": "info",
        "logger": "kube_policy_scheduler.daemon.scheduling.schedule_one",
        "message": "Successfully bound pod to node",
        "pod": "shop/web-1",
        "node": "n1",
    }


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
@given(text=st.text(st.characters(exclude_categories=())) | st.just(NASTY))
def test_nothing_in_a_value_or_a_message_begins_a_line_or_moves_the_cursor(
    formatter: logging.Formatter, text: str
) -> None:
    line = formatter.format(record("binding to %s was refused", text, why=text))

    assert len(line.splitlines()) == 1
    assert not [character for character in line if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0]
    line.encode()  # what cannot be written would be lost with a traceback


def test_a_value_cannot_pass_for_another_one() -> None:
    line = TextLines().format(record("Unable to schedule pod", why='x" node="n1', empty=""))

    assert line.endswith(r'why="x\" node=\"n1" empty=""')


def test_what_a_caller_adds_does_not_replace_what_the_log_says() -> None:
    entry = json.loads(JsonLines().format(record("a", time="yesterday", level="error")))

    assert (entry["time"], entry["level"]) == ("2027-01-15T08:00:00.250000+00:00", "info")
    assert (entry["time_"], entry["level_"]) == ("yesterday", "error")


@pytest.mark.parametrize(
    "value", ["\ud800", 2**70, float("nan"), {1}, object()], ids=["half", "huge", "nan", "set", "object"]
)
def test_every_value_can_be_written(value: object) -> None:
    for formatter in (TextLines(), JsonLines()):
        formatter.format(record("a", value=value)).encode()


def test_a_long_value_is_cut() -> None:
    for formatter in (TextLines(), JsonLines()):
        line = formatter.format(record("refused: %s", "m" * 100_000, why="x" * 100_000))
        assert MOST_CHARACTERS < len(line) < 3 * MOST_CHARACTERS
        assert "… (100000 characters)" in (json.loads(line)["why"] if line.startswith("{") else line)


def test_a_traceback_is_one_value_for_collectors() -> None:
    made = record("attempt broke", pod="shop/web-1")
    try:
        raise ValueError("no\nnode")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)

    line = JsonLines().format(made)

    assert "\n" not in line
    assert "ValueError: no\nnode" in json.loads(line)["exception"]
    assert "Traceback" in TextLines().format(made)


class Stream(io.StringIO):
    """Remembers what was written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def test_the_lines_of_a_turn_are_written_at_once_and_a_warning_without_delay() -> None:
    stream = Stream()
    log = logging.Logger("a test")
    log.addHandler(LinesOfATurn(stream))

    async def turns() -> None:
        for n in range(3):
            log.info("bound %d", n)
        assert stream.writes == []
        await asyncio.sleep(0)
        assert stream.writes == ["bound 0\nbound 1\nbound 2\n"]
        log.info("bound 3")
        log.warning("careful")
        assert stream.writes[1:] == ["bound 3\ncareful\n"]

    asyncio.run(turns())
    log.info("no loop runs")
    assert stream.writes[2:] == ["no loop runs\n"]


def test_a_turn_with_very_many_lines_keeps_few_of_them() -> None:
    stream = Stream()
    log = logging.Logger("a test")
    log.addHandler(LinesOfATurn(stream))

    async def turn() -> None:
        for n in range(2 * MOST_LINES + 1):
            log.info("%d", n)
        assert len(stream.writes) == 2

    asyncio.run(turn())
    assert "".join(stream.writes).count("\n") == 2 * MOST_LINES + 1
