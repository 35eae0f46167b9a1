"""`python -m tests.quotas --cases 10000`: random cases of quotas, run by the scheduler and checked by the model.

Each violated invariant is counted, and its first cases are made as small as they get. A case is replayed by its seed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.quotas.invariants import Finding, at_rest, violations
from tests.quotas.model import Case, Model
from tests.quotas.product import TooLongError, policy_text, run
from tests.quotas.random_cases import random_case, varied_case
from tests.quotas.shrinking import shrunk, write
from tests.quotas.trace import Trace

PROGRESS_EVERY = 500
PATIENT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a case."""

    seed: int
    findings: tuple[Finding, ...] = ()
    evicted: int = 0
    most_at_once: int = 0
    """Evictions between two changes from outside, at most."""
    expected: int = 0
    """Evictions in the model."""
    differs: bool = False
    """Whether queues use otherwise in the end than in the model: the rules may leave both open."""
    rules: Counter[str] = field(default_factory=Counter)


def findings(case: Case) -> list[Finding]:
    """Return what is wrong with a run of the scheduler."""
    try:
        trace = run(case)
        return [*violations(case, trace), *_at_rest(case, trace)]
    except TooLongError as error:
        return [Finding("13 no end", str(error))]


def _at_rest(case: Case, trace: Trace) -> list[Finding]:
    """Return what is still to be done in the end, after as much time as whatever waits for time may take."""
    found = list(at_rest(case, trace))
    if not found:
        return []
    trace = run(case, settles=PATIENT_SECONDS)
    return list(at_rest(case, trace))


def check(seed: int, *, plain: bool = False) -> Checked:
    """Run one case. plain: without budgets and backfill."""
    case = random_case(seed) if plain else varied_case(seed)
    try:
        trace = run(case)
        found = (*violations(case, trace), *_at_rest(case, trace))
    except TooLongError as error:
        return Checked(seed, (Finding("13 no end", str(error)),))
    except Exception as error:  # whatever it is, the others are run, too
        return Checked(seed, (Finding(f"0 {type(error).__name__}", str(error)[-300:]),))
    expected = Model(case).run()
    by_change = Counter[int]()
    for step in trace.evictions:
        by_change[step.changes] += len(step.victims)
    uses = [
        {queue.name: [state.used(queue.name, r) for r in state.counted] for queue in case.queues}
        for state in (trace.last, expected.last)
    ]
    return Checked(
        seed,
        found,
        trace.evicted.total(),
        max(by_change.values(), default=0),
        expected.evicted.total(),
        uses[0] != uses[1],
    )


def breaks(case: Case, invariant: str) -> bool:
    """Return whether a case breaks an invariant."""
    if not case.arrivals:
        return False
    try:
        return any(finding.invariant == invariant for finding in findings(case))
    except Exception as error:
        return invariant == f"0 {type(error).__name__}"


def main(arguments: Sequence[str]) -> int:
    """Run the cases; return 1 if an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.quotas", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, help="the first one; with no --cases, only this one is run, and shown")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without PodDisruptionBudgets and backfill")
    parser.add_argument("--out", type=Path, help="a folder for the smallest failing cases")
    parser.add_argument("--each", type=int, default=2, help="how many cases of each invariant are made small")
    options = parser.parse_args(arguments)
    first = options.seed or 0
    broken: dict[str, list[int]] = {}
    checked = list[Checked]()
    with ProcessPoolExecutor(options.workers) as pool:
        for result in pool.map(partial(check, plain=options.plain), range(first, first + options.cases), chunksize=10):
            checked.append(result)
            for invariant in {finding.invariant for finding in result.findings}:
                broken.setdefault(invariant, []).append(result.seed)
            if len(checked) % PROGRESS_EVERY == 0:
                print(f"{len(checked)} cases, {sum(bool(each.findings) for each in checked)} fail", flush=True)
    _summary(checked, broken)
    for invariant, seeds in sorted(broken.items()):
        for seed in seeds[: options.each]:
            _show(invariant, random_case(seed) if options.plain else varied_case(seed), seed, options.out)
    return 1 if broken else 0


def _summary(checked: Sequence[Checked], broken: dict[str, list[int]]) -> None:
    evicting = [each for each in checked if each.evicted]
    print(f"{len(checked)} cases from seed {checked[0].seed}: {sum(bool(each.findings) for each in checked)} fail")
    total, expected = sum(each.evicted for each in checked), sum(each.expected for each in checked)
    print(f"evictions: {total} in {len(evicting)} cases ({expected} in the model), at most")
    most = max(checked, key=lambda each: each.most_at_once)
    print(f"{most.most_at_once} until rest after one change (seed {most.seed})")
    print(f"use at the end is otherwise than the model's in {sum(each.differs for each in checked)} cases")
    for invariant, seeds in sorted(broken.items(), key=lambda item: -len(item[1])):
        print(f"{len(seeds):6} {invariant}: seeds {seeds[:8]}")


def _show(invariant: str, found_in: Case, seed: int, out: Path | None) -> None:
    case = shrunk(found_in, partial(breaks, invariant=invariant))
    found = [str(each) for each in findings(case)]
    expected = Model(case).run()
    wants = {queue.name: {r: expected.last.used(queue.name, r) for r in expected.last.counted} for queue in case.queues}
    notes = "\n".join(
        [f"invariant {invariant}, seed {seed}", *found, f"the model: {wants}", f"evicted {dict(expected.evicted)}", ""]
    )
    print(f"\n{policy_text(case)}{notes}")
    if out is not None:
        slug = "-".join("".join(c if c.isalnum() else " " for c in invariant).split())
        write(case, out / f"{slug}-{seed}", notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
