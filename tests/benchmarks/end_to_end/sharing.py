"""`python -m tests.benchmarks.end_to_end.sharing`: pods a second with 1, 2, 3 replicas that share the work.

Replicas start with a policy that does not compile, fill their caches and share out what is there; then they all get
one that does. Told are bound pods a second between the 5th and the 95th percentile, what was passed on and given
back, and what the replicas used of the processors: where cores are short the sum of these is the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.benchmarks.end_to_end.processes import KUBERNETES_SCORES, Process, Scene, end_in_order, scene
from tests.benchmarks.end_to_end.workloads import CPU_MILLIS, POD_CPU_MILLIS, pod
from tests.children import child

CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
sharding: {enabled: true, unit: pod}
"""


async def measure(replicas: int, *, nodes: int, pods: int, policy: str) -> str:
    """Return a line about one run."""
    async with scene() as there:
        await there.api.fill(nodes=nodes, pods=(pod(f"p{number:06d}") for number in range(pods)))
        folder = there.directory
        policies = folder / "shared"
        policies.mkdir()
        (policies / "bench.policy").write_text("filter node.redy\n")
        (folder / "config.yaml").write_text(CONFIG)
        with contextlib.ExitStack() as stack:
            processes = [_start(there, folder, policies, number, stack) for number in range(replicas)]
            for process in processes:
                while f"shared by {replicas} replicas" not in process.log:
                    assert process.is_running, process.log_tail
                    await asyncio.sleep(0.2)
                await process.idle()
            seen: dict[str, float] = {}
            watching = asyncio.Event()
            watch = asyncio.create_task(
                there.api.watch_bound(seen, expected=pods, timeout_seconds=300, watching=watching)
            )
            await watching.wait()
            used = [process.cpu_seconds for process in processes]
            (policies / "bench.policy").write_text(policy)
            await watch
            spent = [process.cpu_seconds - before for process, before in zip(processes, used, strict=True)]
            times = sorted(seen.values())
            twentieth = len(times) // 20
            rate = len(times[twentieth:-twentieth]) / (times[-twentieth] - times[twentieth])
            whole = times[-1] - times[0]
            logs = "".join(process.log for process in processes)
            placement = await there.api.placement()
            held = Counter(placement.values())
            over = [name for name, number in held.items() if name and number * POD_CPU_MILLIS > CPU_MILLIS]
            shares = [process.log.count("Successfully bound") for process in processes]
            return (
                f"{replicas} replicas: {rate:,.0f} pods/s; bound {len(times):,} in {whole:.1f} s, by {shares};"
                f" passed on {logs.count('Passed pod on'):,}, given back {logs.count('Returned pod'):,}, refused"
                f" {logs.count('was refused'):,}; cpu {[round(s, 1) for s in spent]} s,"
                f" {1e6 * sum(spent) / len(times):.0f} µs a pod; nodes that hold too much: {len(over)}"
            )


def _start(there: Scene, folder: Path, policies: Path, number: int, stack: contextlib.ExitStack) -> Process:
    log = folder / f"replica-{number}.log"
    command = [
        sys.executable,
        "-m",
        "kube_policy_scheduler.daemon",
        f"--config={folder / 'config.yaml'}",
        f"--policies={policies}",
    ]
    arguments = [f"--kubeconfig={there.kubeconfig}", "--http-address=127.0.0.1:0", "--log-format=json"]
    output = stack.enter_context(log.open("wb"))
    process = child([*command, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return Process(psutil.Process(process.pid), log)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.end_to_end.sharing", description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--policy", type=Path, help="default: kube-scheduler's own scores")
    options = parser.parse_args()
    policy = options.policy.read_text() if options.policy is not None else KUBERNETES_SCORES
    for replicas in options.replicas:
        sys.stdout.write(asyncio.run(measure(replicas, nodes=options.nodes, pods=options.pods, policy=policy)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
