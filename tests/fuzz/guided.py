"""Fuzzing that follows what the engine's code does with a text (Atheris, libFuzzer). Run by `python -m tests.fuzz`.

python -m tests.fuzz.guided TARGET [libFuzzer's arguments]
"""

from __future__ import annotations

import sys
from random import Random

from tests.fuzz.followed import FOLLOWED
from tests.fuzz.mutation import mutated

BYTEWISE = 0.3
"""Of the changes: libFuzzer's own, which know nothing of JSON but learn what covers new code."""


def main() -> None:
    """Run until the time in libFuzzer's own arguments is over; a finding ends it with a traceback."""
    import atheris

    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=FOLLOWED[name]):
        from tests.fuzz.targets import targets

        target = targets()[name]
    seeds = [seed[: target.longest] for seed in target.seeds()]

    def change(data: bytes, longest: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < BYTEWISE:
            changed: bytes = atheris.Mutate(data, longest)
            return changed
        return mutated(data or rng.choice(seeds), seeds, rng)[:longest]

    atheris.Setup(sys.argv, target.examine, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
