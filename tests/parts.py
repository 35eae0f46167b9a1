"""Two parts of the tests: the quick ones are `make test`, the long ones are left to `make test-long`.

A test is long if it starts a process, because that costs as much as a hundred tests of one function, and waits for
others. So are those that run for many seconds, and those that measure the growth of costs at several sizes. The rest
of the tests, alone, are done within five minutes on two cores.

What is long follows from where a test stands and from its markers:

- every test below one of `LONG_FOLDERS`;
- every test that `needs` a program, as in pytest.mark.needs("kubectl"), and every one with the fixture `browser`;
- every test or module that is marked with pytest.mark.long.

Nobody has to remember it: a process that starts in any other test fails this test, with a text that says where it
belongs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

LONG_FOLDERS = {
    "tests/demo": "the program of `make demo`",
    "tests/faults": "processes, before a cluster that fails",
    "tests/growth": "what costs grow with, at several sizes each",
    "tests/integration": "processes, before a control plane",
    "tests/simulation": "runs of the simulation, of some seconds each",
}
"""Folders whose tests are long, each with the reason."""

LONG_FIXTURES = {"browser"}

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn"}
"""Events of Python's audit hooks that begin a process."""

ONCE_FOR_ALL = {"fc-list": "matplotlib asks which fonts there are, before the first chart of a user"}
"""Programs that a library starts once on a machine: which test that is depends on which ones ran before."""


def is_long(item: pytest.Item) -> bool:
    """Return whether a test is left to `make test-long`."""
    return (
        any(item.get_closest_marker(name) for name in ("long", "needs"))
        or not LONG_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or "/".join(item.nodeid.split("/")[:2]) in LONG_FOLDERS
    )


class Quick:
    """Watches that no process starts while a quick test runs."""

    def __init__(self) -> None:
        self._runs = False
        self._started: list[str] = []

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Refuse the start of a process; a hook of `sys.addaudithook`."""
        if self._runs and event in STARTS and not (arguments and arguments[0] in ONCE_FOR_ALL):
            what = f"{event}{arguments[:2]!r}"[:200]
            self._started.append(what)
            _fail(what)

    @contextmanager
    def phase(self, item: pytest.Item) -> Iterator[None]:
        """Watch the setup, call or teardown of a test, if it is a quick one."""
        outer, started = (self._runs, self._started), list[str]()
        self._runs, self._started = item.get_closest_marker("long") is None, started
        try:
            yield
        finally:
            self._runs, self._started = outer
        if started:  # and somebody caught the failure, such as the code under test
            _fail(started[0])


def _fail(what: str) -> NoReturn:
    pytest.fail(
        f"a quick test starts a process ({what}): mark the test or its module with pytest.mark.long, or move it to "
        f"one of {', '.join(LONG_FOLDERS)}, so that `make test-long` runs it (tests/parts.py)",
        pytrace=False,
    )


quick = Quick()
sys.addaudithook(quick.audit)
