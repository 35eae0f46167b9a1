"""Fuzzes every parser of untrusted input until the time is over.

Atheris, where it is installed (pip install atheris), follows what a text makes the code do; without it texts are
changed at random. Policies get half of their time from Hypothesis, which writes such as mean something. Ends with 0 if
every text was understood or refused in time, else with 1 and the smallest text found for each place that failed.
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
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.findings import Finding, Findings
from tests.fuzz.mutation import mutated
from tests.fuzz.sensible import sensible
from tests.fuzz.targets import ROOT, Target, policy_texts, targets
from tests.lang.strategies import mutated as mutated_policies
from tests.lang.strategies import programs, soups

EXAMPLES = """examples:
  python -m tests.fuzz                          ten minutes for each parser
  python -m tests.fuzz yaml reviews --minutes 1
  python -m tests.fuzz yaml --file crash.yaml   examine this one text
"""


def main() -> int:
    known = targets()
    listed = "\n".join(f"  {target.name:12} {target.what}" for target in known.values())
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        epilog=f"parsers:\n{listed}\n\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="*", metavar="PARSER", help="which parsers; all of them by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each parser")
    parser.add_argument("--seed", type=int, default=None, help="do again what a run did that printed this seed")
    parser.add_argument("--only", choices=["random", "guided"], default=None)
    parser.add_argument("--file", type=Path, help="examine this one text and end")
    given_ = parser.parse_args()
    if unknown := [name for name in given_.target if name not in known]:
        parser.error(f"unknown parser {unknown[0]}; there are: {', '.join(known)}")
    chosen = [known[name] for name in given_.target or known]
    if given_.file is not None:
        for target in chosen:
            target.examine(given_.file.read_bytes())
        return 0
    first_seed = given_.seed if given_.seed is not None else time.time_ns() % 2**31
    print(f"seed {first_seed}", flush=True)
    guided = given_.only != "random" and importlib.util.find_spec("atheris") is not None
    if given_.only == "guided" and not guided:
        raise SystemExit("atheris is not installed: pip install atheris")
    if given_.only is None and not guided:
        print("atheris is not installed (pip install atheris): random texts only")
    found = 0
    for target in chosen:
        findings = Findings(target.examine)
        seconds = given_.minutes * 60
        if guided and target.name == "policies" and given_.only is None:
            seconds /= 2
        if not guided or (target.name == "policies" and given_.only is None):
            chance = random_policies if target.name == "policies" else random_texts
            chance(target, findings, seconds, first_seed)
        if guided:
            guided_texts(target, findings, seconds, first_seed)
        for finding in findings.found.values():
            show(target, findings.smaller(finding, seconds=20))
        found += len(findings.found)
    print(f"{found} findings")
    return 1 if found else 0


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


def random_policies(target: Target, findings: Findings, seconds: float, first_seed: int) -> None:
    """Examine random policies; they depend on nothing but the seed and the repository's policies."""
    kinds = [
        sensible(),
        sensible(),
        spliced(policy_texts() or ["filter node.ready"]),
        programs(),
        mutated_policies(),
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
                findings.look_at(text.encode("utf-8", errors="replace"))

        examined()
        round_ += 1
    print(f"{target.name}: random: {findings.examined:,} texts, {len(findings.found)} findings", flush=True)


def random_texts(target: Target, findings: Findings, seconds: float, first_seed: int) -> None:
    """Examine texts changed at random; they depend on nothing but the seed and the texts to begin with."""
    rng, seeds = Random(first_seed), list(target.seeds())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = mutated(text, seeds, rng)[: target.longest]
        findings.look_at(text)
    print(f"{target.name}: random: {findings.examined:,} texts, {len(findings.found)} findings", flush=True)


def guided_texts(target: Target, findings: Findings, seconds: float, first_seed: int) -> None:
    """Let Atheris look for texts; it ends at its first finding and is then started again."""
    end = time.monotonic() + seconds
    runs, units, covered = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        seeds, words = Path(folder, "corpus"), Path(folder, "words")
        seeds.mkdir()
        for at, text in enumerate(target.seeds()):
            (seeds / f"{at:04}").write_bytes(text[: target.longest])
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words()), encoding="utf-8")
        # libFuzzer refuses to start with a dictionary that is empty
        dictionary = [f"-dict={words}"] if words.stat().st_size else []
        while (left := int(end - time.monotonic())) > 5:
            command = [
                sys.executable, "-m", "tests.fuzz.guided", target.name, str(seeds), *dictionary,
                f"-artifact_prefix={folder}/crash-", f"-max_total_time={left}", f"-max_len={target.longest}",
                f"-seed={first_seed + runs}", "-timeout=30", "-rss_limit_mb=2048", "-print_final_stats=1",
                "-reload=0",
            ]  # fmt: skip
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
            runs += 1
            told = ended.stderr + ended.stdout
            units += sum(int(count) for count in re.findall(r"stat::number_of_executed_units:\s*(\d+)", told))
            covered = max([covered, *(int(count) for count in re.findall(r"\bcov: (\d+)", told))])
            crashes = [path for path in Path(folder).glob("crash-*") if path.is_file()]
            if ended.returncode == 0:
                break
            if not crashes:
                print(told[-3000:])
                raise SystemExit("atheris could not run")
            for path in crashes:
                if findings.look_at(path.read_bytes()):  # too much memory, or a fault that Python does not see
                    findings.note(path.read_bytes(), told[-2000:])
                path.unlink()
            if runs > MOST_RUNS:
                break
    print(
        f"{target.name}: guided: {units:,} texts in {runs} runs, {covered:,} edges covered, "
        f"{len(findings.found)} findings",
        flush=True,
    )


MOST_RUNS = 200
"""Of Atheris, which ends at each finding, also at one that is known."""


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')


def show(target: Target, finding: Finding) -> None:
    print(f"\n=== {target.name}: {finding.place}\n{finding.data!r}\n")
    traceback.print_exception(finding.error, limit=-6)


if __name__ == "__main__":
    sys.exit(main())
