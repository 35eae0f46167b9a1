"""`python -m tests.benchmarks.end_to_end`: both schedulers on the same control plane, one after the other.

With KUBEBUILDER_ASSETS the control plane is a real one, kube-scheduler is measured too where it is there, and both are
service accounts with the roles of their deployment; without, ours alone on the embedded cluster. Each measurement gets
a fresh cluster; for throughput, the scheduler fills its caches and waits for its lease, which the benchmark holds.
Afterwards everything is counted again from what the API server says. Results are tables, and JSON in
build/benchmarks/end-to-end.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.benchmarks.end_to_end.measurements import Latency, Start, Throughput, latency, start, throughput
from tests.benchmarks.end_to_end.processes import KUBERNETES_SCORES, end_in_order, schedulers
from tests.benchmarks.end_to_end.tables import show
from tests.benchmarks.end_to_end.workloads import WORKLOADS

Result = Throughput | Latency | Start
Measurement = Callable[[], Coroutine[Any, Any, Result]]
PARTS = ("throughput", "latency", "start")
RATES = (50, 100, 200, 300)
BESIDE_KUBE_SCHEDULER = (
    *(part for workload in WORKLOADS[:4] for part in ("--only", workload.name)),
    *("--rate", "300"),
)
"""The rows that have goals: plain pods, spread, anti-affinity and preferred affinity; 300 pods a second; the start."""


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for; return 1 where something came out wrong.

    What ends early, by Ctrl-C or by a failure, shows what was measured until then.
    """
    options = _parser().parse_args(arguments)
    found: list[Result] = []
    try:
        for what, measurement in _planned(options):
            _say(what)
            found.append(asyncio.run(measurement()))
            _say(json.dumps(asdict(found[-1])))
    finally:
        show(found, Console(width=150) if not sys.stdout.isatty() else Console())
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "end-to-end.json").write_text(json.dumps([_named(result) for result in found], indent=1) + "\n")
    return 1 if any(getattr(result, "wrong", ()) for result in found) else 0


def _planned(options: argparse.Namespace) -> Iterator[tuple[str, Measurement]]:
    """Yield what is measured, in order: the schedulers take turns."""
    kinds = options.scheduler or schedulers()
    parts = options.part or PARTS
    policy = options.policy.read_text() if options.policy is not None else KUBERNETES_SCORES
    nodes = options.nodes
    for workload in WORKLOADS if "throughput" in parts else ():
        if options.only and workload.name not in options.only:
            continue
        pods = options.pods or max(1, workload.pods * nodes // 5_000)
        for kind in kinds * options.times:
            run = partial(throughput, kind, workload, nodes=nodes, pods=pods, policy=policy, profile=options.profile)
            yield f"{workload.name}, {pods:,} pods: {kind}", run
    for rate in (options.rate or RATES) if "latency" in parts else ():
        for kind in kinds * options.times:
            run_at = partial(latency, kind, nodes=nodes, pods_per_second=rate, seconds=options.seconds)
            yield f"{rate} pods/s for {options.seconds:g} s: {kind}", run_at
    if "start" in parts:
        pods = options.pods or 2 * nodes
        for kind in kinds * options.times:
            yield f"start with {pods:,} pods: {kind}", partial(start, kind, nodes=nodes, pods=pods)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.end_to_end",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--only", action="append", metavar="WORKLOAD", help="only this workload; may be repeated")
    parser.add_argument("--scheduler", action="append", choices=("ours", "kube"), help="default: all that are there")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, help="default: 10,000 plain, 3,000 spread, 2,000 others at 5,000 nodes")
    parser.add_argument("--rate", action="append", type=int, help=f"pods/s of latency; default: {RATES}")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long pods come at a rate")
    parser.add_argument("--times", type=int, default=1, help="how often each is measured, in turn")
    parser.add_argument("--policy", type=Path, help="policy file for ours; default: kube-scheduler's own scores")
    parser.add_argument("--profile", type=Path, help="where cProfile writes what ours did; it is slower then")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for the JSON")
    return parser


def _named(result: Result) -> dict[str, object]:
    return {"measurement": type(result).__name__.lower()} | asdict(result)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main(sys.argv[1:]))
