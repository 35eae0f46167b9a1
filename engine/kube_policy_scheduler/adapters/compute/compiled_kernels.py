"""Loops over all nodes, compiled by numba where it is installed: the extra `fast`. The only module that knows numba.

NumPy passes over every column several times. A loop that looks at each node once is about eight times as fast for pods
whose requests were never seen before. The plugins in `framework.plugins` say what the results are, in NumPy: these are
equal bit by bit.

The functions below run in plain Python, too, slowly. Compiled, they wrap around like int64 in NumPy.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.adapters.process.freed_memory import return_code

logger = logging.getLogger(__name__)

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Hashes: TypeAlias = NDArray[np.uint64]

NODES_FOR_KERNELS = 1_000
"""With fewer nodes NumPy is as fast, and numba's 100 MB are not worth it."""
LEAST_NUMBA = (0, 61)
"""As in pyproject.toml."""
LEAST_ALLOCATED, MOST_ALLOCATED = 1, 2
_BLOCK = 512
"""Rows for which each step runs before the next: the columns of so many stay in the processor's first cache."""
_COMPILER = "libllvmlite"
"""The file with LLVM: nobody needs its code, 52 MB, once the loops are compiled."""
_LONGEST_REASON = 200
"""Characters of numba's message in the log and on the status page."""
_CHECKED_COLUMNS = (
    *((0, 20), (110, 0)),
    *((4_000, 500), (1 << 34, 1 << 30)),
    *((100, 480), (1 << 28, 1 << 29)),
    *((200, 480), (1 << 29, 1 << 29)),
)
"""First value and step of the columns for the check after compiling: pods, their limit; cpu and memory offered,
requested, and requested with the defaults of scores."""
_LARGEST = 2**63 - 1
_MOST_EXACT_REAL = 2**45
"""As in `resource_scores`: below it, percents are exact in floating point."""
_MOST_CONVERTED = 2**52 - 1
_EXPONENT = 0x433 << 52
_TWO_52 = float(2**52)
"""An integer from 0 to `_MOST_CONVERTED` is the fraction of a double between 2**52 and 2**53. Most processors convert
whole vectors only that way."""
_MARGIN = 2**-10
"""Percents in single precision are off by less than a tenth of it: one below 100 has 17 bits after the point."""
_MOST_WHOLE = 2**22
"""Whole numbers below it, and sums of a few of them, are exact in single precision."""
_BOUNDED_ROWS = 128
"""Rows of one block of bounds."""


class CompiledKernels(msgspec.Struct, frozen=True):
    """What `framework.decide.accelerator` describes as `Kernels`."""

    score_resources: Callable[..., None]
    combine: Callable[..., int]
    write: Callable[..., None]
    add_up: Callable[..., tuple[int, int]]
    follow: Callable[..., tuple[int, int]]
    rank: Callable[..., None]
    recount: Callable[..., tuple[int, int]]
    choose: Callable[..., tuple[int, float, int]]
    compare_domains: Callable[..., tuple[float, int]]
    derive_shares: Callable[..., None]
    bound_totals: Callable[..., int]


class Numba(msgspec.Struct, frozen=True):
    """What is installed of numba."""

    version: str
    """"" if it is not installed."""
    problem: str
    """Why it cannot be used, "" if it can."""

    @property
    def text(self) -> str:
        """Return both in words."""
        return self.problem or f"numba {self.version}"


class LoadedKernels(msgspec.Struct, frozen=True):
    """The compiled kernels, or why there are none."""

    kernels: CompiledKernels | None
    text: str
    """In words, for the log and the status page."""


def find_numba() -> Numba:
    """Look for numba without importing it, which takes half a second."""
    from importlib import metadata  # a start does without

    try:
        version = metadata.version("numba")
    except metadata.PackageNotFoundError:
        return Numba("", "numba is not installed (extra `fast`)")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < LEAST_NUMBA:
        least = ".".join(map(str, LEAST_NUMBA))
        return Numba(version, f"numba {version} is too old: install {least} or newer (extra `fast`)")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Numba(version, "the environment variable NUMBA_DISABLE_JIT turns them off")
    return Numba(version, "")


@cache
def compile_kernels() -> LoadedKernels:
    """Compile the loops, or read them from numba's cache; return the reason if that is not possible.

    It takes seconds of one core the first time. NUMBA_CACHE_DIR names another directory for the cache. Log in one line
    what the scheduler uses.
    """
    began = time.perf_counter()
    found = find_numba()
    try:
        kernels = _load() if not found.problem else None
        problem = found.problem
    except Exception as error:  # numba has many kinds of errors, and the scheduler works without it
        kernels, problem = None, f"numba {found.version} failed: {type(error).__name__}: {_first_line(error)}"
        logger.debug("numba failed", exc_info=True)
    return_code(_COMPILER)
    if kernels is not None:
        text = f"numba {found.version}, loaded in {time.perf_counter() - began:.1f} s"
        logger.info("compiled kernels are in use: %s", text)
        return LoadedKernels(kernels, text)
    level = logging.WARNING if found.version else logging.INFO
    logger.log(level, "compiled kernels are not in use, the scheduler uses NumPy: %s", problem)
    return LoadedKernels(None, problem)


