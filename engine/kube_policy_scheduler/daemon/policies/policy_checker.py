"""Candidate sets checked in a process that can be killed, and what comes back from there.

The parser, the checker, the proofs of lint and the compiler run through text that somebody wrote. However their cost
grows with it, they must not hold up decisions, nor take the memory of the process that decides. So the checker's
process (`checker_process`) does all of it first, within limits of time and memory.

A compiled set is full of functions and cannot cross the border. What crosses it are the texts of the files one way, and
the verdict with the syntax trees of a good set the other way: parsing is half of the work. From the trees the set is
checked and compiled here again, without lint: work that has been done before, within the limits.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.worker_process import WorkerExceeded, WorkerProcess
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.owner import Owner

MODULE = "kube_policy_scheduler.daemon.policies.checker_process"
_ROOMS = ("kube_policy_scheduler.lang.", "kube_policy_scheduler.diagnostics")
"""Where the classes of syntax trees are; nothing else is made of what comes from the process."""


class CheckRequest(msgspec.Struct, array_like=True):
    """What is to be checked."""

    files: Sequence[tuple[str, str]]
    default_schedulers: Sequence[str]
    trees: Sequence[str]
    """Names of the files whose trees are wanted."""
    owner: Owner | None = None
    extensions: Sequence[str] = ()
    """Whose functions policies may call."""


class CheckResult(msgspec.Struct, array_like=True):
    """The result of a check."""

    problems: tuple[str, ...]
    """Rendered errors; there are none where the set is good."""
    warnings: tuple[str, ...]
    trees: Mapping[str, bytes] = {}
    """Of a good set."""


class PolicyChecker:
    """Checks sets of policies, one after another."""

    def __init__(self, worker: WorkerProcess | None = None, *, extensions: Sequence[str] = ()) -> None:
        """Set up.

        Args:
            worker: the process; None: one with the usual limits.
            extensions: whose functions policies may call.
        """
        self._extensions = extensions
        self._worker = worker or WorkerProcess(MODULE)

    def start(self, prepare: Callable[[], Callable[[bytes], bytes]]) -> None:
        """Have the process there when the first set comes, if possible as a copy of this one: see `fork`.

        prepare: that of the module `checker_process`.

        Raises:
            WorkerLost: the system has no room for it.
        """
        self._worker.fork(prepare)

    def stop(self) -> None:
        """End the process for good; may be called while a set is checked in another thread."""
        self._worker.stop()

    def check(
        self,
        sources: PolicySources,
        *,
        default_schedulers: frozenset[str],
        trees: Sequence[str],
        owner: Owner | None = None,
    ) -> CheckResult:
        """Return the result for a set; blocks.

        Args:
            sources: the set.
            default_schedulers: the schedulerNames that policies serve which name none.
            trees: names of the files whose syntax trees are wanted.
            owner: whose policies these are; None: the administrator's.

        Raises:
            WorkerLost: there is no process, or it ended, for no fault of the set.
        """
        request = CheckRequest(sources.files, sorted(default_schedulers), trees, owner, self._extensions)
        try:
            self._worker.ask(msgspec.msgpack.encode(request))
            return msgspec.msgpack.decode(self._worker.receive(), type=CheckResult)
        except WorkerExceeded as error:
            problem = f"checking these policies takes too much: {error}; split or remove large policies"
            return CheckResult((problem,), ())


# --- syntax trees as bytes -------------------------------------------------------------------------------


class _Reducers(dict[type, Callable[[Any], tuple[Any, ...]]]):
    """How each dataclass and struct is taken apart: faster than they do it themselves."""

    def __missing__(self, kind: type) -> Callable[[Any], tuple[Any, ...]]:
        if issubclass(kind, msgspec.Struct):
            names = list(kind.__struct_fields__)
        elif is_dataclass(kind):
            names = [field.name for field in fields(kind) if field.init]
        else:
            raise KeyError(kind)
        values = attrgetter(*names)
        reduce: Callable[[Any], tuple[Any, ...]] = lambda thing: (kind, values(thing))  # noqa: E731
        if len(names) == 1:
            reduce = lambda thing: (kind, (values(thing),))  # noqa: E731
        self[kind] = reduce
        return reduce


def _known_source() -> Source:
    """Stand for the source of a tree, which is not sent back."""
    raise AssertionError


_REDUCERS = _Reducers({Source: lambda _: (_known_source, ())})


def dump_tree(file: syntax.File) -> bytes:
    """Return the syntax tree of one file as bytes."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(file)
    return out.getvalue()


def load_tree(tree: bytes, source: Source) -> syntax.File:
    """Return the syntax tree that `dump_tree` was given.

    source: what it was read from; all places in the tree refer to this object.

    Raises:
        pickle.UnpicklingError: there is something else in it.
    """
    found: syntax.File = _Unpickler(io.BytesIO(tree), source).load()
    return found


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, source: Source) -> None:
        super().__init__(file)
        self._source = source

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_known_source.__module__, _known_source.__name__):
            return lambda: self._source
        found = super().find_class(module, name) if module.startswith(_ROOMS) else None
        if not (isinstance(found, type) and (issubclass(found, msgspec.Struct) or is_dataclass(found))):
            raise pickle.UnpicklingError(f"no part of a syntax tree: {module}.{name}")
        return found
