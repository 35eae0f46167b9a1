"""Builtins of installed packages: found by their entry point, checked, and guarded against their own mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.search_work import OutOfTurn
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.signature import Builtin, Unavailable
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "kube_policy_scheduler.builtins"
SLOW_SECONDS = 0.02
"""Of one call. A decision at 5,000 nodes takes a tenth of a millisecond for each clause."""
MOST_SLOW = 10
"""Slow calls in a row before a function is switched off."""
OFF_SECONDS = 60.0
"""After which a function that was switched off is tried again."""
_NAME = r"[a-z][a-z0-9_]*"


class ExtensionError(Exception):
    """A package that the configuration names cannot be used; the text says what to do."""


class ExtensionFault(RuntimeError):
    """A function of a package failed, or returned something else than it declares."""


def load_extensions(
    names: Sequence[str], own: Mapping[str, Builtin], *, stopwatch: Callable[[], float] | None
) -> dict[str, Builtin]:
    """Return the functions of installed packages, guarded.

    Args:
        names: of their entry points.
        own: the functions that are built in; no other may have their names.
        stopwatch: returns seconds; None: no function is switched off because it is slow.

    Raises:
        ExtensionError: a package is not installed or not usable.
    """
    if not names:
        return {}
    from importlib.metadata import entry_points  # 30 ms with what it needs

    installed = entry_points(group=GROUP)
    found: dict[str, Builtin] = {}
    for name in names:
        point = next((each for each in installed if each.name == name), None)
        if point is None:
            known = ", ".join(sorted({each.name for each in installed})) or "none"
            raise ExtensionError(
                f"extension {name}: no installed package has this entry point of the group {GROUP}; installed: {known}."
                f" Install the package for {_python()}"
            )
        for function in _functions(point):
            if function.name in own or function.name in found:
                raise ExtensionError(f"extension {name}: a function `{function.name}` is there already; rename it")
            found[function.name] = guarded(function, extension=name, stopwatch=stopwatch)
    return found


def _python() -> str:
    return "the Python that runs the scheduler and policyctl"


def _functions(point: EntryPoint) -> Iterable[Builtin]:
    try:
        module = point.load()
    except Exception as error:
        raise ExtensionError(f"extension {point.name}: cannot import {point.value}: {_shown(error)}") from error
    if not isinstance(module, ModuleType):
        raise ExtensionError(f"extension {point.name}: expected {point.value} to be a module")
    functions = [value for value in vars(module).values() if isinstance(value, Builtin)]
    if not functions:
        raise ExtensionError(
            f"extension {point.name}: {point.value} defines no functions with the decorator `builtin` of"
            " kube_policy_scheduler.lang.signature"
        )
    for function in functions:
        if not re.fullmatch(_NAME, function.name):
            raise ExtensionError(f"extension {point.name}: expected a name in lower case, got `{function.name}`")
        if not function.doc:
            raise ExtensionError(f"extension {point.name}: `{function.name}` needs a docstring; it is the manual")
    return functions


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def guarded(function: Builtin, *, extension: str, stopwatch: Callable[[], float] | None) -> Builtin:
    """Return a function whose mistakes are errors with its name, and which is switched off while it is slow.

    Args:
        function: of a package.
        extension: the name of its entry point.
        stopwatch: returns seconds; None: it is never switched off.
    """
    guard = _Guard(function, f"function `{function.name}` of extension {extension}", stopwatch or _no_time)
    return msgspec.structs.replace(function, kernel=guard.staged if function.staged else guard.call)


def _no_time() -> float:
    return 0.0


def untrained(function: Builtin) -> Builtin:
    """Return a function of a trained model as it is before the model is: any name is one, and the result is missing."""
    parameters = tuple(
        msgspec.structs.replace(each, takes=msgspec.structs.replace(each.takes, prepare=None))
        for each in function.parameters
    )
    words = msgspec.structs.replace(function.words, problem=None)
    return msgspec.structs.replace(function, parameters=parameters, words=words, kernel=lambda *given: np.nan)


def calls_without_value(functions: Iterable[Builtin]) -> dict[tuple[str, str], int]:
    """Return how often functions of packages gave no value so far, by name and reason: `failed`, `unavailable`."""
    guards = [
        (function.name, kernel.__self__)
        for function in functions
        if isinstance(kernel := function.kernel, MethodType) and isinstance(kernel.__self__, _Guard)
    ]
    failed = {(name, "failed"): guard.failed for name, guard in guards}
    return failed | {(name, "unavailable"): guard.unavailable for name, guard in guards}


class _Guard(msgspec.Struct):
    """Calls one function."""

    function: Builtin
    what: str
    stopwatch: Callable[[], float]
    slow: int = 0
    off_until: float = 0.0
    failed: int = 0
    """Calls that ended with an error."""
    unavailable: int = 0
    """Calls for which there was no value."""

    def staged(self, *constants: Any) -> Callable[[Any], Any]:
        """Prepare the function with its constants; return what evaluates a frame."""
        try:
            kernel = self.function.kernel(*constants)
        except ValueError:
            raise  # about the constants: checking shows it at its place
        except Exception as error:
            raise ExtensionFault(f"{self.what} failed: {_shown(error)}") from error
        return lambda frame: self._timed(kernel, (frame,), reads_frame=True)

    def call(self, *given: Any) -> Any:
        """Return what the function returns, as the language needs it."""
        return self._timed(self.function.kernel, given, reads_frame=self.function.reads_frame)

    def _timed(self, kernel: Callable[..., Any], given: tuple[Any, ...], *, reads_frame: bool) -> Any:
        began = self.stopwatch()
        may_be_missing = self.function.gives.maybe and self.function.gives.kind in (Kind.NUMBER, Kind.TEXT)
        if self.slow >= MOST_SLOW and began < self.off_until:
            if may_be_missing:
                return self._missing()
            raise ExtensionFault(
                f"{self.what} is off for {OFF_SECONDS:g} s: {MOST_SLOW} calls in a row took more than"
                f" {1000 * SLOW_SECONDS:g} ms"
            )
        try:
            result = kernel(*given)
        except Unavailable:
            if not may_be_missing:
                self.failed += 1
                raise self._wrong("a value, as its signature says", None) from None
            result = self._missing()
        except OutOfTurn:  # it is asked again
            raise
        except Exception as error:
            self.failed += 1
            raise ExtensionFault(f"{self.what} failed: {_shown(error)}") from error
        ended = self.stopwatch()
        self.slow = self.slow + 1 if ended - began > SLOW_SECONDS else 0
        self.off_until = ended + OFF_SECONDS
        arrays = [value for value in given if isinstance(value, np.ndarray)]
        size = given[0].size if reads_frame else len(arrays[0]) if arrays else None
        return self._checked(result, size, arrays)

    def _missing(self) -> float | None:
        self.unavailable += 1
        return np.nan if self.function.gives.kind is Kind.NUMBER else None

    def _checked(self, result: Any, size: int | None, given: Sequence[Any]) -> Any:
        match self.function.gives.kind:
            case Kind.NUMBER:
                return self._number(result, size, given)
            case Kind.TRUTH:
                return self._truth(result, size)
            case Kind.TEXT:
                if isinstance(result, str | Texts) or (result is None and self.function.gives.maybe):
                    return result
                raise self._wrong("a text", result)
            case _:
                return result

    def _number(self, result: Any, size: int | None, given: Sequence[Any]) -> Any:
        if isinstance(result, int | float | np.number) and not isinstance(result, bool):
            value = float(result)
            if value - value != 0 and not (value != value and (self.function.gives.maybe or given)):
                raise self._wrong("a finite number", result)
            return value
        if not isinstance(result, np.ndarray) or result.dtype.kind not in "fiu" or result.shape != (size,):
            raise self._wrong("a number" if size is None else f"a number, or numbers of shape ({size},)", result)
        column = result.astype(np.float64, copy=False)
        bad = ~np.isfinite(column)
        if bad.any():
            missing = np.isnan(column)
            if not self.function.gives.maybe:
                absent = [np.isnan(each) for each in given if each.dtype.kind == "f" and each.shape == column.shape]
                missing &= np.logical_or.reduce(absent) if absent else np.zeros(len(column), np.bool_)
            if (bad & ~missing).any():
                count = int((bad & ~missing).sum())
                raise ExtensionFault(f"{self.what} returned {plural(count, 'infinite or missing value')}")
        return column

    def _truth(self, result: Any, size: int | None) -> Any:
        if isinstance(result, bool | np.bool_):
            return bool(result)
        if isinstance(result, np.ndarray) and result.dtype == np.bool_ and result.shape == (size,):
            return result
        raise self._wrong("true or false" if size is None else f"true or false, or those of shape ({size},)", result)

    def _wrong(self, expected: str, result: Any) -> ExtensionFault:
        shown = f"{result.dtype} of shape {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
        return ExtensionFault(f"{self.what}: expected {expected}, got {shown}")