@cache
def compile_loop(loop: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """Compile another loop, or read it from numba's cache; None if that is not possible."""
    if find_numba().problem:
        return None
    try:
        import numba

        try:
            compiled: Callable[..., Any] = numba.njit(signature, error_model="numpy", cache=True)(loop)
        except RuntimeError:  # no directory for the cache is writable
            compiled = numba.njit(signature, error_model="numpy")(loop)
    except Exception:  # see `compile_kernels`
        logger.debug("numba failed", exc_info=True)
        return None
    return_code(_COMPILER)
    return compiled


def _load() -> CompiledKernels:
    import numba

    try:
        kernels = _compile(numba, on_disk=True)
    except RuntimeError:  # no directory for the cache is writable
        kernels = _compile(numba, on_disk=False)
    _check(kernels)
    return kernels


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_LONGEST_REASON] if lines else "no message"


def _check(kernels: CompiledKernels) -> None:
    """Compare the compiled loops with the same in Python, on a few rows.

    Raises:
        ValueError: they differ: a broken compiler must not decide.
    """
    columns = np.array([first + step * np.arange(8) for first, step in _CHECKED_COLUMNS])
    amounts, weights = np.array([500, 1 << 20, LEAST_ALLOCATED, 500, 1 << 20, 1, 1, 500, 1 << 20]), np.array([1.0, 2.0])
    results: list[list[Any]] = []
    plain = CompiledKernels(*_FUNCTIONS)
    for run in (kernels, plain):
        ok, totals = np.zeros(8, dtype=bool), np.zeros(8)
        run.score_resources(np.arange(0), ok, totals, columns, amounts, weights)
        some_ok, some_totals = np.zeros(8, dtype=bool), np.zeros(8)
        run.score_resources(np.array([5, 2]), some_ok, some_totals, columns, amounts, weights)
        both, sums, maxima, counts = np.zeros(8, dtype=bool), np.zeros(8), np.zeros(2), np.zeros(2, dtype=np.int64)
        passing = run.combine(ok, totals, ok[::-1].copy(), totals[::-1].copy(), both, sums, maxima, counts)
        results.append(
            [passing, *(array.tolist() for array in (ok, totals, some_ok, some_totals, both, sums, maxima, counts))]
        )
        run.write(np.array([0, 5]), np.array([-np.inf, 400.0]), sums, maxima, counts)
        results[-1] += [array.tolist() for array in (sums, maxima, counts)]
        nowhere, none = np.zeros(0, dtype=bool), np.zeros(0)
        verdicts, summands = (ok, ok[::-1].copy(), *[nowhere] * 4), (totals, sums, *[none] * 4)
        results[-1].append(run.add_up(np.array([7, 1]), both, (sums, maxima, counts), verdicts, summands))
        results[-1] += [array.tolist() for array in (both, sums, maxima, counts)]
        of_others = (both.copy(), nowhere, ok.copy()), (totals.copy(), np.ones(8), none)
        follows = columns, amounts, weights, both, (sums, maxima, counts), *of_others
        results[-1].append(run.follow(np.array([1, 6, 3]), (some_ok, some_totals), *follows))
        results[-1] += [array.tolist() for array in (some_ok, some_totals, both, sums, maxima, counts)]
        pods, held, numbers = np.arange(8, dtype=np.int32), np.full(8, -1, np.int32), np.zeros(9, np.int64)
        results[-1].append(run.recount(np.arange(8), ok, pods, held, numbers))
        results[-1].append(run.recount(np.array([6, 3]), both, pods, held, numbers))
        scores = (totals, sums[:8].copy(), *[none] * 4), totals, (held, np.arange(8.0)), sums[:8].copy()
        run.rank(np.array([6, 0]), np.arange(8)[::-1].copy(), ok, 3.0, (sums, maxima, counts), *scores)
        results[-1] += [array.tolist() for array in (held, numbers, sums, maxima, counts)]
        hashes, factor = np.arange(1, 9, dtype=np.uint64) * np.uint64(2**61 + 1), np.uint64(2**63 + 5)
        rows, top = np.arange(8), np.ones(8)
        with np.errstate(over="ignore"):
            members, sizes = np.arange(8).reshape(2, 4), np.array([4, 3])
            names = hashes, rows // 4, hashes[:2], members, sizes
            for few_blocks in (0, 2):
                results[-1].append(run.choose((sums, maxima, counts), names, factor, few_blocks))
                results[-1].append(run.choose((top, top[:1], sizes[:1]), names, factor, few_blocks))
            by_domain, in_all = (np.array([3, 1, 0, 2, 3, 2, 1, 0]), np.array([7, -2, 40, 11])), np.zeros(8)
            results[-1].append(run.compare_domains(sums[:8].copy(), np.array([0.5, 2.0]), *by_domain, 3.0, in_all))
            results[-1].append(in_all.tolist())
            whole, shares = np.zeros((8, 8), np.int64), np.zeros((7, 8), np.float32)
            run.derive_shares(rows, columns, whole, shares)
            other, bounds, highest = (np.zeros(size, np.float32) for size in (8, _BOUNDED_ROWS, 1))
            tied = np.zeros(1, np.int64)
            results[-1].append(run.bound_totals(other, top, whole, shares, amounts, weights, bounds, highest, tied))
            results[-1] += [array.tolist() for array in (whole, shares, bounds, highest, tied)]
    if results[0] != results[1]:
        raise ValueError("its results differ from those of NumPy")


