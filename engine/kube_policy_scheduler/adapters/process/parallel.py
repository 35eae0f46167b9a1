"""Runs a function for many arguments on all cores, or on a Ray or Dask cluster. joblib does it, which is an extra."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from kube_policy_scheduler.installation import command_for

PROCESSES, RAY, DASK = BACKENDS = ("processes", "ray", "dask")
_T = TypeVar("_T")


class ParallelError(Exception):
    """The workers cannot be started."""


@contextmanager
def workers(backend: str, *, jobs: int, address: str | None = None) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a function that calls a function for each of some arguments, and yields the results in their order.

    Args:
        backend: `processes` on this machine, or `ray` or `dask`.
        jobs: how many at a time; -1 for all cores.
        address: of the cluster; None starts one on this machine.

    Raises:
        ParallelError: a package is missing, or the cluster does not answer.
    """
    try:
        import joblib
    except ImportError as error:
        raise ParallelError(f"joblib is not installed: run {command_for('tune')}") from error
    client = None
    try:
        if backend == RAY:
            import ray
            from ray.util.joblib import register_ray

            ray.init(address=address, log_to_driver=False, logging_level="error")
            register_ray()
        elif backend == DASK:
            from distributed import Client

            client = Client(address, processes=True) if address is None else Client(address)
    except ImportError as error:
        raise ParallelError(f"{backend} is not installed: run {command_for(f'tune-{backend}')}") from error
    except Exception as error:  # each of them has its own
        raise ParallelError(f"{backend} {address or ''}: {str(error).splitlines()[0]}") from error

    def run(function: Callable[[Any], _T], arguments: Sequence[Any]) -> Iterator[_T]:
        # workers leave Ctrl-C to the process that people see
        calls = (joblib.delayed(_shielded if jobs != 1 else _plain)(function, each) for each in arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Ray's backend gives all results at the end only
            yield from joblib.Parallel(n_jobs=jobs, return_as="list" if backend == RAY else "generator")(calls)

    name = {PROCESSES: "loky", RAY: "ray", DASK: "dask"}[backend]
    try:
        with joblib.parallel_config(backend=name, n_jobs=jobs):
            yield run
    finally:
        if client is not None:
            client.close()
        if backend == PROCESSES and jobs != 1:
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor().shutdown(wait=True)


def _plain(function: Callable[[Any], _T], argument: Any) -> _T:
    return function(argument)


def _shielded(function: Callable[[Any], _T], argument: Any) -> _T:
    if threading.current_thread() is threading.main_thread():  # Dask's workers run tasks in other threads
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return function(argument)
