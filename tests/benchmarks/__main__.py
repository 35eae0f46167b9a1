"""`python -m tests.benchmarks`: measure, print tables, write JSON and a chart to build/benchmarks/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks.changes import measure_changes
from tests.benchmarks.chart import svg
from tests.benchmarks.clauses import measure_clauses
from tests.benchmarks.decisions import measure, start
from tests.benchmarks.end_to_end.__main__ import BESIDE_KUBE_SCHEDULER
from tests.benchmarks.end_to_end.__main__ import main as end_to_end
from tests.benchmarks.end_to_end.beside import main as beside
from tests.benchmarks.end_to_end.processes import end_in_order, schedulers
from tests.benchmarks.growth import curves
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.reference import Reference
from tests.benchmarks.reload import measure_reload
from tests.benchmarks.report import Results, missed, show, slower, store_baseline
from tests.benchmarks.scale.__main__ import main as scale
from tests.benchmarks.startup import measure_start
from tests.benchmarks.workloads import WORKLOADS

PARTS = ("decisions", "clauses", "changes", "start", "memory", "reload", "growth", "end-to-end")
ASKED_FOR = ("beside",)
"""Parts that run only where they are named: they need a real control plane and kube-scheduler."""
NODES = (100, 1_000, 5_000, 20_000)
_END_TO_END = ("--nodes", "1000", "--rate", "50", "--rate", "100", "--seconds", "5")
"""What is short enough for every run; where the part is named, a real control plane gets scheduler_perf's numbers."""


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 where `--check` finds something slower, or a goal missed."""
    if "--scale" in arguments:
        return scale([argument for argument in arguments if argument != "--scale"])
    options = _parser().parse_args(arguments)
    reference = Reference()
    console = Console(width=150) if not sys.stdout.isatty() else Console()
    results = Results(turn_us=reference.seconds() * 1e6)
    parts = options.part or (["clauses"] if options.clause else ["decisions"] if options.only else PARTS)
    if "decisions" in parts:
        _decisions(results, reference, options)
    if "clauses" in parts:
        _say("clauses")
        results.clauses += measure_clauses(reference, only=options.clause or ())
    if "changes" in parts:
        for nodes in (5_000, 20_000):
            _say(f"changes, {nodes:,} nodes")
            results.changes += measure_changes(reference, nodes=nodes)
    if "start" in parts:
        for pods in (10_000, 50_000):
            _say(f"start with {pods:,} pods")
            results.starts.append(measure_start(reference, nodes=5_000, pods=pods))
    if "memory" in parts:
        _say("memory")
        results.memory.append(measure_memory(nodes=5_000, pods=50_000))
    if "reload" in parts:
        for policies, clauses, changed in ((1, 20, 1), (100, 4, 100), (100, 20, 100), (100, 20, 1)):
            _say(f"reload {policies} × {clauses} clauses, {changed} changed")
            reload = measure_reload(reference, policies=policies, clauses=clauses, changed=changed)
            results.reloads.append(reload)
    if "growth" in parts:
        _say("growth")
        results.growth += curves(reference, at_least=2_000 if options.long else 300)
    _say("")
    show(results, console)
    _write(results, options.out)
    if options.store:
        store_baseline(results)
    problems = [*missed(results), *slower(results)]
    for problem in problems:
        console.print(problem)
    went_wrong = "end-to-end" in parts and end_to_end(["--out", str(options.out), *_end_to_end(options, console)])
    if "beside" in parts:
        beside(["--out", str(options.out)])
    return 1 if went_wrong or (options.check and problems) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS + ASKED_FOR, help="only this part; may be repeated")
    parser.add_argument("--only", action="append", metavar="WORKLOAD", help="only this workload; may be repeated")
    parser.add_argument("--clause", action="append", metavar="NAME", help="only this clause; may be repeated")
    parser.add_argument("--nodes", type=int, action="append", help=f"instead of {NODES}; may be repeated")
    parser.add_argument(
        "--scale", action="store_true", help="the largest clusters; with --help: its own options; takes 15 minutes"
    )
    parser.add_argument("--long", action="store_true", help="scheduler_perf's numbers of pods: takes 10 minutes")
    parser.add_argument(
        "--times", type=int, default=5, help="how often each row of end-to-end is measured, in turn; default: 5"
    )
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed or something is slower")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for JSON and chart")
    return parser


def _end_to_end(options: argparse.Namespace, console: Console) -> Sequence[str]:
    """Return the options of the part end-to-end: the whole table where it is named and a control plane is there."""
    if not options.part:
        return _END_TO_END
    if schedulers() == ["ours", "kube"]:
        return (*BESIDE_KUBE_SCHEDULER, "--times", str(options.times))
    console.print(
        "KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kube-scheduler: "
        "measuring ours alone, on the embedded API server, with 1,000 nodes"
    )
    return _END_TO_END


def _decisions(results: Results, reference: Reference, options: argparse.Namespace) -> None:
    for workload in WORKLOADS:
        if options.only and workload.name not in options.only:
            continue
        for nodes in options.nodes or NODES:
            _say(f"{workload.name}, {nodes:,} nodes")
            at_least = workload.measured if options.long else 1_000
            if workload.preempts and not options.long:
                at_least = 100
            results.decisions.append(measure(start(workload, nodes=nodes), reference, at_least=at_least))


def _write(results: Results, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(results.json(), encoding="utf-8")
    if results.growth:
        chart = svg(results.growth, title="How the cost of a decision grows")
        (folder / "growth.svg").write_text(chart, encoding="utf-8")


def _say(text: str) -> None:
    """Show on terminals what is under way."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    end_in_order()
    raise SystemExit(main(sys.argv[1:]))
