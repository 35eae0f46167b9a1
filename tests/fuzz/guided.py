"""Fuzzing that follows what the engine's code does with a text (Atheris, libFuzzer). Run by `python -m tests.fuzz`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run until the time in libFuzzer's own arguments is over; a finding ends it with a traceback."""
    import atheris

    with atheris.instrument_imports(include=["engine.lang", "engine.lint", "engine.policy", "engine.builtins"]):
        from tests.fuzz.examination import examine

    def look_at(data: bytes) -> None:
        examine(data.decode("utf-8", errors="replace"))

    atheris.Setup(sys.argv, look_at)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
