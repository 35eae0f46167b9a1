"""How long `policyctl playground` takes after a key: a policy of a hundred lines over a thousand nodes.

python -m tests.benchmarks.playground [--nodes 1000] [--nodes 20000] [--lines 100] [--edits 20]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time

import orjson

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.playground.session import OpenedCluster, Origin, PodChoice, Session
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object

NAME = "a.policy"
PODS_PER_NODE = 3


def main() -> None:
    """Print the CPU time of an edit, for a pod that fits and for one that does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--edits", type=int, default=20)
    options = parser.parse_args()
    gc.set_threshold(100_000)  # as in policyctl
    for nodes in options.nodes or (1_000, 5_000, 20_000):
        session = Session({NAME: policy(options.lines, 0)}, cluster(nodes))
        session.evaluate(session.opened, PodChoice(key="default/small"))
        gc.freeze()
        for name in ("small", "huge"):
            times, findings, size = edits(session, name, lines=options.lines, count=options.edits)
            print(
                f"{nodes:>6,} nodes, {options.lines} lines, {name} pod: CPU ms p50 {statistics.median(times):.0f},"
                f" worst {max(times):.0f}; {size / 1000:.0f} kB; findings afterwards {statistics.median(findings):.0f}"
            )
        gc.unfreeze()


def edits(session: Session, pod: str, *, lines: int, count: int) -> tuple[list[float], list[float], int]:
    """Return the CPU milliseconds of evaluations after edits of one number, and of the findings of the lint rules.

    The third is the bytes of the last answer.
    """
    times, findings, size = [], [], 0
    for number in range(count):
        files = {NAME: policy(lines, 1 + number)}
        begun = time.process_time()
        answer = session.evaluate(files, PodChoice(key=f"default/{pod}"), clause=3, known_names=1)
        size = len(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))
        times.append(1000 * (time.process_time() - begun))
        begun = time.process_time()
        session.lint(files)
        findings.append(1000 * (time.process_time() - begun))
    return times, findings, size


def policy(lines: int, edited: int) -> str:
    """Return a policy of `let`, `score` and `filter` in turn, one of whose numbers is edited."""
    done = ["filter node.ready and fits(cpu, mem)"]
    for at in range((lines - 1) // 3):
        done.append(f"let w{at} = {at + 1} * node.free.cpu / 1core")
        done.append(f'score w{at} if node.label.pool == "p{at % 9}"')
        done.append(f"filter node.free.cpu > {1000 + edited if at == 5 else at}m as f{at}")
    return "\n".join(done) + "\n"


def cluster(nodes: int) -> OpenedCluster:
    """Return nodes in three zones with some pods each, and two pods that wait."""
    items = [
        node_object(
            {"name": f"n{at}", "zone": "abc"[at % 3], "cpu": 8, "mem": "32Gi", "labels": {"pool": f"p{at % 7}"}}
        )
        for at in range(nodes)
    ]
    for at in range(PODS_PER_NODE * nodes):
        form = {"node": f"n{at % nodes}", "cpu": 1, "mem": "1Gi", "labels": {"app": f"a{at % 20}"}}
        items.append(pod_object(form, name=f"p{at}", uid=""))
    for name, cpu in (("small", 1), ("huge", 100)):
        items.append(pod_object({"cpu": cpu, "mem": "1Gi", "labels": {"app": "a1"}}, name=name, uid=""))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    things = stored_objects(parse_objects(Source("cluster", text)), scheduler="policy-scheduler")
    return OpenedCluster("cluster", Origin.SNAPSHOT, things, 1_700_000_000.0)


if __name__ == "__main__":
    main()
