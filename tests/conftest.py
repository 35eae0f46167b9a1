"""What holds for every test: programs that are missing leave tests out, except under CI=true."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.children import child
from tests.parts import LONG_FOLDERS, is_long, quick

# Laws that cost little name their own number of examples; the others take that of the profile: few here, many with
# `make laws`. How long an example takes says more about what else runs on the machine than about us.
hypothesis.settings.register_profile("few", deadline=None, max_examples=25)
hypothesis.settings.register_profile("many", deadline=None, max_examples=500)
# the same ones in each run: who changes nothing meets no failure; new ones are tried by `make laws`, each night
hypothesis.settings.register_profile("same", hypothesis.settings.get_profile("few"), derandomize=True)
hypothesis.settings.load_profile("few")

# the tests start our programs some hundred times: compiled once, whatever the environment says
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# nohup and some runners ignore SIGHUP, and the programs that tests start would inherit that
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# xdist says 80, and then what is printed would be wrapped there: the same with it, without it and in any terminal
os.environ.pop("COLUMNS", None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(program, ...): the test talks to programs that Debian packages have")
    config.addinivalue_line("markers", "long: the test is left to `make test-long`; tests/parts.py says which are")
    config.addinivalue_line("markers", "dear: a further case that takes seconds, left to `make laws`")
    config.addinivalue_line("markers", "controllers(setting=...): what the controllers of the embedded cluster do")
    config.addinivalue_line("markers", "kubernetes(version): which Kubernetes the embedded cluster is")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        # while the workers collect: each would compile the same for 20 s, where numba's cache does not have it yet
        command = "from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels as c; c()"
        config.add_cleanup(child([sys.executable, "-c", command]).wait)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name parameters that are made when tests are collected by their place, not by their content.

    Workers of xdist collect for themselves and must find the same ids: bytes with a time in them, such as those of
    gzip, or with random parts would end the whole run.
    """
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read the folders of long tests where these are left out."""
    if collection_path.is_dir() and config.option.markexpr.startswith("not long"):
        return collection_path.relative_to(config.rootpath).as_posix() in LONG_FOLDERS or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_long(item):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the millions of objects of what was collected, which stay to the end.

    Each full collection would look at them, and so would each test that counts what is left. So no test unfreezes.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with quick.phase(item):
        _need(item)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with quick.phase(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with quick.phase(item):
        return (yield)


def _need(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        missing = [program for program in marker.args if shutil.which(program) is None]
        if not missing:
            continue
        text = f"not installed: {', '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{text}; with CI=true nothing may be missing", pytrace=False)
        pytest.skip(text)
