"""What the decision log costs beside the decisions: `python -m tests.benchmarks.decision_log [NODES]`."""

from __future__ import annotations

import sys
import time
from statistics import fmean, median

from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.observers import Decided
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.decision_record import encode
from tests.benchmarks.decisions import NOW, start
from tests.benchmarks.policies import FOUR_LINES, policy_text
from tests.benchmarks.workloads import NODES, named

DECISIONS = 4_000
SHARES = (0.0, 0.01)


def main() -> None:
    """Decide pods at full speed, noting each; print what the notes took."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    run = start(named("PolicyOfFourLines"), nodes=nodes)
    loaded = load([Source("four.policy", FOUR_LINES if isinstance(FOUR_LINES, str) else policy_text(4))])
    assert loaded.policy_set is not None
    policy = loaded.policy_set.policies[0]
    for share in SHARES:
        log = DecisionLog(
            DecisionLogSettings(kept=DECISIONS, detail_share=share),
            seed=0,
            replica="benchmark",
            stopwatch=time.perf_counter,
            counts=ClauseCounts(),
        )
        log.use_policies(loaded.policy_set, hash="benchmark")
        spent: list[float] = []
        pods = run.pods(DECISIONS)
        for pod in pods:
            frame = Frame(pod, run.cluster, NOW, signals=run.signals)
            decision = run.cycle.decide(frame, policy.profile)
            told = Decided(decision, policy.name, NOW, 0.001, 1, NOW, False, frame)
            began = time.thread_time()
            log.on_decided(told)
            spent.append(time.thread_time() - began)
            if decision.host is not None:
                run.cluster.place(pod, decision.host)
        for pod in pods:
            run.cluster.displace(pod.uid)
        began = time.thread_time()
        written = sum(len(encode(log.record(entry))) for entry in log.entries())
        encoding = (time.thread_time() - began) / DECISIONS
        looked = sum(entry.detail is not None for entry in log.entries())
        print(
            f"detail share {share:.0%}: {1e6 * fmean(spent):.1f} us of CPU a decision, {1e6 * median(spent):.1f} the"
            f" median; {looked} of {DECISIONS} looked at closely; a record takes {1e6 * encoding:.1f} us and"
            f" {written // DECISIONS} bytes"
        )


if __name__ == "__main__":
    main()