def _compile(numba: Any, *, on_disk: bool) -> CompiledKernels:
    bools, ints, floats = "boolean[::1]", "int64[::1]", "float64[::1]"
    kernel = {"error_model": "numpy", "cache": on_disk}
    columns, blocks = "int64[:, ::1]", f"Tuple(({floats}, {floats}, {ints}))"
    score_resources = numba.njit(f"void({ints}, {bools}, {floats}, {columns}, {ints}, {floats})", **kernel)(
        _score_resources
    )
    answers = f"{bools}, {floats}, {bools}, {floats}"
    combine = numba.njit(f"int64({answers}, {bools}, {floats}, {floats}, {ints})", **kernel)(_combine)
    write = numba.njit(f"void({ints}, {floats}, {floats}, {floats}, {ints})", **kernel)(_write)
    six = f"UniTuple({bools}, 6), UniTuple({floats}, 6)"
    add_up = numba.njit(f"UniTuple(int64, 2)({ints}, {bools}, {blocks}, {six})", **kernel)(
        _calling(_add_up, _write=write)
    )
    own, three = f"Tuple(({bools}, {floats}))", f"UniTuple({bools}, 3), UniTuple({floats}, 3)"
    follow = numba.njit(
        f"UniTuple(int64, 2)({ints}, {own}, {columns}, {ints}, {floats}, {bools}, {blocks}, {three})", **kernel
    )(_calling(_follow, _score_resources=score_resources, _add_up=add_up))
    small = "int32[::1]"
    by_count = f"Tuple(({small}, {floats}))"
    rank = numba.njit(
        f"void({ints}, {ints}, {bools}, float64, {blocks}, UniTuple({floats}, 6), {floats}, {by_count}, {floats})",
        **kernel,
    )(_calling(_rank, _write=write))
    recount = numba.njit(f"UniTuple(int64, 2)({ints}, {bools}, {small}, {small}, {ints})", **kernel)(_recount)
    hashes, singles = "uint64[::1]", "float32[::1]"
    names = f"Tuple(({hashes}, {ints}, {hashes}, int64[:, ::1], {ints}))"
    choose = numba.njit(
        [
            f"Tuple((int64, float64, int64))(Tuple(({each}, {each}, {ints})), {names}, uint64, int64)"
            for each in (floats, singles)
        ],
        **kernel,
    )(_choose)
    compare_domains = numba.njit(
        f"Tuple((float64, int64))({floats}, {floats}, {ints}, {ints}, float64, {floats})", **kernel
    )(_compare_domains)
    table = "int64[:, ::1], float32[:, ::1]"
    derive_shares = numba.njit(f"void({ints}, {columns}, {table})", **kernel)(_derive_shares)
    pod = f"{table}, {ints}, {floats}"
    bound_totals = numba.njit(f"int64({singles}, {floats}, {pod}, {singles}, {singles}, {ints})", **kernel)(
        _bound_totals
    )
    return CompiledKernels(
        score_resources,
        combine,
        write,
        add_up,
        follow,
        rank,
        recount,
        choose,
        compare_domains,
        derive_shares,
        bound_totals,
    )


