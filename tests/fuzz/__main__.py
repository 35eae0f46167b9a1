"""`python -m tests.fuzz --minutes 10`: texts that nobody would write, until the time is over.

Half of the time goes to random policies (Hypothesis), half to what covers new code (Atheris, where it is installed).
Ends with 0 if every text got an answer, else with 1 and the smallest text found for each place that failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.examination import examine
from tests.fuzz.findings import Finding, Findings
from tests.fuzz.sensible import sensible
from tests.lang.strategies import mutated, programs, soups

ROOT = Path(__file__).parents[2]
LONGEST = 4096
"""Bytes of a text; what is longer finds nothing else and takes longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="do again what a run did that printed this seed")
    parser.add_argument("--only", choices=["random", "guided"], default=None)
    parser.add_argument("file", nargs="?", type=Path, help="examine this one text and end")
    given_ = parser.parse_args()
    if given_.file is not None:
        examine(given_.file.read_bytes().decode("utf-8", errors="replace"))
        return 0
    chosen = given_.seed if given_.seed is not None else time.time_ns() % 2**31
    print(f"seed {chosen}", flush=True)
    guided = given_.only != "random" and importlib.util.find_spec("atheris") is not None
    if given_.only != "random" and not guided:
        print("atheris is not installed (pip install atheris): random texts only")
    seconds = given_.minutes * 60 / (2 if guided and given_.only is None else 1)
    findings = Findings(examine)
    if given_.only != "guided":
        random_texts(findings, seconds=seconds, first_seed=chosen)
    if guided:
        guided_texts(findings, seconds=seconds, first_seed=chosen)
    for finding in findings.found.values():
        show(findings.smaller(finding, seconds=20))
    print(f"{len(findings.found)} findings")
    return 1 if findings.found else 0


def corpus() -> list[str]:
    """Return all policies of the repository, also those that are broken on purpose."""
    paths = [path for folder in ("policies", "tests") for path in sorted((ROOT / folder).rglob("*.policy"))]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


@st.composite
def spliced(draw: st.DrawFn, texts: list[str]) -> str:
    """Lines of the repository's policies, with words of one in another."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    chosen = [draw(st.sampled_from(lines)) for _ in range(draw(st.integers(1, 4)))]
    for at, line in enumerate(chosen):
        words = re.findall(r'"[^"]*"|\w+|\s+|.', line)
        if draw(st.booleans()) and words:
            other = re.findall(r'"[^"]*"|\w+|\s+|.', draw(st.sampled_from(lines)))
            place, start = draw(st.integers(0, len(words))), draw(st.integers(0, len(other)))
            words[place : place + draw(st.integers(0, 2))] = other[start : start + draw(st.integers(0, 8))]
            chosen[at] = "".join(words)
    return "\n".join(chosen)


def random_texts(findings: Findings, *, seconds: float, first_seed: int) -> None:
    """Examine random texts; they depend on nothing but the seed and the corpus."""
    kinds = [
        sensible(),
        sensible(),
        spliced(corpus() or ["filter node.ready"]),
        programs(),
        mutated(),
        soups(),
        st.text(),
    ]
    end = time.monotonic() + seconds
    warnings.simplefilter("ignore")
    round_ = 0
    while time.monotonic() < end:

        @seed(first_seed + round_)
        @settings(
            max_examples=100,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(kinds[round_ % len(kinds)])
        def examined(text: str) -> None:
            if time.monotonic() < end:
                findings.look_at(text)

        examined()
        round_ += 1
    print(f"random: {findings.examined:,} texts, {len(findings.found)} findings", flush=True)


def guided_texts(findings: Findings, *, seconds: float, first_seed: int) -> None:
    """Let Atheris look for texts; it ends at its first finding and is then started again."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        seeds, words, crash = Path(folder, "corpus"), Path(folder, "words"), Path(folder, "crash-")
        seeds.mkdir()
        for at, text in enumerate(corpus()):
            (seeds / f"{at:04}").write_text(text[:LONGEST], encoding="utf-8")
        grammar = (ROOT / "grammar" / "policy.lark").read_text(encoding="utf-8")
        known = sorted({word for word in re.findall(r"[a-z]{2,}", grammar) if len(word) < 12})
        words.write_text("".join(f'"{word} "\n' for word in known), encoding="utf-8")
        runs = 0
        while (left := int(end - time.monotonic())) > 5:
            command = [
                sys.executable, "-m", "tests.fuzz.guided", str(seeds), f"-dict={words}", f"-artifact_prefix={crash}",
                f"-max_total_time={left}", f"-max_len={LONGEST}", f"-seed={first_seed + runs}", "-timeout=30",
                "-print_final_stats=1", "-verbosity=0",
            ]  # fmt: skip
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
            runs += 1
            crashes = list(Path(folder).glob("crash-*"))
            if ended.returncode == 0 or not crashes:
                break
            for path in crashes:
                findings.look_at(path.read_bytes().decode("utf-8", errors="replace"))
                path.unlink()
        stats = re.findall(r"stat::(number_of_executed_units|new_units_added):\s*(\d+)", ended.stderr + ended.stdout)
        print(f"guided: {runs} runs, {dict(stats)}", flush=True)
        if ended.returncode and not crashes:
            print(ended.stderr[-3000:])
            raise SystemExit("atheris could not run")


def show(finding: Finding) -> None:
    print(f"\n=== {finding.place}\n{finding.text!r}\n")
    print(finding.text)
    traceback.print_exception(finding.error, limit=-4)


if __name__ == "__main__":
    sys.exit(main())