def _calling(function: Callable[..., Any], **compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with compiled ones in the place of those that it calls."""
    assert isinstance(function, FunctionType)
    same = FunctionType(function.__code__, function.__globals__ | compiled, function.__name__)
    same.__qualname__ = function.__qualname__
    return same


def _score_resources(
    rows: Ints,
    passes: Bools,
    totals: Floats,
    columns: Any,
    amounts: Ints,
    weights: Floats,
) -> None:
    """See `Kernels.score_resources`."""

    def real(whole: Any) -> Any:
        """Return an integer from 0 to `_MOST_CONVERTED` as a float."""
        return np.int64(whole | _EXPONENT).view(np.float64) - _TWO_52

    pod_counts, offered_pods, offered_cpus, offered_memories = columns[0], columns[1], columns[2], columns[3]
    requested_cpus, requested_memories, nonzero_cpus, nonzero_memories = columns[4], columns[5], columns[6], columns[7]
    fit_cpu, fit_memory, strategy = amounts[0], amounts[1], amounts[2]
    scored_cpu, scored_memory, cpu_weight, memory_weight = amounts[3], amounts[4], amounts[5], amounts[6]
    balanced_cpu, balanced_memory = amounts[7], amounts[8]
    most_cpu, most_memory = _LARGEST - balanced_cpu, _LARGEST - balanced_memory
    strategy_weight, balanced_weight = weights[0], weights[1]
    some = len(rows) > 0
    count = len(rows) if some else len(passes)
    gathered = np.empty((8, min(count, _BLOCK) if some else 0), np.int64)
    some_ok, some_totals = np.empty(gathered.shape[1], np.bool_), np.empty(gathered.shape[1])
    for start in range(0, count, _BLOCK):
        block = slice(start, min(start + _BLOCK, count))
        if some:
            number = block.stop - start
            for i in range(number):
                row = rows[start + i]
                gathered[0, i], gathered[1, i] = pod_counts[row], offered_pods[row]
                gathered[2, i], gathered[3, i] = offered_cpus[row], offered_memories[row]
                gathered[4, i], gathered[5, i] = requested_cpus[row], requested_memories[row]
                gathered[6, i], gathered[7, i] = nonzero_cpus[row], nonzero_memories[row]
            ok, total = some_ok[:number], some_totals[:number]
            pods, most_pods = gathered[0, :number], gathered[1, :number]
            cpu, memory = gathered[2, :number], gathered[3, :number]
            held_cpu, held_memory = gathered[4, :number], gathered[5, :number]
            used_cpu, used_memory = gathered[6, :number], gathered[7, :number]
        else:
            ok, total = passes[block], totals[block]
            pods, most_pods = pod_counts[block], offered_pods[block]
            cpu, memory = offered_cpus[block], offered_memories[block]
            held_cpu, held_memory = requested_cpus[block], requested_memories[block]
            used_cpu, used_memory = nonzero_cpus[block], nonzero_memories[block]
        size = len(ok)
        for i in range(size):
            ok[i] = (
                (pods[i] < most_pods[i])
                & (cpu[i] - held_cpu[i] >= fit_cpu)
                & (memory[i] - held_memory[i] >= fit_memory)
            )
        signs = np.int64(0)  # negative if one of them is
        for i in range(size):
            signs |= (cpu[i] - 1) | (memory[i] - 1) | held_cpu[i] | held_memory[i] | used_cpu[i] | used_memory[i]
            signs |= (_MOST_EXACT_REAL - 1 - cpu[i]) | (_MOST_EXACT_REAL - 1 - memory[i])
        exact = signs >= 0
        if strategy == 0:
            total[:] = 0.0
        elif exact:
            weight = float(cpu_weight + memory_weight)
            for i in range(size):
                if strategy == LEAST_ALLOCATED:
                    cpu_part = max(cpu[i] - (used_cpu[i] + scored_cpu), 0)
                    memory_part = max(memory[i] - (used_memory[i] + scored_memory), 0)
                else:
                    cpu_part = min(used_cpu[i] + scored_cpu, cpu[i])
                    memory_part = min(used_memory[i] + scored_memory, memory[i])
                cpu_score = np.floor(real(cpu_part) * 100.0 / real(cpu[i]))
                memory_score = np.floor(real(memory_part) * 100.0 / real(memory[i]))
                both = cpu_score * float(cpu_weight) + memory_score * float(memory_weight)
                total[i] = np.floor(both / weight) * strategy_weight
        else:
            for i in range(size):
                score, weights_offered = np.int64(0), np.int64(0)
                if cpu[i] != 0:
                    used = used_cpu[i] + scored_cpu
                    part = max(cpu[i] - used, 0) if strategy == LEAST_ALLOCATED else min(used, cpu[i])
                    score += part * 100 // max(cpu[i], 1) * cpu_weight
                    weights_offered += cpu_weight
                if memory[i] != 0:
                    used = used_memory[i] + scored_memory
                    part = max(memory[i] - used, 0) if strategy == LEAST_ALLOCATED else min(used, memory[i])
                    score += part * 100 // max(memory[i], 1) * memory_weight
                    weights_offered += memory_weight
                total[i] = float(score // weights_offered) * strategy_weight if weights_offered != 0 else 0.0
        if balanced_weight == 0.0:
            pass
        elif exact:
            for i in range(size):
                held = real(min(held_cpu[i], _MOST_CONVERTED)) / real(cpu[i])
                other = real(min(held_memory[i], _MOST_CONVERTED)) / real(memory[i])
                before = abs(min(held, 1.0) - min(other, 1.0)) * 0.5
                held = real(min(min(held_cpu[i], most_cpu) + balanced_cpu, _MOST_CONVERTED)) / real(cpu[i])
                other = real(min(min(held_memory[i], most_memory) + balanced_memory, _MOST_CONVERTED)) / real(memory[i])
                after = abs(min(held, 1.0) - min(other, 1.0)) * 0.5
                gain = np.trunc((after - 1.0) * -100.0) - np.trunc((before - 1.0) * -100.0)
                total[i] += (50.0 + np.floor((gain + 50.0) * 0.5)) * balanced_weight
        else:
            for i in range(size):
                before, after = 0.0, 0.0
                if cpu[i] != 0 and memory[i] != 0:
                    cpus, memories = float(max(cpu[i], 1)), float(max(memory[i], 1))
                    held, other = float(held_cpu[i]) / cpus, float(held_memory[i]) / memories
                    before = abs(min(held, 1.0) - min(other, 1.0)) * 0.5
                    held = float(min(held_cpu[i], most_cpu) + balanced_cpu) / cpus
                    other = float(min(held_memory[i], most_memory) + balanced_memory) / memories
                    after = abs(min(held, 1.0) - min(other, 1.0)) * 0.5
                gain = np.trunc((after - 1.0) * -100.0) - np.trunc((before - 1.0) * -100.0)
                total[i] += (50.0 + np.floor((gain + 50.0) * 0.5)) * balanced_weight
        if some:
            for i in range(size):
                passes[rows[start + i]], totals[rows[start + i]] = ok[i], total[i]


def _combine(
    first_ok: Bools,
    first: Floats,
    second_ok: Bools,
    second: Floats,
    ok: Bools,
    totals: Floats,
    maxima: Floats,
    counts: Ints,
) -> int:
    """See `Kernels.combine`."""
    rows, passing = len(totals) // len(maxima), 0
    for block in range(len(maxima)):
        start = block * rows
        end = max(start, min(start + rows, len(ok)))
        included, total = ok[start:end], totals[start : start + rows]
        one_ok, other_ok, one, other = first_ok[start:end], second_ok[start:end], first[start:end], second[start:end]
        for i in range(end - start):
            included[i] = one_ok[i] & other_ok[i]
        for i in range(end - start):
            passing += included[i]
        for i in range(end - start):
            total[i] = one[i] + other[i] if included[i] else -np.inf
        for i in range(end - start, rows):
            total[i] = -np.inf
        # integers in the order of the numbers: a loop over these uses whole vectors
        bits, top, unknown = total.view(np.int64), np.int64(-_LARGEST - 1), 0
        for i in range(rows):
            unknown += total[i] != total[i]
            top = max(top, bits[i] ^ ((bits[i] >> 63) & _LARGEST))
        highest, tied = np.nan, 0  # as in NumPy, NaN is higher than any number
        if unknown == 0:
            highest = np.int64(top ^ ((top >> 63) & _LARGEST)).view(np.float64)
            for i in range(rows):
                tied += total[i] == highest
        maxima[block], counts[block] = highest, tied
    return passing


def _write(rows: Ints, values: Floats, totals: Floats, maxima: Floats, counts: Ints) -> None:
    """See `Kernels.write`.

    A block whose highest total is gone has a count of 0 until the end, when it is searched. Until then no total there
    is as high as the highest one was.
    """
    size = len(totals) // len(maxima)
    for i in range(len(rows)):
        row, total = rows[i], values[i]
        before, block = totals[row], row // size
        totals[row] = total
        highest = maxima[block]
        if total != total or highest != highest:  # NaN is higher than any number
            maxima[block], counts[block] = np.nan, 0
        elif before == total:
            continue
        elif total > highest:
            maxima[block], counts[block] = total, 1
        elif total == highest:
            counts[block] += 1
        elif before == highest:
            counts[block] -= 1
    for i in range(len(rows)):
        block = rows[i] // size
        if counts[block] != 0:
            continue
        of_block = totals[block * size : (block + 1) * size]
        bits, top, unknown = of_block.view(np.int64), np.int64(-_LARGEST - 1), 0
        for j in range(size):  # see `_combine`
            unknown += of_block[j] != of_block[j]
            top = max(top, bits[j] ^ ((bits[j] >> 63) & _LARGEST))
        if unknown == 0:
            highest, tied = np.int64(top ^ ((top >> 63) & _LARGEST)).view(np.float64), 0
            for j in range(size):
                tied += of_block[j] == highest
            maxima[block], counts[block] = highest, tied
        else:
            maxima[block] = np.nan


def _add_up(rows: Ints, ok: Bools, blocks: Any, verdicts: Any, scores: Any) -> tuple[int, int]:
    """See `Kernels.add_up`."""
    totals, maxima, counts = blocks
    sums = np.empty(len(rows))
    more, turned = 0, 0
    for i in range(len(rows)):
        row, passes, total = rows[i], True, 0.0
        for verdict in verdicts:
            if len(verdict) > 0:
                passes = passes and verdict[row]
        for score in scores:
            if len(score) > 0:
                total += score[row]
        sums[i] = total if passes else -np.inf
        if passes != ok[row]:
            ok[row] = passes
            more += 1 if passes else -1
            turned += 1
    if len(totals) > 0:
        _write(rows, sums, totals, maxima, counts)
    return more, turned


def _follow(
    rows: Ints,
    own: Any,
    columns: Any,
    amounts: Ints,
    weights: Floats,
    ok: Bools,
    blocks: Any,
    verdicts: Any,
    scores: Any,
) -> tuple[int, int]:
    """See `Kernels.follow`."""
    fits, fit_scores = own
    _score_resources(rows, fits, fit_scores, columns, amounts, weights)
    nowhere, none = fits[:0], fit_scores[:0]
    all_verdicts = (verdicts[0], verdicts[1], verdicts[2], fits, nowhere, nowhere)
    return _add_up(rows, ok, blocks, all_verdicts, (scores[0], scores[1], scores[2], fit_scores, none, none))


def _rank(
    rows: Ints,
    places: Ints,
    ok: Bools,
    constant: float,
    blocks: Any,
    scores: Any,
    before: Floats,
    by_count: Any,
    after: Floats,
) -> None:
    """See `Kernels.rank`."""
    totals, maxima, counts = blocks
    numbers, by_number = by_count
    sums, written = np.empty(len(rows)), np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        row, total = rows[i], -np.inf
        if ok[row]:
            total = 0.0
            for score in scores:
                if len(score) > 0:
                    total += score[row]
            total += constant
            if len(before) > 0:
                total += before[row]
            if len(numbers) > 0:
                total += by_number[numbers[row]]
            if len(after) > 0:
                total += after[row]
        sums[i], written[i] = total, places[row] if len(places) > 0 else row
    _write(written, sums, totals, maxima, counts)


def _recount(rows: Ints, ok: Bools, counted: Any, counts: Any, numbers: Ints) -> tuple[int, int]:
    """See `Kernels.recount`."""
    for i in range(len(rows)):
        row, now = rows[i], -1
        if ok[row]:
            now = counted[row]
        before = counts[row]
        if now >= len(numbers):
            return -1, -1
        if now != before:
            counts[row] = now
            if now >= 0:
                numbers[now] += 1
            if before >= 0:
                numbers[before] -= 1
    fewest, most = 0, len(numbers) - 1
    while most > 0 and numbers[most] == 0:
        most -= 1
    while fewest < most and numbers[fewest] == 0:
        fewest += 1
    return fewest, most


def _choose(blocks: Any, names: Any, factor: Any, few_blocks: int) -> tuple[int, float, int]:
    """See `Kernels.choose`; NaN, which no row equals, is higher than any number."""
    totals, maxima, counts = blocks
    hashes, groups, group_hashes, members, sizes = names
    highest, ties, tied_blocks = maxima[0], 0, 0
    for i in range(1, len(maxima)):
        if maxima[i] > highest or maxima[i] != maxima[i]:
            highest = maxima[i]
    for i in range(len(maxima)):
        if maxima[i] == highest:
            ties += counts[i]
            tied_blocks += 1
    first, least, least_group = -1, np.uint64(0), np.uint64(0)
    if ties == 0 or highest == -np.inf:
        return first, highest, ties
    if tied_blocks > few_blocks:
        group, least_group = 0, group_hashes[0] * factor
        for i in range(1, len(group_hashes)):
            place = group_hashes[i] * factor
            if place < least_group:
                group, least_group = i, place
        for i in range(sizes[group]):
            row = members[group, i]
            if totals[row] == highest:
                place = hashes[row] * factor
                if first < 0 or place < least:
                    first, least = row, place
        if first >= 0:
            return first, highest, ties
    size = len(totals) // len(maxima)
    for block in range(len(maxima)):
        if maxima[block] != highest:
            continue
        for row in range(block * size, (block + 1) * size):
            if totals[row] == highest:
                of_group, place = group_hashes[groups[row]] * factor, hashes[row] * factor
                if first < 0 or of_group < least_group or (of_group == least_group and place < least):
                    first, least_group, least = row, of_group, place
    return first, highest, ties


def _compare_domains(
    kept: Floats, constants: Floats, domains: Ints, values: Ints, weight: float, totals: Floats
) -> tuple[float, int]:
    """See `Kernels.compare_domains`; whatever is added to -inf, it stays."""
    size = len(kept)
    lowest, highest = np.int64(_LARGEST), np.int64(-_LARGEST - 1)
    for row in range(size):
        value = values[np.uint64(domains[row])]  # not negative, which the compiler need not look at then
        lowest = min(lowest, value if kept[row] != -np.inf else np.int64(_LARGEST))
        highest = max(highest, value if kept[row] != -np.inf else np.int64(-_LARGEST - 1))
    span = float(highest - lowest) if highest > lowest else 1.0
    part, above = 100.0 if highest > lowest else 0.0, np.empty(min(size, _BLOCK))
    for start in range(0, size, _BLOCK):
        total, of_domain = totals[start : start + _BLOCK], domains[start : start + _BLOCK]
        total[:] = kept[start : start + _BLOCK]
        for constant in constants:
            for i in range(len(total)):
                total[i] += constant
        for i in range(len(total)):
            above[i] = float(values[np.uint64(of_domain[i])] - lowest)
        for i in range(len(total)):
            total[i] += np.trunc(part * (above[i] / span)) * weight
    top, unknown, ties = np.int64(-_LARGEST - 1), 0, 0
    bits = totals.view(np.int64)
    for row in range(size):  # see `_combine`
        unknown += totals[row] != totals[row]
        top = max(top, bits[row] ^ ((bits[row] >> 63) & _LARGEST))
    if unknown > 0:
        return np.nan, 0
    best = np.int64(top ^ ((top >> 63) & _LARGEST)).view(np.float64)
    for row in range(size):
        ties += totals[row] == best
    return best, ties


def _derive_shares(
    rows: Ints,
    columns: Any,
    whole: Any,
    shares: Any,
) -> None:
    """See `Kernels.derive_shares`."""
    pod_counts, offered_pods, offered_cpus, offered_memories = columns[0], columns[1], columns[2], columns[3]
    requested_cpus, requested_memories, nonzero_cpus, nonzero_memories = columns[4], columns[5], columns[6], columns[7]
    for i in range(len(rows)):
        row = rows[i]
        cpu, memory = offered_cpus[row], offered_memories[row]
        held_cpu, held_memory = requested_cpus[row], requested_memories[row]
        used_cpu, used_memory = nonzero_cpus[row], nonzero_memories[row]
        whole[0, row] = cpu - held_cpu if pod_counts[row] < offered_pods[row] else -_LARGEST - 1
        whole[1, row] = memory - held_memory
        whole[2, row], whole[3, row] = cpu, memory
        whole[4, row], whole[5, row] = held_cpu, held_memory
        whole[6, row], whole[7, row] = used_cpu, used_memory
        signs = (cpu - 1) | (memory - 1) | held_cpu | held_memory | used_cpu | used_memory
        signs |= (_MOST_EXACT_REAL - 1 - cpu) | (_MOST_EXACT_REAL - 1 - memory)
        if signs < 0:
            shares[:6, row] = np.float32(0.0)
            shares[6, row] = -np.inf
            continue
        of_cpu, of_memory = 100.0 / float(cpu), 100.0 / float(memory)
        shares[0, row], shares[1, row] = float(used_cpu) * of_cpu, float(used_memory) * of_memory
        shares[2, row], shares[3, row] = float(held_cpu) * of_cpu, float(held_memory) * of_memory
        shares[4, row], shares[5, row] = of_cpu, of_memory
        before = min(float(held_cpu) / float(cpu), 1.0) - min(float(held_memory) / float(memory), 1.0)
        shares[6, row] = np.trunc((abs(before) * 0.5 - 1.0) * -100.0)


def _bound_totals(
    other: Singles,
    first: Floats,
    whole: Any,
    shares: Any,
    amounts: Ints,
    weights: Floats,
    bounds: Singles,
    maxima: Singles,
    counts: Ints,
) -> int:
    """See `Kernels.bound_totals`.

    The scores of a row are those of its bound where no rounding could change them. Only the others are computed as in
    `_score_resources`; rows that are alike often follow each other.
    """
    strategy, cpu_weight, memory_weight = amounts[2], amounts[5], amounts[6]
    scored_cpu, scored_memory, balanced_cpu, balanced_memory = amounts[3], amounts[4], amounts[7], amounts[8]
    fit_cpu, fit_memory = max(amounts[0], -_LARGEST), max(amounts[1], -_LARGEST)
    cpu_scored, memory_scored = np.float32(scored_cpu), np.float32(scored_memory)
    cpu_balanced, memory_balanced = np.float32(balanced_cpu), np.float32(balanced_memory)
    both = np.float32(max(cpu_weight + memory_weight, 1))
    cpu_part, memory_part = np.float32(cpu_weight) / both, np.float32(memory_weight) / both
    strategy_weight, balanced_weight = np.float32(weights[0]), np.float32(weights[1])
    zero, half, fifty, hundred = np.float32(0.0), np.float32(0.5), np.float32(50.0), np.float32(100.0)
    margin, excluded, unknown = np.float32(_MARGIN), np.float32(-np.inf), np.float32(np.inf)
    sign, nothing = np.float32(1.0), zero
    if strategy == LEAST_ALLOCATED:
        sign, nothing = np.float32(-1.0), hundred
    size, rows, passing = _BOUNDED_ROWS, len(other), 0

    lower, last, of_last = np.empty(size, np.float32), np.int64(-1), 0.0
    is_first, settled, top, sure = True, False, excluded, np.int64(-1)
    while not settled:
        settled = not is_first
        for block in range(len(maxima)):
            if not is_first and (maxima[block] != top or counts[block] != 0):
                continue
            start = block * size
            end = max(start, min(start + size, rows))
            bound = bounds[start : start + size]
            written, off = (bound, margin) if is_first else (lower, -margin)
            used_cpu, used_memory = shares[0, start:end], shares[1, start:end]
            held_cpu, held_memory = shares[2, start:end], shares[3, start:end]
            of_cpu, of_memory, before = shares[4, start:end], shares[5, start:end], shares[6, start:end]
            free_cpu, free_memory, others = whole[0, start:end], whole[1, start:end], other[start:end]
            if sure >= 0:  # a row like one whose bound is its total needs no other look
                tied, unlike = 0, 0
                for i in range(size):
                    tied += bound[i] == top
                for i in range(end - start):
                    alike = (used_cpu[i] == shares[0, sure]) & (used_memory[i] == shares[1, sure])
                    alike &= (held_cpu[i] == shares[2, sure]) & (held_memory[i] == shares[3, sure])
                    alike &= (of_cpu[i] == shares[4, sure]) & (of_memory[i] == shares[5, sure])
                    unlike += (bound[i] == top) & (alike == False)  # noqa: E712
                if unlike == 0:
                    counts[block], settled = tied, False
                    continue
            for i in range(end - start):
                cpu = nothing + sign * (used_cpu[i] + cpu_scored * of_cpu[i])
                memory = nothing + sign * (used_memory[i] + memory_scored * of_memory[i])
                cpu = (cpu if cpu < hundred else hundred) + off
                memory = (memory if memory < hundred else hundred) + off
                cpu, memory = cpu if cpu > zero else zero, memory if memory > zero else zero
                mean = np.floor(cpu) * cpu_part + np.floor(memory) * memory_part
                written[i] = np.floor(mean + margin) * strategy_weight
            for i in range(end - start):
                cpu, memory = held_cpu[i] + cpu_balanced * of_cpu[i], held_memory[i] + memory_balanced * of_memory[i]
                cpu, memory = cpu if cpu < hundred else hundred, memory if memory < hundred else hundred
                gain = np.floor(hundred - abs(cpu - memory) * half + off) - before[i]
                written[i] += (fifty + np.floor((gain + fifty) * half)) * balanced_weight
            for i in range(end - start):
                fits = (free_cpu[i] >= fit_cpu) & (free_memory[i] >= fit_memory) & (others[i] > excluded)
                total = written[i] + others[i] if before[i] > excluded else unknown
                written[i] = total if fits else excluded
            for i in range(end - start, size):
                written[i] = excluded
            tied = 0
            if is_first:
                for i in range(size):
                    passing += written[i] > excluded
            else:
                unclear, settled = 0, False
                for i in range(size):
                    tied += bound[i] == top
                for i in range(size):
                    unclear += (bound[i] == top) & (lower[i] < top)
                if unclear == 0 and top < np.inf:
                    sure = start + bound.argmax()
                for i in range(size if unclear > 0 or top == np.inf else 0):
                    if bound[i] != top or (lower[i] == top and top < np.inf):
                        continue
                    row = start + i
                    different = 0 if last >= 0 else 1
                    for column in range(2, 8):
                        different += whole[column, row] != whole[column, last]
                    if different > 0:
                        last, of_last = np.int64(row), 0.0
                        cpus, memories = whole[2, row], whole[3, row]
                        if strategy != 0:
                            score, weights_offered = np.int64(0), np.int64(0)
                            if cpus != 0:
                                used = whole[6, row] + scored_cpu
                                part = max(cpus - used, 0) if strategy == LEAST_ALLOCATED else min(used, cpus)
                                score += part * 100 // max(cpus, 1) * cpu_weight
                                weights_offered += cpu_weight
                            if memories != 0:
                                used = whole[7, row] + scored_memory
                                part = max(memories - used, 0) if strategy == LEAST_ALLOCATED else min(used, memories)
                                score += part * 100 // max(memories, 1) * memory_weight
                                weights_offered += memory_weight
                            of_last = float(score // weights_offered) * weights[0] if weights_offered != 0 else 0.0
                        if weights[1] != 0.0:
                            level, was_level = 0.0, 0.0
                            if cpus != 0 and memories != 0:
                                held, beside = (
                                    float(whole[4, row]) / float(cpus),
                                    float(whole[5, row]) / float(memories),
                                )
                                was_level = abs(min(held, 1.0) - min(beside, 1.0)) * 0.5
                                held = float(min(whole[4, row], _LARGEST - balanced_cpu) + balanced_cpu) / float(cpus)
                                all_memory = min(whole[5, row], _LARGEST - balanced_memory) + balanced_memory
                                beside = float(all_memory) / float(memories)
                                level = abs(min(held, 1.0) - min(beside, 1.0)) * 0.5
                            gain = np.trunc((level - 1.0) * -100.0) - np.trunc((was_level - 1.0) * -100.0)
                            of_last += (50.0 + np.floor((gain + 50.0) * 0.5)) * weights[1]
                    exact = first[row] + of_last
                    if not abs(exact) < _MOST_WHOLE:
                        return -1
                    bound[i] = np.float32(exact)
                    tied -= exact != top
            counts[block] = tied
            if tied == 0:
                bits, highest, mask = bound.view(np.int32), np.int32(-(2**31)), np.int32(2**31 - 1)
                for i in range(size):  # see `_combine`
                    highest = max(highest, bits[i] ^ ((bits[i] >> np.int32(31)) & mask))
                maxima[block] = np.int32(highest ^ ((highest >> np.int32(31)) & mask)).view(np.float32)
        top = maxima[0]
        for block in range(1, len(maxima)):
            top = max(top, maxima[block])
        if is_first:
            is_first, settled = False, passing == 0
    return passing


_FUNCTIONS = (
    _score_resources,
    _combine,
    _write,
    _add_up,
    _follow,
    _rank,
    _recount,
    _choose,
    _compare_domains,
    _derive_shares,
    _bound_totals,
)
